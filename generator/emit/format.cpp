// Writes a format as structs of a kernel: the stored format that formats/stored_row.cuh reads, the encoder that
// formats/encode.cuh asks for, and the domain of formats/rotated_domain.cuh. A struct has tables, numbers and aliases
// where the format differs from the defaults of those fragments. It has no code that computes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <numeric>

#include "generator/emit/writer.hpp"
#include "generator/formats/e8.hpp"

namespace kvjit::emit {
namespace {

const char* number_type(Element element) {
  constexpr const char* kNames[] = {"F16", "Bf16", "F32", "E4m3", "E5m2", "E4m3b15"};
  return kNames[int(element)];
}
std::string number_type(const Scale& scale) {
  constexpr const char* kNames[] = {"F16", "Bf16", "E4m3", "Ue4m3", "E8m0", "F32"};
  constexpr const char* kRoundings[] = {"", "Up", "Nearest"};
  return std::string(kNames[int(scale.type)]) + kRoundings[int(scale.rounding)];
}

bool has_factor(const Scale& s) { return s.rule == ScaleRule::norm && s.factor > 0; }
bool is_split(const Field& field) { return field.split > 0 && (field.bits != 4 || field.order != 0); }
// Whether the encoder names something of templates/formats/scale_searches.cuh.
bool has_rare_scale(const Scale& s) {
  return s.factor > 0 || s.epsilon > 0 || s.zero_norm > 0 || s.is_searched() || s.refine == Refine::weighted_or_found ||
         s.refine == Refine::unbiased;
}

// The place of each field in its block, which depends on the layout, and the type by which a kernel reads it.
struct Places {
  bool is_planar = false, is_vectors = false;
  int of(const Field& field) const { return is_planar ? field.plane_at : field.at; }
  std::string code_field(const Field& field) const {
    if (is_vectors) return fmt::format("VectorField<{}>", of(field));
    if (field.is_nibbles) return fmt::format("NibbleField<{}, {}>", of(field), field.bytes / 12);
    if (field.step > 0)
      return fmt::format("TrellisField<{}, {}, {}, {}>", of(field), field.bits, field.step,
                         field.is_circular ? field.bytes : 0);
    if (is_split(field))
      return fmt::format("SplitField<{}, {}, {}, {}, {:#x}>", of(field), field.bits, field.low, field.split,
                         field.order);
    return fmt::format("CodeField<{}, {}, {}, {}>", of(field), field.bits, field.low, field.split);
  }
};

std::string code_fields(const Format& f, const Places& places, FieldKind kind, int section) {
  std::vector<const Field*> fields;
  for (const Field& field : f.fields)
    if (field.kind == kind && (kind != FieldKind::codes || field.section == section)) fields.push_back(&field);
  return "CodeFields<" + joined(fields, [&](const Field* field) { return places.code_field(*field); }) + ">";
}

void write_flag(Writer& w, const char* name, bool value) {
  if (value) w.line("  static constexpr bool {} = true;", name);
}

// Writes a section of codes: its tables, the struct {type}Data with its numbers, and {type}, an alias of one of
// formats/codes.cuh over that struct.
void write_codes(Writer& w, const Format& f, const Places& places, int index, const std::string& type) {
  const Section& s = f.sections[std::size_t(index)];
  const bool is_table = s.kind == CodeKind::table;
  if (is_table || s.is_vector()) {
    w.line("KV_TABLE float k{}Values[{}] = {{\n    {}}};", type, s.values.size(), joined(s.values, real));
    if (!s.bounds.empty())
      w.line("KV_TABLE float k{}Bounds[{}] = {{\n    {}}};", type, s.bounds.size(), joined(s.bounds, real));
    if (!s.cell_codes.empty())
      w.line("KV_TABLE u8 k{}Cells[{}] = {{{}}};", type, s.cell_codes.size(),
             joined(s.cell_codes, [](int code) { return std::to_string(code); }));
  }
  w.line("struct {}Data {{", type);
  w.line("  static constexpr int kCount = {}, kBits = {};", s.count(f.block), s.bits);
  w.line("  static constexpr u32 kCodeXor = {:#x};", s.twos_complement ? 1u << (s.bits - 1) : 0u);
  w.line("  using Fields = {};", code_fields(f, places, FieldKind::codes, index));
  if (s.kind == CodeKind::plain) {
    for (const Field& field : f.fields)
      if (field.kind == FieldKind::codes && field.section == index)
        w.line("  static constexpr int kAt = {};", places.of(field));
    w.line("  using Number = {};\n}};", number_type(s.element));
    w.line("using {} = PlainCodes<{}Data>;\n", type, type);
    return;
  }
  if (s.is_vector()) {
    w.line("  static constexpr int kAt = {};", places.of(*f.field(FieldKind::codes)));
    w.line("  KV_DEVICE static float radius(u32 i) {{ return k{}Values[i]; }}", type);
    w.line("  KV_DEVICE static float bound(int i) {{ return k{}Bounds[i]; }}\n}};", type);
    return w.line("using {} = VectorCodes<{}Data>;\n", type, type);
  }
  if (is_table) {
    if (!s.bounds.empty()) w.line("  static constexpr int kBounds = {};", s.bounds.size());
    if (s.is_trellis())
      w.line("  static constexpr int kStep = {};\n  static constexpr bool kIsTailBiting = {};", s.step_bits,
             flag(s.is_tail_biting));
    w.line("  KV_DEVICE static float value(u32 code) {{ return k{}Values[code]; }}", type);
    if (s.is_grid) return w.line("}};\nusing {} = GridCodes<{}Data>;\n", type, type);
    if (s.is_trellis()) return w.line("}};\nusing {} = TrellisCodes<{}Data>;\n", type, type);
    w.line("  KV_DEVICE static float bound(int i) {{ return k{}Bounds[i]; }}", type);
    w.line("  KV_DEVICE static u32 cell_code(int cell) {{ return {}; }}\n}};",
           s.cell_codes.empty() ? "u32(cell)" : fmt::format("k{}Cells[cell]", type));
    w.line("using {} = {}<{}Data>;\n", type, s.has_negative_zero ? "SignedZeroCodes" : "TableCodes", type);
    return;
  }
  constexpr const char* kRoundings[] = {"", "HalfUp", "HalfAway", "HalfEven"};
  const bool is_half_up = s.rounding == Rounding::half_up;
  // Codes rounded half away from zero, or half to even, are symmetric about the offset: -128 of 8 bits is not produced.
  const int least = is_half_up ? 0 : std::max(0, 2 * s.offset - s.max_code);
  w.line("  static constexpr int kOffset = {}, kLeast = {}, kMost = {};\n}};", s.offset, least, s.max_code);
  w.line("using {} = UniformCodes<{}Data, {}>;\n", type, type, kRoundings[int(s.rounding)]);
}

// Writes how a kernel finds the outliers of a block. A constant mask is a table, and a stored mask is in the block.
void write_mask(Writer& w, const Format& f, const Places& places, const std::string& type) {
  w.line("  static constexpr bool kHasOutliers = true;");
  w.line("  using Outliers = {}Outliers;", type);
  if (f.stored_mask == 0)
    return w.line("  KV_DEVICE static u32 mask_word(const u8*, int w) {{ return k{}Mask[w]; }}", type);
  w.line("  static constexpr bool kHasStoredMask = true;");
  w.line("  static constexpr int kMaskAt = {};", places.of(*f.field(FieldKind::mask)));
  w.line(
      "  KV_DEVICE static u32 mask_word(const u8* scales, int w) {{ return load_bytes<4>(scales + kMaskAt + 4 * w); "
      "}}");
}

std::string mask_words(const Format& f, const Section& outliers) {
  std::vector<std::uint32_t> words(std::size_t(f.block) / 32);
  for (const int channel : outliers.members) words[std::size_t(channel) / 32] |= 1u << channel % 32;
  return joined(words, [](std::uint32_t word) { return fmt::format("{:#010x}", word); });
}

// Whether the scale of a group is not where its number says.
bool has_scale_rows(const Format& f) {
  const Field* const scale = f.field(FieldKind::scale);
  return scale && scale->rows > 1;
}

bool has_outliers(const Format& f) { return int(f.sections.size()) > 1 + int(f.has_residual()); }

}  // namespace

namespace {

// Writes a format without segments. row_unit: the widest store that the alignment of rows allows, in bytes.
void write_whole_format(Writer& w, const Format& f, int head_dim, const std::string& type, bool is_planar, int row_unit,
                        const Paging& paging) {
  const Places places{is_planar, f.codes().is_vector()};
  w.line("// {}: {} bits a value, {} values in {} bytes", f.name, f.bits_per_value(), f.block, f.block_bytes);
  write_codes(w, f, places, 0, type + "Codes");
  if (has_outliers(f)) {
    write_codes(w, f, places, 1, type + "Outliers");
    if (f.stored_mask == 0)
      w.line("KV_CONSTANT u32 k{}Mask[{}] = {{{}}};", type, f.block / 32, mask_words(f, f.sections[1]));
  }
  w.line("struct {} : FormatDefaults {{", type);
  // The scales of heads are a plane, whatever the layout of the rows.
  w.line("  static constexpr bool kIsPlanar = {};", flag(is_planar || f.has_head_scales()));
  w.line("  static constexpr int kStored = {}, kBlock = {}, kGroup = {};", f.stored_dim(head_dim), f.block,
         f.scale.group);
  w.line("  static constexpr int kCodeStride = {}, kScaleStride = {}, kRowUnit = {};",
         is_planar ? f.code_bytes : f.block_bytes, is_planar ? f.scale_bytes : f.block_bytes, row_unit);
  write_paging(w, paging);
  w.line("  using Codes = {}Codes;", type);
  if (has_outliers(f)) write_mask(w, f, places, type);
  write_flag(w, "kHasTensorScale", f.has_tensor_scale());
  write_flag(w, "kHasHeadScales", f.has_head_scales());
  if (f.has_scale()) {
    w.line("  static constexpr bool kHasScale = true;");
    w.line("  static constexpr int kScaleAt = {};", places.of(*f.field(FieldKind::scale)));
    w.line("  using Number = {};", number_type(f.scale));
    if (!has_scale_rows(f)) write_flag(w, "kHasUnalignedScales", bytes_of(f.scale.type) > row_unit);
    write_flag(w, "kSwizzlesScales", f.swizzles_scales);
    if (has_scale_rows(f)) w.line("  static constexpr int kScaleRows = {};", f.field(FieldKind::scale)->rows);
  }
  if (f.has_zero_point())
    w.line("  static constexpr u32 kZeroMask = {:#x};\n  static constexpr float kGain = {};", f.zero_mask(),
           real(f.gain()));
  if (f.stores_minimum()) {
    w.line("  static constexpr bool kHasMinimum = true;");
    w.line("  static constexpr int kMinimumAt = {};", places.of(*f.field(FieldKind::minimum)));
  }
  write_flag(w, "kRenormalises", f.scale.renormalise);
  if (f.has_residual()) {
    w.line("  static constexpr bool kHasResidual = true, kIsRelative = {};", flag(f.residual.is_relative));
    w.line("  static constexpr int kResidualNormAt = {};", places.of(*f.field(FieldKind::residual_norm)));
    w.line("  static constexpr float kResidualFactor = {};", real(f.residual.factor));
    w.line("  using ResidualSigns = {};", code_fields(f, places, FieldKind::codes, f.residual_section));
  }
  w.line("}};\n");
}

// Names of a segment's structs: its format and its place in a row.
std::string segment_name(const std::string& type, std::size_t index) { return fmt::format("{}Segment{}", type, index); }

}  // namespace

void write_format(Writer& w, const Format& f, int head_dim, const std::string& type, bool is_planar,
                  const Paging& paging) {
  const int row_unit = is_planar ? 4 : 2;
  if (!f.has_segments()) return write_whole_format(w, f, head_dim, type, is_planar, row_unit, paging);
  const Places places{is_planar};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < f.segments.size(); ++i) {
    const Segment& segment = f.segments[i];
    const std::string name = segment_name(type, i);
    const Field* const scales = f.field(FieldKind::segment_scales, int(i));
    const int codes_at = places.of(*f.field(FieldKind::segment_codes, int(i))),
              scales_at = scales ? places.of(*scales) : 0;
    const int unit = std::gcd(row_unit, std::gcd(codes_at, scales_at));
    write_whole_format(w, segment.format, segment.count, name + "Format", true, unit, {});
    w.line("struct {} {{\n  using F = {}Format;", name, name);
    w.line("  static constexpr int kFirst = {}, kCodesAt = {}, kScalesAt = {};\n}};", segment.first, codes_at,
           scales_at);
    names.push_back(name);
  }
  w.line("// {}: {} bits a value, {} values in {} bytes", f.name, f.bits_per_value(), f.block, f.block_bytes);
  w.line("struct {} : FormatDefaults {{\n  static constexpr bool kIsPlanar = {}, kHasSegments = true;", type,
         flag(is_planar));
  w.line("  static constexpr int kStored = {0}, kBlock = {0}, kGroup = {0};", f.block);
  w.line("  static constexpr int kCodeStride = {}, kScaleStride = {}, kRowUnit = {};",
         is_planar ? f.code_bytes : f.block_bytes, is_planar ? f.scale_bytes : f.block_bytes, row_unit);
  write_paging(w, paging);
  w.line("  using Segments = List<{}>;\n}};\n", fmt::join(names, ", "));
}

