// Hooks through NVRTC: every function, every operator, the longest and the deepest expression. What the reader of hooks
// accepts must compile. Needs no GPU.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook_grammar.hpp"
#include "generator/spec/hook_words.hpp"
#include "tests/compile/kernels.hpp"
#include "tests/support/hook_kernel.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("what the reader of hooks accepts compiles") {
  std::vector<std::string> texts = {"score / 0",
                                    "-2147483647 - 1",
                                    "3.4028235e38 * score",
                                    "1e-45",
                                    "- - -score - -1",
                                    "- -token % 4",
                                    "!(score > 0) ? 1 : 2.5",
                                    "token < 1 || head == 2 && !(query != 3) ? score : token % 4 / 3",
                                    "(token <= 1 ? head >= 2 : score < 3) ? 1 : 0 > 1 ? 2 : 3"};
  for (const HookName& one : hook_names()) texts.push_back(std::string(one.name) + " + 1");
  for (const HookFunction& one : hook_functions()) {
    // Each function takes names and constants, floats and ints.
    texts.push_back(
        fmt::format("{}(score{})", one.name,
                    std::vector{"", ", token", ", token, 0.5"}.at(static_cast<std::size_t>(one.arguments) - 1)));
    texts.push_back(fmt::format(
        "{}(2{})", one.name, std::vector{"", ", 1e9", ", 1e9, score"}.at(static_cast<std::size_t>(one.arguments) - 1)));
  }
  for (const char* open : {"(", "- ", "expf(", "score > 0 ? "}) {
    std::string deep = "score";
    const std::string close = *open == '(' || *open == 'e' ? ")" : *open == 's' ? " : 1" : "";
    for (int i = 0; i < kMostHookDepth; ++i) deep = open + deep + close;
    texts.push_back(deep);
  }
  std::string sum = "score", product = "token";
  while (sum.size() + 3 <= kMostHookText) sum += "+1.";
  while (product.size() + 2 <= kMostHookText) product += "/2";
  texts.insert(texts.end(), {sum, product});
  for (const char* arch : {"sm_75", "sm_90a", "sm_120a"}) {
    if (!is_known(arch)) continue;
    const auto compiled = nvrtc()->compile(hook_kernel(texts, arch));
    CHECK_MESSAGE(compiled, render(compiled.error()));
  }
}

}  // namespace
}  // namespace kvjit::test
