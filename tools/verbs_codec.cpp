// The verbs about formats: quantize, dequantize (the reference codec; with --device the kernels) and formats.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "generator/codec.hpp"
#include "generator/program.hpp"
#include "tools/cli.hpp"
#include "tools/files.hpp"
#include "tools/npy.hpp"
#include "tools/report.hpp"

namespace kvjit {
namespace {

struct CodecVerbArgs {
  std::string format, in, out, name;
  std::vector<long long> shape;
  int head_dim = 0;
  bool is_rotated = false;
};

// head_dim: what one call of the codec spans. It must divide the row and hold whole blocks and rotation
// groups.
Result<int> span_of(const Format& format, long long columns, int head_dim) {
  const int granule = format.granule();
  const long long span = head_dim ? head_dim : columns;
  if (span > 0 && span <= 1 << 20 && columns % span == 0 && span % granule == 0) return static_cast<int>(span);
  return fail(Code::bad_input,
              fmt::format("rows of {} values with head_dim {} do not fit format {}", columns, span, format.name), {},
              {fmt::format("head_dim must divide the row and be a multiple of {} (block {}, rotation group {})",
                           granule, format.block, format.rotation.size)});
}

// One kernel over all the rows: tokens = spans, one head. in and out are host bytes.
Result<std::vector<std::uint8_t>> on_device(const Cli& cli, const Registry& registry, const Format& format, int span,
                                            bool is_quantise, bool is_rotated, std::span<const std::uint8_t> in,
                                            std::size_t spans, std::size_t out_bytes) {
  KV_TRY(context, cli.context());
  const DeviceFacts& facts = context->backend()->facts();
  KV_TRY(arch, registry.require_arch(facts.arch, {}));
  KV_TRY(source, make_codec_program(format, span, *arch, registry));
  KV_TRY(program, Program::create(context, source));
  const std::shared_ptr<Backend>& backend = context->backend();
  KV_TRY(from, Buffer::make(backend, in.size()));
  KV_TRY(to, Buffer::make(backend, out_bytes));
  KV_CHECK(backend->copy_to_device(from.pointer(), in.data(), in.size()));
  const long long row_bytes = format.row_bytes(span);
  kv::CodecArgs args{};
  args.x = {reinterpret_cast<void*>((is_quantise ? from : to).pointer()), 0, span, span};
  args.side.codes = reinterpret_cast<kv::u8*>((is_quantise ? to : from).pointer());
  args.side.codes_head_stride = args.side.codes_token_stride = row_bytes;
  args.sequences = args.heads = 1;
  args.tokens = static_cast<int>(spans);
  args.x_type = kv::RowType::f32;
  args.keep_rotated = is_rotated;
  args.tensor_scale = 1;
  KV_CHECK(is_quantise ? program->quantise(0, args, nullptr) : program->dequantise(0, args, nullptr));
  KV_CHECK(backend->synchronize(nullptr));
  std::vector<std::uint8_t> out(out_bytes);
  KV_CHECK(backend->copy_to_host(out.data(), to.pointer(), out.size()));
  cli.talk(fmt::format("by the kernel on {}", facts.name));
  return out;
}

constexpr long long kMaxRows = 1 << 30;  // a token count is an int in the kernels' arguments

// A finite row that does not come back finite was too large for the format's numbers or its scale: nothing is written then.
Result<void> check_stored(const Format& format, std::span<const float> x, std::span<const std::uint8_t> bytes, int span,
                          const std::string& file) {
  const auto row_bytes = static_cast<std::size_t>(format.row_bytes(span)), width = static_cast<std::size_t>(span);
  for (std::size_t i = 0; i < x.size() / width; ++i) {
    const auto row = x.subspan(i * width, width);
    const auto is_finite = [](double v) { return std::isfinite(v); };
    const auto back = decode_row(format, bytes.subspan(i * row_bytes, row_bytes), span, false);
    if (std::all_of(row.begin(), row.end(), is_finite) && !std::all_of(back.begin(), back.end(), is_finite))
      return fail(Code::bad_input, fmt::format("{}: row {} has values too large for {}", file, i, format.name));
  }
  return {};
}

Result<int> quantize(const Cli& cli, const CodecVerbArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(format, registry.format(args.format, {}));
  KV_TRY(npy, read_npy(args.in));
  if (npy.type == NpyType::i8)
    return fail(Code::bad_input, fmt::format("{}: has elements of type i8; f16, f32 and f64 are quantised", args.in));
  if (npy.shape.empty() || npy.count() == 0)
    return fail(Code::bad_input, fmt::format("{}: has shape {}; rows of values are needed", args.in, npy.shape_text()));
  KV_TRY(span, span_of(*format, npy.shape.back(), args.head_dim));
  const std::vector<float> x = npy.floats();
  const std::size_t spans = x.size() / static_cast<std::size_t>(span);
  if (spans > static_cast<std::size_t>(kMaxRows)) return fail(Code::unsupported, "at most 2^30 rows");
  std::vector<std::uint8_t> bytes;
  if (cli.options.device == DeviceKind::automatic) {
    for (std::size_t i = 0; i < spans; ++i) {
      const auto row =
          encode_row(*format, std::span(x).subspan(i * static_cast<std::size_t>(span), static_cast<std::size_t>(span)));
      bytes.insert(bytes.end(), row.begin(), row.end());
    }
  } else {
    KV_TRY(stored, on_device(cli, registry, *format, span, true, false,
                             {reinterpret_cast<const std::uint8_t*>(x.data()), x.size() * sizeof(float)}, spans,
                             spans * static_cast<std::size_t>(format->row_bytes(span))));
    bytes = std::move(stored);
  }
  KV_CHECK(check_stored(*format, x, bytes, span, args.in));
  KV_CHECK(write_bytes(args.out, bytes));
  cli.print({{"format", format->name}, {"values", x.size()}, {"bytes", bytes.size()}, {"file", args.out}},
            fmt::format("{} values as {}: {} bytes ({} bits a value)\n", x.size(), format->name, bytes.size(),
                        format->bits_per_value()));
  return 0;
}

Result<int> dequantize(const Cli& cli, const CodecVerbArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(format, registry.format(args.format, {}));
  if (args.shape.size() != 2 || args.shape[0] <= 0 || args.shape[1] <= 0 || args.shape[0] > kMaxRows ||
      args.shape[1] > 1 << 20)
    return fail(Code::usage,
                fmt::format("--shape {}: two positive numbers are needed: rows,columns", fmt::join(args.shape, ",")));
  const long long rows = args.shape[0], columns = args.shape[1];
  KV_TRY(span, span_of(*format, columns, args.head_dim));
  KV_TRY(bytes, read_bytes(args.in));
  const long long need = rows * format->row_bytes(columns);
  if (static_cast<long long>(bytes.size()) != need)
    return fail(Code::bad_input, fmt::format("{}: has {} bytes; {} rows of {} values as {} take {}", args.in,
                                             bytes.size(), rows, columns, format->name, need));
  const auto spans = static_cast<std::size_t>(rows * columns / span),
             row_bytes = static_cast<std::size_t>(format->row_bytes(span));
  if (spans > static_cast<std::size_t>(kMaxRows)) return fail(Code::unsupported, "at most 2^30 rows");
  std::vector<float> x(static_cast<std::size_t>(rows * columns));
  if (cli.options.device == DeviceKind::automatic) {
    for (std::size_t i = 0; i < spans; ++i) {
      const auto row = decode_row(*format, std::span(bytes).subspan(i * row_bytes, row_bytes), span, args.is_rotated);
      std::copy(row.begin(), row.end(), x.begin() + static_cast<std::ptrdiff_t>(i) * span);
    }
  } else {
    KV_TRY(out,
           on_device(cli, registry, *format, span, false, args.is_rotated, bytes, spans, x.size() * sizeof(float)));
    std::memcpy(x.data(), out.data(), out.size());
  }
  KV_CHECK(write_npy(args.out, {rows, columns}, x));
  cli.print({{"format", format->name}, {"values", x.size()}, {"is_rotated", args.is_rotated}, {"file", args.out}},
            fmt::format("{} values from {}\n", x.size(), format->name));
  return 0;
}

std::string rotation_text(const Rotation& rotation) {
  return rotation.is_identity() ? "none" : fmt::format("{} of {}", rotation.name, rotation.size);
}

Json format_json(const Format& f) {
  return {{"name", f.name},
          {"title", f.title},
          {"source", f.source},
          {"aliases", f.aliases},
          {"bits_per_value", f.bits_per_value()},
          {"code_bits", f.codes().bits},
          {"block", f.block},
          {"block_bytes", f.block_bytes},
          {"rotation", f.rotation.name},
          {"rotation_size", f.rotation.size}};
}

Result<int> formats(const Cli& cli, const CodecVerbArgs& args) {
  KV_TRY(registry, cli.registry());
  if (args.name.empty()) {
    Json results = Json::array();
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, f] : registry.formats()) {
      rows.push_back({name, fmt::format("{}", fmt::join(f.aliases, " ")), short_number(f.bits_per_value()),
                      std::to_string(f.block), std::to_string(f.block_bytes), rotation_text(f.rotation)});
      results.push_back(format_json(f));
    }
    cli.print(results, table_text({"format", "aliases", "bits a value", "block", "bytes", "rotation"}, rows));
    return 0;
  }
  KV_TRY(found, registry.format(args.name, {}));
  const Format& f = *found;
  Json data = format_json(f);
  Json fields = Json::array();
  std::string layout;
  for (const Field& field : f.fields) {
    const char* const kind = field.kind == FieldKind::codes   ? "codes"
                             : field.kind == FieldKind::scale ? "scale"
                                                              : "pad";
    fields.push_back({{"field", kind}, {"at", field.at}, {"bytes", field.bytes}});
    layout += fmt::format("{}{} at {} ({} bytes)", layout.empty() ? "" : ", ", kind, field.at, field.bytes);
  }
  data["fields"] = fields;
  data["values"] = f.codes().values;
  data["bounds"] = f.codes().bounds;
  data["max_relative_mse"] = f.max_relative_mse;
  std::vector<std::pair<std::string, std::string>> lines = {
      {"format", f.name},
      {"title", f.title},
      {"source", f.source},
      {"aliases", fmt::format("{}", fmt::join(f.aliases, " "))},
      {"bits a value", fmt::format("{}", f.bits_per_value())},
      {"block", fmt::format("{} values in {} bytes", f.block, f.block_bytes)},
      {"fields", layout},
      {"rotation", rotation_text(f.rotation)}};
  if (!f.codes().values.empty()) lines.push_back({"codebook", fmt::format("{:.4f}", fmt::join(f.codes().values, " "))});
  if (f.max_relative_mse > 0)
    lines.push_back({"accept", fmt::format("relative mean squared error at most {}", f.max_relative_mse)});
  cli.print(data, facts_text(lines));
  return 0;
}

}  // namespace

