// host_engine: a small language model whose KV cache is kvjit's. It continues a text (--generate), or prints a table of
// the perplexity of a text with each format of the cache, sorted by bits a value (--text).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "engine.hpp"

namespace engine {
namespace {

// The K/V formats of the table: formats for both K and V, and the nine combinations that Atlas publishes for its
// formats.
const std::vector<Formats> kTable = {{"f16", "f16"},
                                     {"q8_0", "q8_0"},
                                     {"q4_0", "q4_0"},
                                     {"kv4", "kv4"},
                                     {"tbq4_0", "tbq4_0"},
                                     {"turbo3_0", "turbo3_0"},
                                     {"kv3", "kv3"},
                                     {"turbo2_0", "turbo2_0"},
                                     {"kv2", "kv2"},
                                     {"q8_0", "tq3_0"},
                                     {"bf16", "atlas_turbo4"},
                                     {"bf16", "atlas_turbo3"},
                                     {"bf16", "atlas_turbo2"},
                                     {"fp8_e4m3", "atlas_turbo4"},
                                     {"fp8_e4m3", "atlas_turbo3"},
                                     {"fp8_e4m3", "atlas_turbo2"},
                                     {"atlas_turbo4", "atlas_turbo8"},
                                     {"atlas_turbo3", "atlas_turbo8"},
                                     {"atlas_turbo4", "atlas_turbo3"}};

struct Args {
  std::string model;                  // safetensors file
  std::string text;                   // file whose perplexity is measured
  std::string prompt = "#include <";  // text to continue
  std::vector<std::string> formats;   // "K/V", or one name for both
  std::string device = "auto";
  std::string cache_dir;  // folder of compiled kernels
  int windows = 16;       // windows of the text, which are processed as one batch
  int context = 2048;     // bytes of a window
  int chunk = 128;        // tokens of a sequence that are processed at once
  int generate = 0;       // bytes to generate after the prompt
};

std::vector<unsigned char> read_bytes(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

Formats formats_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  return slash == std::string::npos ? Formats{text, text} : Formats{text.substr(0, slash), text.substr(slash + 1)};
}

struct Row {
  Formats formats;
  double bits = 0;  // bits of a value of the cache
  double perplexity = 0;
};

// Measures the perplexity of the text: exp of the mean cross-entropy of the byte that follows each byte. The text is
// cut to `windows` windows of `context` bytes, which are processed as one batch. On a CPU that takes minutes: a
// terminal shows the bytes that are done, on a line that begins with `label`.
Row measured(const kvjit::api::Context& context, Math& math, const Model& model, const Formats& formats,
             const Args& args, const std::vector<unsigned char>& text, const std::string& label) {
  const auto show = [&, is_shown = isatty(STDERR_FILENO) != 0](int done) {
    if (is_shown) fmt::print(stderr, "\r{}: {} of {} bytes of each window", label, done, args.context);
  };
  show(0);
  Engine engine(context, math, model, formats, args.windows, args.context);
  double sum = 0;
  long long count = 0;
  for (int first = 0; first < args.context; first += args.chunk) {
    const int chunk = std::min(args.chunk, args.context - first);
    std::vector<int> tokens, targets;
    for (int window = 0; window < args.windows; ++window)
      for (int i = 0; i < chunk; ++i) {
        const auto at = static_cast<std::size_t>(window) * args.context + first + i;
        tokens.push_back(text[at]), targets.push_back(text[at + 1]);
      }
    engine.feed(tokens, chunk);
    for (const float loss : engine.losses(targets)) sum += loss, ++count;
    show(first + chunk);
  }
  return {formats, engine.cache_bits_per_value(), std::exp(sum / static_cast<double>(count))};
}

void print_table(const kvjit::api::Context& context, Math& math, const Model& model, const Args& args) {
  const std::vector<unsigned char> text = read_bytes(args.text);
  const auto needed = static_cast<std::size_t>(args.windows) * args.context + 1;
  if (text.size() < needed)
    throw std::runtime_error(fmt::format("{}: {} bytes; {} windows of {} and one byte more are needed", args.text,
                                         text.size(), args.windows, args.context));
  std::vector<Formats> all = kTable;
  if (!args.formats.empty()) all.clear();
  for (const std::string& name : args.formats) all.push_back(formats_of(name));
  std::vector<Row> rows;
  for (const Formats& formats : all) {
    const std::string label = fmt::format("{} of {}: {}/{}", rows.size() + 1, all.size(), formats.k, formats.v);
    rows.push_back(measured(context, math, model, formats, args, text, label));
    // The table is sorted when all rows are there. Until then a terminal shows the perplexities.
    if (isatty(STDERR_FILENO)) fmt::print(stderr, ", perplexity {:.4f}\n", rows.back().perplexity);
  }
  const double base = rows[0].perplexity;
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.bits > b.bits; });
  fmt::print("{:<14} {:<14} {:>10} {:>11} {:>9}\n", "K", "V", "bits", "perplexity", "change");
  for (const Row& row : rows)
    fmt::print("{:<14} {:<14} {:>10.3f} {:>11.4f} {:>+8.2f}%\n", row.formats.k, row.formats.v, row.bits, row.perplexity,
               100 * (row.perplexity / base - 1));
}

