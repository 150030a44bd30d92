// Promise: a kernel has no text of a feature that its spec does not ask for. The test replaces each feature fragment by
// other text. Kernels without the feature must stay equal byte for byte; kernels with it must change.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "generator/program.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

struct Asked {
  std::string attention;  // lines of [attention], and the tables behind it
  std::vector<std::string> fragments;
};
constexpr const char* kRange = "features/token_range.cuh";  // in every feature list: which tokens a query sees
const std::vector<Asked> kFeatures = {
    {"features = [\"causal\"]", {"features/causal.cuh"}},
    {"features = [\"alibi\"]", {"features/alibi.cuh", kRange}},
    {"features = [\"mask\"]", {"features/mask.cuh", kRange}},
    {"features = [\"packed_mask\"]", {"features/packed_mask.cuh", kRange}},
    {"features = [\"sinks\"]", {"features/sinks.cuh", kRange}},
    {"features = [\"lse\"]", {"features/lse.cuh", kRange}},
    {"features = [\"position_offset\"]", {kRange}},
    {"features = [\"token_ranges\"]", {kRange}},
    {"window = [63, -1]", {kRange}},
    {"softcap = 30.0", {"features/softcap.cuh", kRange}},
    {"hook = \"log_distance\"", {"features/hook.cuh", kRange}},
    {"sparse_v = 1e-4", {"kernels/decode/skip_values.cuh"}},
    {"append = true", {"kernels/decode/append.cuh"}},
    {"[cache]\nlayout = \"paged\"", {"kernels/decode/paged.cuh", "kernels/decode/stage_pages.cuh"}},
    {"[target]\nchecks = true", {"args/checks.cuh"}},
};

std::string decode_text(const std::string& attention, const Registry& from) {
  const Spec spec = must(parse_specs("[k]\nformat = \"kv4\"\n[v]\nformat = \"kv3\"\n[attention]\nq_heads_per_kv = 4\n" +
                                         attention + "\n",
                                     "spec"))
                        .at(0);
  return must(make_program(must(resolve(spec, from, "sm_90a")), from)).kernels.at(Role::decode).text.str();
}

Registry without(const std::string& fragment) {
  FileSet files = embedded_files();
  files.at("templates/" + fragment) = "#pragma once\n#error this was not asked for\n";
  return must(Registry::load(files));
}

}  // namespace

TEST_CASE("a feature that is not asked for is not in the text") {
  const std::string plain = decode_text("", registry());
  std::set<std::string> fragments;
  for (const Asked& feature : kFeatures) fragments.insert(feature.fragments.begin(), feature.fragments.end());
  for (const std::string& fragment : fragments) {
    CAPTURE(fragment);
    const Registry other = without(fragment);
    CHECK(decode_text("", other) == plain);
    for (const Asked& feature : kFeatures) {
      CAPTURE(feature.attention);
      const bool is_asked =
          std::find(feature.fragments.begin(), feature.fragments.end(), fragment) != feature.fragments.end();
      CHECK((decode_text(feature.attention, other) == decode_text(feature.attention, registry())) != is_asked);
    }
  }
}

TEST_CASE("every fragment of templates/features has a feature here, or is of none") {
  std::set<std::string> known = {"every_value", "feature_list",
                                 "none"};  // fragments of every feature list, and the empty list
  for (const Asked& feature : kFeatures)
    for (const std::string& fragment : feature.fragments)
      if (fragment.starts_with("features/")) known.insert(fragment.substr(9, fragment.size() - 9 - 4));
  for (const auto& [name, text] : embedded_files())
    if (name.starts_with("templates/features/"))
      CHECK_MESSAGE(known.count(name.substr(19, name.size() - 19 - 4)), name);
}

}  // namespace kvjit::test
