// NVRTC, opened at run time: compiles a Source to a cubin or to PTX. It needs no nvrtc.h, no driver and no GPU. Several
// threads may compile at once: each compile has its own nvrtcProgram, and NVRTC locks its shared state.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>

#include "runtime/base/arch_name.hpp"
#include "runtime/base/library.hpp"
#include "runtime/compile/compiler.hpp"
#include "runtime/compile/nvrtc_builtins.hpp"
#include "runtime/compile/nvrtc_places.hpp"
#include "runtime/compile/nvrtc_version.hpp"

namespace kvjit {
namespace {

// Declarations from nvrtc.h, the same in CUDA 11.8 to 13.5.
using nvrtcProgram = struct NvrtcProgramOpaque*;
constexpr int kNvrtcSuccess = 0;
constexpr int kNvrtcErrorCompilation = 6;
constexpr int kNvrtcErrorBuiltins = 7;  // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE

// NVRTC 12.9 and later call the callback during a compile. It returns 0 to go on.
using SetFlowCallback = int (*)(nvrtcProgram program, int (*callback)(void* payload, void* reserved), void* payload);

#define KVJIT_NVRTC_API(X)                                                                                  \
  X(const char*, nvrtcGetErrorString, (int result))                                                         \
  X(int, nvrtcVersion, (int* major, int* minor))                                                            \
  X(int, nvrtcGetNumSupportedArchs, (int* count))                                                           \
  X(int, nvrtcGetSupportedArchs, (int* archs))                                                              \
  X(int, nvrtcCreateProgram,                                                                                \
    (nvrtcProgram * program, const char* text, const char* name, int n_headers, const char* const* headers, \
     const char* const* include_names))                                                                     \
  X(int, nvrtcDestroyProgram, (nvrtcProgram * program))                                                     \
  X(int, nvrtcCompileProgram, (nvrtcProgram program, int n_options, const char* const* options))            \
  X(int, nvrtcGetProgramLogSize, (nvrtcProgram program, std::size_t * bytes))                               \
  X(int, nvrtcGetProgramLog, (nvrtcProgram program, char* log))                                             \
  X(int, nvrtcGetCUBINSize, (nvrtcProgram program, std::size_t * bytes))                                    \
  X(int, nvrtcGetCUBIN, (nvrtcProgram program, char* cubin))                                                \
  X(int, nvrtcGetPTXSize, (nvrtcProgram program, std::size_t * bytes))                                      \
  X(int, nvrtcGetPTX, (nvrtcProgram program, char* ptx))

struct Api {
#define X(result, name, parameters) result(*name) parameters = nullptr;
  KVJIT_NVRTC_API(X)
#undef X
  SetFlowCallback set_flow_callback = nullptr;  // null in older libraries: a compile then runs to its end
};

int is_stop_requested(void* payload, void*) { return static_cast<std::stop_token*>(payload)->stop_requested() ? 1 : 0; }

// A cubin of these kernels is below 1 MB. A larger size than this means a broken library.
constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 30;

// The number before ` what` in the report of ptxas ("... Used 40 registers, ... 0 bytes stack frame, ..."); the largest
// one if the report has several entries.
int number_before(std::string_view log, std::string_view what) {
  int largest = 0;
  for (auto at = log.find(what); at != std::string_view::npos; at = log.find(what, at + 1)) {
    auto start = at;
    while (start > 0 && log[start - 1] >= '0' && log[start - 1] <= '9') --start;
    int number = 0;
    std::from_chars(log.data() + start, log.data() + at, number);
    largest = std::max(largest, number);
  }
  return largest;
}

std::vector<std::string> first_lines(const std::string& text, std::size_t count) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    if (lines.size() == count) {
      lines.push_back(fmt::format("... {} more bytes of log", text.size() - at));
      break;
    }
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

class NvrtcCompiler final : public Compiler {
 public:
  NvrtcCompiler(Library library, const Api& api, NvrtcVersion version, std::string builtins_file, ArtefactKind kind)
      : library_(std::move(library)),
        api_(api),
        version_(version),
        builtins_file_(std::move(builtins_file)),
        kind_(kind) {}

