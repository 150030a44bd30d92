// Copies from one cache to another on the CPU back-end. Between layouts of one format the bytes must be equal; between
// formats they must be those of the reference codec's decode and encode. Source and target use ranges and slots; no
// other byte may be written.
// SPDX-License-Identifier: MIT
#include "tests/differential/operations/copies.hpp"

namespace kvjit::test::copies {
namespace {

TEST_CASE(
    "copy: bytes where formats are one, else what the reference codec makes of the numbers; nothing else is written") {
  check_copies(open_context(DeviceKind::cpu));
}

TEST_CASE("copy in bulk: the bytes of the reference codec; nothing else is written") {
  check_copies(open_context(DeviceKind::cpu), kTilePairs, true);
}

struct Mutation {
  const char *file, *from, *to;
  int pair;
  bool by_slots;
};
constexpr Mutation kMutations[] = {
    {"kernels/operations/copy.cuh", "target + block * kToStride + j", "target + block * kFromStride + j", 0, false},
    {"kernels/operations/copy.cuh", "source + block * kFromStride + j", "source + j", 0, false},
    {"kernels/operations/copy.cuh", "first += Plan::kRowThreads", "first += 2 * Plan::kRowThreads", 2, false},
    {"kernels/operations/requantize.cuh", "args.from.tensor_scale, x)", "args.to.tensor_scale, x)", 5, false},
    {"kernels/operations/requantize.cuh", "write_rotated<To>(x, x, args.to", "write_values<To>(x, args.to", 9, false},
    {"formats/read_row.cuh", "add_residual<Reader>(x, second)", "(void)second", 10, false},
    {"formats/read_row.cuh", "from_rotated<Reader>(x, second)", "(void)second", 13, false},
    {"kernels/operations/requantize_bulk_blocks.cuh", "args.from.tensor_scale", "args.to.tensor_scale", 7, false},
    {"kernels/codec/lane_blocks.cuh", "from.codes + row_lane * kBytes", "from.codes", 8, true},
    {"kernels/operations/cache_tokens.cuh", "static_cast<const int*>(slots)[row.index]",
     "static_cast<const int*>(slots)[row.token]", 1, true},
    {"kernels/operations/cache_tokens.cuh", "return first_token + row.token", "return first_token", 6, false},
};

TEST_CASE("copy: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    FileSet files = embedded_files();
    std::string& text = files.at(std::string("templates/") + mutation.file);
    std::size_t at = text.find(mutation.from);
    REQUIRE_MESSAGE(at != std::string::npos, "no longer there: ", std::string(mutation.from));
    for (; at != std::string::npos; at = text.find(mutation.from, at + 1))
      text.replace(at, std::string(mutation.from).size(), mutation.to);
    const Differences found =
        differences(context, must(Registry::load(files)), kPairs[mutation.pair], mutation.by_slots);
    CHECK_MESSAGE(found.written + found.elsewhere > found.all / 1000, "not noticed: ", std::string(mutation.from),
                  " -> ", std::string(mutation.to));
  }
}

TEST_CASE("copy in bulk: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  constexpr const char* kTileMutations[][3] = {
      {"kernels/operations/requantize_bulk.cuh", "stored.load_row(1, group, source[1])",
       "stored.load_row(1, group, source[0])"},
      {"kernels/operations/requantize_bulk.cuh", "if (!is_left_out[half]) store_row", "store_row"},
      {"kernels/operations/tile_values.cuh", "stored.scale[half]) * Reader::kUnit", "stored.scale[half])"},
  };
  for (const auto& [file, from, to] : kTileMutations) {
    const Differences found = differences(context, changed_registry(file, from, to), kTilePairs[0], true, true);
    CHECK_MESSAGE(found.written + found.elsewhere > found.all / 1000, "not noticed: ", std::string(from), " -> ",
                  std::string(to));
  }
}

TEST_CASE("copy: impossible calls are refused") {
  const auto context = open_context(DeviceKind::cpu);
  const Store small = Store::make(context, registry(), {"q8_0", Layout::planar}, 64),
              large = Store::make(context, registry(), {"q8_0", Layout::planar}, 128);
  const auto refused = plan_copy(side_plan(small.problem, 0), side_plan(large.problem, 0), true, 16, registry());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::unsupported);
  CHECK(refused.error().message == "a copy from heads of 64 values to heads of 128; both must be of one size");
}

}  // namespace
}  // namespace kvjit::test::copies
