// Kernels that programs make on request (operations on caches, codec by slots) through NVRTC, for the oldest and the
// newest kind of GPU that has a test machine. Nothing may spill.
// SPDX-License-Identifier: MIT
#include "generator/kernels/operations/operations.hpp"

#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

CodecPlan side_of(const char* format, int head_dim, const char* arch, bool is_planar, int page_tokens) {
  return {must(registry().format_for(format, head_dim, {})), head_dim, is_planar, false, page_tokens, false, arch};
}

TEST_CASE("copy, requantize, shift and quantize_rope: no spills, no stack") {
  Kernels kernels;
  const std::pair<const char*, const char*> pairs[] = {
      {"q8_0", "q4_0"},    {"tbq4_0", "tbq3_0"}, {"f16", "tbq4_0"}, {"tbq4_0", "kv4"}, {"turbo4_qjl68", "fp8_e4m3"},
      {"iq4_nl", "mxfp4"}, {"bf16", "q5_1"}};
  for (const char* arch : {"sm_75", "sm_80", "sm_90a"}) {
    for (const auto& [from, to] : pairs) {
      for (const char* format : {from, to})
        for (const bool is_planar : {true, false}) {
          const CodecPlan source = side_of(format, 128, arch, true, 0),
                          target = side_of(format, 128, arch, is_planar, 16);
          const CopyPlan plan = must(plan_copy(source, target, true, 16, registry()));
          kernels.add(emit_copy(plan, registry()));
          if (const auto tiles = emit_bulk_copy(plan, registry())) kernels.add(*tiles);
        }
      kernels.add(emit_copy(
          must(plan_copy(side_of(from, 128, arch, true, 0), side_of(to, 128, arch, false, 0), true, 2, registry())),
          registry()));
    }
    for (const auto& [format, head_dim] : {std::pair{"tbq4_0", 128},
                                           {"q8_0", 576},
                                           {"turbo4_qjl68", 256},
                                           {"tbq4_dense_qsfirst_raw", 128},
                                           {"kv3", 256},
                                           {"turbo3_qk32", 128}}) {
      kernels.add(emit_shift(side_of(format, head_dim, arch, true, 0), registry()));
      for (const int page_tokens : {0, 16})
        for (const auto emit : {emit_shift_bulk, emit_quantize_rope_bulk})
          if (const auto tiles = emit(side_of(format, head_dim, arch, true, page_tokens), registry()))
            kernels.add(*tiles);
      kernels.add(emit_quantize_rope(side_of(format, head_dim, arch, true, 16), registry()));
    }
  }
  kernels.compile(2);
}

// Quantize to slots and dequantize from slots: one row a warp and in bulk, in layout planar and in pages;
// 32-bit slots on one arch and 64-bit slots on the other.
TEST_CASE("rows by slots: no spills, no stack") {
  const auto specs =
      must(parse_specs("[k]\n[v]\nformat = \"kv3\"\n[cache]\n[matrix]\n\"k.format\" = [\"q8_0\", \"tbq4_0\", "
                       "\"tbq4_dense_qsfirst_raw\", \"turbo4_qjl68\"]\n\"cache.layout\" = [\"planar\", \"paged\"]\n",
                       "slots"));
  Kernels kernels;
  int bulk = 0;
  for (const auto& [arch, type] : {std::pair{"sm_75", kv::SlotType::i32}, {"sm_90a", kv::SlotType::i64}})
    for (const Spec& spec : specs) {
      const Problem problem = must(resolve(spec, registry(), arch));
      for (const auto& [role, unused] : must(make_reference_program(problem, registry())).kernels) {
        const std::string_view name = to_string(role);
        if (name.find("quantize") == name.npos) continue;
        bulk += name.find("bulk") != name.npos;
        kernels.add(must(make_by_slots(problem, role, type, registry())));
      }
    }
  CHECK(bulk > 0);
  kernels.compile(2);
}

}  // namespace
}  // namespace kvjit::test
