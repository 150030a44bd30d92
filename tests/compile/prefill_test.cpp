// Prefill through NVRTC, for every way in which codes become halves. A consumer holds 128 sums of the output, 64 scores
// and 32 words of probabilities in 224 registers, and spills a few other values. Needs no GPU.
// SPDX-License-Identifier: MIT
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("prefill: few spills; none where rows are only copied") {
  constexpr int kMostSpilled = 160;  // bytes
  if (!is_known("sm_90a")) return;
  const Registry registry = must(Registry::load(embedded_files()));
  const auto add = [&](Kernels& kernels, const std::string& toml) {
    for (const Spec& spec : must(parse_specs("[attention]\nq_heads_per_kv = 4\nquery_length = 512\nfeatures = "
                                             "[\"causal\"]\n" +
                                                 toml,
                                             "prefill")))
      kernels.add(must(make_program(must(resolve(spec, registry, "sm_90a")), registry)).kernels.at(Role::prefill));
  };
  Kernels copied, unpacked;
  add(copied, "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n");
  add(unpacked,
      "[k]\n[v]\n[cache]\n[matrix]\n\"k.format\" = [\"kv4\", \"q8_0\", \"vllm_k4_nc\"]\n\"v.format\" = "
      "[\"tbq4_0\", \"kv2\", \"iq4_nl\", \"q4_1\"]\n");
  add(unpacked,
      "[k]\n[v]\n[cache]\nlayout = \"rows\"\n[matrix]\n\"k.format\" = [\"tbq4_0\", \"kv3\"]\n\"v.format\" = "
      "[\"q4_0\"]\n");
  add(unpacked, "[k]\nformat = \"kv4\"\n[v]\nformat = \"fp8_e4m3\"\n[cache]\nlayout = \"paged\"\npage_tokens = 16\n");
  copied.compile(kThreads);
  unpacked.compile(kThreads, kMostSpilled);
}

}  // namespace
}  // namespace kvjit::test
