// Prefill through NVRTC, for every way in which codes become halves. A consumer holds 128 sums of the output, 64 scores
// and 32 words of probabilities in 224 registers, and spills a few other values; with features that change scores it
// spills more. Needs no GPU.
// SPDX-License-Identifier: MIT
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("prefill: few spills; none where rows are only copied") {
  constexpr int kMostSpilled = 130, kMostSpilledByRows = 160, kMostSpilledByChunks = 200, kMostSpilledByFeatures = 400,
                kMostSpilledByMasks = 1000;  // bytes
  if (!is_known("sm_90a")) return;
  const Registry registry = must(Registry::load(embedded_files()));
  const auto add = [&](Kernels& kernels, const std::string& toml) {
    for (const Spec& spec : must(parse_specs("[attention]\nq_heads_per_kv = 4\nquery_length = 512\nfeatures = "
                                             "[\"causal\"]\n" +
                                                 toml,
                                             "prefill")))
      kernels.add(must(make_program(must(resolve(spec, registry, "sm_90a")), registry)).kernels.at(Role::prefill));
  };
  Kernels copied, unpacked, rows;  // heads of 64 dimensions leave registers
  add(copied,
      "head_dim = 64\n[k]\n[v]\n[cache]\n[matrix]\n\"k.format\" = [\"f16\", \"q8_0\"]\n\"v.format\" = [\"f16\", "
      "\"q4_0\"]\n");
  add(copied, "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n");
  add(unpacked,
      "[k]\n[v]\n[cache]\n[matrix]\n\"k.format\" = [\"kv4\", \"q8_0\", \"vllm_k4_nc\"]\n\"v.format\" = "
      "[\"tbq4_0\", \"kv2\", \"iq4_nl\", \"q4_1\"]\n");
  add(rows,
      "[k]\n[v]\n[cache]\nlayout = \"rows\"\n[matrix]\n\"k.format\" = [\"tbq4_0\", \"kv3\"]\n\"v.format\" = "
      "[\"q4_0\"]\n");
  add(unpacked, "[k]\nformat = \"kv4\"\n[v]\nformat = \"fp8_e4m3\"\n[cache]\nlayout = \"paged\"\npage_tokens = 16\n");
  add(unpacked,
      "head_dim = 256\n[k]\n[v]\n[cache]\n[matrix]\n\"k.format\" = [\"f16\", \"kv4\"]\n\"v.format\" = [\"f16\", "
      "\"q8_0\"]\n");
  const auto add_featured = [&](Kernels& kernels, const std::string& keys) {
    const std::string toml =
        "k = { format = \"kv4\" }\nv = { format = \"q4_0\" }\n[attention]\nq_heads_per_kv = 4\nquery_length = 512\n" +
        keys;
    const Spec spec = must(parse_specs(toml, keys)).front();
    kernels.add(must(make_program(must(resolve(spec, registry, "sm_90a")), registry)).kernels.at(Role::prefill));
  };
  Kernels featured, masked;
  add_featured(unpacked, "features = [\"causal\", \"lse\"]");
  add_featured(featured, "window = [127, -1]\nfeatures = [\"causal\", \"sinks\"]");
  add_featured(featured, "softcap = 50.0\nfeatures = [\"causal\"]");
  add_featured(featured, "features = [\"causal\", \"alibi\"]");
  add_featured(masked, "features = [\"mask\"]");
  add(masked, "[k]\nformat = \"turbo_split_54\"\n[v]\nformat = \"turbo_split_54\"\n");  // masks of outliers
  // The second pass of two spills behind the loop over tiles, and only reads it back behind the first chunk.
  Kernels chunks;
  for (const char* keys : {"", "head_dim = 256\n"})
    for (const char* format : {"kv4", "q8_0", "bf16"}) {
      const std::string toml = fmt::format(
          "k = {{ format = \"{0}\" }}\nv = {{ format = \"{0}\" }}\n[attention]\nq_heads_per_kv = 4\nquery_length = "
          "2048\nfeatures = [\"causal\"]\n{1}",
          format, keys);
      const Spec spec = must(parse_specs(toml, keys)).front();
      const ProgramSource program = must(make_program(must(resolve(spec, registry, "sm_90a")), registry));
      for (const ProgramSource& pass : program.second_pass) chunks.add(pass.kernels.at(Role::prefill));
      copied.add(program.kernels.at(Role::dequantize_chunk_k));
    }
  chunks.compile(kThreads, kMostSpilledByChunks);
  copied.compile(kThreads);
  unpacked.compile(kThreads, kMostSpilled);
  rows.compile(kThreads, kMostSpilledByRows);
  featured.compile(kThreads, kMostSpilledByFeatures);
  masked.compile(kThreads, kMostSpilledByMasks);
}

// 64 sums of the output, 64 scores and 32 words of probabilities fit in 255 registers.
TEST_CASE("prefill by mma.sync: no spills, for every arch without wgmma, in one pass and in two") {
  const Registry registry = must(Registry::load(embedded_files()));
  Kernels kernels;
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_103a", "sm_120a", "sm_121a"}) {
    if (!is_known(arch)) continue;
    for (const char* keys : {"", "head_dim = 64\n", "features = [\"lse\", \"sinks\"]\n"})
      for (const char* format : {"f16", "kv4", "q8_0"}) {
        const bool is_causal = std::string(keys).find("features") == std::string::npos;
        const std::string toml = fmt::format(
            "k = {{ format = \"{0}\" }}\nv = {{ format = \"{0}\" }}\n[attention]\nq_heads_per_kv = 4\nquery_length = "
            "2048\n{1}{2}",
            format, is_causal ? "features = [\"causal\"]\n" : "", keys);
        const Spec spec = must(parse_specs(toml, toml)).front();
        const ProgramSource program = must(make_program(must(resolve(spec, registry, arch)), registry));
        if (program.second_pass.empty()) kernels.add(program.kernels.at(Role::prefill));
        for (const ProgramSource& pass : program.second_pass) kernels.add(pass.kernels.at(Role::prefill));
      }
  }
  kernels.compile(kThreads);
}

}  // namespace
}  // namespace kvjit::test
