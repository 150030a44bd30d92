// generator/kernels/decode/lane_reads.cpp and plan.cpp: lane reads, unpack sequences, the orders of channels, and
// refusals.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/plan.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "generator/formats/reference_codec.hpp"
#include "generator/program.hpp"
#include "tests/support/packed_rows.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::registry;

using test::codes_of, test::load_run, test::unpacked;

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

// Loads and unpacks the lane reads of every lane as the kernel does. The codes must be those of the channels that the
// plan names, each once. value_share: warps that divide the dimensions of V among them.
void check_unpack(const Format& f, int head_dim, int value_share = 1) {
  CAPTURE(f.name);
  CAPTURE(head_dim);
  std::mt19937 random(unsigned(f.block));
  constexpr int kSlack = 16;  // bytes that lane reads may read past the last row; the ring has as much space behind it
  std::vector<std::uint8_t> row(std::size_t(f.row_bytes(head_dim) + kSlack));
  for (auto& byte : row) byte = std::uint8_t(random());
  for (const bool is_key : {true, false}) {
    const auto side = plan_side(f, head_dim, false, is_key, false, value_share);
    REQUIRE_MESSAGE(side, render(side.error()));
    CAPTURE(value_share);
    std::set<int> seen;
    int wrong = 0;
    for (std::size_t s = 0; s < side->sections.size(); ++s) {
      const SectionPlan& section = side->sections[s];
      const LaneReads& reads = section.reads;
      const std::vector<int> codes = codes_of(f, row, int(s), head_dim);
      for (int group = 0; group < reads.groups; ++group)
        for (int r = 0; r < reads.reads_per_group; ++r)
          for (int row_lane = 0; row_lane < reads.lanes_per_row; ++row_lane) {
            const auto words = load_run(*side, reads, row.data(), group, r, row_lane);
            const auto slots = unpacked(reads, words);
            const CodeLanes kind{section.code_lane_bits > 0 ? section.code_lane_bits : 8};
            // In a joined lane read the upper half of a word belongs to another token; here it is empty.
            const int per_word = kind.per_word() / (reads.is_joined ? 2 : 1);
            // The table ignores bits above the code in a code lane of V.
            const unsigned mask = (1u << (section.code_lane_bits > 0 ? section.codes.bits : kind.bits)) - 1;
            for (std::size_t m = 0; m < slots.size(); ++m) {
              const std::uint32_t y = slots[m];
              for (int j = 0; j < per_word; ++j) {
                const int code = ((group * reads.reads_per_group + r) * reads.lanes_per_row + row_lane) * reads.codes +
                                 reads.lane_order[std::size_t(per_word) * m + std::size_t(j)];
                const int dim = reads.elements[std::size_t(code)];
                wrong += int(y >> kind.place(j) & mask) != codes[std::size_t(dim)];
                wrong += !seen.insert(dim).second;
              }
            }
          }
    }
    CHECK(wrong == 0);
    CHECK(int(seen.size()) == side->rotated_dim);
  }
}

// Returns a table format with the given fields; `rest` replaces the [scale] table.
Format made(const std::string& fields, int block, int bits, const std::string& rest = "") {
  const std::string text = fmt::format(
      "title = \"t\"\nblock = {}\nfields = [{}]\n[codes]\nkind = \"table\"\nbits = {}\n[codebook]\nrule = "
      "\"lloyd_max\"\n[accept]\nmax_relative_mse = 1\n{}",
      block, fields, bits, rest.empty() ? "[scale]\nrule = \"raw_norm\"" : rest);
  const auto format = parse_format(text, "made.toml", registry());
  REQUIRE_MESSAGE(format, render(format.error()));
  return *format;
}

}  // namespace

TEST_CASE("unpack sequences give every code of every width, on both sides") {
  for (int bits = 1; bits <= 8; ++bits)
    for (int block : {32, 64, 128, 256}) check_unpack(inline_codes(bits, block), 256);
  for (const char* name : {"q4_0", "q8_0", "tbq4_0", "kv3"}) check_unpack(**registry().format(name, {}), 128);
}

