// `kvjit verify --fuzz N`: runs random specs on this device and counts them by the features that they have. A spec that
// fails is printed as TOML, ready to be pasted into a file.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "tools/cli/verify_sweeps.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"
#include "tools/verify/fuzz_run.hpp"

namespace kvjit {
namespace {

constexpr std::size_t kMostLines = 50;  // largest number of specs for which each is printed on a line

const char* name_of(FuzzVerdict verdict) {
  return verdict == FuzzVerdict::passed ? "ok" : verdict == FuzzVerdict::refused ? "refused" : "failed";
}

// The kinds by which specs are counted: the name, and the substring of TOML by which a spec is of that kind.
const std::vector<std::pair<const char*, const char*>>& kinds() {
  static const std::vector<std::pair<const char*, const char*>> all = {{"rows", "layout = \"rows\""},
                                                                       {"planar", "layout = \"planar\"\n"},
                                                                       {"paged", "layout = \"paged\""},
                                                                       {"token_heads", "token_heads ="},
                                                                       {"causal", "\"causal\""},
                                                                       {"window", "window ="},
                                                                       {"alibi", "\"alibi\""},
                                                                       {"mask", "\"mask\""},
                                                                       {"mask_slopes", "\"mask_slopes\""},
                                                                       {"packed_mask", "\"packed_mask\""},
                                                                       {"token_ranges", "\"token_ranges\""},
                                                                       {"softcap", "softcap ="},
                                                                       {"position_offset", "\"position_"},
                                                                       {"sinks", "\"sinks\""},
                                                                       {"lse", "\"lse\""},
                                                                       {"append", "append ="},
                                                                       {"sparse_v", "sparse_v ="},
                                                                       {"fuse = false", "fuse = false"},
                                                                       {"checks", "checks ="},
                                                                       {"formats by numbers", "bits ="}};
  return all;
}

}  // namespace

Result<int> verify_fuzz(const Cli& cli, const SweepArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_CHECK(cli.check_arch(registry));
  KV_TRY(context, cli.context());
  const DeviceInfo& info = context->backend()->info();
  // The CPU back-end runs the text of any arch.
  std::vector<std::string> archs;
  if (!context->options().arch.empty())
    archs = {info.arch};
  else if (!info.is_gpu)
    archs = {"sm_80", "sm_90a"};
  const InputClasses classes = args.inputs.empty() ? InputClasses::all() : classes_of(args.inputs);
  std::vector<FuzzCase> cases(args.fuzz);
  std::vector<FuzzOutcome> outcomes(args.fuzz);
  std::size_t done = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto run = [&, &registry = registry, &context = context](std::size_t i) {
    cases[i] = fuzz_case(args.seed + i, registry, archs, classes);
    if (args.fuzz == 1) cli.talk("\n" + cases[i].text());  // printed before the run, which may not return
    outcomes[i] = run_fuzz(cases[i], registry, context);
    // Ctrl-C ends the compiler too, which is no failure.
    return outcomes[i].verdict != FuzzVerdict::failed || !Interrupts::is_requested();
  };
  {
    const Interrupts interrupts;
    Progress progress(args.fuzz, cli.shows_progress());
    done = in_order(
        args.fuzz, threads_of(args), run, [&](std::size_t i) { progress.show(i + 1); }, Interrupts::is_requested);
  }
  cases.resize(done);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  struct Count {
    int specs = 0;
    int of[3] = {};    // number of specs with each FuzzVerdict
    double error = 0;  // largest error of a spec that passed
  };
  std::map<std::size_t, Count> by_kind;
  Count total;
  int by_rounding = 0;
  std::map<std::string, int> by_class;  // failures of which a class of inputs alone is enough
  std::vector<std::vector<std::string>> lines;
  std::string failed;
  Json results = Json::array();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const FuzzCase& one = cases[i];
    const FuzzOutcome& outcome = outcomes[i];
    const auto add = [&](Count& count) {
      ++count.specs, ++count.of[int(outcome.verdict)];
      if (outcome.verdict == FuzzVerdict::passed) count.error = std::max(count.error, outcome.error);
    };
    add(total);
    for (std::size_t kind = 0; kind < kinds().size(); ++kind)
      if (one.toml.find(kinds()[kind].second) != std::string::npos) add(by_kind[kind]);
    const bool is_ok = outcome.verdict == FuzzVerdict::passed;
    by_rounding += is_ok && outcome.is_by_rounding;
    if (cases.size() <= kMostLines || outcome.verdict == FuzzVerdict::failed)
      lines.push_back({name_of(outcome.verdict), fmt::format("seed {}", one.seed),
                       is_ok ? fmt::format("{:.1e}", outcome.error) : "-", is_ok ? outcome.program : outcome.reason});
    if (outcome.verdict == FuzzVerdict::failed) {
      failed += fmt::format("\n{}# {}\n", one.text(), outcome.reason);
      if (!outcome.guilty.empty()) failed += fmt::format("# fails by: {}\n", fmt::join(outcome.guilty, ", "));
      for (const std::string& guilty : outcome.guilty) ++by_class[guilty];
    }
    Json result = {{"seed", one.seed}, {"verdict", name_of(outcome.verdict)}, {"program", outcome.program}};
    if (is_ok) result.update({{"error", outcome.error}, {"by_rounding", outcome.is_by_rounding}});
    if (!is_ok) result.update({{"reason", outcome.reason}, {"spec", one.text()}});
    if (outcome.verdict == FuzzVerdict::failed) result["fails_by"] = outcome.guilty;
    results.push_back(result);
  }
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const std::string& name, const Count& count) {
    rows.push_back({name, std::to_string(count.specs), std::to_string(count.of[0]), std::to_string(count.of[1]),
                    std::to_string(count.of[2]), fmt::format("{:.1e}", count.error)});
  };
  for (const auto& [kind, count] : by_kind) row(kinds()[kind].first, count);
  row("all", total);
  std::string text = lines.empty() ? "" : table_text({"", "spec", "error", ""}, lines) + "\n";
  text += table_text({"with", "specs", "passed", "refused", "failed", "worst error"}, rows);
  for (const auto& [name, count] : by_class) text += fmt::format("{} fail by {} inputs\n", count, name);
  text += fmt::format("{} random specs from seed {} on in {:.0f} s on {}. `--fuzz 1 --seed S` repeats one.\n", done,
                      args.seed, seconds, shown_device(*context));
  if (total.of[1] > 0) text += fmt::format("{} refused by the rules that forbid them\n", total.of[1]);
  if (by_rounding > 0)
    text += fmt::format("{} passed above the limit: long keys, whose rounding explains it\n", by_rounding);
  cli.print({{"device", shown_device(*context)},
             {"specs", total.specs},
             {"passed", total.of[0]},
             {"refused", total.of[1]},
             {"failed", total.of[2]},
             {"passed_by_rounding", by_rounding},
             {"worst_error", total.error},
             {"seconds", seconds},
             {"results", results}},
            text);
  cli.print_error(failed);
  if (done < args.fuzz)
    return cli.interrupted(
        done, args.fuzz, {{"--fuzz", std::to_string(args.fuzz - done)}, {"--seed", std::to_string(args.seed + done)}});
  return total.of[2] > 0 ? static_cast<int>(Code::differs) : 0;
}

}  // namespace kvjit
