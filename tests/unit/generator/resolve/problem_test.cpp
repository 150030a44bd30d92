// generator/resolve/problem.cpp: names are resolved to formats and archs; contradictory combinations are
// refused.
// SPDX-License-Identifier: MIT
#include "generator/resolve/problem.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace kvjit {
namespace {

Result<Problem> resolved(const std::string& toml, const std::string& arch = "sm_90a") {
  static const Registry registry = *Registry::load(embedded_files());
  const auto specs = parse_specs(toml, "test.toml");
  REQUIRE(specs);
  return resolve((*specs)[0], registry, arch);
}

}  // namespace

TEST_CASE("an alias and its format resolve to the same problem") {
  const auto alias = resolved("[k]\nformat=\"tbq4_0\"\n[v]\nformat=\"q8_0\"");
  const auto name = resolved("[k]\nformat=\"tbq4_wht_dfirst_corr\"\n[v]\nformat=\"q8_0\"");
  REQUIRE(alias);
  REQUIRE(name);
  CHECK(alias->id == name->id);
  CHECK(alias->id == "tbq4_wht_dfirst_corr-q8_0.d128.g1.q1.planar.f16-f32");
}

TEST_CASE("every axis of a spec shows in the id") {
  const std::string base = resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"")->id;
  for (const char* extra : {"[attention]\nhead_dim=64", "[attention]\nq_heads_per_kv=2", "[attention]\nquery_length=2",
                            "[attention]\nfeatures=[\"causal\"]", "[attention]\nq_type=\"f32\"",
                            "[attention]\nout_type=\"f16\"", "[cache]\nlayout=\"rows\"", "[attention]\nsoftcap=30",
                            "[attention]\nwindow=[7,-1]", "[attention]\nfeatures=[\"mask\"]"})
    CHECK(resolved(std::string("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n") + extra)->id != base);
}

TEST_CASE("V in K's rows: what has no such rows is refused at v.in_keys") {
  const auto refused = [](const std::string& keys, const char* part) {
    const auto problem = resolved(keys);
    REQUIRE_FALSE(problem);
    CHECK_MESSAGE(problem.error().message.find(part) != std::string::npos, problem.error().message);
    CHECK(problem.error().where.line > 0);
    CHECK_FALSE(problem.error().notes.empty());
  };
  const std::string rows = "cache = { layout = \"rows\" }\n",
                    both = "k = { format = \"q8_0\" }\nv = { format = \"q8_0\", in_keys = true }\n";
  const auto served = resolved(rows + both);
  REQUIRE(served);
  CHECK(served->values_in_keys);
  CHECK(served->id == "q8_0-q8_0.d128.g1.q1.rows.in_keys.f16-f32");
  CHECK(resolved(both + "cache = { layout = \"paged\", page_layout = \"rows\" }"));
  CHECK(resolved(both));
  CHECK(resolved(both + "cache = { layout = \"paged\" }"));
  refused(
      "k = { format = \"vllm_nvfp4\" }\nv = { format = \"vllm_nvfp4\", in_keys = true, swizzle = \"4x4\" }\n"
      "cache = { layout = \"paged\" }",
      "begin otherwise");
  refused(rows + "k = { format = \"q8_0\", in_keys = true }\nv = { format = \"q8_0\" }", "'in_keys' of K");
  refused(rows + "k = { format = \"q8_0\" }\nv = { format = \"q4_0\", in_keys = true }", "begin otherwise");
  refused(rows + both + "attention = { head_dim = 128, head_dim_v = 256 }", "begin otherwise");
  refused(both + "attention = { head_dim = 192, head_dim_v = 128 }", "in layout planar, where rows of 128");
  refused(rows + "k = { format = \"kv4\" }\nv = { format = \"kv4\", in_keys = true }", "rotated or scaled");
  refused(rows + both + "attention = { append = true }", "with append");
  refused("cache = { layout = \"rows\", token_heads = 8 }\n" + both, "with token_heads");
}

TEST_CASE("head_dim 100 with a 128-value rotation is refused at its line, with the multiples that work") {
  const auto problem = resolved("[k]\nformat=\"tbq4_0\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim = 100\n");
  REQUIRE_FALSE(problem);
  CHECK(problem.error().code == Code::bad_input);
  CHECK(problem.error().message.find("head_dim 100 is not a multiple of 128") != std::string::npos);
  CHECK(problem.error().where.line == 6);
  REQUIRE(problem.error().notes.size() == 1);
  CHECK(problem.error().notes[0].find("128, 256") != std::string::npos);
}

TEST_CASE("heads that are padded to whole rotations need not fit anything") {
  const std::string both = "[k]\nformat=\"turbo3_0\"\n[v]\nformat=\"turbo2_0\"\n[attention]\nhead_dim = ";
  for (const int head_dim : {80, 96, 112}) {
    const auto problem = resolved(both + std::to_string(head_dim));
    REQUIRE(problem);
    CHECK(problem->head_dim == head_dim);
    CHECK(problem->k.stored_dim(head_dim) == 128);
  }
  const auto mixed = resolved("[k]\nformat=\"turbo3_0\"\n[v]\nformat=\"tbq4_0\"\n[attention]\nhead_dim = 80");
  REQUIRE_FALSE(mixed);
  CHECK(mixed.error().message.find("head_dim 80 is not a multiple of 128") != std::string::npos);
  CHECK(resolved("[k]\nformat=\"turbo3_0\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim = 80"));
}

