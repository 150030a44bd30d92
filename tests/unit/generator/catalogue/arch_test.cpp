// generator/catalogue/arch.cpp: arch files, their inheritance, and refused files.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/arch.hpp"

#include <doctest/doctest.h>

#include "generator/catalogue/registry.hpp"

using namespace kvjit;

namespace {

struct OneKnown : ArchLookup {
  Arch base;
  const Arch* arch(const std::string& name) const override { return name == base.name ? &base : nullptr; }
};

OneKnown known() {
  OneKnown lookup;
  lookup.base.name = "sm_1";
  lookup.base.shared_bytes_per_block = 65536;
  lookup.base.threads_per_sm = 1024;
  lookup.base.capabilities = {"a"};
  lookup.base.timing = {1, 2, 3, 4, 5, 6, 7};
  return lookup;
}

}  // namespace

TEST_CASE("a child keeps what it does not state and adds capabilities") {
  const Arch arch = parse_arch("title = 'x'\ninherits = 'sm_1'\nthreads_per_sm = 2048\ncapabilities = ['b']",
                               "archs/sm_2.toml", known())
                        .value();
  CHECK(arch.name == "sm_2");
  CHECK(arch.shared_bytes_per_block == 65536);
  CHECK(arch.threads_per_sm == 2048);
  CHECK(arch.registers_per_thread == 255);
  CHECK(arch.has("a"));
  CHECK(arch.has("b"));
  CHECK_FALSE(arch.has("c"));
}

TEST_CASE("a child keeps the timing that it does not state") {
  const Arch arch =
      parse_arch("title = 'x'\ninherits = 'sm_1'\n[timing]\nsplit_boundary_us = 9.5", "sm_2.toml", known()).value();
  CHECK(arch.timing.split_boundary_us == 9.5);
  CHECK(arch.timing.bytes_in_flight == 1);
  CHECK(arch.timing.read_bytes_per_us == 2);
  CHECK(arch.timing.merge_round_us == 4);
  CHECK(arch.timing.merge_step_us == 5);
  CHECK(arch.timing.merge_launch_us == 6);
  CHECK(arch.timing.merge_block_us == 7);
}

TEST_CASE("refusals") {
  const auto message = [](const std::string& text) { return parse_arch(text, "sm_2.toml", known()).error().message; };
  CHECK(message("title = 'x'\ninherits = 'sm_7'") == "arch 'sm_7' is not known, or inherits from this one");
  CHECK(message("title = 'x'\nthreads_per_sm = 2048") == "an arch needs the key 'shared_bytes_per_block'");
  const std::string root = "title = 'x'\nshared_bytes_per_block = 65536\nthreads_per_sm = 1024\ncapabilities = []\n";
  CHECK(message(root) == "an arch needs the key 'timing'");
  CHECK(message(root + "[timing]\nmerge_round_us = 1.2") == "[timing] needs the key 'bytes_in_flight'");
  CHECK(message("title = 'x'\ninherits = 'sm_1'\n[timing]\nseam_us = 7") == "unknown key 'seam_us' in [timing]");
  CHECK(message("title = 'x'\ninherits = 'sm_1'\n[timing]\nmerge_round_us = 0") ==
        "merge_round_us must be above 0 and at most 1e+06");
  CHECK(message("title = 'x'\ninherits = 'sm_1'\n[timing]\nmerge_round_us = nan") == "merge_round_us must be finite");
  CHECK(message("title = 'x'\ninherits = 'sm_1'\nthreads = 1") == "unknown key 'threads' in an arch");
  CHECK(message("title = 'x'\ninherits = 'sm_1'\nthreads_per_sm = '2048'") ==
        "threads_per_sm must be an integer, not a string");
}

TEST_CASE("shipped archs: opt-in shared memory, threads and capabilities of each generation") {
  const Registry registry = Registry::load(embedded_files()).value();
  struct Row {
    const char* name;
    int shared, threads;
    bool cp_async, bf16, bulk_copy, wgmma;
  };
  const Row rows[] = {
      {"sm_75", 65536, 1024, false, false, false, false}, {"sm_80", 166912, 2048, true, true, false, false},
      {"sm_86", 101376, 1536, true, true, false, false},  {"sm_87", 166912, 1536, true, true, false, false},
      {"sm_89", 101376, 1536, true, true, false, false},  {"sm_90", 232448, 2048, true, true, true, false},
      {"sm_90a", 232448, 2048, true, true, true, true},   {"sm_100", 232448, 2048, true, true, true, false},
      {"sm_100a", 232448, 2048, true, true, true, false}, {"sm_103", 232448, 2048, true, true, true, false},
      {"sm_103a", 232448, 2048, true, true, true, false}, {"sm_110", 232448, 1536, true, true, true, false},
      {"sm_110a", 232448, 1536, true, true, true, false}, {"sm_120", 101376, 1536, true, true, true, false},
      {"sm_120a", 101376, 1536, true, true, true, false}, {"sm_121", 101376, 1536, true, true, true, false},
      {"sm_121a", 101376, 1536, true, true, true, false},
  };
  CHECK(registry.archs().size() == std::size(rows));
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Arch* arch = registry.arch(row.name);
    REQUIRE(arch);
    CHECK(arch->shared_bytes_per_block == row.shared);
    CHECK(arch->threads_per_sm == row.threads);
    CHECK(arch->timing.read_bytes_per_us == 33000);  // inherited by all from sm_75
    CHECK(arch->has("cp_async") == row.cp_async);
    CHECK(arch->has("bf16") == row.bf16);
    CHECK(arch->has("bulk_copy") == row.bulk_copy);
    CHECK(arch->has("wgmma") == row.wgmma);
    CHECK(arch->tensor_flop_per_cycle == (row.wgmma ? 4096 : 0));
    CHECK(arch->has("movmatrix"));
    CHECK(arch->has("mma_m16n8k8_f16"));
    CHECK(arch->has("mma_m16n8k16_f16") == row.cp_async);
  }
}
