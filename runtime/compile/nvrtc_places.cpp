// Lists toolkits and Python packages that may have NVRTC: see nvrtc_places.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/compile/nvrtc_places.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>

namespace kvjit {
namespace {

constexpr const char* kFiles = "libnvrtc.so*";  // pip has no libnvrtc.so, only libnvrtc.so.13
constexpr const char* kNames[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Whether the file is libnvrtc.so, or has a version behind that. An old one is refused when it is opened, with its
// version in the error.
bool may_serve(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1), stem = kNames[0];
  return name == stem || (name.size() > stem.size() + 1 && name[stem.size()] == '.' &&
                          std::isdigit(static_cast<unsigned char>(name[stem.size() + 1])));
}

// Where pip puts NVIDIA's libraries under the prefix of a Python: lib/python3.12/site-packages/nvidia/cu13/lib. Debian
// says dist-packages, Fedora says lib64.
std::string packages_of(const std::string& prefix) {
  return glob_escaped(prefix) + "/lib*/python3*/*-packages/nvidia/*/lib";
}

// The prefixes of the interpreters in a folder of PATH: the folder's own parent, which has the packages of a virtual
// environment, and that of the real file.
std::vector<std::string> prefixes_in(const std::string& folder) {
  std::vector<std::string> prefixes;
  for (const char* name : {"python3", "python"}) {
    char real[PATH_MAX];
    const std::string program = folder + "/" + name;
    if (folder[0] != '/' || ::access(program.c_str(), X_OK) != 0 || !realpath(program.c_str(), real)) continue;
    for (const std::string& prefix : {parent_of(folder), parent_of(parent_of(real))}) {
      if (prefix.empty()) continue;  // /bin is a link to /usr/bin
      prefixes.push_back(prefix);
      if (prefix == "/usr") prefixes.push_back("/usr/local");  // there pip of a distribution's Python installs
    }
  }
  return prefixes;
}

}  // namespace

LibrarySearch nvrtc_places(const Options& options) {
  LibrarySearch search;
  const auto add = [&search](const std::string& folder) {
    if (std::find(search.folders.begin(), search.folders.end(), folder) == search.folders.end())
      search.folders.push_back(folder);
  };
  if (const std::string& named = options.nvrtc_library; is_folder(named)) {
    char real[PATH_MAX];
    add(glob_escaped(realpath(named.c_str(), real) ? real : named));
  } else if (!named.empty()) {
    search.names = {named};
    return search;
  } else {
    search.names.assign(std::begin(kNames), std::end(kNames));
    for (const std::string& home : options.cuda_homes)
      add(glob_escaped(home) + "/lib64"), add(glob_escaped(home) + "/lib");
    for (const std::string& home : options.python_homes) add(glob_escaped(home) + "/lib"), add(packages_of(home));
    for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", kMachineLibraries}) add(folder);
    for (const std::string& folder : options.program_paths)
      for (const std::string& prefix : prefixes_in(folder)) add(packages_of(prefix));
  }
  search.files = library_files(search.folders, kFiles);
  std::erase_if(search.files, [](const std::string& file) { return !may_serve(file); });
  return search;
}

}  // namespace kvjit
