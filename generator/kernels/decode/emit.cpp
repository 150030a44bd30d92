// emit_decode: writes the plan of decode as text: the sections and the geometry of each side, the orders of Q and O,
// and struct Plan with what else the fragments of templates/kernels/decode ask for.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/emit.hpp"

#include <algorithm>
#include <cmath>

#include "args/features.cuh"
#include "args/page_table.cuh"
#include "args/varlen.cuh"
#include "generator/base/minifloat.hpp"

namespace kvjit {

namespace emit {

void write_output_dims(Writer& w, const DecodePlan& plan) {
  w.line(
      "  static constexpr int kOutputDim = {}, kOutputStored = {};  // of a row of the output, and before its residual",
      plan.rotates_output || plan.v.pad_bytes > 0 ? plan.head_dim_v : plan.v.rotated_dim,
      plan.rotates_output ? plan.v.format.stored_dim(plan.head_dim_v) : plan.v.rotated_dim);
}

}  // namespace emit

namespace {

using namespace emit;

// The stored scale of a group, read from a staged block.
std::string scale_of(const Format& f, const SectionPlan& section, bool is_planar, bool is_residual) {
  const auto at = [&](FieldKind kind) {
    const Field* field = f.field(kind);
    return is_planar ? field->plane_at : field->at;
  };
  if (!f.has_scale()) return real(section.factor);  // of a segment
  const int bytes = bytes_of(f.scale.type), rows = f.field(FieldKind::scale)->rows;
  const std::string number =
      rows == 1 ? "group" : fmt::format("(group % {} * {} + group / {})", rows, f.block / f.scale.group / rows, rows);
  const std::string place = f.swizzles_scales
                                ? fmt::format("swizzled_scale<{}>(block, group)", f.block / f.scale.group)
                                : fmt::format("block + {} + {} * {}", at(FieldKind::scale), number, bytes);
  const bool is_divided = bytes == 4 && !section.has_aligned_scales;
  constexpr const char* kLoads[] = {"", "load_staged_u8", "load_staged_u16", "", "load_staged_u32"};
  const std::string raw = is_divided ? fmt::format("load_staged_u16({0}) | load_staged_u16({0} + 2) << 16", place)
                                     : fmt::format("{}({})", kLoads[bytes], place);
  constexpr const char* kReaders[] = {"f32_from_f16",   "f32_from_bf16", "f32_from_e4m3",
                                      "f32_from_ue4m3", "f32_from_e8m0", "float_of"};
  std::string value = f.has_zero_point() ? fmt::format("float_of(({}) & {:#x}u)", raw, ~f.zero_mask())
                                         : fmt::format("{}({})", kReaders[int(f.scale.type)], raw);
  if (is_residual) {
    const std::string norm =
        fmt::format("f32_from_f16(load_staged_u16(block + {} + group * 2))", at(FieldKind::residual_norm));
    value = f.residual.is_relative ? value + " * " + norm : norm;
  }
  return section.factor == 1 ? value : value + " * " + real(section.factor);
}

// The bits of a scale as fp16. A stored fp16 scale without a factor is read as it is.
std::string scale_half_of(const Format& f, const SectionPlan& section, bool is_planar, bool is_residual) {
  if (f.has_scale() && f.scale.type == ScaleType::f16 && !is_residual && section.factor == 1 &&
      f.field(FieldKind::scale)->rows == 1)
    return fmt::format("load_staged_u16(block + {} + group * 2)",
                       is_planar ? f.field(FieldKind::scale)->plane_at : f.field(FieldKind::scale)->at);
  return "f16_from_f32(scale(block, group))";
}

// Returns the zero point of a group.
std::string zero_of(const Format& f, bool is_planar) {
  const Field& scale = *f.field(FieldKind::scale);
  return fmt::format("load_staged_u16(block + {} + group * 4) & {:#x}u", is_planar ? scale.plane_at : scale.at,
                     f.zero_mask());
}
// Returns the number that the zero point of a group adds to its values: the value of the code 0.
std::string zero_value_of(const Format& f, bool is_planar) {
  return fmt::format("-float({}) * scale(block, group)", zero_of(f, is_planar));
}
// Returns the minimum of a group as fp16, or 0 if the format has none.
std::string minimum_half_of(const Format& f, bool is_planar) {
  if (f.has_zero_point()) return fmt::format("f16_from_f32({})", zero_value_of(f, is_planar));
  const Field* const minimum = f.field(FieldKind::minimum);
  return minimum ? fmt::format("load_staged_u16(block + {} + group * 2)", is_planar ? minimum->plane_at : minimum->at)
                 : "0";
}

// Whether the stored scale of a block and its minimum are one word.
bool has_word_of_scale(const Format& f, bool is_planar) {
  const Field *const minimum = f.field(FieldKind::minimum), *const scale = f.field(FieldKind::scale);
  return is_planar && minimum && f.scale.group == f.block && f.scale_bytes == 4 && scale->plane_at == 0 &&
         minimum->plane_at == 2;
}
// Writes how the scale of a group and, in the upper half, its minimum are loaded and stored.
void write_scale_and_minimum(Writer& w, const Format& f, bool is_planar) {
  const Field *const minimum = f.field(FieldKind::minimum), &scale = *f.field(FieldKind::scale);
  const auto place = [&](const Field& field) { return is_planar ? field.plane_at : field.at; };
  std::string load = fmt::format("load_staged_u16(block + {} + group * 2)", place(scale)),
              store = fmt::format("store_shared_u16(block + {} + group * 2, both)", place(scale));
  if (has_word_of_scale(f, is_planar)) {
    load = "load_staged_u32(block)", store = "store_shared_u32(block, both)";
  } else if (minimum) {
    load += fmt::format(" | {} << 16", minimum_half_of(f, is_planar));
    store += fmt::format(", store_shared_u16(block + {} + group * 2, both >> 16)", place(*minimum));
  }
  w.line("  KV_DEVICE static u32 scale_and_minimum(SharedAddress block, [[maybe_unused]] int group) {{ return {}; }}",
         load);
  w.line(
      "  KV_DEVICE static void store_scale_and_minimum(SharedAddress block, [[maybe_unused]] int group, u32 both) {{\n"
      "    {};\n  }}",
      store);
}
// Writes which scales and minima leave values in fp16's range, as a pair of halves; and whether the scales of a tile
// are words of a scale and a minimum, or of two scales.
void write_most_scales(Writer& w, const SidePlan& side) {
  const Format& f = side.format;
  double largest = 0;
  for (const SectionPlan& section : side.sections) largest = std::max(largest, section.largest_code());
  constexpr double kMostHalf = 65504, kMostMinimum = 32768;
  const double most = std::exp2(std::floor(std::log2((kMostHalf - kMostMinimum) / largest)));
  w.line("  static constexpr u32 kMostScales = {:#x} | {:#x}u << 16;", f16_from_float(float(most)),
         f16_from_float(float(f.has_minimum() ? kMostMinimum : most)));
  const bool are_words = f.has_minimum() ? has_word_of_scale(f, side.is_planar)
                                         : side.is_planar && f.scale_bytes == f.block / f.scale.group * 2;
  w.line("  static constexpr bool kHasMinima = {}, kScalesAreWords = {};", flag(f.has_minimum()),
         flag(are_words && !f.has_segments()));
}

// Writes where a block that stores a mask has the mask and its two fields of codes.
void write_mask(Writer& w, const Format& f, bool is_planar) {
  const auto place = [&](const Field& field) { return is_planar ? field.plane_at : field.at; };
  for (const Field& field : f.fields)
    if (field.kind == FieldKind::codes)
      w.line("  static constexpr int k{0}Bits = {1}, k{0}At = {2};", field.section == 0 ? "Low" : "High", field.bits,
             place(field));
  w.line("  static constexpr int kMaskAt = {};", place(*f.field(FieldKind::mask)));
}

// Whether scales multiply values and lead beyond fp16.
bool has_wide_value_scales(const Format& f, const SectionPlan& section) {
  const ScaleType type = f.scale.type;
  return section.use == ScaleUse::by_value && f.has_scale() && !f.has_minimum() &&
         (type == ScaleType::bf16 || type == ScaleType::e8m0 || type == ScaleType::f32 ||
          (type == ScaleType::f16 && section.factor * section.largest_code() > 1));
}

const char* pairs_of(const SectionPlan& section) {
  const Section& codes = section.codes;
  if (codes.is_trellis()) return "TrellisEntries";
  if (codes.is_vector()) return "VectorEntries";
  if (codes.kind == CodeKind::table) return section.code_lane_bits == 2 ? "TableTwoPairs" : "TablePairs";
  if (codes.kind == CodeKind::uniform) return section.subtracts_zeros ? "CountedPairs" : "UniformPairs";
  if (codes.is_bias15()) return "E4m3b15Pairs";
  return codes.element == Element::e4m3 ? "E4m3Pairs" : "E5m2Pairs";
}

// Whether the low nibbles of each loaded word become one word of code lanes and the high nibbles the next. Then a
// stored byte is the index of a half2 already.
bool are_bytes(const SectionPlan& section) {
  const LaneReads& reads = section.reads;
  if (section.codes.bits != 4 || section.codes.kind != CodeKind::table || section.codes.twos_complement) return false;
  for (std::size_t m = 0; m < reads.unpack.size(); ++m) {
    const std::vector<UnpackTerm>& terms = reads.unpack[m];
    if (terms.size() != 1 || terms[0].word != int(m / 2) || terms[0].shift != int(m % 2 * 4) ||
        terms[0].mask != 0x0f0f0f0fu)
      return false;
  }
  return true;
}

const char* read_of(const SectionPlan& section, bool divides) {
  const Section& codes = section.codes;
  if (divides && section.is_wide()) return codes.element == Element::bf16 ? "WideBf16Read" : "WideF32Read";
  if (section.code_lane_bits > 0) return "CodeLaneRead";
  if (codes.is_trellis()) return "TrellisRead";
  if (codes.is_vector()) return "VectorRead";
  if (are_bytes(section)) return "ByteRead";
  if (section.keeps_order) return "E4m3Read";
  if (!codes.is_wide()) return "CodeRead";
  if (section.as_bfloats) return codes.element == Element::bf16 ? "BfloatRead" : "BfloatTermsRead";
  return codes.element == Element::f16 ? "F16Read" : codes.element == Element::bf16 ? "Bf16Read" : "F32Read";
}

// Writes how K becomes integers. The table goes to registers by way of shared memory (templates/kernels/decode/
// unpack_int8.cuh): as constants its words would be in uniform registers, and be copied before each use.
void write_integers(Writer& w, const IntegerPlan& integers, const std::string& type) {
  constexpr const char* kDecoders[] = {"", "PlainIntegers", "Table8Integers", "MirroredIntegers", "Table16Integers"};
  w.line("  static constexpr int kTableTerms = {}, kTableWords = {};", integers.code_terms, integers.table.size());
  w.line("  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {{");
  if (integers.table.empty()) {
    w.line("    return 0;\n  }}");
  } else {
    w.line("    constexpr u32 kWords[] = {{{}}};",
           joined(integers.table, [](std::uint32_t word) { return fmt::format("{:#010x}u", word); }));
    w.line("    return kWords[i];\n  }}");
  }
  if (integers.kind != IntegerKind::none) w.line("  using Integers = {}<{}>;", kDecoders[int(integers.kind)], type);
}

// Writes how codes become halves by permutes (templates/kernels/prefill/unpack_permutes.cuh).
void write_permutes(Writer& w, const PermutePlan& permutes) {
  const bool is_used = permutes.kind != PermuteKind::none;
  w.line("  static constexpr bool kByPermutes = {}, kPositive = {};", flag(is_used), flag(permutes.positive));
  if (!is_used) return;
  w.line("  static constexpr int kHalfBytesAt = {}, kHalfByteWords = {};", permutes.at, permutes.words());
  w.line("  KV_DEVICE static u32 half_byte_word(int i) {{");
  w.line("    constexpr u32 kWords[] = {{{}}};\n    return kWords[i];\n  }}",
         joined(permutes.table, [](std::uint32_t word) { return fmt::format("{:#010x}u", word); }));
  w.line("  KV_DEVICE static u32 lower_entry(u32 codes) {{ return {} & 0x77777777u; }}",
         permutes.descends ? "(codes ^ (~codes >> 3 & 0x11111111u) * 7)" : "codes");
}
const char* permute_read_of(const PermutePlan& permutes) {
  return permutes.kind == PermuteKind::eight   ? "Permute8Read"
         : permutes.kind == PermuteKind::pairs ? "PermutePairsRead"
                                               : "Permute16Read";
}

// Whether the scales of a section are fp16 numbers side by side, one a token.
bool are_scales_dense(const SidePlan& side, std::size_t index) {
  const SectionPlan& section = side.sections[index];
  const Format& f = side.format;
  return !section.own && section.use == ScaleUse::by_group && side.scale_row_bytes == 2 &&
         f.scale.type == ScaleType::f16 && section.factor == 1 && int(index) != f.residual_section &&
         !f.scale.renormalise;
}
// Whether the scales of both sides are dense in a tile that a team scores. Then one load brings them
// (templates/kernels/decode/warp_team_wgmma.cuh).
bool are_scales_matrices(const DecodePlan& plan) {
  const auto are = [](const SidePlan& side) {
    return side.sections.size() == 1 && !side.sections[0].is_masked && !side.sections[0].adds_minima &&
           are_scales_dense(side, 0);
  };
  return plan.by_warpgroups && plan.scales_probabilities && are(plan.k) && are(plan.v);
}

// Writes the scale of V whose codes count from a zero point. It multiplies the probabilities; values get a scale of 1
// and, as a minimum, what rare/unpack.cuh has added to them.
void write_counted_scale(Writer& w, const Format& f, const SectionPlan& section, bool is_planar) {
  w.line("  KV_DEVICE static float scale(SharedAddress, int) {{ return 1.f; }}");
  w.line(
      "  KV_DEVICE static float group_scale(SharedAddress block) {{\n    constexpr int group = 0;\n    return {};\n  "
      "}}",
      scale_of(f, section, is_planar, false));
  w.line(
      "  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) {{\n    return "
      "f16_from_f32({});\n  }}",
      scale_of(f, section, is_planar, false));
  w.line(
      "  KV_DEVICE static u32 minimum_half(SharedAddress block, [[maybe_unused]] int group) {{\n    return "
      "minus_counted({});\n  }}",
      zero_of(f, is_planar));
}

// Writes one section: its loads, its unpack sequence, its decoder and its scale. first_scaled: the number of scale
// groups in the sections before.
void write_section(Writer& w, const SidePlan& side, std::size_t index, const std::string& type, int threads,
                   int first_scaled) {
  const SectionPlan& section = side.sections[index];
  const Format& f = section.own ? *section.own : side.format;
  const bool is_planar = side.is_planar || section.own;
  const LaneReads& reads = section.reads;
  const bool is_residual = int(index) == f.residual_section;
  const bool counts_columns = section.subtracts_zeros && !side.to_halves, is_wide = side.is_wide && !side.to_halves,
             // Beside wide sections a section without a scale has the scale 1, which is divided like theirs.
      is_bare = is_wide && section.use == ScaleUse::none && !section.is_wide(),
             scales_values = section.use == ScaleUse::by_value || counts_columns || is_bare;
  if (!section.halves.empty())
    w.line("KV_CONSTANT u16 k{}Halves[{}] = {{  // values / kUnit, as halves\n    {}}};", type, section.halves.size(),
           joined(section.halves, [](std::uint16_t half) { return fmt::format("{:#06x}", half); }));
  for (std::size_t p = 0; p < reads.planes.size(); ++p) {
    const FieldRead& plane = reads.planes[p];
    const std::string name = fmt::format("{}Plane{}", type, p);
    w.line("struct {}{} {{", name, plane.shared > 0 || plane.is_circular ? "Own" : "");
    w.line(
        "  static constexpr int kAt = {}, kLaneBits = {}, kReadBytes = {}, kLoadBytes = {}, kUnit = {}, kFirstWord = "
        "{}, "
        "kWords = {};",
        plane.at, plane.lane_bits, plane.read_bits / 8, plane.load_bytes, plane.unit, plane.first_word,
        plane.is_circular && plane.loads_whole_field ? plane.load_bytes / 4 : plane.words);
    w.line("  static constexpr int kWrap = {}, kWrapBits = {};", plane.wrap, plane.wrap_bits);
    w.line("  static constexpr bool kLoadsWholeField = {}, kIsUnaligned = {};\n}};", flag(plane.loads_whole_field),
           flag(plane.is_unaligned));
    if (plane.shared > 0)
      w.line(
          "struct {0} : {0}Own {{\n  using Own = {0}Own;\n  static constexpr int kShared = {1}, kSharedBits = "
          "{2};\n}};",
          name, plane.shared, plane.shared_bits);
    if (plane.is_circular && plane.loads_whole_field) {
      w.line("struct {0} : {0}Own {{\n  using Own = {0}Own;\n  static constexpr bool kLoadsCircle = true;", name);
      w.line("  static constexpr int kWords = {};\n}};", plane.words);
    } else if (plane.is_circular) {
      w.line("struct {0}Next : {0}Own {{\n  static constexpr int kLoadBytes = 1, kUnit = 1, kWords = 1;", name);
      w.line("  static constexpr bool kIsUnaligned = false;\n}};");
      w.line("struct {0} : {0}Own {{\n  using Own = {0}Own;\n  using Next = {0}Next;", name);
      w.line("  static constexpr int kCircleLanes = {}, kCircleReads = {};\n}};", reads.lanes_per_block,
             reads.reads_per_group);
    }
  }
  w.line("struct {} {{", type);
  w.line("  static constexpr int kThreads = {}, kBits = {}, kOffset = {};", threads, section.codes.bits,
         section.codes.offset);
  if (section.codes.is_trellis())
    w.line("  static constexpr int kStep = {}, kAtOnce = {};", section.codes.step_bits, section.at_once);
  w.line("  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads");
  w.line("  static constexpr int kFirst = {}, kDim = {}, kGroups = {}, kReads = {}, kReadCodes = {}, kReadWords = {};",
         section.first, section.dim, reads.groups, reads.reads_per_group, reads.codes, reads.words);
  w.line("  static constexpr bool kIsJoined = {};", flag(reads.is_joined));
  w.line("  static constexpr int kUnpackedCodes = {};", reads.is_joined ? 2 * reads.codes : reads.codes);
  w.line("  static constexpr int kBlocks = {}, kLanesPerBlock = {}, kBlockStride = {};", reads.blocks,
         reads.lanes_per_block, reads.block_stride);
  w.line("  static constexpr int kSwizzle = {};", side.swizzle);
  w.line("  static constexpr int kScaleStride = {}, kScaleGroup = {}, kFirstScaled = {};",
         section.own ? section.scale_stride : side.scale_stride,
         is_bare         ? reads.lanes_per_block * reads.reads_per_group * reads.codes
         : scales_values ? f.scale.group
                         : 0,
         first_scaled);
  w.line("  static constexpr bool kScalesGroups = {}, kScalesValues = {}, kRenormalises = {};",
         flag(section.use == ScaleUse::by_group), flag(scales_values), flag(f.scale.renormalise));
  w.line("  static constexpr bool kOwnsTable = {};", flag(section.owns_table));
  w.line("  static constexpr int kTableAt = {}, kTableStride = {}, kTableCopies = {}, kCodeLaneBits = {};",
         section.table_at, side.table_stride, side.table_copies, section.code_lane_bits);
  if (counts_columns) {
    write_counted_scale(w, f, section, is_planar);
  } else if (is_bare) {
    w.line("  KV_DEVICE static float scale(SharedAddress, int) {{ return 1.f; }}");
    w.line("  KV_DEVICE static float minimum(SharedAddress, int) {{ return 0.f; }}");
  } else if (section.use != ScaleUse::none) {
    w.line("  KV_DEVICE static float scale(SharedAddress block, [[maybe_unused]] int group) {{\n    return {};\n  }}",
           scale_of(f, section, is_planar, is_residual));
    if (side.has_half_scales && !side.to_halves) write_scale_and_minimum(w, f, is_planar);
    if (section.use == ScaleUse::by_group)
      w.line("  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) {{ return {}; }}",
             scale_half_of(f, section, is_planar, is_residual));
    const std::string half = minimum_half_of(f, is_planar);
    if (section.use == ScaleUse::by_value)
      w.line(
          "  KV_DEVICE static u32 minimum_half([[maybe_unused]] SharedAddress block, [[maybe_unused]] int group) {{ "
          "return {}; }}",
          half);
    if (section.subtracts_zeros)
      w.line(
          "  static constexpr bool kSubtractsZeros = true;\n  KV_DEVICE static u32 zero(SharedAddress block, "
          "[[maybe_unused]] int group) {{ return {}; }}",
          zero_of(f, is_planar));
    if (section.integers.counts_from_zero)
      w.line(
          "  static constexpr bool kCountsFromZero = true;\n  KV_DEVICE static float zero_value(SharedAddress block, "
          "int group) {{ return {}; }}",
          zero_value_of(f, is_planar));
    if (section.adds_minima || (is_wide && section.use == ScaleUse::by_value))
      w.line("  KV_DEVICE static float minimum(SharedAddress block, int group) {{ return {}; }}",
             f.has_zero_point() ? zero_value_of(f, is_planar) : fmt::format("f32_from_f16({})", half));
  }
  if (is_wide && !side.has_half_scales) {
    const bool is_of_values = section.use == ScaleUse::by_value || is_bare;
    w.line("  static constexpr Range kRange = Range::{};", section.is_wide() ? "kElements"
                                                           : is_of_values    ? "kValueScales"
                                                                             : "kGroupScales");
    if (section.is_wide()) w.line("  static constexpr bool kReadsWide = true;");
    if (is_of_values) w.line("  static constexpr float kLargest = {};  // of codes", real(section.largest_code()));
  }
  w.line("  static constexpr bool kAddsMinima = {}, kScalesAreDense = {};", flag(section.adds_minima),
         flag(are_scales_dense(side, index)));
  if (!section.halves.empty())
    w.line("  KV_DEVICE static u32 half_value(int code) {{ return k{}Halves[code]; }}", type);
  w.line("  static constexpr bool kIsMasked = {}, kAsBfloats = {};", flag(section.is_masked), flag(section.as_bfloats));
  const bool has_rests = section.codes.kind == CodeKind::plain && section.codes.element == Element::f32;
  w.line("  static constexpr int kQueryTerms = {}, kRests = {};  // kRests: terms of a value behind the first one",
         section.query_terms,
         !has_rests           ? 0
         : section.as_bfloats ? 2
                              : 1);
  if (has_wide_value_scales(f, section) && !side.has_half_scales)
    w.line("  static constexpr bool kHasWideScales = true;");
  if (section.divides_elements) w.line("  static constexpr bool kDividesElements = true;");
  if (side.to_halves) write_permutes(w, section.permutes);
  if (section.is_masked) {
    write_integers(w, section.integers, type);
    write_mask(w, f, side.is_planar);
    return w.line("}};");
  }
  if (!is_direct(section)) write_unpack(w, section);
  write_integers(w, section.integers, type);
  if (section.permutes.kind != PermuteKind::none) {
    w.line("  using Read = {}<{}>;", permute_read_of(section.permutes), type);
  } else if (section.integers.kind == IntegerKind::none) {
    if (!section.codes.is_wide() && !section.keeps_order) w.line("  using Pairs = {}<{}>;", pairs_of(section), type);
    w.line("  using Read = {}<{}>;",
           side.to_halves && section.subtracts_zeros ? "ZeroRead" : read_of(section, side.is_wide && !side.to_halves),
           type);
  }
  std::string planes;
  for (std::size_t p = 0; p < reads.planes.size(); ++p) planes += fmt::format("{}{}Plane{}", p ? ", " : "", type, p);
  w.line("  using Planes = List<{}>;\n}};", planes);
}

}  // namespace

namespace emit {

void overload_fragments(Writer& w, const SidePlan& k, const SidePlan& v) {
  const auto has_rare_plane = [](const SectionPlan& section) {
    return std::any_of(section.reads.planes.begin(), section.reads.planes.end(),
                       [](const FieldRead& plane) { return plane.shared > 0 || plane.is_circular; });
  };
  // Planes come first: the fragment of records includes what uses them.
  for (const SidePlan* side : {&k, &v})
    if (std::any_of(side->sections.begin(), side->sections.end(), has_rare_plane))
      w.fragment("kernels/decode/rare/planes.cuh");
  if (k.is_record || v.is_record) w.fragment("kernels/decode/rare/record_rows.cuh");
  if (k.by_bulk) w.fragment("kernels/decode/rare/bulk_rows.cuh");
}

void side_fragments(Writer& w, const SidePlan& side) {
  if (side.is_wide && !side.to_halves)
    w.fragment(side.has_half_scales ? "kernels/decode/rare/half_scales.cuh" : "kernels/decode/rare/wide_values.cuh");
  if (side.format.swizzles_scales) w.fragment("kernels/decode/rare/swizzled_scales.cuh");
  for (const SectionPlan& section : side.sections) {
    if (section.codes.is_trellis() || section.codes.is_bias15() || section.subtracts_zeros)
      w.fragment("kernels/decode/rare/unpack.cuh");
    if (section.codes.is_vector()) w.fragment("kernels/decode/rare/vectors.cuh");
    if (section.keeps_order) w.fragment("kernels/decode/rare/e4m3_rows.cuh");
    if (section.as_bfloats) w.fragment("kernels/decode/rare/bfloat_keys.cuh");
    if (section.divides_elements) w.fragment("kernels/decode/rare/wide_keys.cuh");
    if (section.subtracts_zeros && side.to_halves) w.fragment("kernels/prefill/zero_rows.cuh");
    if (section.integers.counts_from_zero) w.fragment("kernels/decode/rare/zero_keys.cuh");
  }
}

void write_side(Writer& w, const SidePlan& side, const std::string& type, int threads, const Paging& paging) {
  const Format& f = side.format;
  w.line("// {} as {}: {} bits a value", type == "KeySide" ? "K" : "V", f.name, f.bits_per_value());
  std::string sections;
  bool owns_table = false;
  int scaled = 0;
  for (std::size_t i = 0; i < side.sections.size(); ++i) {
    const std::string name = fmt::format("{}{}", type == "KeySide" ? "KeySection" : "ValueSection", i);
    write_section(w, side, i, name, threads, scaled);
    sections += (i ? ", " : "") + name;
    if (side.sections[i].use == ScaleUse::by_group) scaled += side.sections[i].reads.groups;
    owns_table |= side.sections[i].owns_table;
  }
  w.line("struct {} {{", type);
  w.line(
      "  static constexpr bool kIsPlanar = {}, kIsMisaligned = {}, kHasEvenOddOrder = {}, kCachesInL1 = {}, "
      "kScalesGroups = {}, "
      "kOwnsTable = {};",
      flag(side.is_planar), flag(side.is_misaligned), flag(side.has_even_odd_order), flag(side.caches_in_l1),
      flag(scaled > 0), flag(owns_table));
  write_paging(w, paging);
  if (side.heads > 1)
    w.line("  static constexpr int kHeads = {}, kEighthBytes = {}, kCopyEighths = {}, kCopyGap = {};  // side by side",
           side.heads, side.eighth_bytes, side.copy_eighths, side.copy_gap);
  w.line("  static constexpr int kDim = {};", side.rotated_dim);
  w.line("  static constexpr int kRowBytes = {}, kPitch = {}, kSwizzle = {};  // the staged row", side.row_bytes,
         side.pitch, side.swizzle);
  if (side.is_misaligned) w.line("  static constexpr int kSlotAlign = {};", side.slot_align);
  w.line("  static constexpr int kPadBytes = {};  // zeros after a row", side.pad_bytes);
  w.line("  static constexpr int kScaleRowBytes = {}, kScalesAt = {}, kScalePitch = {}, kStageBytes = {};",
         side.scale_row_bytes, side.scales_at, side.scale_pitch, side.stage_bytes);
  if (side.in_keys) w.line("  static constexpr bool kIsInKeys = true;");
  if (type == "ValueSide") w.line("  static constexpr bool kCodesAreNumbers = {};", flag(side.codes_are_numbers()));
  if (side.is_wide && !side.to_halves) w.line("  static constexpr bool kIsWide = true;");
  if (side.has_half_scales && !side.to_halves) write_most_scales(w, side);
  if (side.format.swizzles_scales) w.line("  static constexpr bool kHasSwizzledScales = true;");
  if (side.by_bulk && !side.in_keys) w.line("  using Ring = BulkRing;");
  if (side.is_record) w.line("  static constexpr bool kIsRecord = true, kKeepsSectors = {};", flag(side.keeps_sectors));
  w.line("  static constexpr int kTableCopies = {}, kScaledGroups = {};", side.table_copies, scaled);
  w.line("  static constexpr float kUnit = {};", real(side.unit));
  w.line("  using Sections = List<{}>;\n}};\n", sections);
}

}  // namespace emit

namespace {

// The byte offset of each dimension of query row 0 in the fragments of templates/kernels/decode/query_fragments.cuh. If
// an element is split, the offset is that of its high fp16 number or high byte.
std::vector<int> key_places(const DecodePlan& plan) {
  const int each = plan.has_integer_keys ? 8 : 4;  // elements of a fragment
  const int lane_bytes = plan.has_integer_keys ? 16 : 8 * plan.query_terms, element = plan.has_integer_keys ? 1 : 2;
  std::vector<int> places(plan.key_order.size());
  for (std::size_t slot = 0; slot < places.size(); ++slot) {
    const int i = int(slot) % each, c = int(slot) / each % 4, step = int(slot) / (4 * each);
    const int in_step = plan.by_warpgroups ? i / 2 * 128 + c * 4 + i % 2 * 2 : c * lane_bytes + i * element;
    places[std::size_t(plan.key_order[slot])] = step * plan.column_blocks * plan.heads * 32 * lane_bytes + in_step;
  }
  return places;
}

// Which places in the fragments of row 0 have bfloats, as an expression.
std::string bfloat_places(const DecodePlan& plan) {
  const int step_bytes = plan.column_blocks * plan.heads * 32 * 8 * plan.query_terms;
  std::string ranges;
  bool are_all = true;
  for (const SectionPlan& section : plan.k.sections) {
    are_all = are_all && section.as_bfloats;
    if (section.as_bfloats)
      ranges += fmt::format("{}place / {}u - {}u < {}u", ranges.empty() ? "" : " || ", step_bytes, section.first / 16,
                            section.dim / 16);
  }
  return are_all ? "true" : ranges.empty() ? "false" : ranges;
}

// Writes struct KeyWriter or ValueWriter, with which formats/write_row.cuh stores rows of one side (append).
void write_writer(Writer& w, const SidePlan& side, int head_dim, const std::string& type, const Paging& paging) {
  const std::string stored = type + "Format", encoder = type + "Encoder";
  write_format(w, side.format, head_dim, stored, side.is_planar, paging);
  write_domain(w, side.format, false, type);
  write_encoder(w, side.format, stored, encoder, side.is_planar, type);
  w.line("struct {} {{\n{}", type, domain_members(side.format, head_dim, type));
  write_writer_members(w, side.format, stored, encoder, side.is_planar);
  w.line("}};\n");
}

}  // namespace

Source emit_decode(const DecodePlan& plan, const Registry& registry) {
  const std::string name = fmt::format("decode.{}", plan.name);
  Writer w = begin(registry, name, "decode attention over a packed KV cache");
  overload_fragments(w, plan.k, plan.v);
  if (plan.heads > 1) w.fragment("kernels/decode/stage_token_heads.cuh");  // before decode.cuh uses what it overloads
  w.fragment("kernels/decode/decode.cuh");
  if (plan.heads > 1) w.fragment("kernels/decode/token_heads.cuh");
  if (plan.team > 1)
    w.fragment(plan.by_warpgroups ? "kernels/decode/warp_team_wgmma.cuh" : "kernels/decode/warp_team.cuh");
  if (plan.team > 1 && plan.v.is_wide) w.fragment("kernels/decode/rare/wide_team_values.cuh");
  if (plan.v.by_matrices) w.fragment("kernels/decode/warp_team_ldmatrix.cuh");
  if (plan.k.by_bulk) w.fragment("kernels/decode/rare/bulk_products.cuh");
  // Rows that may not see a token hide its V.
  if (plan.features.any() || (plan.causal && plan.query_length > 1)) w.fragment("kernels/decode/hidden_values.cuh");
  feature_fragments(w, plan.features, plan.causal, plan.query_length);
  if (plan.features.any()) w.fragment("kernels/decode/features.cuh");
  if (plan.features.any() && plan.heads > 1) w.fragment("kernels/decode/token_heads_features.cuh");
  if (plan.sparse_v > 0) w.fragment("kernels/decode/skip_values.cuh");
  if (plan.append) w.fragment("kernels/decode/append.cuh");
  if (plan.varlen) w.fragment("kernels/decode/varlen.cuh");
  const bool is_paged = plan.page_tokens > 0;
  const Paging k_paging = attention_paging(plan.page_tokens, true, plan.append),
               v_paging = attention_paging(plan.page_tokens, false, plan.append);
  if (is_paged) w.fragment("kernels/decode/paged.cuh");
  if (plan.v.in_keys) w.fragment("kernels/decode/rare/values_in_keys.cuh");
  if (is_paged && plan.append) w.fragment("formats/stored_pages.cuh");
  const std::string plan_type = attention_plan(w, plan.k.format, plan.v.format, "kernels/decode/rare/head_scales.cuh");
  w.check_first(plan.checks);
  SidePlan k = plan.k;
  k.has_half_scales &= !plan.v.in_keys;  // V in K's rows needs the stored scales of K
  side_fragments(w, k), side_fragments(w, plan.v);
  if (k.has_half_scales) w.fragment("kernels/decode/rare/half_key_scales.cuh");
  if (!k.has_half_scales &&
      std::any_of(plan.k.sections.begin(), plan.k.sections.end(), [&](const SectionPlan& section) {
        return has_wide_value_scales(section.own ? *section.own : plan.k.format, section);
      }))
    w.fragment("kernels/decode/rare/wide_scales.cuh");
  if (plan.append) format_fragments(w, plan.k.format, true), format_fragments(w, plan.v.format, true);
  if (plan.rotates_queries || plan.append) domain_fragments(w, plan.k.format);
  if (plan.rotates_output || plan.append) domain_fragments(w, plan.v.format);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  if (plan.k.by_bulk) {
    w.line("struct BulkRing {{");
    w.line("  static constexpr int kAt = {}, kStageBytes = {}, kWarps = {}, kStages = {};", plan.ring_at,
           plan.stage_bytes, plan.warps, plan.stages);
    w.line("  static constexpr int kBarriersAt = {}, kRequestsAt = {};\n}};", plan.barriers_at,
           plan.barriers_at + plan.warps * plan.stages * 16);
  }
  write_side(w, k, "KeySide", plan.threads(), k_paging);
  write_side(w, plan.v, "ValueSide", plan.threads(), plan.v.in_keys ? Paging{} : v_paging);
  const auto number = [](int v) { return std::to_string(v); };
  w.line("// Where each dimension of Q goes in the fragments of row 0; and the dimension of each row of O.");
  const std::vector<int> places = key_places(plan);
  const char* place_type = *std::max_element(places.begin(), places.end()) > 0xffff ? "u32" : "u16";
  w.line("KV_TABLE {} kKeyPlace[{}] = {{\n    {}}};", place_type, places.size(), joined(places, number));
  w.line("KV_TABLE u16 kValueOrder[{}] = {{\n    {}}};\n", plan.value_order.size(), joined(plan.value_order, number));
  if (plan.rotates_queries) write_domain_struct(w, plan.k.format, plan.head_dim, false, "Key");
  if (plan.rotates_output) write_domain_struct(w, plan.v.format, plan.head_dim_v, true, "Value");
  if (plan.append) {
    write_writer(w, plan.k, plan.head_dim, "KeyWriter", k_paging);
    write_writer(w, plan.v, plan.head_dim_v, "ValueWriter", v_paging);
  }
  write_features(w, plan.features);
  w.line("struct Plan {{");
  w.line("  static constexpr int kKeyDim = {}, kValueDim = {};", plan.k.rotated_dim, plan.v.rotated_dim);
  w.line(
      "  static constexpr int kQueryDim = {}, kQueryStored = {};  // of a row of Q: of the call, before its residual",
      plan.rotates_queries || plan.k.pad_bytes > 0 ? plan.head_dim : plan.k.rotated_dim,
      plan.rotates_queries ? plan.k.format.stored_dim(plan.head_dim) : plan.k.rotated_dim);
  write_output_dims(w, plan);
  w.line("  static constexpr int kGroup = {}, kRows = {}, kColumnBlocks = {}, kQueryTerms = {};", plan.q_heads_per_kv,
         plan.rows, plan.column_blocks, plan.query_terms);
  w.line("  static constexpr int kQueryChunks = {}, kAllRows = {};", plan.query_chunks, plan.query_rows());
  if (plan.varlen) {
    write_varlen(w, plan.query_length, plan.q_type, plan.out_type);
    w.line("  static constexpr int kRowCountAt = {};", plan.row_count_at);
  }
  w.line("  static constexpr bool kHoldQueries = {}, kHasIntegerKeys = {}, kScalesQueries = {};",
         flag(plan.hold_queries), flag(plan.has_integer_keys), flag(plan.scales_queries));
  w.line(
      "  static constexpr bool kRotatesQueries = {}, kFusesMerge = {}, kMayNeedMergeKernel = {}, kRotatesOutput = {};",
      flag(plan.rotates_queries), flag(plan.fuses_merge), flag(plan.may_need_merge_kernel()),
      flag(plan.rotates_output));
  w.line("  static constexpr int kWarps = {}, kThreads = {}, kStages = {}, kTile = {}, kSubtiles = {};", plan.warps,
         plan.threads(), plan.stages, plan.tile, plan.subtiles);
  if (plan.heads > 1) w.line("  static constexpr int kHeads = {}, kBarriersAt = {};", plan.heads, plan.barriers_at);
  w.line("  static constexpr int kTeam = {}, kValueShare = {}, kOwnBlocks = {};", plan.team, plan.value_share,
         plan.own_blocks());
  if (plan.team > 1) {
    w.line("  static constexpr int kRowMaxAt = {}, kProbabilitiesAt = {}, kProbabilityBuffers = {};", plan.row_max_at,
           plan.probabilities_at, plan.probability_buffers);
    w.line("  using Team = TeamTiles<Plan>;");
    w.line("  using Products = {}<Plan>;", plan.v.by_matrices   ? "MatrixProducts"
                                           : plan.by_warpgroups ? "WarpgroupProducts"
                                           : plan.k.by_bulk     ? "BulkProducts"
                                                                : "WarpProducts");
    if (plan.v.by_matrices) w.line("  using ValueCodes = ValueSection0;");
    w.line("  static constexpr bool kByMatrices = {}, kScalesAreMatrices = {};", flag(plan.v.by_matrices),
           flag(are_scales_matrices(plan)));
  }
  w.line("  static constexpr bool kSharesReferenceMax = {};", flag(plan.shares_reference_max));
  if (plan.shares_reference_max) w.line("  static constexpr int kReferenceMaxAt = {};", plan.reference_max_at);
  w.line("  static constexpr bool kScalesProbabilities = {};", flag(plan.scales_probabilities));
  w.line("  static constexpr bool kByWarpgroups = {};", flag(plan.by_warpgroups));
  w.line("  static constexpr int kSchedulerAt = {}, kOrderAt = {}, kIntegerTableAt = {};", plan.scheduler_at,
         plan.order_at, plan.integer_table_at);
  w.line("  static constexpr int kQueriesAt = {}, kSumsAt = {}, kSumGroups = {}, kUnitsAt = {};", plan.queries_at,
         plan.sums_at, plan.sum_groups, plan.units_at);
  w.line("  static constexpr int kRingAt = {}, kStageBytes = {}, kEpilogueAt = {};", plan.ring_at, plan.stage_bytes,
         plan.epilogue_at);
  w.line("  static constexpr float kSumFactor = {};  // of integers: what a code stands for above its own",
         real(plan.k.sections[0].integers.sum_factor));
  w.line("  using KeyCodes = KeySection0;");
  w.line("  using K = KeySide;\n  using V = ValueSide;\n  using Feature = {};",
         feature_of(plan.features, plan.causal, plan.query_length, plan.sparse_v > 0));
  if (plan.features.any())
    w.line("  static constexpr int kFeatureRowsAt = {}, kFeatureRowBytes = {};  // at most", plan.feature_rows_at,
           feature_row_bytes(plan.features.has_hook()));
  if (plan.sparse_v > 0)
    w.line("  static constexpr float kSparseLog2 = {};  // of {}", real(std::log2(plan.sparse_v)), plan.sparse_v);
  if (plan.rotates_queries) w.line("  using KeyDomain = kv::KeyDomain;");
  if (plan.rotates_output) w.line("  using ValueDomain = kv::ValueDomain;");
  if (plan.append) {
    w.line("  using KeyWriter = kv::KeyWriter;\n  using ValueWriter = kv::ValueWriter;");
    w.line("  static constexpr int kAppendBytes = {}, kSharedBytes = {};  // of shared memory: a warp, the block",
           plan.append_bytes, plan.shared_bytes);
  }
  w.line("{}\n{}", load_bits_of(plan.q_type), store_of(plan.out_type));
  w.line("  KV_DEVICE static int key_place(int i) {{ return kKeyPlace[i]; }}");
  w.line("  KV_DEVICE static bool is_bfloat([[maybe_unused]] u32 place) {{ return {}; }}", bfloat_places(plan));
  w.line("  KV_DEVICE static int value_order(int i) {{ return kValueOrder[i]; }}\n}};");
  w.line(
      "static_assert(KeySide::kStageBytes + ValueSide::kStageBytes == Plan::kStageBytes, \"stages do not add "
      "up\");\n");
  const auto bytes_of = [&]<class Args>(const Args&) {
    return int((plan.features.any() ? sizeof(kv::Featured<Args>) : sizeof(Args)) +
               (plan.varlen ? sizeof(kv::VarlenArgs) : 0));
  };
  const int args_bytes = plan.append ? is_paged ? bytes_of(kv::PagedAppendArgs{}) : bytes_of(kv::AppendArgs{})
                         : is_paged ? bytes_of(kv::PagedAttentionArgs{})
                                     : bytes_of(kv::AttentionArgs{});
  return finish(w, name, plan.arch.name,
                {"decode", std::string(is_paged ? "Paged" : "") + (plan.append ? "AppendArgs" : "AttentionArgs"),
                 plan.threads(), plan.shared_bytes, args_bytes, plan.features.any(), plan.varlen, plan_type,
                 plan.k.by_bulk ? "kv::open_ring<kv::BulkRing>();" : ""});
}

}  // namespace kvjit