TEST_CASE("rows of V divide among the lanes of two and of four warps") {
  for (const int share : {2, 4}) {
    for (const char* name : {"q8_0", "q4_0", "tbq4_0", "kv4", "fp8_e4m3"})
      check_unpack(**registry().format(name, {}), 128, share);
    for (const int bits : {2, 3, 4, 5, 6, 8}) check_unpack(inline_codes(bits, 128), 256, share);
    const auto side = plan_side(**registry().format("kv4", {}), 128, true, false, false, share);
    REQUIRE(side);
    CHECK(side->sections[0].reads.is_joined == (share == 4));  // half a word a lane
  }
  for (const char* name : {"turbo_split_54", "vllm_k4_nc"}) {  // an outlier mask; rows scaled to length
    const auto side = plan_side(**registry().format(name, {}), 128, true, false, false, 2);
    REQUIRE_FALSE(side);
    CHECK(side.error().code == Code::unsupported);
  }
}

TEST_CASE("joined runs unpack two tokens at once, each to its half of a word") {
  for (const char* name : {"kv4", "q4_0"}) {
    const auto side = plan_side(**registry().format(name, {}), 128, true, false, false, 4);
    REQUIRE(side);
    CAPTURE(name);
    const SectionPlan& section = side->sections[0];
    const LaneReads& reads = section.reads;
    CHECK(section.code_lane_bits == (name == std::string("kv4") ? 4 : 0));
    const CodeLanes slots{section.code_lane_bits > 0 ? section.code_lane_bits : 8, 0, true};
    const int half = slots.per_word() / 2;
    REQUIRE(reads.is_joined);
    REQUIRE(reads.codes == 4);
    const std::uint32_t first = 0x4321, second = 0x8765;  // codes 1 2 3 4, and 5 6 7 8
    std::set<int> seen;
    const auto words = unpacked(reads, {first | second << 16});
    for (int m = 0; m < int(words.size()); ++m) {
      const std::uint32_t y = words[std::size_t(m)];
      for (int j = 0; j < half; ++j) {
        const int code = reads.lane_order[std::size_t(half * m + j)];
        CHECK(int(y >> slots.place(j) & 0xf) == code + 1);
        CHECK(int(y >> slots.place(half + j) & 0xf) == code + 5);
        seen.insert(code);
      }
    }
    CHECK(seen.size() == 4);
  }
}

TEST_CASE("orders of a team are permutations too, and its shapes fit") {
  for (const char* arch : {"sm_80", "sm_86", "sm_90a", "sm_120a"})
    for (const int head_dim : {128, 256})
      for (const int queries : {3, 4, 8}) {
        const auto problem = problem_of(
            fmt::format("[k]\nformat=\"kv4\"\n[v]\nformat=\"tbq4_0\"\n[attention]\nhead_dim={}\nq_heads_per_kv=8\n"
                        "query_length={}",
                        head_dim, queries),
            arch);
        CAPTURE(arch);
        CAPTURE(head_dim);
        CAPTURE(queries);
        const auto plan = plan_decode(problem);
        REQUIRE_MESSAGE(plan, (plan ? "" : render(plan.error())));
        // Merging 64 query rows of 256 channels takes 130 KiB of shared memory. Only data-center GPUs have that; on
        // others the rows are split into query chunks.
        const bool is_short = problem.arch.shared_bytes_per_block < 130 * 1024;
        CHECK((plan->query_chunks > 1) == (head_dim == 256 && queries == 8 && is_short));
        CHECK(plan->team > 1);
        CHECK(plan->warps % plan->team == 0);
        CHECK(plan->own_blocks() * plan->team / plan->value_share == plan->column_blocks);
        CHECK(plan->sums() <= 128);
        CHECK(plan->shared_bytes <= problem.arch.shared_bytes_per_block);
        CHECK(plan->by_warpgroups == problem.arch.has("wgmma"));
        for (const auto* order : {&plan->key_order, &plan->value_order})
          CHECK(std::set<int>(order->begin(), order->end()).size() == std::size_t(head_dim));
      }
}

