// tools/bench/bench.cpp: results computed from measured times (rates relative to the probe, copies, refusals, the
// table, JSON, the page). The times are invented; the test needs no GPU.
// SPDX-License-Identifier: MIT
#include "tools/bench/bench.hpp"

#include <doctest/doctest.h>

#include "generator/catalogue/registry.hpp"
#include "generator/program.hpp"

namespace kvjit {
namespace {

DeviceInfo h200() {
  DeviceInfo info;
  info.is_gpu = true;
  info.name = "NVIDIA H200";
  info.arch = "sm_90a";
  info.memory_bytes = std::size_t{140} << 30;
  info.l2_bytes = 60 << 20;
  info.memory_clock_khz = 3'201'000;
  info.memory_bus_bits = 6016;
  return info;
}

BenchRow row(int batch, long long tokens, double us, double probe_us) {
  BenchRow row;
  row.program = "q4_0-q4_0.d128.g8.q1.planar.f16-f32";
  row.k_format = row.v_format = "q4_0";
  row.head_dim = 128, row.q_heads_per_kv = 8, row.query_length = 1;
  row.shape = {batch, 8, tokens, 4};
  row.cache_bytes = 144.0 * 8 * double(tokens) * batch;
  row.timing = {us, us - 1, us + 2, 20, 20};
  row.probe = {{probe_us, probe_us, probe_us, 20, 20}, 4, 2};
  row.peak_gb_per_s = h200().peak_gb_per_s();
  row.blocks = 16;
  row.kernels = {{"decode", "decode.x", 384, 168, 0, 101376}, {"merge", "merge.x", 128, 32, 0, 0}};
  return row;
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST_CASE("rates and shares: of the probe by time, of the peak by the device's attributes") {
  CHECK(h200().peak_gb_per_s() == doctest::Approx(4814.304));  // 2 x 3201 MHz x 752 bytes
  const BenchRow one = row(1, 131072, 50, 40);
  CHECK(one.gb_per_s() == doctest::Approx(150994944 / 50.0 / 1000));
  CHECK(one.probe_gb_per_s() == doctest::Approx(150994944 / 40.0 / 1000));
  CHECK(one.of_probe() == doctest::Approx(0.8));
  CHECK(one.of_peak() == doctest::Approx(3019.9 / 4814.3).epsilon(1e-4));
}

TEST_CASE("operations of a call: of the pairs that causal masks and windows leave") {
  const Registry registry = Registry::load(embedded_files()).value();
  const auto flop = [&](const char* keys, CacheShape shape) {
    const std::string text = "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n[attention]\nq_heads_per_kv = 4\n";
    const Spec spec = parse_specs(text + keys, "s").value().at(0);
    return attention_flop(resolve(spec, registry, "sm_90a").value(), shape);
  };
  const double pair = 2. * 256 * 8 * 4;  // of 8 KV heads with 4 query heads each, 128 channels of K and of V
  CHECK(flop("query_length = 3", {1, 8, 10, 1}) == pair * 30);
  CHECK(flop("query_length = 3\nfeatures = [\"causal\"]", {2, 8, 10, 1}) == 2 * pair * (8 + 9 + 10));
  CHECK(flop("query_length = 3\nfeatures = [\"causal\"]\nwindow = [4, -1]", {1, 8, 10, 1}) == pair * 15);
  CHECK(flop("query_length = 3\nwindow = [1, 1]", {1, 8, 10, 1}) == pair * (3 + 3 + 2));
  CHECK(flop("query_length = 3\nfeatures = [\"causal\"]", {1, 8, 2, 1}) == pair * (0 + 1 + 2));
}

TEST_CASE("a call by prefill has a rate of its products, others have none") {
  BenchRow many = row(1, 8192, 400, 40);
  many.flop = 2e11;
  CHECK(bench_text({many}).find(" 500 ") == std::string::npos);
  many.kernels[0].role = "prefill";
  CHECK(many.tflop_per_s() == doctest::Approx(500));
  CHECK(bench_text({many}).find(" 500 ") != std::string::npos);
  CHECK(to_json(many)["is_prefill"] == true);
  CHECK(count(bench_page(h200(), 8, {many}), "TFLOP/s") >= 2);
  CHECK(to_json(many)["of_tensor_peak"].is_null());
  CHECK(to_json(many)["clock_mhz"].is_null());
  many.clock_mhz = 1500, many.peak_tflop_per_s = 811;
  CHECK(bench_text({many}).find(" 62 ") != std::string::npos);
  CHECK(to_json(many)["of_tensor_peak"] == doctest::Approx(500. / 811));
  CHECK(to_json(many)["clock_mhz"] == 1500);
  many.kernels[0].role = "decode";
  CHECK(to_json(many)["of_tensor_peak"].is_null());
}

TEST_CASE("copies exceed the L2 several times, and are one where one cache does") {
  DeviceInfo info = h200();
  CHECK(copies_for(4.3e6, info) == 94);  // 4 x 60 MiB is less than 400 MB
  CHECK(copies_for(399e6, info) == 2);
  CHECK(copies_for(1.1e9, info) == 1);
  CHECK(copies_for(1000, info) == 1280);
  info.l2_bytes = 126 << 20;
  CHECK(copies_for(4.3e6, info) == 123);
}

TEST_CASE("a cache that the device cannot hold is refused with what it needs and what there is") {
  const Registry registry = Registry::load(embedded_files()).value();
  const Spec spec = parse_specs("[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n", "s").value().at(0);
  const ProgramSource source = make_reference_program(resolve(spec, registry, "sm_90a").value(), registry).value();
  CHECK(check_memory(source, {16, 8, 131072, 1}, h200()));
  const Error large = check_memory(source, {64, 64, 131072, 1}, h200()).error();
  CHECK(large.code == Code::environment);
  CHECK(large.message ==
        source.id + ": 64 sequences x 64 KV heads x 131072 tokens take 256.0 GiB of memory; NVIDIA H200 has 140.0 GiB");
  CHECK_FALSE(check_memory(source, {65535, 4096, 1 << 24, 1}, h200()));  // overflows 64 bits
}

TEST_CASE("the table: a line a row, registers and shared memory of each launch") {
  const std::string text = bench_text({row(1, 131072, 50, 40), row(16, 4096, 33.333, 30)});
  CHECK(count(text, "\n") == 3);
  for (const char* cell :
       {"144.0 MiB", " 50.00 ", " 49.00 ", " 52.00 ", " 3020 ", " 80 ", " 63 ", "168+32", "99+0", " 33.33 "})
    CHECK_MESSAGE(text.find(cell) != std::string::npos, cell, "\n", text);
  BenchRow bare = row(1, 4096, 50, 40);
  bare.peak_gb_per_s = 0;
  CHECK(bench_text({bare}).find(" - ") != std::string::npos);
  CHECK(to_json(bare)["of_peak"].is_null());
}

TEST_CASE("the heading says what the peak is computed from, or that it is not known") {
  CHECK(bench_heading(h200(), 8).find("peak 4814 GB/s: 2 x 3201 MHz x 6016 bits") != std::string::npos);
  DeviceInfo silent = h200();
  silent.memory_clock_khz = 0;
  CHECK(bench_heading(silent, 8).find("no peak") != std::string::npos);
  CHECK(to_json(silent)["peak_gb_per_s"].is_null());
  CHECK(to_json(h200())["peak_gb_per_s"] == doctest::Approx(4814.304));
}

TEST_CASE("the JSON of a row has what another program needs to repeat the measurement") {
  const auto json = to_json(row(16, 4096, 33, 30));
  CHECK(json["batch"] == 16);
  CHECK(json["kv_heads"] == 8);
  CHECK(json["tokens"] == 4096);
  CHECK(json["head_dim"] == 128);
  CHECK(json["q_heads_per_kv"] == 8);
  CHECK(json["query_length"] == 1);
  CHECK(json["is_causal"] == false);
  CHECK(json["copies"] == 4);
  CHECK(json["pool_bytes"] == 4 * 144.0 * 8 * 4096 * 16);
  CHECK(json["median_us"] == 33.0);
  CHECK(json["repeats"] == 20);
  CHECK(json["calls_a_repeat"] == 20);
  CHECK(json["of_probe"] == doctest::Approx(30.0 / 33));
  CHECK(json["probe"]["unroll"] == 4);
  CHECK(json["probe"]["median_us"] == 30.0);
  CHECK(json["launches"] == 2);
  CHECK(json["kernels"][0]["registers"] == 168);
  CHECK(json["kernels"][0]["shared_bytes"] == 101376);
}

TEST_CASE("what ran is looked up by the names of the report; an unknown one is an error") {
  const Registry registry = Registry::load(embedded_files()).value();
  const Spec spec = parse_specs("[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n", "s").value().at(0);
  ProgramSource source = make_reference_program(resolve(spec, registry, "sm_90a").value(), registry).value();
  Options options;
  options.device = DeviceKind::cpu;
  options.cache_dir = "off";
  const auto program = Program::create(Context::open(options).value(), source).value();
  LaunchReport report;
  CHECK(launched_kernels(*program, report).value().empty());
  report.kernels = {"decode.of.another"};
  const auto unknown = launched_kernels(*program, report);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code == Code::internal);
  CHECK(unknown.error().message.find("decode.of.another") != std::string::npos);
}

TEST_CASE("the page: a line for each program and batch, the probe as the roof, one file") {
  std::vector<BenchRow> rows = {row(1, 131072, 50, 40), row(1, 4096, 9, 3), row(16, 4096, 33, 30)};
  rows.push_back(row(1, 4096, 7, 4));
  rows.back().program = "another";  // equal formats: the label alone would be ambiguous
  const std::string page = bench_page(h200(), 8, rows);
  CHECK(count(page, "<svg") == 2);
  CHECK(count(page, "class=\"roof line\"") == 1);
  CHECK(count(page, "<polyline") == 7);  // three lines twice, and the probe's line
  CHECK(page.find(">q4_0 x16<") != std::string::npos);
  CHECK(page.find(">q4_0 x1<") == std::string::npos);
  CHECK(page.find(">#1<") != std::string::npos);
  CHECK(page.find(">probe<") != std::string::npos);
  CHECK(count(page, "<td>#1</td>") == 2);
  CHECK(count(page, "<tr>") == 5);
  for (const char* word : {"nan", "inf", "<script", "http", "src=", "href="})
    CHECK_MESSAGE(page.find(word) == std::string::npos, word);
}

}  // namespace
}  // namespace kvjit