void format_fragments(Writer& w, const Format& f, bool is_written) {
  for (const Segment& segment : f.segments) format_fragments(w, segment.format, is_written);
  if (f.has_segments()) return w.fragment(is_written ? "formats/segment_rows.cuh" : "formats/segments.cuh");
  if (has_scale_rows(f)) w.fragment("formats/scale_rows.cuh");
  if (is_written && bytes_of(f.scale.type) > 2) w.fragment("formats/unaligned_scales.cuh");
  if (std::any_of(f.fields.begin(), f.fields.end(), is_split)) w.fragment("formats/split_field.cuh");
  if (f.codes().is_grid || f.codes().rounding == Rounding::half_even || f.scale.rounding != ScaleRounding::usual)
    w.fragment("formats/roundings.cuh");
  if (f.codes().is_trellis()) w.fragment(is_written ? "formats/trellis_rows.cuh" : "formats/trellis.cuh");
  if (f.codes().is_vector()) w.fragment(is_written ? "formats/rare/vector_rows.cuh" : "formats/rare/vectors.cuh");
  if (is_written && has_rare_scale(f.scale)) w.fragment("formats/scale_searches.cuh");
  if (f.swizzles_scales) w.fragment("formats/rare/swizzled_scales.cuh");
  if (f.has_head_scales()) w.fragment(is_written ? "formats/rare/head_scale_rows.cuh" : "formats/rare/head_scales.cuh");
  if (f.codes().is_bias15()) w.fragment("formats/minifloat_bias15.cuh");
  if (f.has_zero_point()) w.fragment(is_written ? "formats/zero_points.cuh" : "formats/zero_point_rows.cuh");
  if (is_written && f.is_unnormalised) w.fragment("rotations/unnormalised_wht.cuh");
}

