// runtime/base/temporary.cpp: what is removed at the end of a scope, by a signal, and after a process died.
// SPDX-License-Identifier: MIT
#include "runtime/base/temporary.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tests/support/registry.hpp"

using namespace kvjit;
namespace fs = std::filesystem;

namespace {

// A folder that TMPDIR names for the test's duration.
class TmpDir {
 public:
  TmpDir() {
    if (const char* value = std::getenv("TMPDIR")) old_ = value;
    std::string name = (fs::temp_directory_path() / "kvjit-temporary-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
    setenv("TMPDIR", path.c_str(), 1);
  }
  ~TmpDir() {
    old_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", old_.c_str(), 1);
    fs::remove_all(path);
  }
  std::string path;

 private:
  std::string old_;
};

void make_old(const fs::path& path) {
  const timespec times[2] = {{std::time(nullptr) - 7200, 0}, {std::time(nullptr) - 7200, 0}};
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

}  // namespace

TEST_CASE("a folder ends with its scope, and is made only where there is room") {
  const TmpDir base;
  {
    const auto folder = test::must(TemporaryFolder::make());
    std::ofstream(folder.path() / "file") << "x";
    CHECK(fs::exists(folder.path()));
  }
  CHECK(fs::is_empty(base.path));
  setenv("TMPDIR", "/proc", 1);
  CHECK(TemporaryFolder::make().error().code == Code::environment);
  setenv("TMPDIR", base.path.c_str(), 1);
}

TEST_CASE("a signal removes what is marked") {
  const TmpDir base;
  for (const int number : {SIGINT, SIGTERM}) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(number, SIG_DFL);
      remove_temporaries_on_signals();
      const std::string folder = base.path + "/folder", file = folder + "/file", kept = base.path + "/kept";
      mkdir(folder.c_str(), 0700);
      std::ofstream(file) << "x";
      std::ofstream(kept) << "x";
      const TemporaryMark marks[] = {TemporaryMark(folder), TemporaryMark(file)};
      { const TemporaryMark over(kept); }
      raise(number);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    CHECK(!fs::exists(base.path + "/folder"));
    CHECK(fs::exists(base.path + "/kept"));
  }
}

TEST_CASE("the sweep takes old folders of dead processes, and no others") {
  const TmpDir base;
  const auto alive = test::must(TemporaryFolder::make());
  for (const char* name : {"/kvjit-abcdef", "/kvjit-recent", "/kvjit-of-others", "/other-abcdef"})
    fs::create_directories(base.path + name + "/device");
  for (const char* name : {"/kvjit-abcdef", "/kvjit-of-others", "/other-abcdef"}) make_old(base.path + name);
  make_old(alive.path());
  CHECK(sweep_temporary_folders() == 1);
  CHECK(!fs::exists(base.path + "/kvjit-abcdef"));
  CHECK(fs::exists(alive.path()));
  for (const char* name : {"/kvjit-recent", "/kvjit-of-others", "/other-abcdef"}) CHECK(fs::exists(base.path + name));
}
