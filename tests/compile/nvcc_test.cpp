// Emitted texts compile with nvcc, by exactly the flags that their first lines name. Without nvcc the test is skipped
// and says why. It searches $CUDA_HOME/bin, /usr/local/cuda/bin and PATH.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "generator/program.hpp"
#include "generator/spec/spec.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_folder.hpp"

namespace kvjit::test {
namespace {

namespace fs = std::filesystem;

std::string find_nvcc() {
  std::stringstream folders;
  if (const char* home = std::getenv("CUDA_HOME")) folders << home << "/bin:";
  folders << "/usr/local/cuda/bin:" << (std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::exists(fs::path(folder) / "nvcc")) return (fs::path(folder) / "nvcc").string();
  skip("no nvcc in $CUDA_HOME/bin, /usr/local/cuda/bin or PATH");
}

// The flags behind `compiler` in the first lines of a text.
std::string flags_of(const std::string& text, const std::string& compiler) {
  std::istringstream lines(text.substr(0, 1000));
  const std::string start = "//   " + compiler + " ";
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) return line.substr(start.size());
  FAIL("the first lines name no flags for ", compiler);
  return {};
}

TEST_CASE("decode and quantize compile with nvcc by the flags of their first lines") {
  const std::string nvcc = find_nvcc();
  const TempFolder temporary;
  const std::string& folder = temporary.path;

  const Spec spec =
      must(parse_specs("k = { format = \"tbq4_0\" }\nv = { format = \"q8_0\" }\nattention = {}", "spec")).at(0);
  const Problem problem = must(resolve(spec, registry(), "sm_90a"));
  const ProgramSource program = must(make_program(problem, registry()));
  for (const Role role : {Role::decode, Role::quantize_k}) {
    const std::string text = program.kernels.at(role).text.str(), name = to_string(role);
    std::ofstream(folder + "/kernel.cu") << text;
    const std::string command =
        "cd '" + folder + "' && '" + nvcc + "' " + flags_of(text, "nvcc") + " kernel.cu -o kernel.cubin >messages 2>&1";
    const int status = std::system(command.c_str());
    std::stringstream messages;
    messages << std::ifstream(folder + "/messages").rdbuf();
    CHECK_MESSAGE(status == 0, name, ": ", command, "\n", messages.str());
    CHECK(fs::exists(folder + "/kernel.cubin"));
    fs::remove(folder + "/kernel.cubin");
  }
}

}  // namespace
}  // namespace kvjit::test
