// tools/verify/fuzz.cpp: a seed names a random spec, every key and feature of a spec occurs, and the library accepts or
// refuses each spec as the rules say.
// SPDX-License-Identifier: MIT
#include "tools/verify/fuzz.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "generator/kernels/decode/plan.hpp"
#include "generator/program.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

const std::vector<std::string> kArchs = {"sm_80", "sm_90a"};

TEST_CASE("a seed names a spec and a call, and neighbours are not alike") {
  std::set<std::string> texts;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const FuzzCase one = fuzz_case(seed, registry(), kArchs);
    CHECK(one.text() == fuzz_case(seed, registry(), kArchs).text());
    texts.insert(one.toml);
    const FuzzCase elsewhere = fuzz_case(seed, registry());  // a device without a named arch
    CHECK(one.toml.starts_with(elsewhere.toml.substr(0, elsewhere.toml.find("[target]"))));
    CHECK(one.text().substr(one.text().find("sequences")) ==
          elsewhere.text().substr(elsewhere.text().find("sequences")));
    CHECK(one.lengths().size() == std::size_t(one.shape.sequences));
    for (const int length : one.lengths()) CHECK((length >= 0 && length <= one.shape.tokens));
  }
  CHECK(texts.size() == 300);
}

TEST_CASE("check_program says what make_program says, word for word") {
  int served = 0, refused = 0, varlen = 0;
  const auto compare = [&](const std::string& toml, const char* arch) {
    const auto problem = resolve(must(parse_specs(toml, "spec")).at(0), registry(), arch);
    if (!problem) return;
    const auto checked = check_program(*problem, registry());
    const auto made = make_program(*problem, registry());
    REQUIRE_MESSAGE(checked.has_value() == made.has_value(), toml);
    ++(checked ? served : refused), varlen += problem->varlen;
    if (!checked) CHECK_MESSAGE(render(checked.error()) == render(made.error()), toml);
  };
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    for (const char* arch : {"sm_80", "sm_90a"}) compare(fuzz_case(seed, registry()).toml, arch);
  // Large heads and many query rows, of fixed and of run-time lengths, up to where no block shape is left.
  for (const char* format : {"f16", "f32", "kv4", "q8_0", "turbo_split_54"})
    for (const int head_dim : {128, 512, 640, 1024})
      for (const int group : {1, 8, 64, 256})
        for (const char* length : {"1", "16", "\"any\""})
          for (const char* more : {"", "sparse_v = 0.001\n"})
            compare(fmt::format("[k]\nformat = \"{0}\"\n[v]\nformat = \"{0}\"\n[attention]\nhead_dim = {1}\n"
                                "q_heads_per_kv = {2}\nquery_length = {3}\n{4}",
                                format, head_dim, group, length, more),
                    group % 2 ? "sm_75" : "sm_90a");
  // Prefill serves a single query of such heads, and decode still has a bucket.
  compare(
      "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n[attention]\nhead_dim_k = 576\nhead_dim_v = 512\n"
      "q_heads_per_kv = 256\nquery_length = \"any\"\n",
      "sm_90a");
  MESSAGE(served, " served, ", refused, " refused, ", varlen, " with query lengths at run time");
  CHECK(served > 700);
  CHECK(refused > 100);
  CHECK(varlen > 200);
}

TEST_CASE("everything that a spec can ask for turns up") {
  std::string all;
  std::set<int> lengths, gqa;
  int shared = 0, views = 0, written = 0, refused = 0, together = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const FuzzCase one = fuzz_case(seed, registry(), kArchs);
    all += one.toml;
    const std::vector<int> mine = one.lengths();
    lengths.insert(mine.begin(), mine.end());
    written += one.writes_on_device, refused += !one.refusals.empty();
    shared += one.shape.rows.shares_sequences, views += one.shape.rows.has_values_in_keys;
    const Spec spec = must(parse_specs(one.toml, "spec")).at(0);
    if (spec.token_heads > 0) {  // conditions that every such call fulfils
      together += one.refusals.empty();
      CHECK(one.shape.kv_heads == spec.token_heads);
      CHECK_FALSE((one.shape.rows.by_head || one.shape.rows.front % 16 != 0 || one.shape.rows.behind != 0));
      CHECK(spec.archs == std::vector<std::string>{"sm_90a"});
    }
    // Where the block of a format is the head, numbers stand behind its codes, so the front of a longer row is no valid
    // row.
    if (!one.shape.rows.has_values_in_keys) continue;
    const Result<Format> format = registry().format_for(spec.k.format, spec.dim_of("k"), {});
    if (format && format->block == spec.dim_of("k")) CHECK(spec.dim_of("k") == spec.dim_of("v"));
  }
  std::vector<std::string> words = {"layout = \"rows\"", "layout = \"planar\"", "page_layout = \"rows\"",
                                    "page_tokens = 8\n", "page_tokens = 256",   "append = true",
                                    "token_heads = 2\n", "token_heads = 3\n",   "token_heads = 16\n",
                                    "fuse = false",      "sparse_v = ",         "checks = true",
                                    "softcap = ",        "window = [",          "bits = 1\n",
                                    "bits = 8\n",        "q_type = \"bf16\"",   "out_type = \"f32\"",
                                    "in_keys = true"};
  for (const std::string& feature : feature_names()) words.push_back("\"" + feature + "\"");
  for (const auto& [name, format] : registry().formats())
    if (!format.has_segments()) words.push_back("format = \"" + name + "\"");
  for (const std::string& word : words) CHECK_MESSAGE(all.find(word) != std::string::npos, word);
  for (const int length : {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257})
    CHECK_MESSAGE(lengths.count(length), length);
  CHECK(shared > 20);
  CHECK(views > 5);
  CHECK(together > 100);
  CHECK(written > 200);
  CHECK((refused > 30 && refused < 600));
}

