// Reads a folder of a caller's own specs: see specs_folder.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/api/specs_folder.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "runtime/base/input_file.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char *folder, *extension;
};
constexpr Kind kKinds[] = {{"formats", ".toml"}, {"rotations", ".toml"}, {"archs", ".toml"}, {"calibrations", ".toml"},
                           {"hooks", ".cuh"},    {"policies", ".toml"},  {"tuning", ".toml"}};

}  // namespace

Result<void> add_specs_folder(FileSet& files, FileNames& shown_as, const std::string& folder) {
  std::error_code problem;
  if (!fs::is_directory(folder, problem))
    return fail(Code::bad_input, fmt::format("specs folder {}: there is no such folder", folder), {},
                {"it holds formats/, rotations/, archs/, calibrations/, policies/ and tuning/ of *.toml, and hooks/ of "
                 "*.cuh; other files of the folder are not read"});
  std::size_t added = 0;
  for (const Kind& kind : kKinds) {
    const fs::path from = fs::path(folder) / kind.folder;
    if (!fs::is_directory(from, problem)) continue;
    for (fs::directory_iterator at(from, problem), end; !problem && at != end; at.increment(problem)) {
      const fs::directory_entry& entry = *at;
      if (entry.path().extension() != kind.extension) continue;
      KV_TRY(text, read_text(entry.path().string()));
      const std::string name = fmt::format("specs/{}/{}", kind.folder, entry.path().filename().string());
      files[name] = text, shown_as[name] = entry.path().string();
      ++added;
    }
    if (problem) return fail(Code::bad_input, fmt::format("{}: {}", from.string(), problem.message()));
  }
  // Specs may lie beside the subfolders, and a format that lies there by mistake is one that an error can point at.
  // Only their names are listed, and a folder that cannot be listed has none.
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem))
    if (const fs::path path = at->path(); path.extension() == ".toml" || path.extension() == ".cuh")
      shown_as["specs/" + path.filename().string()] = path.string();
  if (added == 0)
    return fail(Code::bad_input, fmt::format("specs folder {}: holds nothing that is read", folder), {},
                {"formats lie in its subfolder formats/, rotations in rotations/, and so on"});
  return {};
}

}  // namespace kvjit
