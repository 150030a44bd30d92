// Kernels of every family through old and new versions of NVRTC, as the package index has them: by default with the
// oldest that kvjit takes, with KVJIT_FULL=1 (`tools/test --full`) with one in the middle and the newest, too. Each is
// in a folder of its own (nvrtc_wheel); the NVRTC of this machine is not used. Without pip or an index the test is
// skipped and says why. Needs no GPU.
// SPDX-License-Identifier: MIT
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "generator/kernels/operations/operations.hpp"
#include "runtime/compile/nvrtc_version.hpp"
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

const std::string kOldest = fmt::format("nvidia-cuda-nvrtc-cu{}=={}.*", kLeastNvrtc.major, to_string(kLeastNvrtc));
constexpr const char *kMiddle = "nvidia-cuda-nvrtc-cu12==12.1.*",
    *kNewest = "nvidia-cuda-nvrtc";

constexpr std::size_t kArchs = 4;
constexpr const char* kWantedArchs[] = {"sm_75", "sm_80",  "sm_90a",
                                        "sm_89", "sm_120a", "sm_86"};  // the first four that it knows

// Specs with every kind of attention kernel: one, 2 and 64 query rows in decode, teams of warps, wgmma, prefill in one
// pass and in two, run-time query lengths, features, pages, records of segments, token-major heads.
constexpr const char* kSpecs[] = {
    "k = { format = \"kv4\" }\nv = { format = \"q8_0\" }\n[attention]\nhead_dim = 128\nq_heads_per_kv = 4\nfeatures = "
    "[\"causal\"]\nquery_length = 16\n",
    "k = { format = \"tbq4_0\" }\nv = { format = \"kv3\" }\n[attention]\nq_heads_per_kv = 4\nappend = true\n"
    "sparse_v = 1e-3\n",
    "k = { format = \"q8_0\" }\nv = { format = \"fp8_e4m3\" }\n[attention]\nq_heads_per_kv = 4\nquery_length = 2\n"
    "softcap = 30\nwindow = [100, -1]\nfeatures = [\"causal\", \"mask\", \"mask_slopes\", \"packed_mask\", "
    "\"position_offset\", \"token_ranges\", \"sinks\", \"lse\"]\n[target]\nchecks = true\n",
    "k = { format = \"kv4\" }\nv = { format = \"q4_0\" }\n[attention]\nq_heads_per_kv = 4\nquery_length = 2048\n"
    "features = [\"causal\"]\n",
    "k = { format = \"f16\" }\nv = { format = \"f16\" }\n[attention]\nq_heads_per_kv = 4\nquery_length = 2048\nsoftcap "
    "= 30\nfeatures = [\"causal\", \"sinks\", \"lse\"]\n",
    "k = { format = \"kvt3\" }\nv = { format = \"ninfer_rk2_e8\" }\n[attention]\nq_heads_per_kv = 8\nquery_length = "
    "\"any\"\nfeatures = [\"causal\"]\n[cache]\nlayout = \"paged\"\npage_tokens = 16\n",
    "k = { format = \"vllm_fp8_ds_mla_656\" }\nv = { format = \"vllm_fp8_ds_mla_656\", in_keys = true }\n[attention]\n"
    "head_dim = 576\nhead_dim_v = 512\nq_heads_per_kv = 16\nq_type = \"bf16\"\nout_type = \"bf16\"\n[cache]\nlayout = "
    "\"rows\"\n",
    "k = { format = \"tbq4_0\" }\nv = { format = \"tbq4_0\" }\n[attention]\nq_heads_per_kv = 4\n[cache]\nlayout = "
    "\"rows\"\ntoken_heads = 8\n"};