void write_encoder(Writer& w, const Format& f, const std::string& format, const std::string& type, bool is_planar,
                   const std::string& prefix) {
  if (f.has_segments()) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < f.segments.size(); ++i) {
      const std::string name = segment_name(type, i), segment = segment_name(format, i);
      write_encoder(w, f.segments[i].format, segment + "Format", name + "Encoder", true, prefix);
      w.line("struct {} : {} {{ using Encoder = {}Encoder; }};", name, segment, name);
      names.push_back(name);
    }
    return w.line(
        "struct {} : EncoderDefaults {{\n  using F = {};\n  using Rotation = {}Rotation;\n  using Segments = "
        "List<{}>;\n}};\n",
        type, format, prefix, fmt::join(names, ", "));
  }
  constexpr const char* kRules[] = {"NoScale", "TensorScale", "Amax", "SignedMax", "Norm", "MinStep", "ZeroPoint"};
  constexpr const char* kRefinements[] = {"AsFound",  "Matched",  "LeastSquares",
                                          "Unbiased", "Weighted", "WeightedOrFound"};
  constexpr const char* kDivisions[] = {"Reciprocal", "Quotient", "Ratio", "Product"};
  const Scale& s = f.scale;
  w.line("struct {} : EncoderDefaults {{", type);
  w.line("  using F = {0};\n  using Rotation = {2};\n  using Projection = {1}Projection;", format, prefix,
         f.is_unnormalised ? fmt::format("UnnormalisedWht<{}RotationSigns>", prefix) : prefix + "Rotation");
  w.line("  static constexpr int kSpan = {};\n  static constexpr float kDivisor = {};", s.span, real(s.divisor));
  const bool is_amax = s.rule == ScaleRule::amax;
  const char* const rule = is_amax && s.factor > 0 ? "AmaxTimes"
                           : s.over_tensor         ? "AmaxSearch<true>"
                           : s.is_searched()       ? "AmaxSearch<false>"
                           : s.zero_norm > 0       ? "AmaxOfNorm"
                                                   : kRules[int(s.rule)];
  const char* const division = s.is_searched()             ? "Over"
                               : f.has_zero_point()        ? "FromZeroPoint"
                               : s.rule != ScaleRule::norm ? kDivisions[int(s.division)]
                               : s.epsilon > 0             ? "NormWithEpsilon"
                                                           : "UnitVector";
  const std::string refine = kRefinements[int(s.refine)];
  w.line("  using Rule = {};\n  using Divide = {};\n  using Refine = {};", rule, division,
         has_factor(s) ? "Times<" + refine + ">" : refine);
  if (s.least > 0 || f.has_zero_point())
    w.line("  static constexpr float {} = {};", f.has_zero_point() ? "kLeastStep" : "kLeast", real(s.least));
  if (s.factor > 0) w.line("  static constexpr float kFactor = {};", real(s.factor));
  if (s.epsilon > 0) w.line("  static constexpr float kEpsilon = {};", real(s.epsilon));
  if (s.zero_norm > 0) w.line("  static constexpr float kZeroNorm = {};", real(s.zero_norm));
  if (s.is_searched()) {
    w.line("  static constexpr int kTries = {};  // divisors behind kDivisor", s.search.size());
    w.line("  KV_DEVICE static constexpr float other_divisor([[maybe_unused]] int i) {{");
    w.line("    constexpr float kOthers[] = {{{}}};\n    return kOthers[i];\n  }}",
           s.search.empty() ? "0.f" : joined(s.search, real));
  }
  write_flag(w, "kByStored", s.by_stored);
  write_flag(w, "kZeroBytes", f.zero_bytes);
  write_flag(w, "kRoundsToBf16", f.rounds_to_bf16);
  if (f.stored_mask > 0) w.line("  static constexpr int kOutliers = {};", f.stored_mask);
  if (f.field(FieldKind::residual_signs)) {
    w.line("  static constexpr bool kStoresSigns = true;");
    w.line("  using Signs = {};", code_fields(f, {is_planar}, FieldKind::residual_signs, 0));
  }
  if (f.has_residual()) {
    const Residual& r = f.residual;
    w.line("  static constexpr bool kIsOriginal = {}, kIsMean = {};", flag(r.is_original), flag(r.is_mean));
    w.line("  static constexpr float kResidualUnit = {};", real(r.unit));
  }
  w.line("}};\n");
}

