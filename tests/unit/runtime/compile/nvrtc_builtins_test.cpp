// runtime/compile/nvrtc_builtins.cpp, and what open_nvrtc refuses: an NVRTC that is too old, one whose builtins are of
// another version, one that finds none. The libraries are made of a few lines by the host compiler.
// SPDX-License-Identifier: MIT
#include "runtime/compile/nvrtc_builtins.hpp"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>

#include "runtime/compile/compiler.hpp"
#include "tests/support/temp_folder.hpp"

using namespace kvjit;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A folder of libraries with the functions of NVRTC, which say that they are of some version.
struct Installation {
  test::TempFolder folder;
  int next = 0;

  std::string library(const std::string& file, const std::string& soname, const std::string& text) {
    const std::string path = folder.path + "/" + file, source = fmt::format("{}/{}.c", folder.path, next++);
    std::ofstream(source) << text;
    REQUIRE(std::system(
                fmt::format("c++ -shared -fPIC -Wl,-soname,{} -x c '{}' -o '{}'", soname, source, path).c_str()) == 0);
    return path;
  }
  // status: what each compile ends with.
  std::string nvrtc(const std::string& file, NvrtcVersion version, int status = 0) {
    return library(file, fmt::format("libkvjit-test-{}-{}.so", version.major, next),
                   fmt::format(R"(
int nvrtcVersion(int* major, int* minor) {{ return *major = {}, *minor = {}, 0; }}
int nvrtcGetNumSupportedArchs(int* count) {{ return *count = 1, 0; }}
int nvrtcGetSupportedArchs(int* archs) {{ return archs[0] = 90, 0; }}
const char* nvrtcGetErrorString(int status) {{ return "no error of NVRTC"; }}
int nvrtcCreateProgram(void** p, const char* t, const char* n, int c, void* h, void* i) {{ return *p = p, 0; }}
int nvrtcDestroyProgram(void** p) {{ return 0; }}
int nvrtcCompileProgram(void* p, int n, void* o) {{ return {}; }}
int nvrtcGetProgramLogSize(void* p, unsigned long* bytes) {{ return *bytes = 9, 0; }}
int nvrtcGetProgramLog(void* p, char* log) {{ return __builtin_strcpy(log, "its log."), 0; }}
int nvrtcGetCUBINSize(void* p, unsigned long* bytes) {{ return *bytes = 0, 0; }}
int nvrtcGetCUBIN(void* p, char* to) {{ return 0; }}
int nvrtcGetPTXSize(void* p, unsigned long* bytes) {{ return *bytes = 0, 0; }}
int nvrtcGetPTX(void* p, char* to) {{ return 0; }}
)",
                               version.major, version.minor, status));
  }
  // file: of the version whose builtins it has.
  std::string builtins(const std::string& file, NvrtcVersion version) {
    return library(
        file, builtins_name(version),
        fmt::format("void __nvrtc_builtins__{}_{}_getBuiltinHeader(void) {{}}\n", version.major, version.minor));
  }
};

Result<std::shared_ptr<Compiler>> open_at(const std::string& place) {
  Options options;
  options.nvrtc_library = place;
  return open_nvrtc(options);
}

}  // namespace

TEST_CASE("an NVRTC before the oldest one that serves is refused: what was found, what is needed, what to do") {
  Installation old;
  const std::string file = old.nvrtc("libnvrtc.so.11.2", {11, 8});
  for (const std::string& place : {file, old.folder.path}) {
    const auto opened = open_at(place);
    REQUIRE(!opened);
    CHECK(opened.error().code == Code::environment);
    CHECK(opened.error().message ==
          fmt::format("{} is NVRTC 11.8: kvjit needs NVRTC {} or later", file, to_string(kLeastNvrtc)));
    CHECK(contains(opened.error().notes.back(), "name its file or folder in KVJIT_NVRTC"));
  }
  CHECK(open_at(old.nvrtc("libleast.so", kLeastNvrtc)).has_value());
}

TEST_CASE("a folder with an old NVRTC and one that serves: the latter is taken") {
  Installation both;
  both.nvrtc("libnvrtc.so.12", {12, 0});
  both.nvrtc("libnvrtc.so.20", {11, 8});  // the larger number is tried first
  const auto opened = open_at(both.folder.path);
  REQUIRE(opened);
  CHECK(contains((*opened)->identity(), "nvrtc 12.0 "));
  CHECK((*opened)->files().front() == both.folder.path + "/libnvrtc.so.12");
}

TEST_CASE("builtins beside NVRTC are opened with it; those of another version are refused by their file") {
  Installation right;
  const std::string nvrtc = right.nvrtc("libnvrtc.so.12", {12, 3}),
                    builtins = right.builtins("libnvrtc-builtins.so.12.3", {12, 3});
  right.builtins("libnvrtc-builtins.so.12.2", {12, 2});
  const auto opened = open_at(nvrtc);
  REQUIRE(opened);
  CHECK((*opened)->files() == std::vector<std::string>{nvrtc, builtins});

  Installation renamed;
  const std::string other = renamed.nvrtc("libnvrtc.so.12", {12, 3}),
                    foreign = renamed.builtins("libnvrtc-builtins.so.12.3", {12, 1});
  const auto refused = open_at(other);
  REQUIRE(!refused);
  CHECK(refused.error().code == Code::environment);
  CHECK(refused.error().message ==
        fmt::format("{} has no builtins of NVRTC 12.3, which {} needs: its maker named it 'libnvrtc-builtins.so.12.1'",
                    foreign, other));
}

TEST_CASE("a compile without builtins names those that are there, and what to do") {
  constexpr int kNoBuiltins = 7;  // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
  Installation mixed;
  const std::string nvrtc = mixed.nvrtc("libnvrtc.so.12", {12, 3}, kNoBuiltins),
                    other = mixed.builtins("libnvrtc-builtins.so.12.1", {12, 1});
  const auto opened = open_at(nvrtc);
  REQUIRE(opened);
  Source source;
  source.name = "sample";
  source.arch = "sm_90a";
  const auto compiled = (*opened)->compile(source);
  REQUIRE(!compiled);
  CHECK(compiled.error().code == Code::environment);
  CHECK(compiled.error().message == fmt::format("NVRTC 12.3 ({}) cannot use a libnvrtc-builtins.so.12.3", nvrtc));
  const std::string notes = fmt::format("{}", fmt::join(compiled.error().notes, "\n"));
  CHECK(contains(notes, "its log."));
  CHECK(contains(notes, "beside NVRTC lies " + other));
  CHECK(compiled.error().notes.back() == kBuiltinsRemedy);

  std::filesystem::remove(other);
  CHECK(contains(render((*opened)->compile(source).error()), "beside NVRTC lies no libnvrtc-builtins"));
}