TEST_CASE("every format is read by teams of warpgroups, 64 rows at a time") {
  for (const auto& [name, format] : registry().formats()) {
    if (format.has_segments()) continue;
    const auto problem =
        problem_of(fmt::format("[k]\nformat=\"{}\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim=256\nq_heads_per_kv=8\n"
                               "query_length=8",
                               name),
                   "sm_90a");
    CAPTURE(name);
    const auto plan = plan_decode(problem);
    REQUIRE_MESSAGE(plan, (plan ? "" : render(plan.error())));
    // Beside rows of 1024 bytes there is no room for two terms of 64 query rows.
    CHECK(plan->by_warpgroups == (name != "f32"));
    CHECK(std::set<int>(plan->key_order.begin(), plan->key_order.end()).size() == std::size_t(plan->k.rotated_dim));
  }
}

TEST_CASE("unpack sequences follow planes, splits, small groups, outliers and residual signs") {
  const std::string scale = "{ field = \"scale\" }";
  const std::string low = ", { field = \"codes\", bits = 2 }, { field = \"codes\", bits = 1, low = 2 }";
  for (const int block : {32, 128}) check_unpack(made(scale + low, block, 3), 128);
  for (const int block : {32, 64, 128})
    for (const int dim : {128, 256})
      check_unpack(made(scale + ", { field = \"codes\", nibbles = true }", block, 3), dim);
  const std::string high = ", { field = \"codes\", bits = 1, low = 4 }, { field = \"codes\", bits = 4, split = 16 }";
  for (const int dim : {32, 64, 96, 128}) check_unpack(made(scale + high, 32, 5), dim);
  // Lanes share the bytes of single bits in another way for each block.
  const std::string bits_apart =
      ", { field = \"codes\", bits = 2, split = 4 }, { field = \"codes\", bits = 1, low = 2, split = 4 }";
  for (const int block : {32, 64, 128, 256})
    for (const int dim : {256, 512}) check_unpack(made(scale + bits_apart, block, 3), dim);
  const std::string groups = "[scale]\nrule = \"amax\"\ndivisor = 1\nstorage = \"e4m3\"\ngroup = 16";
  for (const int dim : {64, 128, 256})
    check_unpack(made(scale + ", { field = \"codes\", split = 8 }", 64, 4, groups), dim);
  for (const int bits : {2, 3, 4})
    for (const int dim : {64, 96, 128, 256})
      check_unpack(made("{ field = \"codes\" }, " + scale, 16, bits, groups), dim);
  check_unpack(made(scale + ", { field = \"outliers\" }, { field = \"codes\" }", 128, 2,
                    "[scale]\nrule = \"raw_norm\"\n[outliers]\nmask = [\"0000ffff\", \"00010001\", \"000000ff\", "
                    "\"fc000000\"]\nbits = 3\ncodebook = { rule = \"lloyd_max\" }"),
               256);
  check_unpack(made(scale + ", { field = \"residual_norm\" }, { field = \"codes\" }, { field = \"residual\" }", 128, 3,
                    "[scale]\nrule = \"raw_norm\"\n[residual]\nkind = \"direct\"\nnorm = \"length\""),
               128);
}

TEST_CASE("one look-up finds two states of a small trellis, where each lane has a copy of its table") {
  const auto at_once = [](const char* k, const char* v, const char* arch) {
    const std::string toml = fmt::format(
        "[attention]\nhead_dim = 128\nq_heads_per_kv = 4\n[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n", k, v);
    const DecodePlan plan = *plan_decode(problem_of(toml, arch), {});
    return std::pair{plan.k.sections[0].at_once, plan.v.sections[0].at_once};
  };
  CHECK(at_once("kvt2", "kvt2", "sm_90a") == std::pair{2, 2});
  CHECK(at_once("buun_turbo2_tcq", "kv4", "sm_90a") == std::pair{2, 1});
  CHECK(at_once("kvt3", "kvt3", "sm_90a") == std::pair{1, 1});  // 4096 entries
  CHECK(at_once("kvt2", "kvt2", "sm_86") == std::pair{1, 1});   // 99 KiB of shared memory
}

