// The C++ compiler of this machine, as a Compiler for the CPU back-end. It compiles a kernel's text, together with
// templates/device/cpu.hpp, to a shared object. The compiler runs by posix_spawn, without a shell, in a private folder
// that is removed afterwards; the output holds no path.
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "generator/catalogue/registry.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/base/temporary.hpp"
#include "runtime/compile/compiler.hpp"

extern char** environ;

namespace kvjit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDeviceLayer = "templates/device/cpu.hpp";
constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // a larger shared object is refused
constexpr std::size_t kMostLog = 64 * 1024;

//   -Og                   Most kernels are built for one short test run. With g++ 12 on two cores, 203 kernels of 25
//                         K/V formats take 85 s to compile and check, and 143 s at -O1.
//   -ffp-contract=off     The *_rn functions of the device layer rely on it.
//   -fno-strict-aliasing  Kernels read and write the bytes of shared memory as several types.
const std::vector<std::string> kOptions = {"-std=c++20",
                                           "-Og",
                                           "-g0",
                                           "-w",
                                           "-fPIC",
                                           "-shared",
                                           "-ffp-contract=off",
                                           "-fno-strict-aliasing",
                                           "-fno-math-errno",
                                           "-include",
                                           "device/cpu.hpp"};

std::string read_text(const fs::path& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

Result<void> write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return fail(Code::environment, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  return {};
}

struct Ended {
  int status = 0;      // exit status, or the negative number of the signal
  std::string output;  // stdout and stderr together
};

// Runs the program at the path arguments[0] in `folder` and waits for its end; `stop` ends it early. The output goes to
// a file, because a full pipe would block the program.
Result<Ended> run(const std::vector<std::string>& arguments, const fs::path& folder, std::stop_token stop = {}) {
  const fs::path log = folder / "output";
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  // This process may ignore SIGPIPE and SIGCHLD. The compiler has them as a shell would give them; it needs SIGCHLD to
  // wait for its own parts.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGCHLD);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int problem = posix_spawn(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0)
    return fail(Code::environment, fmt::format("cannot start {}: {}", arguments[0], std::strerror(problem)));

  {
    const std::stop_callback end_child(stop, [child] { kill(child, SIGTERM); });
    siginfo_t ended{};
    // WNOWAIT leaves the child a zombie, so its process id is not reused while `stop` may still signal it.
    while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == ECHILD)
      return fail(
          Code::environment,
          fmt::format("the exit status of {} is lost: this process ignores SIGCHLD, or another part of it "
                      "waits for every child. SIGCHLD must have its default (SIG_DFL) while kernels are compiled",
                      arguments[0]));
    if (errno != EINTR) return fail(Code::environment, fmt::format("lost {}: {}", arguments[0], std::strerror(errno)));
  }
  return Ended{WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_text(log, kMostLog)};
}

// The path of a program. A name with a slash is a path; else PATH is searched, as a shell does.
std::optional<std::string> find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos)
    return is_program(name) ? std::optional(fs::absolute(name).string()) : std::nullopt;
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string candidate = fmt::format("{}/{}", rest.substr(0, end), name);
    if (end != 0 && candidate[0] == '/' && is_program(candidate)) return candidate;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::nullopt;
}

class HostCompiler : public Compiler {
 public:
  HostCompiler(std::string program, std::string identity, const std::string& device_layer)
      : program_(std::move(program)), identity_(std::move(identity)), options_(kOptions), device_layer_(device_layer) {
    // GCC marks inline variables as unique in the process, and an object with such a variable is never unloaded. Clang
    // does not.
    if (identity_.find("clang") == std::string::npos) options_.push_back("-fno-gnu-unique");
  }

  std::string identity() const override { return identity_; }
  std::vector<std::string> options(const Source&) const override { return options_; }
  std::vector<std::string> archs() const override { return {}; }
  std::vector<std::string> files() const override { return {program_}; }
  Result<Artefact> compile(const Source& source, std::stop_token stop) override;

 private:
  std::string program_, identity_;
  std::vector<std::string> options_;
  const std::string& device_layer_;
};