  Result<void> start() {
    int n_archs = 0;
    KV_CHECK(check(api_.nvrtcGetNumSupportedArchs(&n_archs), "nvrtcGetNumSupportedArchs"));
    std::vector<int> numbers(std::clamp(n_archs, 1, 1024));
    KV_CHECK(check(api_.nvrtcGetSupportedArchs(numbers.data()), "nvrtcGetSupportedArchs"));
    for (const int number : numbers)
      if (number != 89 || version_ >= kLeastForSm89) archs_.push_back(fmt::format("sm_{}", number));
    return {};
  }

  std::string identity() const override { return fmt::format("nvrtc {} {}", to_string(version_), library_.digest()); }

  std::vector<std::string> options(const Source& source) const override { return nvrtc_options(source, kind_); }

  std::vector<std::string> archs() const override { return archs_; }
  std::vector<std::string> files() const override {
    std::vector<std::string> files = {library_.path()};
    if (!builtins_file_.empty()) files.push_back(builtins_file_);
    return files;
  }
  bool can_stop() const override { return api_.set_flow_callback != nullptr; }

  Result<Artefact> compile(const Source& source, std::stop_token stop) override {
    if (std::find(archs_.begin(), archs_.end(), without_suffix(source.arch)) == archs_.end())
      return fail(Code::unsupported,
                  fmt::format("{} is not known to {}; it knows {}", source.arch, described(), fmt::join(archs_, ", ")));

    const auto begin = std::chrono::steady_clock::now();
    nvrtcProgram program = nullptr;
    const std::string file = source.name + ".cu";
    KV_CHECK(check(api_.nvrtcCreateProgram(&program, source.text.str().c_str(), file.c_str(), 0, nullptr, nullptr),
                   "nvrtcCreateProgram"));
    const auto destroy = [this](nvrtcProgram handle) { api_.nvrtcDestroyProgram(&handle); };
    const std::unique_ptr<NvrtcProgramOpaque, decltype(destroy)> owner(program, destroy);

    auto list = options(source);
    // NVRTC 12.9 and later have their own cache on machines with a driver. A hit there has no resource report, so a
    // check for spills would pass without a number. The key does not hold this option, because the output is the same.
    if (version_ >= NvrtcVersion{12, 9}) list.push_back("--no-cache");
    // No kernel uses NVRTC's own headers. The key does not hold this option either, because the output is the same.
    if (version_.major >= 13) list.push_back("--minimal");
    // The log of a refused kernel holds what refused it. Nor does the key hold this option.
    list.push_back("--disable-warnings");
    std::vector<const char*> pointers;
    for (const auto& option : list) pointers.push_back(option.c_str());
    if (api_.set_flow_callback && stop.stop_possible())
      KV_CHECK(check(api_.set_flow_callback(program, is_stop_requested, &stop), "nvrtcSetFlowCallback"));
    const int status = api_.nvrtcCompileProgram(program, static_cast<int>(pointers.size()), pointers.data());

    Artefact artefact;
    artefact.kind = kind_;
    KV_TRY(log, fetch<std::string>(program, api_.nvrtcGetProgramLogSize, api_.nvrtcGetProgramLog, "the log"));
    artefact.log = log.c_str();  // NVRTC's length includes the terminator
    if (status == kNvrtcErrorCompilation)
      return fail(Code::compile, fmt::format("NVRTC {} refused {}", to_string(version_), file), {},
                  first_lines(artefact.log, 40));
    if (status == kNvrtcErrorBuiltins) return no_builtins(artefact.log);
    if (stop.stop_requested()) return fail(Code::cancelled, fmt::format("compiling {} was cancelled", source.name));
    if (status != kNvrtcSuccess)
      return fail(Code::compile,
                  fmt::format("{} failed on {} with options {}: {}", described(), file, fmt::join(list, " "),
                              api_.nvrtcGetErrorString(status)),
                  {}, first_lines(artefact.log, 40));

    const bool is_ptx = kind_ == ArtefactKind::ptx;
    KV_TRY(bytes, fetch<std::vector<std::uint8_t>>(program, is_ptx ? api_.nvrtcGetPTXSize : api_.nvrtcGetCUBINSize,
                                                   is_ptx ? api_.nvrtcGetPTX : api_.nvrtcGetCUBIN,
                                                   is_ptx ? "the PTX" : "the cubin"));
    artefact.bytes = std::move(bytes);
    artefact.registers = number_before(artefact.log, " registers");
    if (!is_ptx && artefact.registers == 0)
      return fail(Code::environment, fmt::format("{} gave no resource report for {}", described(), file));
    artefact.stack_bytes = number_before(artefact.log, " bytes stack frame");
    artefact.spill_store_bytes = number_before(artefact.log, " bytes spill stores");
    artefact.spill_load_bytes = number_before(artefact.log, " bytes spill loads");
    artefact.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return artefact;
  }