void write_writer_members(Writer& w, const Format& f, const std::string& format, const std::string& encoder,
                          bool is_planar) {
  w.line("  using Encoder = {};", encoder);
  w.line("  KV_DEVICE static void pad([[maybe_unused]] const StoredRow& to) {{");
  for (const Field& field : f.fields)
    if (field.kind == FieldKind::pad && !is_planar)
      w.line("    kv::pad<{}, {}, {}>(to.codes);", format, field.at, field.bytes);
    else if (field.kind == FieldKind::pad && field.in_scales)
      w.line("    kv::pad<{}, {}, {}>(to.scales);", format, field.plane_at, field.bytes);
  w.line("  }}");
}

// Shared memory of a warp that packs a row (formats/pack.cuh): a byte for each code, one for each sign and one for each
// bit of a stored mask, and two bytes that codes across words may read behind them.
int writer_bytes(const Format& f, int head_dim) {
  int most = 0;
  for (const Segment& segment : f.segments) most = std::max(most, writer_bytes(segment.format, segment.count));
  if (f.has_segments()) return most;
  // templates/formats/trellis_rows.cuh: a word a value, two sets of costs, and a byte of choices a value and lane.
  if (const Section& s = f.codes(); s.is_trellis())
    return f.stored_dim(head_dim) * 4 + ((2 * 4) << (s.bits - s.step_bits)) + f.block * 32;
  // templates/formats/rare/vector_rows.cuh: a float for each value, and one for each vector.
  if (f.codes().is_vector()) return f.stored_dim(head_dim) / kE8Dim * 4 * (kE8Dim + 1);
  const int arrays = 1 + int(f.has_residual() || f.field(FieldKind::residual_signs)) + int(f.stored_mask > 0);
  return ((f.stored_dim(head_dim) + 31) / 32 * 32 * arrays + 2 + 15) / 16 * 16;
}