// Opens the NVRTC that pip calls by this name.
std::shared_ptr<Compiler> nvrtc_of_index(const std::string& requirement) {
  const std::string folder = KVJIT_BINARY_DIR "/tests/nvrtc";
  FILE* const wheel = popen(
      fmt::format("'" KVJIT_SOURCE_DIR "/tests/compile/nvrtc_wheel' '{}' '{}'", folder, requirement).c_str(), "r");
  REQUIRE(wheel != nullptr);
  std::string said;
  for (int c; (c = std::fgetc(wheel)) != EOF && c != '\n';) said += char(c);
  const int status = pclose(wheel);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip(said);
  REQUIRE_MESSAGE(status == 0, said);
  Options options;
  options.nvrtc_library = said;
  const std::shared_ptr<Compiler> compiler = must(open_nvrtc(options));
  const std::vector<std::string> files = compiler->files();
  REQUIRE(files.size() == 2);  // with its own builtins
  for (const std::string& file : files) REQUIRE(file.compare(0, folder.size(), folder) == 0);
  return compiler;
}

// The kernels of a spec: the program's own, those of the second pass of prefill, and those of operations. None for
// token-major heads where an arch has no bulk copies; any other refusal fails the test.
std::vector<Source> all_kernels(const Spec& spec, const std::string& arch) {
  const Problem problem = must(resolve(spec, registry(), arch));
  const Result<ProgramSource> made = make_program(problem, registry());
  if (!made && spec.token_heads > 0 && !problem.arch.has("bulk_copy")) return {};
  const ProgramSource program = must(made);
  std::vector<Source> all;
  for_each_kernel(program, [&](Role, const Source& source) { all.push_back(source); });
  const OperationSet operations{true, true, true, true};
  for (Source& source : must(operation_kernels({problem}, operations, registry()))) all.push_back(std::move(source));
  return all;
}

// Each arch has every attention kernel of half of the specs, with KVJIT_FULL=1 of all, and one kernel of each other
// kind: that of another spec than the arch before.
Kernels kernels_for(const std::vector<std::string>& archs) {
  const bool is_full = std::getenv("KVJIT_FULL") != nullptr;
  Kernels kernels;
  std::set<std::string> kinds;
  for (std::size_t a = 0; a < archs.size(); ++a)
    for (std::size_t i = 0; i < std::size(kSpecs); ++i) {
      const std::string toml = kSpecs[(a * 2 + i) % std::size(kSpecs)];
      const Spec spec = must(parse_specs(toml, "spec")).front();
      for (const Source& source : all_kernels(spec, archs[a])) {
        const std::string kind = source.name.substr(0, source.name.find('.'));
        const bool is_attention = kind == "decode" || kind == "prefill", is_taken = is_full || (a + i) % 2 == 0;
        if (kinds.insert(archs[a] + " " + kind).second || (is_attention && is_taken)) kernels.add(source, true);
      }
    }
  for (const char* kind : {"decode", "prefill", "merge", "rotate", "merge_contexts", "mask_ranges", "check",
                           "reference", "quantize", "dequantize", "quantize_bulk_wgmma", "quantize_bulk_blocks",
                           "dequantize_bulk", "copy", "requantize_bulk_blocks", "shift", "quantize_rope"})
    CHECK_MESSAGE(std::any_of(archs.begin(), archs.end(),
                              [&](const std::string& arch) { return kinds.count(arch + " " + kind) > 0; }),
                  kind);
  return kernels;
}

TEST_CASE("kernels of every family compile with the oldest NVRTC that kvjit takes, and with newer ones") {
  std::vector<std::string> requirements = {kOldest};
  if (std::getenv("KVJIT_FULL")) requirements.insert(requirements.end(), {kMiddle, kNewest});
  std::vector<std::shared_ptr<Compiler>> compilers;
  for (const std::string& requirement : requirements) compilers.push_back(nvrtc_of_index(requirement));
  CHECK(compilers[0]->identity().find("nvrtc " + to_string(kLeastNvrtc) + " ") == 0);
  for (const std::shared_ptr<Compiler>& compiler : compilers) {
    std::vector<std::string> archs;
    for (const char* arch : kWantedArchs)
      if (archs.size() < kArchs && is_known(arch, *compiler)) archs.push_back(arch);
    REQUIRE(archs.size() == kArchs);
    fmt::print("{}, {}:\n", compiler->identity(), fmt::join(archs, " "));
    kernels_for(archs).compile(kThreads, INT_MAX, compiler);
  }
}

}  // namespace
}  // namespace kvjit::test
