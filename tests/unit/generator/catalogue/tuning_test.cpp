// generator/catalogue/tuning.cpp: measured block shapes are read and written; a row matches a problem exactly, nearly
// or not; the planner explains a row that does not fit.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/tuning.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/kernels/decode/plan.hpp"
#include "generator/program.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::registry;

Problem problem_of(const std::string& k, const std::string& v, int rows, const std::string& device,
                   const std::string& more = "") {
  const auto specs = parse_specs(
      fmt::format("[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nq_heads_per_kv = {}\n{}", k, v, rows, more),
      "s");
  REQUIRE_MESSAGE(specs, (specs ? "" : render(specs.error())));
  Problem problem = resolve((*specs)[0], registry(), "sm_90a").value();
  problem.device = device;
  return problem;
}

std::string row(const std::string& device, const std::string& k, const std::string& v, int rows, int warps,
                const std::string& more = "copies = 32\n") {
  return fmt::format(
      "[[row]]\ndevice = \"{}\"\nk = {}\nv = {}\nhead_dim = 128\nrows = {}\nwarps = {}\nstages = 2\ntile = 32\n{}",
      device, k, v, rows, warps, more);
}

std::vector<TuningRow> rows_of(const std::string& text) {
  const auto rows = parse_tuning(text, "specs/tuning/sm_90a.toml", registry());
  REQUIRE_MESSAGE(rows, (rows ? "" : render(rows.error())));
  return *rows;
}

using Match = Tuning::Match;

TEST_CASE("rows are read with what they derive, and written as they were read") {
  const auto rows = rows_of(
      row("NVIDIA H200", "\"tbq4_0\"", "{ bits = 3, block = 64, rotation = \"wht_signed\" }", 8, 6,
          "copies = 8\nlayout = \"rows\"\nsubtiles = 1\nhold_queries = false\nmeasured = [\"1 x 8: 40 us\"]\n") +
      row("NVIDIA H100", "\"q8_0\"", "\"q8_0\"", 1, 12, ""));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].k_name == "tbq4_wht_dfirst_corr");  // the format's name, not the alias
  CHECK(rows[0].k_bytes == 66);
  CHECK(rows[0].v_name == "b3_block64_lloyd_max_corrected_norm_wht_signed");
  CHECK(rows[0].layout == Layout::rows);
  CHECK(rows[0].shape == BlockShape{6, 2, 32, 8, 1, false});
  CHECK(rows[0].measured == std::vector<std::string>{"1 x 8: 40 us"});
  CHECK(rows[1].shape == BlockShape{12, 2, 32, 1, {}, {}});
  CHECK(rows[1].where.line == 15);
  const std::string text = tuning_text("sm_90a", rows);
  CHECK(tuning_text("sm_90a", rows_of(text)) == text);
  CHECK(rows_of(text)[0].shape == rows[0].shape);
}

TEST_CASE("exact, nearest, other device, default") {
  const auto rows =
      rows_of(row("NVIDIA H100", "\"kv4\"", "\"kv4\"", 8, 2) + row("NVIDIA H200", "\"kv4\"", "\"kv4\"", 8, 6) +
              row("NVIDIA H200", "\"kv4\"", "\"kv4\"", 4, 4) + row("NVIDIA H100", "\"kv2\"", "\"kv2\"", 8, 8));
  const auto found = [&](const char* k, const char* v, int asked, const char* device, const std::string& more = "") {
    return find_tuning(rows, problem_of(k, v, asked, device, more));
  };
  const Tuning exact = found("kv4", "kv4", 8, "NVIDIA H200");
  CHECK(exact.match == Match::exact);
  CHECK(exact.shape.warps == 6);
  CHECK(exact.where.line == 11);
  CHECK(exact.why == "specs/tuning/sm_90a.toml:11, measured on NVIDIA H200");

  CHECK(found("kv4", "kv4", 4, "NVIDIA H200").shape.warps == 4);
  const Tuning rows_near = found("kv4", "kv4", 5, "NVIDIA H200");  // 4 query rows are nearer than 8
  CHECK(rows_near.match == Match::nearest);
  CHECK(rows_near.shape.warps == 4);
  CHECK(rows_near.why.find("measured on NVIDIA H200 for kv4, kv4, 4 row(s)") != std::string::npos);
  const Tuning format_near = found("tbq4_0", "kv4", 8, "NVIDIA H200");  // a format with as many bytes
  CHECK(format_near.match == Match::nearest);
  CHECK(format_near.shape.warps == 6);
  CHECK_FALSE(format_near.is_same_shape);

  const Tuning other = found("kv2", "kv2", 8, "NVIDIA H200");
  CHECK(other.match == Match::other_device);
  CHECK(other.is_same_shape);
  CHECK(other.shape.warps == 8);
  CHECK(found("kv4", "kv4", 8, "NVIDIA GH200").shape.warps == 2);  // the first of equally near rows

  CHECK(found("kv4", "kv4", 8, "").match == Match::exact);  // no device is named, so any device of the arch matches
  for (const auto& [k, asked, more] : {std::tuple{"kv4", 9, ""},
                                       {"q8_0", 8, ""},
                                       {"kv4", 8, "head_dim = 256"},
                                       {"kv4", 8, "[cache]\nlayout = \"rows\""}}) {
    CAPTURE(k);
    const Tuning none = found(k, "kv4", asked, "NVIDIA H200", more);
    CHECK(none.match == Match::none);
    CHECK(none.why == "nothing like it was measured for sm_90a");
  }
  CHECK(find_tuning({}, problem_of("kv4", "kv4", 8, "")).why == "nothing was measured for sm_90a");
}