void domain_fragments(Writer& w, const Format& f) {
  w.fragment(rotation_fragment(f.rotation));
  w.fragment(rotation_fragment(f.residual.projection));
}

void write_domain_struct(Writer& w, const Format& f, int head_dim, bool goes_back, const std::string& prefix) {
  write_domain(w, f, goes_back, prefix);
  w.line("struct {}Domain {{\n{}\n}};\n", prefix, domain_members(f, head_dim, prefix));
}

void write_domain(Writer& w, const Format& f, bool goes_back, const std::string& prefix) {
  write_rotation(w, f.rotation, prefix + "Rotation", goes_back);
  write_rotation(w, f.residual.projection, prefix + "Projection", goes_back);
  if (!f.channels.empty())
    w.line(
        "// What each channel is multiplied with before it is coded.\nKV_CONSTANT float k{}Channels[{}] = {{\n    "
        "{}}};\n",
        prefix, f.channels.size(), joined(f.channels, real));
}

std::string domain_members(const Format& f, int head_dim, const std::string& prefix) {
  return fmt::format(
      "  static constexpr int kHeadDim = {}, kStored = {};\n"
      "  static constexpr bool kHasResidual = {}, kIsOriginal = {}, kHasChannels = {};\n"
      "  using Rotation = {}Rotation;\n  using Projection = {}Projection;\n"
      "  KV_DEVICE static float channel([[maybe_unused]] int i) {{ return {}; }}",
      head_dim, f.stored_dim(head_dim), flag(f.has_residual()), flag(f.residual.is_original), flag(!f.channels.empty()),
      prefix, prefix,
      f.channels.empty() ? "1.f"
      : f.stored_dim(head_dim) == head_dim
          ? fmt::format("k{}Channels[i % {}]", prefix, f.channels.size())
          : fmt::format("i < {} ? k{}Channels[i % {}] : 1.f", head_dim, prefix, f.channels.size()));
}

}  // namespace kvjit::emit
