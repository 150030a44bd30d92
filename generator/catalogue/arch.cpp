// parse_arch: reads a file of specs/archs.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/arch.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "generator/base/schema.hpp"

namespace kvjit {
namespace {

constexpr double kMostTiming = 1e6;  // bytes or microseconds: thirty times what is known

// Each number replaces the inherited one. An arch that inherits from none must state all.
Result<void> read_timing(schema::Table table, SchedulerTiming& timing, bool must_have_all) {
  const struct {
    const char* key;
    double& value;
  } numbers[] = {{"bytes_in_flight", timing.bytes_in_flight},     {"read_bytes_per_us", timing.read_bytes_per_us},
                 {"split_boundary_us", timing.split_boundary_us}, {"merge_round_us", timing.merge_round_us},
                 {"merge_step_us", timing.merge_step_us},         {"merge_launch_us", timing.merge_launch_us},
                 {"merge_block_us", timing.merge_block_us}};
  for (const auto& [key, value] : numbers) {
    if (must_have_all) table.require(key);
    table.read(key, value);
    if (table.find(key) && !(value > 0 && value <= kMostTiming))
      table.complain(table.where(key), fmt::format("{} must be above 0 and at most {:g}", key, kMostTiming));
  }
  return table.done();
}

}  // namespace

Result<Arch> parse_arch(std::string_view toml_text, const std::string& file, const ArchLookup& archs) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "an arch", {file});
  Arch arch;
  std::string base;
  top.read("inherits", base);
  if (!base.empty()) {
    if (const Arch* found = archs.arch(base))
      arch = *found;
    else
      top.complain(top.where("inherits"), fmt::format("arch '{}' is not known, or inherits from this one", base));
  } else {
    for (const char* key : {"shared_bytes_per_block", "threads_per_sm", "capabilities", "timing"}) top.require(key);
  }
  top.require("title");
  arch.name = std::filesystem::path(file).stem().string();
  top.read("title", arch.title);
  top.read("shared_bytes_per_block", arch.shared_bytes_per_block, {16384, 1 << 20});
  top.read("registers_per_thread", arch.registers_per_thread, {16, 255});
  top.read("threads_per_sm", arch.threads_per_sm, {512, 4096});
  top.read("tensor_flop_per_cycle", arch.tensor_flop_per_cycle, {64, 1 << 20});
  std::vector<std::string> added;
  top.read("capabilities", added);
  arch.capabilities.insert(added.begin(), added.end());
  schema::Table timing = top.table("timing");
  KV_CHECK(top.done());
  if (timing.exists()) KV_CHECK(read_timing(timing, arch.timing, base.empty()));
  return arch;
}

}  // namespace kvjit