Result<Artefact> HostCompiler::compile(const Source& source, std::stop_token stop) {
  const auto begin = std::chrono::steady_clock::now();
  KV_TRY(folder, TemporaryFolder::make());
  // A signal removes these files, then their folders.
  const std::string base = folder.path();
  const TemporaryMark marks[] = {TemporaryMark(base),
                                 TemporaryMark(base + "/device"),
                                 TemporaryMark(base + "/device/cpu.hpp"),
                                 TemporaryMark(base + "/kernel.cu"),
                                 TemporaryMark(base + "/kernel.so"),
                                 TemporaryMark(base + "/output")};
  if (mkdir((folder.path() / "device").c_str(), 0700) != 0)
    return fail(Code::environment, fmt::format("cannot make a folder: {}", std::strerror(errno)));
  KV_CHECK(write_text(folder.path() / "device/cpu.hpp", device_layer_));
  KV_CHECK(write_text(folder.path() / "kernel.cu", source.text.str()));

  std::vector<std::string> arguments = {program_};
  arguments.insert(arguments.end(), options_.begin(), options_.end());
  arguments.insert(arguments.end(), {"-I.", "-x", "c++", "kernel.cu", "-o", "kernel.so"});
  KV_TRY(ended, run(arguments, folder.path(), stop));
  if (stop.stop_requested()) return fail(Code::cancelled, fmt::format("compiling {} was cancelled", source.name));
  // A compiler without room for its output may be unable to say so.
  if (ended.status != 0 && ended.output.empty()) KV_CHECK(folder.check_space());
  if (ended.status != 0)
    return fail(Code::compile,
                fmt::format("{} {} on {}", program_,
                            ended.status > 0 ? fmt::format("failed with status {}", ended.status)
                                             : fmt::format("was ended by signal {}", -ended.status),
                            source.name),
                {}, {ended.output.empty() ? "it said nothing" : ended.output});

  const fs::path object = folder.path() / "kernel.so";
  std::error_code error;
  const std::uintmax_t size = fs::file_size(object, error);
  if (error || size == 0 || size > kMostBytes)
    return fail(Code::compile, fmt::format("{} left no usable object for {}", program_, source.name), {},
                {ended.output});
  const std::string bytes = read_text(object, static_cast<std::size_t>(size));
  if (bytes.size() != size)
    return fail(Code::environment, fmt::format("cannot read the object that {} made of {}", program_, source.name));

  Artefact artefact;
  artefact.kind = ArtefactKind::host_object;
  artefact.bytes.assign(bytes.begin(), bytes.end());
  artefact.log = ended.output;
  artefact.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return artefact;
}

}  // namespace

std::vector<std::string> host_options() {
  std::vector<std::string> options = kOptions;
  if (const auto device_layer = embedded_files().find(kDeviceLayer); device_layer != embedded_files().end())
    options.push_back("cpu.hpp sha256:" + hex(sha256(device_layer->second)));
  return options;
}

Result<std::shared_ptr<Compiler>> open_host_compiler(const Options& options) {
  const auto device_layer = embedded_files().find(kDeviceLayer);
  if (device_layer == embedded_files().end())
    return fail(Code::internal, fmt::format("{} is not embedded", kDeviceLayer));

  // The usual names are tried only if the caller names no compiler. A named compiler is the only one that is tried.
  const std::vector<std::string> names = options.host_compiler.empty()
                                             ? std::vector<std::string>{"c++", "g++", "clang++"}
                                             : std::vector<std::string>{options.host_compiler};
  std::vector<std::string> notes;
  KV_TRY(folder, TemporaryFolder::make());
  for (const std::string& name : names) {
    const std::optional<std::string> program = find_program(name);
    if (!program) {
      notes.push_back(fmt::format("{}: not an executable file{}", name,
                                  name.find('/') == std::string::npos ? " in any folder of PATH" : ""));
      continue;
    }
    Result<Ended> ended = run({*program, "--version"}, folder.path());
    if (!ended || ended->status != 0 || ended->output.empty()) {
      notes.push_back(fmt::format(
          "{}: {}", *program, ended ? fmt::format("--version gave status {}", ended->status) : ended.error().message));
      continue;
    }
    const std::string version = ended->output.substr(0, ended->output.find('\n'));
    return std::make_shared<HostCompiler>(
        *program, fmt::format("{}; cpu.hpp sha256:{}", version, hex(sha256(device_layer->second))),
        device_layer->second);
  }
  notes.push_back("the CPU back-end compiles kernels with a C++20 compiler; name one program with KVJIT_CXX");
  return fail(Code::environment, "no C++ compiler for the CPU back-end", {}, std::move(notes));
}

}  // namespace kvjit
