// Writes rows of bench as JSON, text and charts: see bench.hpp.
// SPDX-License-Identifier: MIT
#include "tools/bench/bench.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/io/plot.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

using Json = nlohmann::ordered_json;

// After reads of four times its size, an L2 holds little of the first cache, whatever its eviction policy.
constexpr double kLeastPool = 400e6;  // bytes
constexpr double kLeastL2s = 4;       // in sizes of the L2
constexpr int kMostCopies = 1280;     // 64 graphs of 20 calls; caches below 0.3 MB make a smaller pool

const std::vector<std::string> kHeadings = {
    "program",   "batch",   "tokens",           "cache",     "us",        "low", "high", "GB/s", "% of probe",
    "% of peak", "TFLOP/s", "% of tensor peak", "registers", "shared KiB"};

std::vector<std::string> cells(const BenchRow& row) {
  std::vector<std::string> registers, shared;
  for (const LaunchedKernel& kernel : row.kernels) {
    registers.push_back(std::to_string(kernel.registers));
    shared.push_back(fmt::format("{:.3g}", kernel.shared_bytes / 1024.0));
  }
  const auto us = [](double time) { return fmt::format("{:.2f}", time); };
  return {row.program,
          std::to_string(row.shape.sequences),
          std::to_string(row.shape.tokens),
          byte_count(row.cache_bytes),
          us(row.timing.median_us),
          us(row.timing.low_us),
          us(row.timing.high_us),
          fmt::format("{:.0f}", row.gb_per_s()),
          fmt::format("{:.0f}", 100 * row.of_probe()),
          row.peak_gb_per_s > 0 ? fmt::format("{:.0f}", 100 * row.of_peak()) : "-",
          row.is_prefill() ? fmt::format("{:.0f}", row.tflop_per_s()) : "-",
          row.is_prefill() && row.peak_tflop_per_s > 0 ? fmt::format("{:.0f}", 100 * row.of_tensor_peak()) : "-",
          fmt::format("{}", fmt::join(registers, "+")),
          fmt::format("{}", fmt::join(shared, "+"))};
}

std::vector<std::vector<std::string>> table(const std::vector<BenchRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const BenchRow& row : rows) lines.push_back(cells(row));
  return lines;
}

Json to_json(const Backend::Timing& timing) {
  return {{"median_us", timing.median_us},
          {"low_us", timing.low_us},
          {"high_us", timing.high_us},
          {"repeats", timing.repeats},
          {"calls_a_repeat", timing.calls}};
}

// A line of a chart: one program and batch. Its label is the program's formats, or the line's number if the formats are
// long or not unique.
struct Line {
  std::string program;
  std::string label;
  int batch = 0;  // sequences
  std::vector<const BenchRow*> rows;
};

std::vector<Line> lines_of(const std::vector<BenchRow>& rows) {
  constexpr std::size_t kLongest = 28;
  std::vector<Line> lines;
  std::map<std::string, int> used;
  for (const BenchRow& row : rows) {
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const Line& l) { return l.program == row.program && l.batch == row.shape.sequences; });
    if (line == lines.end()) {
      const std::string formats = row.k_format == row.v_format ? row.k_format : row.k_format + " / " + row.v_format;
      const std::string label = fmt::format("{} x{}", formats, row.shape.sequences);
      ++used[label];
      line = lines.insert(lines.end(), {row.program, label, row.shape.sequences, {}});
    }
    line->rows.push_back(&row);
  }
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].label.size() > kLongest || used[lines[i].label] > 1) lines[i].label = fmt::format("#{}", i + 1);
  return lines;
}

// A series of a chart: x and y of each row, sorted by x.
template <class X, class Y>
Series series(const std::string& label, const std::vector<const BenchRow*>& rows, bool is_roof, X x, Y y) {
  Series series{label, {}, is_roof};
  for (const BenchRow* row : rows) series.points.emplace_back(x(*row), y(*row));
  std::sort(series.points.begin(), series.points.end());
  return series;
}

std::string plain(double value) { return fmt::format("{:.4g}", value); }
std::string count(double value) { return fmt::format("{:.0f}", value); }