 private:
  std::string described() const { return fmt::format("NVRTC {} ({})", to_string(version_), library_.path()); }

  tl::unexpected<Error> no_builtins(const std::string& log) const {
    std::vector<std::string> notes = first_lines(log, 40);
    for (const std::string& found : builtins_found(library_.path())) notes.push_back(found);
    notes.push_back(kBuiltinsRemedy);
    return fail(Code::environment, fmt::format("{} cannot use a {}", described(), builtins_name(version_)), {},
                std::move(notes));
  }

  Result<void> check(int status, const char* doing) const {
    if (status == kNvrtcSuccess) return {};
    return fail(Code::environment,
                fmt::format("{} of {} failed: {}", doing, library_.path(), api_.nvrtcGetErrorString(status)));
  }

  template <class Bytes>
  Result<Bytes> fetch(nvrtcProgram program, int (*size_of)(nvrtcProgram, std::size_t*),
                      int (*copy)(nvrtcProgram, char*), const char* what) const {
    std::size_t bytes = 0;
    KV_CHECK(check(size_of(program, &bytes), what));
    if (bytes > kMaxOutputBytes)
      return fail(Code::compile, fmt::format("NVRTC reports {} bytes for {}: more than any kernel has", bytes, what));
    Bytes content(bytes, 0);
    if (bytes) KV_CHECK(check(copy(program, reinterpret_cast<char*>(content.data())), what));
    return content;
  }

  Library library_;
  Api api_;
  NvrtcVersion version_;
  std::string builtins_file_;  // "": NVRTC finds it by itself, or does not
  ArtefactKind kind_;
  std::vector<std::string> archs_;
};

}  // namespace

std::vector<std::string> nvrtc_options(const Source& source, ArtefactKind kind) {
  std::string arch = source.arch;
  if (kind == ArtefactKind::ptx && arch.starts_with("sm_")) arch.replace(0, 3, "compute_");
  return {"--gpu-architecture=" + arch, "--std=c++20", "--ptxas-options=-v", "--device-as-default-execution-space"};
}

Result<std::shared_ptr<Compiler>> open_nvrtc(const Options& options, ArtefactKind kind) {
  Api api;
  NvrtcVersion version;
  std::string builtins_file;
  const auto refuse = [&](const Library& library) -> std::string {
    const std::string needed = fmt::format("kvjit needs NVRTC {} or later", to_string(kLeastNvrtc));
#define X(result, name, parameters)                                         \
  api.name = reinterpret_cast<result(*) parameters>(library.symbol(#name)); \
  if (!api.name) return fmt::format("{} has no " #name ": {}", library.path(), needed);
    KVJIT_NVRTC_API(X)
#undef X
    api.set_flow_callback = reinterpret_cast<SetFlowCallback>(library.symbol("nvrtcSetFlowCallback"));
    if (const int status = api.nvrtcVersion(&version.major, &version.minor); status != kNvrtcSuccess)
      return fmt::format("{} does not tell its version: {}", library.path(), api.nvrtcGetErrorString(status));
    if (version < kLeastNvrtc) return fmt::format("{} is NVRTC {}: {}", library.path(), to_string(version), needed);
    const auto builtins = open_builtins(library.path(), version);
    if (!builtins) return builtins.error().message;
    builtins_file = *builtins;
    return "";
  };
  const std::string remedy = fmt::format(
      "install NVRTC {} or later (apt: cuda-nvrtc-13-0, pip: nvidia-cuda-nvrtc, conda: cuda-nvrtc), name its file or "
      "folder in KVJIT_NVRTC, or run on the CPU back-end",
      to_string(kLeastNvrtc));
  KV_TRY(library, Library::open("NVRTC (libnvrtc)", nvrtc_places(options), remedy, refuse));
  auto compiler = std::make_shared<NvrtcCompiler>(library, api, version, builtins_file, kind);
  KV_CHECK(compiler->start());
  return compiler;
}

}  // namespace kvjit