TEST_CASE("records of 16 modulo 32 bytes keep their sectors whole, but not in pages") {
  const auto plan = [](const char* format, const char* cache) {
    return *plan_decode(problem_of(fmt::format("[attention]\nhead_dim = 576\nhead_dim_v = 512\nq_heads_per_kv = 16\n"
                                               "q_type = \"bf16\"\n[k]\nformat = \"{0}\"\n[v]\nformat = "
                                               "\"{0}\"\n[cache]\n{1}\n",
                                               format, cache)),
                        {});
  };
  const DecodePlan rows = plan("vllm_fp8_ds_mla_656", "layout = \"rows\"");
  CHECK(rows.k.keeps_sectors);
  CHECK(rows.v.keeps_sectors);
  CHECK(rows.v.pitch >= rows.v.row_bytes + 16);
  CHECK(rows.query_terms == 1);
  CHECK(rows.k.sections[0].has_aligned_scales);
  CHECK_FALSE(
      plan("vllm_fp8_ds_mla_656", "layout = \"paged\"\npage_tokens = 64\npage_layout = \"rows\"").k.keeps_sectors);
  CHECK_FALSE(plan("vllm_fp8_ds_mla_656", "layout = \"planar\"").k.keeps_sectors);
  CHECK_FALSE(plan("vllm_nvfp4_ds_mla_352", "layout = \"rows\"").k.is_record);  // 352 is a multiple of 32
}

TEST_CASE("a team reads V in K's rows by bulk copies: packed rows of 16 n bytes, from one page a tile") {
  const auto is_bulk = [](const char* format, const char* cache, const char* arch, int head_dim = 576, int gqa = 16) {
    const std::string toml = fmt::format(
        "[attention]\nhead_dim = {}\nhead_dim_v = 512\nq_heads_per_kv = {}\n[k]\nformat = \"{}\"\n"
        "[v]\nformat = \"{}\"\nin_keys = true\n[cache]\n{}\n",
        head_dim, gqa, format, format, cache);
    const DecodePlan plan = *plan_decode(problem_of(toml, arch), {});
    CHECK(plan.v.by_bulk == plan.k.by_bulk);
    CHECK((plan.team > 1 || !plan.k.by_bulk));
    return plan.k.by_bulk;
  };
  const char *const rows = "layout = \"rows\"",
                    *const pages_of_64 = "layout = \"paged\"\npage_tokens = 64\npage_layout = \"rows\"",
                    *const pages_of_16 = "layout = \"paged\"\npage_tokens = 16\npage_layout = \"rows\"";
  CHECK(is_bulk("vllm_fp8_ds_mla_656", rows, "sm_90a"));
  CHECK(is_bulk("vllm_fp8_ds_mla_656", pages_of_64, "sm_90a"));
  CHECK_FALSE(is_bulk("vllm_fp8_ds_mla_656", pages_of_16, "sm_90a"));
  CHECK_FALSE(is_bulk("vllm_fp8_ds_mla_656", rows, "sm_80"));
  CHECK_FALSE(is_bulk("vllm_fp8_ds_mla_656", rows, "sm_90a", 576, 64));  // by warpgroups
  CHECK(is_bulk("vllm_nvfp4_ds_mla_352", rows, "sm_90a"));
  CHECK_FALSE(is_bulk("vllm_fp8_ds_mla_584", rows, "sm_90a", 512));  // 8 modulo 16 bytes
  CHECK_FALSE(is_bulk("bf16", rows, "sm_90a"));
}