TEST_CASE("the planner takes a measured shape and says so") {
  const auto rows =
      rows_of(row("NVIDIA H200", "\"kv4\"", "\"kv4\"", 8, 6, "copies = 8\nsubtiles = 1\nhold_queries = false\n"));
  const Problem problem = problem_of("kv4", "kv4", 8, "NVIDIA H200");
  const auto own = plan_decode(problem), tuned = plan_decode(problem, find_tuning(rows, problem));
  REQUIRE(own);
  REQUIRE(tuned);
  CHECK(own->warps == 12);
  CHECK(own->subtiles == 2);
  CHECK(own->hold_queries);
  CHECK(tuned->warps == 6);
  CHECK(tuned->stages == 2);
  CHECK(tuned->v.table_copies == 8);
  CHECK(tuned->subtiles == 1);
  CHECK_FALSE(tuned->hold_queries);
  const auto says = [](const DecodePlan& plan) {
    const auto found = std::find_if(plan.decisions.begin(), plan.decisions.end(),
                                    [](const Decision& d) { return d.what == "tuning"; });
    REQUIRE(found != plan.decisions.end());
    return *found;
  };
  CHECK(says(*own).choice == "default");
  CHECK(says(*tuned).choice == "exact");
  CHECK(says(*tuned).why == "specs/tuning/sm_90a.toml:1, measured on NVIDIA H200");

  // A near row may state table copies only for sides that have a table in the plan. Otherwise the planner uses its own
  // shape and says why.
  const auto plain = rows_of(row("NVIDIA H200", "\"q4_0\"", "\"q4_0\"", 8, 6, ""));
  const auto fallen = plan_decode(problem, find_tuning(plain, problem));
  REQUIRE(fallen);
  CHECK(fallen->warps == own->warps);
  CHECK(says(*fallen).choice == "default");
  CHECK(says(*fallen).why == "the nearest measured shape does not fit");
  REQUIRE(says(*fallen).rejected.size() == 1);
  CHECK(says(*fallen).rejected[0].find("it was measured without tables") != std::string::npos);
}

TEST_CASE("a row that features leave no room for is not an error, and not passed over in silence") {
  const std::string with = "features = [\"sinks\"]\n";
  const auto explained = [&](int asked, int warps, int tile, const std::string& more) {
    FileSet files = embedded_files();
    std::string& text = files["specs/tuning/sm_90a.toml"] = row("NVIDIA H200", "\"kv4\"", "\"kv4\"", asked, warps);
    text.replace(text.find("tile = 32"), 9, fmt::format("tile = {}", tile));
    return explain(test::must(
        make_program(problem_of("kv4", "kv4", asked, "NVIDIA H200", more), test::must(Registry::load(files)))));
  };
  const auto has = [](const std::string& text, const std::string& what) { return text.find(what) != text.npos; };
  const std::string place = "specs/tuning/sm_90a.toml:1, measured on NVIDIA H200";
  const std::string taken = "  tuning     exact                              " + place;
  CHECK(has(explained(8, 12, 32, with), taken + ", without features\n"));
  // Teams of warps leave no registers for features.
  CHECK(has(explained(32, 16, 16, ""), taken + "\n"));
  const std::string text = explained(32, 16, 16, with);
  CHECK(has(text,
            "  tuning     default                            the measured shape does not fit beside the features\n"
            "    rejected " +
                place + ", without features: 16 warps leave too few registers a thread"));
}

