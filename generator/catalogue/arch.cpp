// parse_arch: reads a file of specs/archs.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/arch.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "generator/base/schema.hpp"

namespace kvjit {

Result<Arch> parse_arch(std::string_view toml_text, const std::string& file, const ArchLookup& known) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "an arch", {file});
  Arch arch;
  std::string base;
  top.read("inherits", base);
  if (!base.empty()) {
    if (const Arch* found = known.arch(base))
      arch = *found;
    else
      top.complain(top.where("inherits"), fmt::format("arch '{}' is not known, or inherits from this one", base));
  } else {
    for (const char* key : {"shared_bytes_per_block", "threads_per_sm", "capabilities"}) top.require(key);
  }
  top.require("title");
  arch.name = std::filesystem::path(file).stem().string();
  top.read("title", arch.title);
  top.read("shared_bytes_per_block", arch.shared_bytes_per_block, {16384, 1 << 20});
  top.read("registers_per_thread", arch.registers_per_thread, {16, 255});
  top.read("threads_per_sm", arch.threads_per_sm, {512, 4096});
  std::vector<std::string> added;
  top.read("capabilities", added);
  arch.capabilities.insert(added.begin(), added.end());
  KV_CHECK(top.done());
  return arch;
}

}  // namespace kvjit
