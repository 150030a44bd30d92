// Promise: a new KV format is one TOML file and no code. The test writes formats that the project does not have to a
// temporary folder and uses them as K and as V in every kernel family: 3 bits in blocks of 64 values; 4-bit floats with
// float32 scales, over which the caller has one; 8-bit integers over a scale for each head; and segments, of which V
// has the first two.
// SPDX-License-Identifier: MIT
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/differential/harness.hpp"
#include "tests/support/temp_folder.hpp"

namespace kvjit::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kThreeBits = R"(title = "3-bit Lloyd-Max codes for 64 values behind a signed rotation"
source = "this test"
aliases = ["three"]
block = 64
rotation = { name = "wht_signed", size = 64 }

[[fields]]
field = "codes"

[[fields]]
field = "scale"

[codes]
kind = "table"
bits = 3

[codebook]
rule = "lloyd_max"

[scale]
rule = "corrected_norm"

[accept]
max_relative_mse = 0.0355
)";

constexpr const char* kWideScales = R"(title = "E2M1 in groups of 32 with float32 scales, and one scale over them"
source = "this test"
aliases = ["wide"]
block = 64

[[fields]]
field = "scale"

[[fields]]
field = "codes"

[codes]
kind = "table"
bits = 4

[codebook]
rule = "e2m1"
ties = "even"
negative_zero = true

[scale]
rule = "amax"
search = [6, 4]
over = "tensor"
group = 32
storage = "f32"

[accept]
max_relative_mse = 0.01
)";

constexpr const char* kHeadScales = R"(title = "8-bit integers of 32 channels, over a scale for each KV head"
source = "this test"
aliases = ["by_head"]
block = 32

[[fields]]
field = "scale"

[[fields]]
field = "codes"

[codes]
kind = "uniform"
bits = 8
offset = 128
twos_complement = true
rounding = "half_away"

[scale]
rule = "amax"
divisor = 127
over = "head"

[accept]
max_relative_mse = 0.0001
)";

constexpr const char* kSegments = R"(title = "5 bits for 64 channels, E4M3 for 32 and fp16 for 32"
source = "this test"
aliases = ["record"]
fields = [{ field = "scale" }, { field = "codes" }, { field = "codes", segment = 1 },
          { field = "scale", segment = 1 }, { field = "codes", segment = 2 }]

[[segments]]
channels = [0, 64]
block = 32
codes = { kind = "uniform", bits = 5, offset = 16, rounding = "half_up" }
scale = { rule = "signed_max", divisor = -16 }

[[segments]]
channels = [64, 96]
codes = { kind = "plain", element = "e4m3" }
scale = { rule = "amax", divisor = 448, storage = "f32" }

[[segments]]
channels = [96, 128]
block = 1
codes = { kind = "plain", element = "f16" }

[accept]
max_relative_mse = 0.00105
)";

// Does what `kvjit --specs DIR` does: adds the folder's files to the embedded ones.
Registry registry_with(const fs::path& folder) {
  FileSet files = embedded_files();
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    files["specs/formats/" + entry.path().filename().string()] = text.str();
  }
  return must(Registry::load(files));
}

TEST_CASE("a format is one file, as K and as V, in every family") {
  const TempFolder folder;
  std::ofstream(fs::path(folder.path) / "three_bits_of_64.toml") << kThreeBits;
  std::ofstream(fs::path(folder.path) / "wide_scales.toml") << kWideScales;
  std::ofstream(fs::path(folder.path) / "head_scales.toml") << kHeadScales;
  std::ofstream(fs::path(folder.path) / "three_segments.toml") << kSegments;
  const Registry registry = registry_with(folder.path);
  const Format& format = *must(registry.format("three", {}));
  CHECK(format.name == "three_bits_of_64");
  CHECK(format.block_bytes == 64 * 3 / 8 + 2);
  CHECK(format.codes().values.size() == 8);

  const auto context = open_context(DeviceKind::cpu);
  const std::string arch = context->backend()->info().arch;
  std::vector<Planned> all;
  for (const Case& test :
       {Case{"three", "three", 64, 1, 1, Layout::planar, false}, Case{"three", "three", 128, 4, 1, Layout::rows, false},
        Case{"three", "q8_0", 128, 4, 2, Layout::planar, true}, Case{"wide", "wide", 128, 4, 1, Layout::planar, false},
        Case{"record", "record", 128, 4, 1, Layout::rows, false},
        Case{"by_head", "by_head", 128, 4, 2, Layout::rows, true},
        Case{"record", "q8_0", 128, 4, 1, Layout::planar, false}, Case{"wide", "kv4", 128, 4, 1, Layout::rows, false},
        Case{"tbq4_0", "three", 256, 8, 1, Layout::planar, false}})
    all.push_back(planned(registry, test, arch));
  Case view{"record", "record", 128, 4, 1, Layout::planar, false};
  view.head_dim_v = 96;
  all.push_back(planned(registry, view, arch));
  const std::string by_head = Case{"by_head", "by_head", 128, 4, 1, Layout::planar, false}.toml();
  const auto refused = resolve(must(parse_specs(by_head, "planar.toml")).at(0), registry, arch);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message ==
        "'head_scales' ('k') in layout planar: its scales and those of heads would be one plane");
  warm_up(context, all, 2, true);
  for (const Planned& one : all) {
    Judge judge(context, one);
    for (const int tokens : judge.ragged_lengths())
      for (const bool is_reference : {false, true}) judge.check({tokens, {}, 0, is_reference});
    check_codec_kernels(judge, one.test.name());
  }
}

TEST_CASE("inline numbers need not even a file") {
  const Registry registry = must(Registry::load(embedded_files()));
  const auto context = open_context(DeviceKind::cpu);
  const auto specs =
      must(parse_specs("[k]\nbits = 3\nblock = 64\nrotation = \"wht_signed\"\n[v]\nbits = 5\nblock = "
                       "32\ncodebook = \"uniform\"\n"
                       "[attention]\nhead_dim = 128\nq_heads_per_kv = 4\n",
                       "inline"));
  const Problem problem = must(resolve(specs[0], registry, context->backend()->info().arch));
  const Planned one{{"3 bits of 64", "5 bits of 32"}, problem, must(make_program(problem, registry))};
  Judge judge(context, one);
  for (const int tokens : judge.ragged_lengths()) judge.check({tokens, {}, 0, false});
  check_codec_kernels(judge, "inline");
}

}  // namespace
}  // namespace kvjit::test