void add_codec_verbs(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<CodecVerbArgs>();
  const auto codec_verb = [&](const char* name, const char* help, const char* in, const char* out, auto run) {
    CLI::App* verb = app.add_subcommand(name, help);
    verb->add_option("--format", args->format, "name or alias of a format")->required();
    verb->add_option("--head-dim", args->head_dim, "values that are encoded together; default: the row")
        ->check(CLI::PositiveNumber)
        ->type_name("D");
    verb->add_option("IN", args->in, in)->required();
    verb->add_option("OUT", args->out, out)->required();
    verb->callback([&cli, args, run] { cli.action = [&cli, args, run] { return run(cli, *args); }; });
    return verb;
  };
  codec_verb("quantize", "numbers to stored bytes: whole blocks in element order", "rows of numbers, .npy", "the bytes",
             quantize);
  CLI::App* back = codec_verb("dequantize", "stored bytes to numbers", "the bytes", "f32 .npy", dequantize);
  back->add_option("--shape", args->shape, "rows,columns")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required()
      ->type_name("R,C");
  back->add_flag("--rotated", args->is_rotated, "leave the values in the rotated domain");

  CLI::App* list = app.add_subcommand("formats", "every format, or one in detail");
  list->add_option("NAME", args->name, "name or alias");
  list->callback([&cli, args] { cli.action = [&cli, args] { return formats(cli, *args); }; });
}

}  // namespace kvjit