std::string charts(const std::vector<BenchRow>& rows) {
  const auto bytes = [](const BenchRow& row) { return row.cache_bytes; };
  const auto tokens = [](const BenchRow& row) { return double(row.shape.tokens); };
  std::vector<Series> rates, arithmetic, times;
  for (const Line& line : lines_of(rows)) {
    const bool is_prefill =
        std::all_of(line.rows.begin(), line.rows.end(), [](const BenchRow* row) { return row->is_prefill(); });
    if (is_prefill)
      arithmetic.push_back(
          series(line.label, line.rows, false, tokens, [](const BenchRow& row) { return row.tflop_per_s(); }));
    rates.push_back(series(line.label, line.rows, false, bytes, [](const BenchRow& row) { return row.gb_per_s(); }));
    times.push_back(
        series(line.label, line.rows, false, tokens, [](const BenchRow& row) { return row.timing.median_us; }));
  }
  std::vector<const BenchRow*> all;
  for (const BenchRow& row : rows) all.push_back(&row);
  rates.push_back(series("probe", all, true, bytes, [](const BenchRow& row) { return row.probe_gb_per_s(); }));
  const std::string of_prefill = arithmetic.empty()
                                     ? ""
                                     : "<h2>Prefill</h2>\n" + lines_svg({"tokens of a sequence", true, count},
                                                                        {"TFLOP/s", false, plain}, arithmetic);
  return "<h2>Rate</h2>\n" +
         lines_svg({"bytes of cache a call reads", true, byte_count}, {"GB/s", false, plain}, rates) + of_prefill +
         "<h2>Time</h2>\n" + lines_svg({"tokens of a sequence", true, count}, {"us a call", true, plain}, times);
}

}  // namespace

Result<std::vector<LaunchedKernel>> launched_kernels(const Program& program, const LaunchReport& report) {
  std::vector<LaunchedKernel> launched;
  const std::vector<Program::LoadedKernel> loaded = program.loaded_kernels();
  for (const std::string& name : report.kernels) {
    const auto found = std::find_if(loaded.begin(), loaded.end(),
                                    [&](const Program::LoadedKernel& kernel) { return kernel.source->name == name; });
    if (found == loaded.end())
      return fail(Code::internal, fmt::format("{} launched {}, which it does not have", program.source().id, name));
    launched.push_back({to_string(found->role), name, found->source->threads, found->record->registers,
                        found->record->spill_bytes, found->source->shared_bytes});
  }
  return launched;
}

bool BenchRow::is_prefill() const {
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const LaunchedKernel& kernel) { return kernel.role == to_string(Role::prefill); });
}

double attention_flop(const Problem& problem, const CacheShape& shape) {
  return attention_flop(problem, shape,
                        std::vector<int>(static_cast<std::size_t>(shape.sequences), problem.query_length));
}

double attention_flop(const Problem& problem, const CacheShape& shape, const std::vector<int>& query_counts) {
  const FeatureSet& features = problem.features;
  double pairs = 0;  // of one query head
  for (const int queries : query_counts)
    for (int query = 0; query < queries; ++query) {
      const long long at = shape.tokens - queries + query;
      long long first = 0, end = problem.causal ? at + 1 : shape.tokens;
      if (features.window_left >= 0) first = std::max(first, at - features.window_left);
      if (features.window_right >= 0) end = std::min(end, at + features.window_right + 1);
      pairs += static_cast<double>(std::max(std::min(end, shape.tokens) - first, 0ll));
    }
  return 2. * (problem.head_dim + problem.v_dim()) * shape.kv_heads * problem.q_heads_per_kv * pairs;
}

double pool_bytes(const DeviceInfo& info) { return std::max(kLeastPool, kLeastL2s * info.l2_bytes); }

int copies_for(double cache_bytes, const DeviceInfo& info) {
  return static_cast<int>(std::clamp(std::ceil(pool_bytes(info) / cache_bytes), 1.0, double(kMostCopies)));
}

Result<void> check_memory(const ProgramSource& source, const CacheShape& shape, const DeviceInfo& info) {
  const std::size_t bytes = memory_bytes(source, shape);
  if (bytes <= info.memory_bytes) return {};
  return fail(Code::environment,
              fmt::format("{}: {} sequences x {} KV heads x {} tokens take {} of memory; {} has {}", source.id,
                          shape.sequences, shape.kv_heads, shape.tokens, byte_count(double(bytes)), info.name,
                          byte_count(double(info.memory_bytes))),
              {}, {"fewer --tokens, --batch or --kv-heads, or formats of fewer bits"});
}

