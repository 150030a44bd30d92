// Block shapes that the planner would not choose itself, on the CPU back-end. A measured shape may change the speed,
// never the results.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/plan.hpp"
#include "tests/differential/harness.hpp"
#include "tools/bench/tune.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

TEST_CASE("the same answer from every kind of block shape") {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test :
       {Case{"kv4", "tbq4_0", 128, 4, 2, Layout::planar, true}, Case{"q8_0", "q4_0", 128, 4, 1, Layout::rows}}) {
    INFO(test.name());
    const Planned own = planned(registry, test, context->backend()->info().arch);
    const auto fitting = must(decode_shapes(own.problem));
    // Take the first shape, the last, one in between, and the variants of the first: the planner's other decisions
    // reversed.
    std::vector<BlockShape> shapes = variants_of(fitting.front(), own.problem);
    shapes.insert(shapes.end(), {fitting.front(), fitting[fitting.size() / 2], fitting.back()});
    std::vector<Planned> all;
    for (const BlockShape& shape : shapes) {
      all.push_back(own);
      all.back().source = must(make_program(own.problem, registry, shape));
    }
    warm_up(context, all, kCompileThreads);
    for (std::size_t i = 0; i < all.size(); ++i) {
      INFO(to_string(shapes[i]));
      Judge judge(context, all[i], 3, 450);
      for (const int blocks : {1, 5}) judge.check({0, {450, 33, 0}, blocks, false});
    }
  }
}

}  // namespace
}  // namespace kvjit::test
