// The probe of `kvjit bench` through NVRTC. Its rate is an upper bound only if a multiprocessor can hold all of
// its lanes at once.
// SPDX-License-Identifier: MIT
#include "generator/kernels/auxiliary/emit.hpp"
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("the probe spills nothing, and registers do not keep its lanes off a multiprocessor") {
  constexpr int kRegisters =
      65536;  // of a multiprocessor, as is `lanes` (CUDA C++ Programming Guide, technical specifications)
  const Registry registry = must(Registry::load(embedded_files()));
  for (const auto& [arch, lanes] : {std::pair{"sm_75", 1024},
                                    {"sm_80", 2048},
                                    {"sm_89", 1536},
                                    {"sm_90a", 2048},
                                    {"sm_100a", 2048},
                                    {"sm_120a", 1536}}) {
    if (!is_known(arch)) continue;
    for (const int unroll : {2, 4}) {
      const Artefact probe = must(nvrtc()->compile(emit_probe(unroll, arch, registry)));
      CHECK_MESSAGE(probe.registers <= kRegisters / lanes, arch, ", ", unroll, " loads: ", probe.registers,
                    " registers");
      CHECK(probe.stack_bytes + probe.spill_store_bytes + probe.spill_load_bytes == 0);
    }
  }
}

}  // namespace
}  // namespace kvjit::test