Json to_json(const BenchRow& row) {
  Json kernels = Json::array();
  for (const LaunchedKernel& kernel : row.kernels)
    kernels.push_back({{"role", kernel.role},
                       {"name", kernel.name},
                       {"threads", kernel.threads},
                       {"registers", kernel.registers},
                       {"spill_bytes", kernel.spill_bytes},
                       {"shared_bytes", kernel.shared_bytes}});
  Json json = {{"program", row.program},
               {"k", row.k_format},
               {"v", row.v_format},
               {"head_dim", row.head_dim},
               {"q_heads_per_kv", row.q_heads_per_kv},
               {"query_length", row.query_length},
               {"is_causal", row.is_causal},
               {"batch", row.shape.sequences},
               {"kv_heads", row.shape.kv_heads},
               {"tokens", row.shape.tokens},
               {"cache_bytes", row.cache_bytes},
               {"copies", row.shape.copies},
               {"pool_bytes", row.cache_bytes * row.shape.copies}};
  json.update(to_json(row.timing));
  json.update({{"gb_per_s", row.gb_per_s()}, {"of_probe", row.of_probe()}});
  json["of_peak"] = row.peak_gb_per_s > 0 ? Json(row.of_peak()) : Json(nullptr);
  json.update({{"flop", row.flop}, {"is_prefill", row.is_prefill()}, {"tflop_per_s", row.tflop_per_s()}});
  const bool has_peak = row.is_prefill() && row.peak_tflop_per_s > 0;
  json["clock_mhz"] = row.clock_mhz > 0 ? Json(row.clock_mhz) : Json(nullptr);
  json["of_tensor_peak"] = has_peak ? Json(row.of_tensor_peak()) : Json(nullptr);
  json["probe"] = to_json(row.probe.timing);
  json["probe"].update({{"gb_per_s", row.probe_gb_per_s()},
                        {"unroll", row.probe.unroll},
                        {"blocks_per_multiprocessor", row.probe.blocks_per_multiprocessor}});
  json.update({{"blocks", row.blocks}, {"launches", row.kernels.size()}, {"kernels", kernels}});
  return json;
}

Json to_json(const DeviceInfo& info) {
  Json json = {{"name", info.name},
               {"arch", info.arch},
               {"own_arch", info.own_arch},
               {"runs_ptx", info.runs_ptx},
               {"driver_version", info.driver_version},
               {"multiprocessors", info.multiprocessors},
               {"memory_bytes", info.memory_bytes},
               {"l2_bytes", info.l2_bytes},
               {"memory_clock_khz", info.memory_clock_khz},
               {"memory_bus_bits", info.memory_bus_bits}};
  json["peak_gb_per_s"] = info.peak_gb_per_s() > 0 ? Json(info.peak_gb_per_s()) : Json(nullptr);
  return json;
}

std::string bench_heading(const DeviceInfo& info, int kv_heads) {
  const std::string peak = info.peak_gb_per_s() > 0
                               ? fmt::format("peak {:.0f} GB/s: 2 x {:.0f} MHz x {} bits, by its attributes",
                                             info.peak_gb_per_s(), info.memory_clock_khz / 1e3, info.memory_bus_bits)
                               : "no peak: the driver does not state the memory's clock and width";
  return fmt::format(
      "{}, {}; {} KV heads\n"
      "us: median, low and high of a call in CUDA graphs of 20 that alternate over caches which exceed the L2\n"
      "probe: as many bytes only read, in the same way; registers, shared: of each launch\n"
      "TFLOP/s: of the products of calls by prefill, timed behind 150 ms of them\n"
      "% of tensor peak: of dense fp16 products at the clock right behind these calls",
      info.runs_ptx ? device_text(info, info.arch) : info.name, peak, kv_heads);
}

std::string bench_text(const std::vector<BenchRow>& rows) { return table_text(kHeadings, table(rows)); }

std::string bench_page(const DeviceInfo& info, int kv_heads, const std::vector<BenchRow>& rows) {
  auto lines = table(rows);
  const auto series = lines_of(rows);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t line = 0; line < series.size(); ++line)
      if (series[line].program == rows[i].program && series[line].batch == rows[i].shape.sequences)
        lines[i].insert(lines[i].begin(), fmt::format("#{}", line + 1));
  std::vector<std::string> headings = kHeadings;
  headings.insert(headings.begin(), "");
  return html_page("Time of attention over KV caches",
                   fmt::format("<pre>{}</pre>\n{}{}", escaped(bench_heading(info, kv_heads)), charts(rows),
                               html_table(headings, lines)));
}

}  // namespace kvjit
