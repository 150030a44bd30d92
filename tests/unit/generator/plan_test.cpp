// generator/plan_run.cpp and plan_decode.cpp: the byte runs of lanes, the unpack sequences, the orders, the refusals.
// SPDX-License-Identifier: MIT
#include "generator/plan.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "generator/codec.hpp"

namespace kvjit {
namespace {

const Registry& registry() {
  static const Registry loaded = *Registry::load(embedded_files());
  return loaded;
}

Format inline_codes(int bits, int block) {
  SideSpec side;
  side.bits = bits;
  side.block = block;
  side.codebook = "lloyd_max";
  return *inline_format(side, registry());
}

Problem problem_of(const std::string& toml, const std::string& arch = "sm_90a") {
  const auto specs = parse_specs(toml, "test.toml");
  REQUIRE(specs);
  const auto problem = resolve((*specs)[0], registry(), arch);
  REQUIRE(problem);
  return *problem;
}

std::uint32_t unpacked(const std::vector<UnpackTerm>& terms, const std::vector<std::uint32_t>& words) {
  std::uint32_t sum = 0;
  for (const UnpackTerm& t : terms)
    sum |= (t.shift >= 0 ? words.at(t.word) >> t.shift : words.at(t.word) << -t.shift) & t.mask;
  return sum;
}

// The bytes of one block whose code i is codes[i].
std::vector<std::uint8_t> pack(const Format& f, const std::vector<int>& codes) {
  std::vector<std::uint8_t> bytes(f.code_bytes + 8);
  for (int i = 0; i < f.block; ++i)
    for (int b = 0; b < f.bits; ++b) bytes[(f.bit_of(i) + b) / 8] |= (codes[i] >> b & 1) << (f.bit_of(i) + b) % 8;
  return bytes;
}

// Every lane's run, unpacked as the kernel would, gives the code of the element the plan names.
void check_unpack(const Format& f, int head_dim, int parts) {
  CAPTURE(f.name);
  CAPTURE(parts);
  const auto run = plan_run(f, head_dim, parts);
  REQUIRE(run);
  std::mt19937 random(f.bits * 1000 + f.block);
  std::vector<int> codes(f.block);
  for (int& code : codes) code = int(random() % (1u << f.bits));
  const auto bytes = pack(f, codes);
  int wrong = 0;
  for (int r = 0; r < run->runs; ++r)
    for (int part = 0; part < parts; ++part) {
      const int first = r * run->run_stride * 8 + part * run->part_bits;
      std::vector<std::uint32_t> words(run->words + 1);
      for (int b = 0; b < run->part_bits; ++b)
        words[b / 32] |= std::uint32_t(bytes[(first + b) / 8] >> (first + b) % 8 & 1) << b % 32;
      words.resize(run->words);
      for (std::size_t m = 0; m < run->unpack.size(); ++m) {
        const std::uint32_t y = unpacked(run->unpack[m], words);
        for (int j = 0; j < 4; ++j) {
          const int element = run->elements[(r * parts + part) * run->codes + run->slots[4 * m + j]];
          wrong += int(y >> 8 * j & 0xff) != codes[element];
        }
      }
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("unpack sequences give every code of every packing, on both sides") {
  for (int bits = 1; bits <= 8; ++bits)
    for (int block : {32, 64, 128, 256})
      for (int parts : {4, 8}) check_unpack(inline_codes(bits, block), block, parts);
  for (const char* name : {"q4_0", "q8_0", "tbq4_0"})
    for (int parts : {4, 8}) {
      const Format& f = **registry().format(name, {});
      check_unpack(f, f.block, parts);
    }
}

TEST_CASE("four-bit codes unpack with one shift and one mask a word") {
  const auto run = plan_run(**registry().format("tbq4_0", {}), 128, 4);
  REQUIRE(run);
  CHECK(run->words == 4);
  for (const auto& terms : run->unpack) CHECK(terms.size() == 1);
}

TEST_CASE("orders are permutations of the head dimension") {
  for (const char* layout : {"planar", "rows"})
    for (const char* k : {"f16", "q8_0", "q4_0", "tbq4_0"}) {
      const auto plan = plan_decode(problem_of(fmt::format(
          "[k]\nformat=\"{}\"\n[v]\nformat=\"{}\"\n[attention]\nhead_dim=256\n[cache]\nlayout=\"{}\"", k, k, layout)));
      REQUIRE(plan);
      for (const auto* order : {&plan->key_order, &plan->value_order}) {
        CHECK(order->size() == 256);
        CHECK(std::set<int>(order->begin(), order->end()).size() == 256);
        CHECK(*std::max_element(order->begin(), order->end()) == 255);
      }
    }
}

TEST_CASE("bank_wavefronts counts distinct words of a bank") {
  std::vector<int> together(32), apart(32), clash(32);
  for (int i = 0; i < 32; ++i) together[i] = 64, apart[i] = 4 * i, clash[i] = 128 * i;
  CHECK(bank_wavefronts(together, 4) == 1);
  CHECK(bank_wavefronts(apart, 4) == 1);
  CHECK(bank_wavefronts(clash, 4) == 32);
  for (int i = 0; i < 32; ++i) apart[i] = 16 * i;
  CHECK(bank_wavefronts(apart, 16) == 4);
}

TEST_CASE("every arch gets a block that fits its shared memory") {
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"})
    for (const char* format : {"f16", "tbq4_0"}) {
      const auto problem =
          problem_of(fmt::format("[k]\nformat=\"{}\"\n[v]\nformat=\"{}\"\n[attention]\nhead_dim=256\nq_heads_per_kv=8",
                                 format, format),
                     arch);
      const auto plan = plan_decode(problem);
      REQUIRE(plan);
      CHECK(plan->shared_bytes <= problem.arch.shared_bytes_per_block);
      CHECK(plan->stages >= 2);
      CHECK(plan->ring_at % 16 == 0);
    }
}

TEST_CASE("what decode cannot serve is refused with the reason and what works") {
  auto rows = problem_of("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim=256\nq_heads_per_kv=16");
  auto plan = plan_decode(rows);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == Code::unsupported);
  CHECK(plan.error().message.find("at most 8 query rows") != std::string::npos);

  auto block = problem_of("[k]\nbits=4\nblock=16\n[v]\nformat=\"f16\"");
  plan = plan_decode(block);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().message.find("scale groups of at least 32") != std::string::npos);
  CHECK(plan.error().notes.size() == 1);
}

TEST_CASE("halves of a codebook are closer than plain rounding, and the unit undoes their scale") {
  const auto plan = plan_decode(problem_of("[k]\nformat=\"tbq4_0\"\n[v]\nformat=\"tbq4_0\""));
  REQUIRE(plan);
  for (std::size_t i = 0; i < 16; ++i) {
    const double back = float_from_f16(plan->k.halves[i]) * plan->k.unit;
    CHECK(std::abs(back / plan->k.format.values[i] - 1) < 4.9e-4);
  }
  CHECK_FALSE(plan->v.owns_table);  // equal formats share one table
}

}  // namespace kvjit
