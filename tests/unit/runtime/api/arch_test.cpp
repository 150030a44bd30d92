// The C interface: which arch the programs of a context are for, by the options `arch` and `as_ptx`. The GPU is
// tests/support/fake_cuda.cpp; nothing is compiled, because readiness only asks.
// SPDX-License-Identifier: MIT
#include <cstdlib>

#include "tests/unit/runtime/api/session.hpp"

namespace kvjit::test {
namespace {

// The fake GPU instead of the machine's, by the variable that names libcuda.
class FakeGpu {
 public:
  FakeGpu() {
    if (const char* value = std::getenv("KVJIT_CUDA")) saved_ = value;
    setenv("KVJIT_CUDA", KVJIT_FAKE_CUDA, 1);
  }
  ~FakeGpu() {
    if (saved_.empty())
      unsetenv("KVJIT_CUDA");
    else
      setenv("KVJIT_CUDA", saved_.c_str(), 1);
  }

 private:
  std::string saved_;
};

struct Archs {
  kvjit_status open(const char* arch, int as_ptx, int device = KVJIT_DEVICE_GPU) {
    auto options = sized<kvjit_context_options>();
    options.device = device;
    options.cache_dir = "off";
    options.arch = arch;
    options.as_ptx = as_ptx;
    return context.open(options, error);
  }
  kvjit_device_info device() {
    auto info = sized<kvjit_device_info>();
    REQUIRE(kvjit_context_device(context.get(), &info, &error) == KVJIT_OK);
    return info;
  }
  int state(const std::string& toml, const char* arch) {
    const char* const specs[] = {toml.c_str()};
    auto call = sized<kvjit_readiness_call>();
    call.specs = specs, call.spec_count = 1, call.arch = arch;
    int state = 0;
    INFO(error.message);
    REQUIRE(kvjit_readiness(context.get(), &call, &state, &error) == KVJIT_OK);
    return state;
  }

  FakeGpu gpu;
  kvjit::api::Context context;
  kvjit_error error = sized<kvjit_error>();
  const std::string toml = spec("none", "planar"), for_hopper = toml + "[target]\narch = \"sm_90a\"\n",
                    for_ampere = toml + "[target]\narch = \"sm_80\"\n";
};

TEST_CASE_FIXTURE(Archs, "a context as PTX has programs for its arch, instead of the spec's") {
  REQUIRE(open("sm_80", 1) == KVJIT_OK);
  const kvjit_device_info info = device();
  CHECK(std::string(info.arch) == "sm_80");
  CHECK(std::string(info.own_arch) == "sm_90a");
  CHECK(info.runs_ptx == 1);
  for (const std::string& each : {toml, for_hopper, for_ampere}) CHECK(state(each, nullptr) == KVJIT_UNCOMPILED);
  CHECK(state(toml, "sm_75") == KVJIT_UNCOMPILED);
  // A program names its own arch, by the same rules.
  CHECK(state(toml, "sm_90a") == KVJIT_REFUSED);
  CHECK(state(toml, "sm_120") == KVJIT_REFUSED);
  kvjit::api::Program program;
  CHECK(program.open(context, toml.c_str(), nullptr, "sm_90a", error) == KVJIT_UNSUPPORTED);
  CHECK(contains(error.message, "PTX of sm_90a is not portable"));
}

TEST_CASE_FIXTURE(Archs, "without it the spec's archs hold, and the refusal names both options") {
  REQUIRE(open(nullptr, 0) == KVJIT_OK);
  CHECK(device().runs_ptx == 0);
  CHECK(state(for_hopper, nullptr) == KVJIT_UNCOMPILED);
  CHECK(state(for_ampere, nullptr) == KVJIT_REFUSED);
  kvjit::api::Program program;
  CHECK(program.open(context, for_ampere.c_str(), nullptr, nullptr, error) == KVJIT_UNSUPPORTED);
  CHECK(contains(error.notes, "`arch` and `as_ptx` of a context"));
}

TEST_CASE_FIXTURE(Archs, "options that make no sense are refused") {
  CHECK(open("sm_80", 0) == KVJIT_UNSUPPORTED);
  CHECK(contains(error.notes, "as_ptx"));
  CHECK(open("sm_90a", 1) == KVJIT_UNSUPPORTED);
  CHECK(open(nullptr, 1) == KVJIT_USAGE);
  CHECK(open("sm_80", 1, KVJIT_DEVICE_CPU) == KVJIT_USAGE);
  REQUIRE(open("sm_75", 0, KVJIT_DEVICE_CPU) == KVJIT_OK);
  CHECK(std::string(device().arch) == "sm_75");
  CHECK(std::string(device().own_arch).empty());
}

}  // namespace
}  // namespace kvjit::test
