// `kvjit verify --matrix ggml`: runs the cases of ggml's tests on this device and counts them by type and by head
// sizes.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "tools/cli/verify_sweeps.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"
#include "tools/verify/ggml/run.hpp"
#include "tools/verify/ggml/sample.hpp"

namespace kvjit {
namespace {

// A line of the table.
struct Count {
  int cases = 0;
  int passed = 0;
  int refused = 0;
  int failed = 0;
  double error = 0;            // largest NMSE against attention over the decoded cache
  double quantized_error = 0;  // largest NMSE against attention over K and V before quantization
  void add(const GgmlOutcome& outcome) {
    ++cases;
    passed += outcome.verdict == GgmlVerdict::passed;
    refused += outcome.verdict == GgmlVerdict::refused;
    failed += outcome.verdict == GgmlVerdict::failed;
    error = std::max(error, outcome.error);
    quantized_error = std::max(quantized_error, outcome.quantized_error);
  }
  Json json() const {
    return {{"cases", cases},   {"passed", passed},     {"refused", refused},
            {"failed", failed}, {"worst_error", error}, {"worst_quantized_error", quantized_error}};
  }
  std::vector<std::string> row(const std::string& what, const std::string& value) const {
    return {what,
            value,
            std::to_string(cases),
            std::to_string(passed),
            std::to_string(refused),
            std::to_string(failed),
            fmt::format("{:.1e}", error),
            fmt::format("{:.1e}", quantized_error)};
  }
};

std::string types_of(const GgmlCase& one) { return one.k == one.v ? one.k : one.k + "/" + one.v; }

}  // namespace

Result<int> verify_matrix(const Cli& cli, const SweepArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_CHECK(cli.check_arch(registry));
  KV_TRY(context, cli.context());
  const std::vector<GgmlCase> all = ggml_matrix();
  const std::vector<GgmlCase> cases = args.sample > 0 ? ggml_sample(all, args.sample, args.seed) : all;
  GgmlOptions options;
  options.threads = threads_of(args);
  options.shares_programs = args.shares_programs;
  options.many_rows = args.many_rows;
  options.is_stopped = Interrupts::is_requested;
  const std::string device = shown_device(*context);
  cli.talk(fmt::format("{} of {} cases on {}, {} threads", cases.size(), kGgmlCases, device, options.threads));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<GgmlOutcome> outcomes;
  {
    const Interrupts interrupts;
    Progress progress(cases.size(), cli.shows_progress());
    options.progress = [&progress](std::size_t done) { progress.show(done); };
    outcomes = run_ggml(cases, registry, context, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::map<std::string, Count> by_type, by_heads;
  std::map<std::string, int> by_kernel;
  Count total;
  std::set<std::string> programs;
  Json unlike = Json::array();
  std::string complaints;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const GgmlOutcome& outcome = outcomes[i];
    if (!outcome.is_done) continue;
    total.add(outcome);
    by_type[types_of(cases[i])].add(outcome);
    by_heads[ggml_axes(cases[i]).at("head sizes")].add(outcome);
    if (!outcome.kernel.empty()) ++by_kernel[outcome.kernel];
    if (!outcome.program.empty()) programs.insert(outcome.program);
    if (outcome.verdict == GgmlVerdict::passed) continue;
    const char* what = outcome.verdict == GgmlVerdict::refused ? "refused" : "failed";
    unlike.push_back({{"case", cases[i].name()}, {"verdict", what}, {"reason", outcome.reason}});
    complaints += fmt::format("{}: {}: {}\n", what, cases[i].name(), outcome.reason);
  }
  std::vector<std::vector<std::string>> rows;
  Json json = {{"device", device},   {"cases_of_matrix", kGgmlCases}, {"programs", programs.size()},
               {"seconds", seconds}, {"kernels", by_kernel},          {"total", total.json()}};
  for (const auto& [type, count] : by_type) rows.push_back(count.row("type", type)), json["types"][type] = count.json();
  for (const auto& [heads, count] : by_heads)
    rows.push_back(count.row("heads", heads)), json["head_sizes"][heads] = count.json();
  rows.push_back(total.row("all", ""));
  json["not_passed"] = unlike;
  std::string text = table_text({"", "", "cases", "passed", "refused", "failed", "NMSE", "of storing"}, rows);
  text += fmt::format(
      "{} of {} cases by {} programs in {:.0f} s. NMSE: the worst against attention in double over the decoded cache, "
      "all rows "
      "of\nall cases (limit {:.0e}); of storing: against K and V as they were stored, first head.\n",
      total.cases, kGgmlCases, programs.size(), seconds, kMaxGgmlError);
  std::vector<std::string> kernels;
  for (const auto& [kernel, count] : by_kernel) kernels.push_back(fmt::format("{} {}", kernel, count));
  text += fmt::format("Cases by the kernel that attended: {}.\n", fmt::join(kernels, ", "));
  if (args.sample > 0)
    for (const auto& [axis, value] : ggml_left_out(all, cases))
      text += fmt::format("not in this sample: {} {}\n", axis, value);
  cli.print(json, text);
  cli.print_error(complaints);
  // Cases run by program, so no first N are done; but what was compiled is in the cache.
  if (static_cast<std::size_t>(total.cases) < cases.size())
    return cli.interrupted(static_cast<std::size_t>(total.cases), cases.size(), {});
  if (total.failed > 0) return static_cast<int>(Code::differs);
  return total.refused > 0 ? static_cast<int>(Code::unsupported) : 0;
}

}  // namespace kvjit