TEST_CASE("specs are refused by the rules that are known, and no others are") {
  int refused = 0, limited = 0, together = 0, apart = 0;  // the last two: token-major heads
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    const FuzzCase one = fuzz_case(seed, registry(), kArchs);
    const auto planned = [&]() -> Result<void> {
      KV_TRY(specs, parse_specs(one.toml, "spec"));
      KV_TRY(problem, resolve(specs.at(0), registry(), specs.at(0).archs.at(0)));
      KV_CHECK(plan_decode(problem));
      return {};
    }();
    INFO(one.text());
    if (one.toml.find("token_heads") != std::string::npos) ++(planned ? together : apart);
    if (planned) {
      CHECK(one.refusals.empty());
      continue;
    }
    ++refused;
    CHECK(one.expects(planned.error().message));
    limited += one.refusals.empty();  // by a limit of kernels, and no rule
  }
  CHECK(refused > 20);
  CHECK(limited < 5);
  CHECK(together > 60);
  CHECK(apart > 5);
}

TEST_CASE("on archs with less shared memory few specs more are refused, and each is expected") {
  for (const char* arch : {"sm_75", "sm_86"}) {
    int accepted = 0, limited = 0;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
      const FuzzCase one = fuzz_case(seed, registry(), {arch});
      const auto planned = [&]() -> Result<void> {
        KV_TRY(specs, parse_specs(one.toml, "spec"));
        KV_TRY(problem, resolve(specs.at(0), registry(), arch));
        KV_CHECK(plan_decode(problem));
        return {};
      }();
      INFO(one.text());
      accepted += planned.has_value();
      if (planned) continue;
      CHECK(one.expects(planned.error().message));
      limited += one.refusals.empty() && one.toml.find("token_heads") == std::string::npos;
    }
    CHECK(accepted > 480);
    CHECK(limited < 20);
    if (std::string(arch) == "sm_75") CHECK(limited > 0);
  }
}

TEST_CASE("token-major heads need an arch with bulk copies") {
  std::uint64_t seed = 1;
  while (fuzz_case(seed, registry()).toml.find("token_heads") == std::string::npos) ++seed;
  CHECK(fuzz_case(seed, registry(), kArchs).toml.find("sm_90a") != std::string::npos);
  CHECK_FALSE(fuzz_case(seed, registry(), kArchs).expects("sm_80 has no bulk copies"));
  CHECK(fuzz_case(seed, registry(), {"sm_80"}).expects("sm_80 has no bulk copies"));
  CHECK(fuzz_case(seed, registry()).expects("sm_80 has no bulk copies"));  // whatever the device is
}

TEST_CASE("too long rows are expected where several warps stage them, and nowhere else") {
  // Keys of 576 channels beside residuals of 512, for one. Which seed draws such a case follows from the list of
  // formats.
  const std::string too_long = "no block shape fits 166912 bytes of shared memory on sm_80";
  std::uint64_t seed = 1;
  FuzzCase one = fuzz_case(seed, registry(), kArchs);
  while ((!one.expects(too_long) || one.expects("has no registers for")) && seed < 40000)
    one = fuzz_case(++seed, registry(), kArchs);
  CHECK(one.refusals.empty());
  CHECK(one.expects(too_long));
  CHECK_FALSE(one.expects("has no registers for"));
  CHECK_FALSE(fuzz_case(1, registry(), kArchs).expects(too_long));
}

}  // namespace
}  // namespace kvjit::test
