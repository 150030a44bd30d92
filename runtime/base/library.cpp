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
#include <optional>
#include <set>
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

Result<Library> Library::open(const std::string& what, const LibrarySearch& search, const std::string& remedy,
                              const std::function<std::string(const Library&)>& refuse) {
  std::vector<std::string> notes, refused;
  std::string absent;  // names that the loader did not find
  const auto load = [&](const std::string& name, bool is_listed) -> std::optional<Library> {
    if (void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE)) {
      Library library;
      library.path_ = path_of(handle, name);
      library.handle_ = handle;
      const std::string reason = refuse ? refuse(library) : "";
      if (reason.empty()) return library;
      // A name and a file may lead to the same library.
      if (std::find(refused.begin(), refused.end(), reason) == refused.end()) refused.push_back(reason);
      return std::nullopt;
    }
    const char* said = dlerror();
    std::string why = said ? said : "the loader gave no reason";
    if (why.rfind(name + ": ", 0) == 0) why.erase(0, name.size() + 2);
    if (is_listed && why.find("No such file or directory") != std::string::npos && why.rfind("cannot open", 0) == 0)
      absent += (absent.empty() ? "" : ", ") + name;
    else
      notes.push_back(name + ": " + why);
    return std::nullopt;
  };
  for (const std::string& name : search.names)
    if (auto library = load(name, true)) return *library;
  for (const std::string& file : search.files)
    if (auto library = load(file, false)) return *library;
  if (!absent.empty()) notes.insert(notes.begin(), "the loader finds no " + absent);
  std::string folders;
  for (const std::string& folder : search.folders) folders += (folders.empty() ? "" : ", ") + folder;
  if (!folders.empty()) notes.push_back((search.names.empty() ? "searched " : "searched too: ") + folders);
  notes.push_back(remedy);
  if (refused.empty()) return fail(Code::environment, what + " could not be loaded", {}, std::move(notes));
  notes.insert(notes.begin(), refused.begin() + 1, refused.end());
  return fail(Code::environment, refused[0], {}, std::move(notes));
}

void* Library::symbol(const char* name) const { return dlsym(handle_, name); }

std::string Library::soname() const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  const char* strings = nullptr;
  std::size_t at = 0;  // 0 is the empty string
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB)
      strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);  // the loader relocated it
    if (entry->d_tag == DT_SONAME) at = entry->d_un.d_val;
  }
  return strings ? strings + at : "";
}

std::string Library::digest() const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
    BuildId id{map->l_addr, {}};
    dl_iterate_phdr(read_build_id, &id);
    if (!id.hex.empty()) return "build-id:" + id.hex;
  }
  return file_digest(path_);
}

std::vector<std::string> loaded_files(const std::string& stem) {
  std::pair<const std::string&, std::vector<std::string>> found{stem, {}};
  const auto add = [](dl_phdr_info* info, std::size_t, void* out) {
    auto& [wanted, files] = *static_cast<decltype(found)*>(out);
    const std::string file = info->dlpi_name;
    if (file.compare(file.rfind('/') + 1, wanted.size(), wanted) == 0) files.push_back(file);
    return 0;
  };
  dl_iterate_phdr(add, &found);
  return found.second;
}

std::vector<std::string> library_files(const std::vector<std::string>& folders, const std::string& name) {
  std::vector<std::string> files;
  std::set<std::string> seen;  // by their real paths
  for (const std::string& folder : folders) {
    if (folder.empty() || folder[0] != '/') continue;
    glob_t found{};
    std::vector<std::string> matches;
    if (glob((folder + "/" + name).c_str(), 0, nullptr, &found) == 0)
      matches.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    std::sort(matches.begin(), matches.end(), [](const std::string& a, const std::string& b) {
      return strverscmp(a.c_str(), b.c_str()) > 0;  // digits compare as numbers: cuda-13.0 before cuda-9.2
    });
    for (std::string& match : matches) {
      char real[PATH_MAX];
      if (realpath(match.c_str(), real) && seen.insert(real).second) files.push_back(std::move(match));
    }
  }
  return files;
}

std::string glob_escaped(const std::string& path) {
  std::string escaped;
  for (const char c : path) {
    if (std::strchr("*?[]\\", c)) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace kvjit