// Continues the prompt with the likeliest byte each time. The prompt is processed in whole chunks, then token by token.
void print_continuation(const kvjit::api::Context& context, Math& math, const Model& model, const Args& args) {
  const int length = static_cast<int>(args.prompt.size());
  if (length == 0) throw std::runtime_error("a prompt has at least one byte");
  const Formats formats = args.formats.empty() ? Formats{"kv4", "kv4"} : formats_of(args.formats[0]);
  Engine engine(context, math, model, formats, 1, length + args.generate);
  fmt::print("{}", args.prompt);
  std::fflush(stdout);
  while (engine.length() < length) {
    const int left = length - engine.length(), chunk = left >= args.chunk ? args.chunk : 1;
    const auto first = args.prompt.begin() + engine.length();
    engine.feed(
        {reinterpret_cast<const unsigned char*>(&*first), reinterpret_cast<const unsigned char*>(&*first) + chunk},
        chunk);
  }
  for (int i = 0; i < args.generate; ++i) {
    const std::vector<float> logits = engine.last_logits();
    const int next = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::putchar(next);
    std::fflush(stdout);
    engine.feed({next}, 1);
  }
  std::putchar('\n');
}

void run(const Args& args) {
  auto options = kvjit::api::sized<kvjit_context_options>();
  options.device = args.device == "cpu"   ? KVJIT_DEVICE_CPU
                   : args.device == "gpu" ? KVJIT_DEVICE_GPU
                                          : KVJIT_DEVICE_AUTOMATIC;
  if (!args.cache_dir.empty()) options.cache_dir = args.cache_dir.c_str();
  auto error = kvjit::api::sized<kvjit_error>();
  kvjit::api::Context context;
  require(context.open(options, error), error);
  auto info = kvjit::api::sized<kvjit_device_info>();
  require(kvjit_context_device(context.get(), &info, &error), error);
  const std::unique_ptr<Math> math = info.is_gpu ? cuda_math(options.ordinal, info.arch) : host_math();
  const Model model(context, args.model);
  fmt::print(stderr, "{}\n", info.name);
  if (args.generate > 0) print_continuation(context, *math, model, args);
  if (!args.text.empty()) print_table(context, *math, model, args);
}

}  // namespace
}  // namespace engine

int main(int argc, char** argv) {
  engine::Args args;
  constexpr int kUsageError = 2;  // as of the command kvjit
  CLI::App app("A small language model whose KV cache is kvjit's");
  app.option_defaults()->always_capture_default();
  app.add_option("MODEL", args.model, "its weights, .safetensors")->required();
  app.add_option("--text", args.text, "print the perplexity of this file for each format of the cache")
      ->type_name("FILE");
  app.add_option("--formats", args.formats, "of the cache, K/V or one name for both")
      ->delimiter(',')
      ->type_name("K/V,..");
  app.add_option("--windows", args.windows, "of the text, fed side by side")->check(CLI::Range(1, 4096));
  app.add_option("--context", args.context, "bytes of a window")->check(CLI::Range(1, 1 << 20));
  app.add_option("--chunk", args.chunk, "tokens of each text that go in at once")->check(CLI::Range(1, 4096));
  app.add_option("--generate", args.generate, "bytes to continue the prompt by")->check(CLI::Range(0, 1 << 20));
  app.add_option("--prompt", args.prompt, "what is continued");
  app.add_option("--device", args.device, "where it runs")->check(CLI::IsMember({"auto", "gpu", "cpu"}));
  app.add_option("--cache-dir", args.cache_dir, "of compiled kernels");
  try {
    app.parse(argc, argv);
    if (args.generate == 0 && args.text.empty()) throw CLI::RequiredError("one of --text FILE and --generate N");
  } catch (const CLI::ParseError& stop) {
    if (stop.get_exit_code() == 0) return app.exit(stop);  // --help
    fmt::print(stderr, "error: {}\n{}", stop.what(), app.help());
    return kUsageError;
  }
  try {
    engine::run(args);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "error: {}\n", failure.what());
    return 1;
  }
  return 0;
}