TEST_CASE("a row for this very problem that does not fit is an error at its place") {
  const auto refusal = [](const std::string& k, int asked, int warps, const std::string& more) {
    const Problem problem = problem_of(k, k, asked, "NVIDIA H200");
    const auto rows = rows_of(row("NVIDIA H200", '"' + k + '"', '"' + k + '"', asked, warps, more));
    const auto plan = plan_decode(problem, find_tuning(rows, problem));
    REQUIRE_FALSE(plan);
    CHECK(plan.error().code == Code::bad_input);
    CHECK(plan.error().where.file == "specs/tuning/sm_90a.toml");
    CHECK(plan.error().where.line == 1);
    return plan.error().message;
  };
  CHECK(refusal("f16", 8, 12, "").find("bytes of shared memory, sm_90a has 232448") != std::string::npos);
  CHECK(refusal("kv4", 16, 12, "copies = 32\n").find("12 warps leave too few registers") != std::string::npos);
  CHECK(refusal("q4_0", 8, 6, "copies = 32\n").find("copies of tables that q4_0 and q4_0 do not have") !=
        std::string::npos);
}

TEST_CASE("a team takes its tiles at once: other subtiles are refused, not passed over") {
  const Problem problem = problem_of("kv4", "kv4", 16, "", "head_dim = 256");
  Tuning requested;
  requested.match = Match::requested, requested.shape = {8, 2, 32, 8, {}, {}};
  REQUIRE(plan_decode(problem, requested));
  CHECK(plan_decode(problem, requested)->team > 1);
  requested.shape.subtiles = 2;
  CHECK(plan_decode(problem, requested));
  requested.shape.subtiles = 1;
  const auto refused = plan_decode(problem, requested);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("teams take a tile at once, so 1 subtile(s) of a tile of 32") !=
        std::string::npos);
}

TEST_CASE("every shipped row fits the problem that it names, and serves it exactly") {
  for (const auto& [arch, ignored] : registry().archs())
    for (const TuningRow& row : registry().tuning(arch)) {
      CAPTURE(row.where.file);
      CAPTURE(row.where.line);
      Spec spec;
      spec.k = row.k, spec.v = row.v;
      spec.head_dim = row.head_dim, spec.q_heads_per_kv = row.rows, spec.layout = row.layout;
      Problem problem = resolve(spec, registry(), arch).value();
      problem.device = row.device;
      const Tuning tuning = find_tuning(registry().tuning(arch), problem);
      CHECK(tuning.match == Match::exact);
      CHECK(tuning.shape == row.shape);
      const auto plan = plan_decode(problem, tuning);
      CHECK_MESSAGE(plan, (plan ? "" : render(plan.error())));
    }
}

TEST_CASE("the shapes to choose from fit, and the first is the planner's own") {
  const Problem problem = problem_of("kv4", "kv4", 8, "");
  const auto shapes = decode_shapes(problem);
  REQUIRE(shapes);
  CHECK(shapes->size() > 30);
  const auto own = plan_decode(problem);
  REQUIRE(own);
  CHECK(shapes->front().warps == own->warps);
  CHECK(shapes->front().stages == own->stages);
  for (const BlockShape& shape : *shapes) {
    Tuning requested;
    requested.match = Match::requested, requested.shape = shape;
    const auto plan = plan_decode(problem, requested);
    REQUIRE_MESSAGE(plan, (plan ? "" : render(plan.error())));
    CHECK(plan->shared_bytes <= problem.arch.shared_bytes_per_block);
  }
  const auto program = make_program(problem, registry(), shapes->back());
  REQUIRE(program);
  CHECK(program->kernels.at(Role::decode).threads == shapes->back().warps * 32);
}

}  // namespace
}  // namespace kvjit
