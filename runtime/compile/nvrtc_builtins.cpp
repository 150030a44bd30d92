// Opens and judges the builtins of NVRTC: see nvrtc_builtins.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/compile/nvrtc_builtins.hpp"

#include <unistd.h>

#include "runtime/base/library.hpp"

namespace kvjit {
namespace {

constexpr const char* kStem = "libnvrtc-builtins";

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

const char* const kBuiltinsRemedy =
    "libnvrtc and libnvrtc-builtins must be of one installation: install it again, or name the libnvrtc of another one "
    "in KVJIT_NVRTC";

std::string builtins_name(NvrtcVersion version) { return fmt::format("{}.so.{}", kStem, to_string(version)); }

Result<std::string> open_builtins(const std::string& nvrtc_file, NvrtcVersion version) {
  const std::string name = builtins_name(version), beside = folder_of(nvrtc_file) + "/" + name;
  const bool is_beside = ::access(beside.c_str(), R_OK) == 0;
  const auto builtins = Library::open("the builtins of NVRTC", {{is_beside ? beside : name}, {}, {}}, kBuiltinsRemedy);
  // NVRTC has places of its own, so what is found here by no name may be found there.
  if (!builtins && !is_beside) return std::string();
  if (!builtins) return tl::unexpected(builtins.error());
  // Each function of the builtins has the version in its name.
  const std::string function = fmt::format("__nvrtc_builtins__{}_{}_getBuiltinHeader", version.major, version.minor);
  if (builtins->symbol(function.c_str())) return builtins->path();
  return fail(Code::environment,
              fmt::format("{} has no builtins of NVRTC {}, which {} needs: its maker named it '{}'", builtins->path(),
                          to_string(version), nvrtc_file, builtins->soname()),
              {}, {kBuiltinsRemedy});
}

std::vector<std::string> builtins_found(const std::string& nvrtc_file) {
  std::vector<std::string> notes;
  for (const std::string& file : library_files({glob_escaped(folder_of(nvrtc_file))}, fmt::format("{}.so*", kStem)))
    notes.push_back("beside NVRTC lies " + file);
  if (notes.empty()) notes.push_back(fmt::format("beside NVRTC lies no {}", kStem));
  for (const std::string& file : loaded_files(kStem)) notes.push_back("this process has loaded " + file);
  return notes;
}

}  // namespace kvjit