TEST_CASE("scales of V's segments multiply probabilities together, or values") {
  const auto uses = [](int head_dim, bool is_key) {
    const Format f = *registry().format_for("vllm_octave_k", head_dim, {});
    const SidePlan side = *plan_side(f, head_dim, true, is_key);
    std::vector<ScaleUse> all;
    for (const SectionPlan& section : side.sections) all.push_back(section.use);
    return all;
  };
  using enum ScaleUse;
  CHECK(uses(128, false) == std::vector{by_group, by_group});
  CHECK(uses(256, true) == std::vector{by_group, by_group, by_group, by_group});  // K is divided by its scales
  CHECK(uses(256, false) == std::vector{by_value, by_value});
}

TEST_CASE("four-bit codes unpack with one shift and one mask a word") {
  const auto side = plan_side(**registry().format("tbq4_0", {}), 128, true, true);
  REQUIRE(side);
  CHECK(side->sections[0].reads.words == 4);
  for (const auto& terms : side->sections[0].reads.unpack) CHECK(terms.size() == 1);
}

TEST_CASE("words of slots are made of few terms") {
  struct Cost {
    const char* format;
    std::size_t key_helpers, value_helpers;  // intermediate words
    std::size_t key_terms, value_terms;      // terms of all result words
  };
  for (const Cost& cost : {Cost{"kv2", 0, 0, 4, 1}, Cost{"kv3", 0, 0, 6, 3}, Cost{"kv4", 0, 0, 4, 2},
                           Cost{"tbq3_0", 8, 4, 8, 2}, Cost{"turbo3_0", 4, 2, 12, 6}, Cost{"turbo2_0", 0, 0, 4, 1}})
    for (const bool is_key : {true, false}) {
      CAPTURE(cost.format);
      CAPTURE(is_key);
      const auto side = plan_side(**registry().format(cost.format, {}), 128, true, is_key, true);
      REQUIRE(side);
      const LaneReads& reads = side->sections[0].reads;
      std::size_t terms = 0;
      for (const auto& word : reads.unpack) terms += word.size();
      CHECK(reads.helpers.size() == (is_key ? cost.key_helpers : cost.value_helpers));
      CHECK(terms == (is_key ? cost.key_terms : cost.value_terms));
    }
}

TEST_CASE("lane reads of six bytes are read as words from where they begin") {
  const auto side = plan_side(**registry().format("tbq3_0", {}), 128, true, false);
  REQUIRE(side);
  const FieldRead& plane = side->sections[0].reads.planes[0];
  CHECK(plane.lane_bits == 48);
  CHECK(plane.unit == 4);
  CHECK(plane.words == 2);
  // Rows of layout rows begin at any even address.
  CHECK(plan_side(**registry().format("tbq3_0", {}), 128, false, false)->sections[0].reads.planes[0].is_unaligned);
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

TEST_CASE("queries are as exact as the products they go into") {
  struct Expected {
    const char* k;
    int lanes_per_row;
    bool is_scaled;
  };
  // f16 is multiplied as stored, q8_0 and tbq4_0 as integers. turbo4_qjl68 is rounded like the entries of its table.
  // Codes of atlas_turbo2 and fp8_e4m3 are exact, or are rounded with their scales. bf16 and f32 are multiplied as
  // bfloats, of which f16 queries take two.
  for (const Expected& each : {Expected{"f16", 1, false}, Expected{"q8_0", 1, true}, Expected{"tbq4_0", 1, true},
                               Expected{"turbo4_qjl68", 1, true}, Expected{"atlas_turbo2", 2, true},
                               Expected{"fp8_e4m3", 1, false}, Expected{"bf16", 2, false}, Expected{"f32", 2, false}}) {
    CAPTURE(std::string(each.k));
    const auto plan = plan_decode(
        problem_of(fmt::format("[k]\nformat=\"{}\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim=128", each.k)));
    REQUIRE(plan);
    CHECK(plan->query_terms == each.lanes_per_row);
    CHECK(plan->scales_queries == each.is_scaled);
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
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a",
                           "sm_110a", "sm_120a", "sm_121a"})
    for (const char* format : {"f16", "tbq4_0"}) {
      const auto problem =
          problem_of(fmt::format("[k]\nformat=\"{}\"\n[v]\nformat=\"{}\"\n[attention]\nhead_dim=256\nq_heads_per_kv=8",
                                 format, format),
                     arch);
      const auto plan = plan_decode(problem);
      REQUIRE(plan);
      CHECK(plan->shared_bytes <= problem.arch.shared_bytes_per_block);
      CHECK(plan->stages >= 2);
      for (const int at :
           {plan->ring_at, plan->k.stage_bytes, plan->v.stage_bytes, plan->k.scales_at, plan->v.scales_at})
        CHECK(at % 128 == 0);  // an L2 sector must lie in one sector of shared memory
    }
}

