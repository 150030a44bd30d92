// emit_bulk_copy, emit_shift_bulk, emit_quantize_rope_bulk: the text of the bulk forms of requantize, shift and
// quantize_rope, which are made of the codec's bulk tiles.
// SPDX-License-Identifier: MIT
#include "generator/kernels/codec/emit_bulk.hpp"

#include "args/operations.cuh"
#include "generator/kernels/operations/operations.hpp"

namespace kvjit {
namespace {

using namespace emit;

constexpr int kWarps = 12;  // 168 registers a thread

// Byte offsets of a kernel's tables in shared memory. reader: the plan of the side that it decodes, or null.
struct Places {
  int decoding_at = kEncodingBytes, from_matrix_at = 0, to_matrix_at = kEncodingBytes, rope_at = 0, shared_bytes = 0;
  explicit Places(const BulkPlan* reader, int bits) {
    if (reader) {
      from_matrix_at = decoding_at + reader->places.table_bytes(bits);
      to_matrix_at = from_matrix_at + kHadamardBytes;
    }
    rope_at = to_matrix_at + kHadamardBytes;
    shared_bytes = rope_at + kv::kMostRopePairs * 8;
  }
};

// The bulk plan of a side with a Walsh-Hadamard transform, if it has one.
std::optional<BulkPlan> side_tiles(const CodecPlan& side, const Arch& arch) {
  Decision unused;
  auto plan = plan_bulk(side.format, side.head_dim, side.is_planar, arch, unused);
  if (plan && (plan->is_dense || plan->family == BulkFamily::blocks)) plan.reset();
  return plan;
}

struct Side {
  const CodecPlan& codec;
  const BulkPlan& tiles;
  Paging paging;
};

// Writes one side of the kernel: struct ToTiles (is_quantize) or FromTiles.
void write_side(Writer& w, const Side& side, bool is_quantize, const Places& places) {
  const std::string type = is_quantize ? "To" : "From";
  const BulkText text{side.tiles,
                      side.codec.format,
                      side.codec.is_planar,
                      is_quantize,
                      false,
                      fp16_terms(side.tiles.code_rounding, Element::f32),
                      "k" + type};
  write_bulk_constants(w, text);
  w.line("struct {}Stored {{\n  static constexpr bool kIsPlanar = {};", type, flag(side.codec.is_planar));
  write_paging(w, side.paging);
  w.line("}};");
  w.line("struct {}Tiles : BulkDefaults {{\n  using F = {}Stored;", type, type);
  w.line("  static constexpr int kThreads = {}, kBits = {};", kWarps * 32, side.codec.format.codes().bits);
  write_bulk_places(w, text);
  w.line("  static constexpr int kMatrixAt = {};", is_quantize ? places.to_matrix_at : places.from_matrix_at);
  if (!is_quantize) w.line("  static constexpr int kTableAt = {};", places.decoding_at);
  write_bulk_values(w, text);
  write_bulk_signs(w, text);
  w.line("}};\n");
}

struct Kernel {
  const char *family, *what, *args;
  int args_bytes;
  bool checks;
};
// from: the side that the kernel decodes, or null. has_rope: it applies RoPE.
std::optional<Source> emit_bulk_operation_kernel(const Kernel& kernel, const Side* from, const Side& to, bool has_rope,
                                                 const std::string& name, const Arch& arch, const Registry& registry) {
  const Places places(from ? &from->tiles : nullptr, from ? from->codec.format.codes().bits : 0);
  if (places.shared_bytes > arch.shared_bytes_per_block) return std::nullopt;
  Writer w = begin(registry, name, kernel.what);
  w.fragment(fmt::format("kernels/operations/{}.cuh", kernel.family));
  if (to.codec.format.scale.epsilon > 0) w.fragment("kernels/codec/bulk_epsilon.cuh");
  if ((from && from->paging.tokens > 0) || to.paging.tokens > 0) w.fragment("formats/stored_pages.cuh");
  w.check_first(kernel.checks);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  if (from) write_side(w, *from, false, places);
  write_side(w, to, true, places);
  w.line("struct Plan {{");
  if (from) w.line("  using From = FromTiles;");
  w.line("  using To = ToTiles;");
  w.line("  static constexpr int kHeadDim = {}, kWarps = {}, kThreads = {};", to.codec.head_dim, kWarps, kWarps * 32);
  if (has_rope) w.line("  static constexpr int kStepsAt = {};", places.rope_at);
  w.line("}};\n");
  Source source =
      finish(w, name, arch.name, {kernel.family, kernel.args, kWarps * 32, places.shared_bytes, kernel.args_bytes});
  source.tiles = kWarps;
  return source;
}

}  // namespace

std::optional<Source> emit_bulk_copy(const CopyPlan& plan, const Registry& registry) {
  const auto arch = registry.require_arch(plan.from.arch, {});
  if (!arch || plan.kind != CopyKind::rotated) return std::nullopt;
  const auto from = side_tiles(plan.from, **arch), to = side_tiles(plan.to, **arch);
  if (!from || !to) return std::nullopt;
  const std::string name =
      fmt::format("requantize_bulk.{}.{}-{}.{}.d{}.{}.{}", plan.from.format.name, plan.from.layout(),
                  plan.to.format.name, plan.to.layout(), plan.from.head_dim, to_string(plan.kind), plan.from.arch);
  const Side source{plan.from, *from, tokens_paging(plan.from.page_tokens)};
  return emit_bulk_operation_kernel({"requantize_bulk", "stored rows to another format, many at once", "BulkCopyArgs",
                                     sizeof(kv::BulkCopyArgs), plan.from.checks || plan.to.checks},
                                    &source, {plan.to, *to, tokens_paging(plan.to.page_tokens)}, false, name, **arch,
                                    registry);
}

std::optional<Source> emit_shift_bulk(const CodecPlan& plan, const Registry& registry) {
  const auto arch = registry.require_arch(plan.arch, {});
  if (!arch) return std::nullopt;
  const auto tiles = side_tiles(plan, **arch);
  if (!tiles || tiles->places.lane_scale_stride > 0) return std::nullopt;  // no registers for a scale of each lane
  const Side side{plan, *tiles, tokens_paging(plan.page_tokens)};
  return emit_bulk_operation_kernel(
      {"shift_bulk", "rows of the cache to other positions, many at once", "BulkShiftArgs", sizeof(kv::BulkShiftArgs),
       plan.checks},
      &side, side, true,
      fmt::format("shift_bulk.{}.d{}.{}.{}", plan.format.name, plan.head_dim, plan.layout(), plan.arch), **arch,
      registry);
}

std::optional<Source> emit_quantize_rope_bulk(const CodecPlan& plan, const Registry& registry) {
  const auto arch = registry.require_arch(plan.arch, {});
  if (!arch) return std::nullopt;
  const auto tiles = side_tiles(plan, **arch);
  if (!tiles) return std::nullopt;
  return emit_bulk_operation_kernel(
      {"quantize_rope_bulk", "rows at their positions into the cache, many at once", "RopedCodecArgs",
       sizeof(kv::RopedCodecArgs), plan.checks},
      nullptr, {plan, *tiles, codec_paging(plan.page_tokens)}, true,
      fmt::format("quantize_rope_bulk.{}.d{}.{}.{}", plan.format.name, plan.head_dim, plan.layout(), plan.arch), **arch,
      registry);
}

}  // namespace kvjit
