// Opens shared libraries and identifies their build: see library.hpp. The build id is read from the loaded image's
// program headers, because a file of 110 MB takes longer to hash than a kernel takes to compile.
// SPDX-License-Identifier: MIT
#include "runtime/base/library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/sha256.hpp"

namespace kvjit {
namespace {

std::string path_of(void* handle, const std::string& name) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0') return name;
  char resolved[PATH_MAX];
  return realpath(map->l_name, resolved) ? resolved : map->l_name;
}

struct BuildId {
  ElfW(Addr) base;  // load address of the library
  std::string hex;
};

int read_build_id(dl_phdr_info* info, std::size_t, void* out) {
  auto& wanted = *static_cast<BuildId*>(out);
  if (info->dlpi_addr != wanted.base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    const auto* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* content = name + (note.n_namesz + 3) / 4 * 4;  // name and content are padded to 4 bytes each
      if (note.n_type == NT_GNU_BUILD_ID && content + note.n_descsz <= end) wanted.hex = hex({content, note.n_descsz});
      at = content + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

std::string file_digest(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "unreadable";
  Sha256 hash;
  std::vector<std::uint8_t> block(1 << 20);
  ssize_t got = 0;
  while ((got = ::read(fd, block.data(), block.size())) > 0) hash.update({block.data(), static_cast<std::size_t>(got)});
  ::close(fd);
  return got < 0 ? "unreadable" : "sha256:" + hex(hash.finish());
}

}  // namespace

Result<Library> Library::open(const std::string& what, const std::vector<std::string>& candidates,
                              const std::string& remedy) {
  std::vector<std::string> notes;
  for (const auto& candidate : candidates) {
    if (void* handle = dlopen(candidate.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE)) {
      Library library;
      library.path_ = path_of(handle, candidate);
      library.handle_ = handle;
      return library;
    }
    const char* why = dlerror();
    notes.push_back("searched " + candidate + ": " + (why ? why : "the loader gave no reason"));
  }
  notes.push_back(remedy);
  return fail(Code::environment, what + " could not be loaded", {}, std::move(notes));
}

void* Library::symbol(const char* name) const { return dlsym(handle_, name); }

std::string Library::digest() const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
    BuildId id{map->l_addr, {}};
    dl_iterate_phdr(read_build_id, &id);
    if (!id.hex.empty()) return "build-id:" + id.hex;
  }
  return file_digest(path_);
}

std::vector<std::string> library_paths(const std::vector<std::string>& folders, const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const auto& pattern : folders) {
    if (pattern.empty() || pattern[0] != '/') continue;  // never load code from the working directory
    glob_t found{};
    if (glob(pattern.c_str(), GLOB_NOCHECK, nullptr, &found) == 0)
      for (std::size_t i = found.gl_pathc; i-- > 0;)
        for (const auto& name : names) paths.push_back(std::string(found.gl_pathv[i]) + "/" + name);
    globfree(&found);
  }
  return paths;
}

}  // namespace kvjit