TEST_CASE("query rows that do not fit a block come in equal chunks") {
  const auto plan_of = [](int gqa, int queries, int head_dim, const char* arch) {
    auto plan =
        plan_decode(problem_of(fmt::format("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim={}\n"
                                           "q_heads_per_kv={}\nquery_length={}",
                                           head_dim, gqa, queries),
                               arch));
    REQUIRE_MESSAGE(plan, (plan ? "" : render(plan.error())));
    CHECK(plan->rows * plan->query_chunks >= gqa * queries);
    CHECK(plan->rows * (plan->query_chunks - 1) < gqa * queries);
    return *plan;
  };
  CHECK(plan_of(8, 8, 128, "sm_90a").query_chunks == 1);
  const DecodePlan plan = plan_of(13, 5, 128, "sm_90a");  // 65 query rows: chunks of 40 and 25, not of 64 and 1
  CHECK(plan.query_chunks == 2);
  CHECK(plan.rows == 40);
  CHECK(plan_of(32, 75, 256, "sm_90a").rows == 64);
  CHECK(plan_of(20, 1, 512, "sm_90a").query_chunks > 1);  // fewer rows fit at once
}

TEST_CASE("what decode cannot serve is refused with the reason and what works") {
  const auto plan =
      plan_decode(problem_of("[k]\nformat=\"f16\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim=512", "sm_75"));
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == Code::unsupported);
  CHECK(plan.error().message ==
        "no block shape of the decode family fits 65536 bytes of shared memory on sm_75: the smallest takes 75920");

  const auto odd = plan_side(made("{ field = \"codes\" }, { field = \"scale\" }", 16, 4,
                                  "[scale]\nrule = \"amax\"\ndivisor = 1\nstorage = \"e4m3\""),
                             48, false, true);
  REQUIRE_FALSE(odd);
  CHECK(odd.error().message == "layout 'rows' needs rows of an even number of bytes; made has 27 at head_dim 48");
}

TEST_CASE("halves of a codebook are closer than plain rounding, and the unit undoes their scale") {
  const auto plan = plan_decode(problem_of("[k]\nformat=\"tbq4_0\"\n[v]\nformat=\"tbq4_0\""));
  REQUIRE(plan);
  for (std::size_t i = 0; i < 16; ++i) {
    const double back = float_from_f16(plan->k.sections[0].halves[i]) * plan->k.unit;
    CHECK(std::abs(back / plan->k.format.codes().values[i] - 1) < 4.9e-4);
  }
  CHECK_FALSE(plan->v.sections[0].owns_table);  // equal formats share one table
}

TEST_CASE("every kernel has whole warps, whatever the head") {
  for (const int head_dim : {64, 96, 160, 192, 320}) {
    const std::string toml = fmt::format(
        "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n[attention]\nhead_dim_k = 64\nhead_dim_v = {}\nfuse = false\n",
        head_dim);
    const auto problem = resolve(parse_specs(toml, "s").value().at(0), test::registry(), "sm_90a");
    const ProgramSource program = make_program(*problem, test::registry()).value();
    for (const auto& [role, source] : program.kernels) {
      INFO(source.name);
      CHECK(source.threads % 32 == 0);
    }
  }
}

}  // namespace kvjit
