// Texts for older GPUs on this one, as PTX that the driver compiles: combinations of formats, codec kernels, features
// and prefill against the oracle. tests/README.md names the command that runs whole sets.
// SPDX-License-Identifier: MIT
#include "runtime/store/key.hpp"
#include "tests/device/gpu.hpp"
#include "tests/differential/decode/features.hpp"
#include "tests/differential/harness.hpp"
#include "tests/differential/prefill/rows.hpp"

namespace kvjit::test {
namespace {

std::shared_ptr<Context> as_ptx(const std::string& arch) {
  Options options = Options::from_environment();
  options.device = DeviceKind::gpu;
  options.cache_dir = shared_cache();
  options.arch = arch;
  options.as_ptx = true;
  return must(Context::open(options));
}

// The older archs whose PTX runs on this GPU. Those that it is itself are tested by the other tests.
std::vector<std::string> older_archs() {
  const DeviceInfo& info = gpu()->backend()->info();
  std::vector<std::string> archs;
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_87", "sm_89"})
    if (arch != info.own_arch && check_runs_as_ptx(arch, info)) archs.emplace_back(arch);
  if (archs.empty()) std::printf("not tested: PTX of older archs: %s is the oldest\n", info.own_arch.c_str());
  return archs;
}

std::vector<Planned> all_planned(const std::vector<Case>& cases, const std::string& arch) {
  std::vector<Planned> all;
  for (const Case& test : cases) all.push_back(planned(registry(), test, arch));
  return all;
}

TEST_CASE("texts for older archs run as PTX: pairs and codec kernels") {
  const unsigned threads = std::max(2u, std::thread::hardware_concurrency());
  for (const std::string& arch : older_archs()) {
    CAPTURE(arch);
    const auto context = as_ptx(arch);
    const DeviceInfo& info = context->backend()->info();
    CHECK(info.arch == arch);
    CHECK(info.multiprocessors == gpu()->backend()->info().multiprocessors);
    const std::vector<Planned> all = all_planned({{"tbq4_0", "q8_0", 128, 4, 1, Layout::planar},
                                                  {"f16", "kv4", 128, 8, 2, Layout::rows, true},
                                                  {"q8_0", "f16", 256, 4, 4, Layout::planar, true}},
                                                 arch);
    warm_up(context, all, threads, true);
    for (const Planned& one : all) {
      Judge judge(context, one);
      for (const int tokens : judge.ragged_lengths())
        for (const bool is_reference : {false, true}) judge.check({tokens, {}, 0, is_reference});
      judge.check({257, {}, 5, false});
      check_codec_kernels(judge, one.test.name());
      const Source& decode = one.source.kernels.at(Role::decode);
      const KernelRecord record = must(context->get(decode));
      CHECK(decode.arch == arch);
      CHECK(record.registers == 0);  // PTX: no assembler has reported
      CHECK(field(context->store()->request_key(decode), "kind") == "ptx");
    }
  }
}

TEST_CASE("texts for older archs run as PTX: features") {
  const char* const all =
      "softcap = 5.0\nwindow = [90, 4]\nfeatures = [\"mask\", \"mask_slopes\", \"sinks\", \"lse\", "
      "\"position_offset\"]";
  const std::vector<int> lengths = {900, 0, 1, 33, 128};
  for (const std::string& arch : older_archs()) {
    CAPTURE(arch);
    const auto context = as_ptx(arch);
    for (const FeatureCase& test :
         {FeatureCase{"q8_0", "kv4", all, 8, 1}, FeatureCase{"tbq3_0", "q5_1", all, 2, 3, Layout::rows}}) {
      FeatureJudge judge(context, planned(registry(), test, arch), int(lengths.size()), 900);
      for (const int blocks : {0, 3}) CHECK_MESSAGE(!judge.is_wrong(lengths, blocks), test.k, ", ", blocks);
    }
  }
}

TEST_CASE("texts for older archs run as PTX: prefill in one pass and in two") {
  const std::vector<int> lengths = {700, 0, 5, 128, 257};
  for (const std::string& arch : older_archs()) {
    CAPTURE(arch);
    const auto context = as_ptx(arch);
    for (const Case& test :
         {Case{"f16", "f16", 128, 4, 70, Layout::planar, true}, Case{"f16", "f16", 64, 4, 50, Layout::rows},
          Case{"kv4", "tbq4_0", 128, 4, 70, Layout::planar, true}}) {
      const Planned one = planned(registry(), test, arch);
      const bool is_plain = test.k == "f16", has_prefill = arch != "sm_75";  // which has no asynchronous copies
      CHECK((one.source.kernels.count(Role::prefill) == 1) == (is_plain && has_prefill));
      CHECK(!one.source.second_pass.empty() >= (!is_plain && has_prefill));
      Judge judge(context, one, int(lengths.size()), lengths[0]);
      KernelHarness::Call call{0, lengths, 0, false};
      call.many_rows = !has_prefill ? ManyRows::decode : is_plain ? ManyRows::prefill : ManyRows::two_pass;
      const auto first = judge.check(call);
      for (int i = 0; i < 20; ++i) CHECK(must(judge.attend(call)).out == first);
    }
  }
}

}  // namespace
}  // namespace kvjit::test
