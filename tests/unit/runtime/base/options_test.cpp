// runtime/base/options.cpp: environment variables become options; invalid values are named and ignored.
// SPDX-License-Identifier: MIT
#include "runtime/base/options.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>

using namespace kvjit;

namespace {

// Sets exactly the given variables out of those that kvjit reads; restores the old values at its end.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const char* name : {"KVJIT_CACHE_DIR", "KVJIT_CACHE_MAX_BYTES", "KVJIT_NVRTC", "KVJIT_CUDA", "KVJIT_CXX",
                             "CXX", "KVJIT_DEVICE", "KVJIT_DEVICE_ORDINAL", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV",
                             "CONDA_PREFIX", "XDG_CACHE_HOME", "HOME", "PATH", "KVJIT_ARCH", "KVJIT_AS_PTX"}) {
      if (const char* value = std::getenv(name)) saved_[name] = value;
      names_.push_back(name);
      unsetenv(name);
    }
    for (const auto& [name, value] : values) setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& name : names_) {
      if (const auto old = saved_.find(name); old != saved_.end())
        setenv(name.c_str(), old->second.c_str(), 1);
      else
        unsetenv(name.c_str());
    }
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::string> saved_;
};

}  // namespace

TEST_CASE("an empty environment gives the defaults") {
  const Environment environment({});
  const Options options = Options::from_environment();
  CHECK(options.device == DeviceKind::automatic);
  CHECK(options.cache_max_bytes == (2ull << 30));
  CHECK(options.cache_dir.empty());
  CHECK(options.user_cache_dir.empty());
  CHECK(options.host_compiler.empty());
  CHECK(options.arch.empty());
  CHECK_FALSE(options.as_ptx);
  CHECK(options.refused.empty());
}

TEST_CASE("each variable reaches its option") {
  const Environment environment({{"KVJIT_CACHE_DIR", "/c"},
                                 {"KVJIT_CACHE_MAX_BYTES", "123456789012"},
                                 {"KVJIT_NVRTC", "/n.so"},
                                 {"KVJIT_CUDA", "/d.so"},
                                 {"KVJIT_DEVICE", "cpu"},
                                 {"KVJIT_DEVICE_ORDINAL", "3"},
                                 {"KVJIT_ARCH", "sm_80"},
                                 {"KVJIT_AS_PTX", "1"},
                                 {"CXX", "plain"},
                                 {"CUDA_PATH", "/toolkit"},
                                 {"CONDA_PREFIX", "/conda"},
                                 {"PATH", "/a:/b"}});
  const Options options = Options::from_environment();
  CHECK(options.cache_dir == "/c");
  CHECK(options.cache_max_bytes == 123456789012ull);
  CHECK(options.nvrtc_library == "/n.so");
  CHECK(options.cuda_library == "/d.so");
  CHECK(options.device == DeviceKind::cpu);
  CHECK(options.device_ordinal == 3);
  CHECK(options.arch == "sm_80");
  CHECK(options.as_ptx);
  CHECK(options.host_compiler == "plain");
  CHECK(options.cuda_homes == std::vector<std::string>{"/toolkit"});
  CHECK(options.python_homes == std::vector<std::string>{"/conda"});
  CHECK(options.program_paths == std::vector<std::string>{"/a", "/b"});
  CHECK(options.refused.empty());
}

TEST_CASE("the more particular variable wins") {
  const Environment environment({{"KVJIT_CXX", "ours"}, {"CXX", "plain"}, {"CUDA_HOME", "/h"}, {"CUDA_PATH", "/p"}});
  CHECK(Options::from_environment().host_compiler == "ours");
  CHECK(Options::from_environment().cuda_homes == std::vector<std::string>{"/h", "/p"});
}

TEST_CASE("the user's cache folder: XDG before home, relative paths ignored") {
  {
    const Environment environment({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}});
    CHECK(Options::from_environment().user_cache_dir == "/x/kvjit");
  }
  {
    const Environment environment({{"XDG_CACHE_HOME", "x"}, {"HOME", "/h"}});
    CHECK(Options::from_environment().user_cache_dir == "/h/.cache/kvjit");
  }
  {
    const Environment environment({{"HOME", "h"}});
    CHECK(Options::from_environment().user_cache_dir.empty());
  }
}

TEST_CASE("values that make no sense are named, and change nothing") {
  for (const char* number : {"2G", "-1", "1.5", "99999999999999999999999"}) {
    const Environment environment({{"KVJIT_CACHE_MAX_BYTES", number}, {"KVJIT_DEVICE", "gpuu"}, {"KVJIT_AS_PTX", "2"}});
    const Options options = Options::from_environment();
    REQUIRE(options.refused.size() == 3);
    CHECK(options.refused[0].find("KVJIT_AS_PTX='2'") != std::string::npos);
    CHECK(options.refused[1].find(number) != std::string::npos);
    CHECK(options.refused[2].find("gpuu") != std::string::npos);
    CHECK_FALSE(options.as_ptx);
    CHECK(options.cache_max_bytes == (2ull << 30));
    CHECK(options.device == DeviceKind::automatic);
  }
}