TEST_CASE("formats of the whole head follow head_dim") {
  const auto problem =
      resolved("[k]\nformat=\"vllm_k4_nc\"\n[v]\nformat=\"atlas_turbo3\"\n[attention]\nhead_dim = 256");
  REQUIRE(problem);
  CHECK(problem->k.block == 256);
  CHECK(problem->v.rotation.size == 256);
  const auto refused = resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"atlas_turbo3\"\n[attention]\nhead_dim = 192");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().where.line == 6);
}

TEST_CASE("our own formats take any head of whole pieces of 32 channels") {
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const auto& [head_dim, block] : {std::pair{32, 32}, {64, 64}, {96, 32}, {128, 128}, {192, 64}, {256, 128}}) {
      const auto problem = resolved(
          fmt::format("[k]\nformat=\"kv{0}\"\n[v]\nformat=\"kv{0}\"\n[attention]\nhead_dim = {1}", bits, head_dim));
      REQUIRE(problem);
      CHECK(problem->k.block == block);
      CHECK(problem->k.rotation.size == block);
      CHECK(problem->k.fields[1].is_nibbles == (bits == 3 && block == 128));
    }
  const auto refused = resolved("[k]\nformat=\"kv4\"\n[v]\nformat=\"kv4\"\n[attention]\nhead_dim = 80");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("rotation 'wht_signed' does not span 16 channels") != std::string::npos);
}

TEST_CASE("heads of bare numbers need whole pieces of 16 bytes, those of blocks the lanes of a warp") {
  const auto refusal = [](const char* k, const char* v, int head_dim) {
    const auto problem =
        resolved(fmt::format("[k]\nformat=\"{}\"\n[v]\nformat=\"{}\"\n[attention]\nhead_dim = {}\n", k, v, head_dim));
    REQUIRE_FALSE(problem);
    CHECK(problem.error().code == Code::unsupported);
    CHECK(problem.error().where.line == 6);
    return problem.error().message;
  };
  for (const int head_dim : {40, 72, 80, 112, 200})
    CHECK(resolved(fmt::format("[k]\nformat=\"f16\"\n[v]\nformat=\"f32\"\n[attention]\nhead_dim = {}", head_dim)));
  CHECK(refusal("f16", "f32", 44) ==
        "a head of 44 values of 'f16' ('k') is 88 bytes; heads that are no multiple of 32 values must be one of 16 "
        "bytes");
  CHECK(refusal("f16", "fp8_e4m3", 72).find("a head of 72 values of 'fp8_e4m3' ('v') is 72 bytes") == 0);
}

TEST_CASE("K and V have heads of their own sizes") {
  const auto problem =
      resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"kv4\"\n[attention]\nhead_dim_k = 192\nhead_dim_v = 128\n");
  REQUIRE(problem);
  CHECK(problem->dim(0) == 192);
  CHECK(problem->dim(1) == 128);
  CHECK(problem->id.find(".d192x128.") != std::string::npos);
  const auto one =
      resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"kv4\"\n[attention]\nhead_dim = 256\nhead_dim_v = 128\n");
  REQUIRE(one);
  CHECK(one->dims() == "256x128");
  const auto unfit =
      resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"kv4\"\n[attention]\nhead_dim = 256\nhead_dim_v = 80\n");
  REQUIRE_FALSE(unfit);
  CHECK(unfit.error().where.line == 7);
}

TEST_CASE("an arch that is not described is refused with a list") {
  const auto problem = resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"", "sm_91");
  REQUIRE_FALSE(problem);
  CHECK(problem.error().message.find("sm_91") != std::string::npos);
}

TEST_CASE("features that contradict each other are refused at their line, with the way out") {
  const auto refused = [](const std::string& keys) {
    const auto problem = resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n[attention]\n" + keys);
    REQUIRE_FALSE(problem);
    CHECK(problem.error().where.line == 6);
    CHECK_FALSE(problem.error().notes.empty());
    return problem.error().message;
  };
  CHECK(refused("features = [\"mask_slopes\"]") == "mask_slopes multiplies a mask that is not there");
  CHECK(refused("features = [\"mask\", \"mask_slopes\", \"alibi\"]") == "alibi and mask_slopes both take the slopes");
  CHECK(refused("features = [\"position_offset\"]\nappend = true") ==
        "append stores the new tokens, and position_offset says that the queries are others");
  CHECK(refused("features = [\"token_ranges\"]\nappend = true") ==
        "append stores new tokens as their tiles are read, and token_ranges leaves tiles out");
  CHECK(resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n[attention]\nwindow=[-1,-1]")->id ==
        resolved("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"")->id);
}

TEST_CASE("run-time query lengths: a name of their own, and refusals of what has a fixed number") {
  const std::string sides = "[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n[attention]\n", any = "query_length = \"any\"\n";
  const auto problem = resolved(sides + any + "max_query_length = 40\n");
  REQUIRE(problem);
  CHECK(problem->varlen);
  CHECK(problem->query_length == 40);
  CHECK(problem->id.find(".q1-40.") != std::string::npos);
  const auto refused = [&](const std::string& keys) {
    const auto refusal = resolved(sides + any + keys);
    REQUIRE_FALSE(refusal);
    CHECK(refusal.error().code == Code::unsupported);
    CHECK(refusal.error().where.line >= 7);
    return refusal.error().message;
  };
  CHECK(refused("append = true") == "append with query_length = \"any\"");
  CHECK(refused("[cache]\nlayout = \"rows\"\ntoken_heads = 2") == "token_heads with query_length = \"any\"");
}

}  // namespace kvjit
