// The verbs that convert files: quantize, dequantize and requantize. They use the reference codec, or with --device the
// kernels.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "generator/formats/reference_codec.hpp"
#include "generator/kernels/operations/operations.hpp"
#include "generator/program.hpp"
#include "runtime/base/input_file.hpp"
#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

struct CodecVerbArgs {
  std::string format;  // --format
  std::string in;      // files
  std::string out;
  std::vector<long long> shape;  // dequantize --shape: rows and columns
  int head_dim = 0;              // --head-dim: values that are encoded together; 0: the row
  bool is_rotated = false;       // dequantize --rotated
};

struct Rows {
  Format format;
  int span = 0;  // values that are encoded together
};
// The format for rows of `columns` values. Fails if these are not whole heads of --head-dim.
Result<Rows> rows_of(const Registry& registry, const CodecVerbArgs& args, long long columns) {
  const long long span = args.head_dim ? args.head_dim : columns;
  if (span <= 0 || span > 1 << 20 || columns % span != 0)
    return fail(Code::bad_input, fmt::format("rows of {} values are not whole heads of {}", columns, span), {},
                {"--head-dim must divide the row"});
  KV_TRY(format, registry.format_for(args.format, static_cast<int>(span), {}));
  return Rows{std::move(format), static_cast<int>(span)};
}

// Uploads the scale 1, which formats with a scale for each KV head read for every head.
Result<Buffer> uploaded_one(const std::shared_ptr<Backend>& backend) {
  constexpr float kOne = 1;
  KV_TRY(memory, Buffer::make(backend, sizeof kOne));
  KV_CHECK(backend->copy_to_device(memory.pointer(), &kOne, sizeof kOne));
  return {std::move(memory)};
}

// Converts all rows by one kernel call: each span is a token, and there is one head. `in` and the result are host
// bytes.
Result<std::vector<std::uint8_t>> on_device(const Cli& cli, const Registry& registry, const Format& format, int span,
                                            bool is_quantize, bool is_rotated, std::span<const std::uint8_t> in,
                                            std::size_t spans, std::size_t out_bytes) {
  KV_TRY(context, cli.context());
  const DeviceInfo& info = context->backend()->info();
  KV_TRY(arch, registry.require_arch(info.arch, {}));
  KV_TRY(source, make_codec_program(format, span, *arch, registry));
  KV_TRY(program, Program::create(context, source));
  const std::shared_ptr<Backend>& backend = context->backend();
  KV_TRY(from, Buffer::make(backend, in.size()));
  KV_TRY(to, Buffer::make(backend, out_bytes));
  KV_CHECK(backend->copy_to_device(from.pointer(), in.data(), in.size()));
  const long long row_bytes = format.head_bytes(span);
  kv::CodecArgs args{};
  // In the rotated domain heads have their padding.
  const long long width = is_rotated ? format.stored_dim(span) : span;
  args.x = {reinterpret_cast<void*>((is_quantize ? from : to).pointer()), 0, width, width};
  args.side.codes = reinterpret_cast<kv::u8*>((is_quantize ? to : from).pointer());
  args.side.codes_head_stride = args.side.codes_token_stride = row_bytes;
  args.sequences = args.heads = 1;
  args.tokens = static_cast<int>(spans);
  args.x_type = kv::RowType::f32;
  args.keep_rotated = is_rotated;
  args.tensor_scale = 1;
  KV_TRY(one, uploaded_one(backend));
  if (format.has_head_scales()) args.side.scales = reinterpret_cast<kv::u8*>(one.pointer());
  KV_CHECK(is_quantize ? program->quantize(0, args, nullptr) : program->dequantize(0, args, nullptr));
  KV_CHECK(backend->synchronize(nullptr));
  std::vector<std::uint8_t> out(out_bytes);
  KV_CHECK(backend->copy_to_host(out.data(), to.pointer(), out.size()));
  cli.talk(fmt::format("by the kernel on {}", info.name));
  return out;
}

constexpr int kMostValues = 1 << 20;     // --head-dim
constexpr long long kMaxRows = 1 << 30;  // a token count is an int in the kernels' arguments

// Fails if a finite row does not decode to finite numbers: its values are too large for the format's numbers or scale.
// The verb then writes nothing.
Result<void> check_stored(const Format& format, std::span<const float> x, std::span<const std::uint8_t> bytes, int span,
                          const std::string& file) {
  const auto row_bytes = static_cast<std::size_t>(format.head_bytes(span)), width = static_cast<std::size_t>(span);
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
  KV_CHECK(check_apart({args.in}, {args.out}));
  KV_TRY(registry, cli.registry());
  KV_CHECK(registry.format(args.format, {}));  // reports a misspelt name before a missing file
  KV_TRY(npy, read_npy(args.in));
  if (npy.type == NpyType::i8)
    return fail(Code::bad_input, fmt::format("{}: has elements of type i8; f16, f32 and f64 are quantized", args.in));
  if (npy.shape.empty() || npy.count() == 0)
    return fail(Code::bad_input, fmt::format("{}: has shape {}; rows of values are needed", args.in, npy.shape_text()));
  KV_TRY(rows_format, rows_of(registry, args, npy.shape.back()));
  const auto& [format, span] = rows_format;
  const auto row_bytes = static_cast<std::size_t>(format.head_bytes(span));
  const std::vector<float> x = npy.floats();
  const std::size_t spans = x.size() / static_cast<std::size_t>(span);
  if (spans > static_cast<std::size_t>(kMaxRows)) return fail(Code::unsupported, "at most 2^30 rows");
  std::vector<std::uint8_t> bytes;
  if (cli.options.device == DeviceKind::automatic) {
    for (std::size_t i = 0; i < spans; ++i) {
      const auto row =
          encode_row(format, std::span(x).subspan(i * static_cast<std::size_t>(span), static_cast<std::size_t>(span)));
      bytes.insert(bytes.end(), row.begin(), row.end());
    }
  } else {
    KV_TRY(stored, on_device(cli, registry, format, span, true, false,
                             {reinterpret_cast<const std::uint8_t*>(x.data()), x.size() * sizeof(float)}, spans,
                             spans * row_bytes));
    bytes = std::move(stored);
  }
  KV_CHECK(check_stored(format, x, bytes, span, args.in));
  KV_CHECK(write_bytes(args.out, bytes));
  cli.print({{"format", format.name}, {"values", x.size()}, {"bytes", bytes.size()}, {"file", args.out}},
            fmt::format("{} values as {}: {} bytes ({} bits a value)\n", x.size(), format.name, bytes.size(),
                        format.bits_per_value()));
  return 0;
}

Result<int> dequantize(const Cli& cli, const CodecVerbArgs& args) {
  KV_CHECK(check_apart({args.in}, {args.out}));
  KV_TRY(registry, cli.registry());
  KV_CHECK(registry.format(args.format, {}));
  if (args.shape.size() != 2 || args.shape[0] <= 0 || args.shape[1] <= 0 || args.shape[0] > kMaxRows ||
      args.shape[1] > 1 << 20)
    return fail(Code::usage,
                fmt::format("--shape {}: two positive numbers are needed: rows,columns", fmt::join(args.shape, ",")));
  const long long rows = args.shape[0], columns = args.shape[1];
  KV_TRY(rows_format, rows_of(registry, args, columns));
  const auto& [format, span] = rows_format;
  // In the rotated domain heads have their padding.
  const auto stored = static_cast<std::size_t>(format.stored_dim(span)),
             width = args.is_rotated ? stored : static_cast<std::size_t>(span);
  const auto spans = static_cast<std::size_t>(rows * columns / span),
             row_bytes = static_cast<std::size_t>(format.head_bytes(span));
  KV_TRY(bytes, read_bytes(args.in));
  const auto need = static_cast<long long>(spans * row_bytes);
  if (static_cast<long long>(bytes.size()) != need)
    return fail(Code::bad_input, fmt::format("{}: has {} bytes; {} rows of {} values as {} take {}", args.in,
                                             bytes.size(), rows, columns, format.name, need));
  if (spans > static_cast<std::size_t>(kMaxRows)) return fail(Code::unsupported, "at most 2^30 rows");
  std::vector<float> x(spans * width);
  if (cli.options.device == DeviceKind::automatic) {
    for (std::size_t i = 0; i < spans; ++i) {
      const auto row = decode_row(format, std::span(bytes).subspan(i * row_bytes, row_bytes), span, args.is_rotated);
      std::copy(row.begin(), row.end(), x.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
  } else {
    KV_TRY(out, on_device(cli, registry, format, span, false, args.is_rotated, bytes, spans, x.size() * sizeof(float)));
    std::memcpy(x.data(), out.data(), out.size());
  }
  KV_CHECK(write_npy(args.out, {rows, static_cast<long long>(x.size()) / rows}, x));
  cli.print({{"format", format.name}, {"values", x.size()}, {"is_rotated", args.is_rotated}, {"file", args.out}},
            fmt::format("{} values from {}\n", x.size(), format.name));
  return 0;
}

struct RequantizeArgs {
  std::string from;  // --from: format of the input
  std::string to;    // --to: format of the output
  std::string in;    // files
  std::string out;
  int head_dim = 0;  // --head-dim
};

// Converts the rows by the copy kernel, from one head of `rows` tokens in layout rows to another.
Result<std::vector<std::uint8_t>> copy_on_device(const Cli& cli, const Registry& registry, const Format& from,
                                                 const Format& to, int head_dim, std::span<const std::uint8_t> in,
                                                 long long rows) {
  KV_TRY(context, cli.context());
  const DeviceInfo& info = context->backend()->info();
  KV_TRY(arch, registry.require_arch(info.arch, {}));
  const std::shared_ptr<Backend>& backend = context->backend();
  std::vector<std::uint8_t> out(static_cast<std::size_t>(rows * to.head_bytes(head_dim)));
  KV_TRY(source, Buffer::make(backend, in.size()));
  KV_TRY(target, Buffer::make(backend, out.size()));
  KV_CHECK(backend->copy_to_device(source.pointer(), in.data(), in.size()));
  KV_TRY(one, uploaded_one(backend));
  CopyCall call;
  call.tokens = static_cast<int>(rows);
  const auto end = [&](CacheCall& at, const Buffer& memory, const Format& format) -> Result<std::shared_ptr<Program>> {
    at.tokens.side.codes = reinterpret_cast<kv::u8*>(memory.pointer());
    at.tokens.side.codes_head_stride = at.tokens.side.codes_token_stride = format.head_bytes(head_dim);
    at.tokens.tensor_scale = 1;
    if (format.has_head_scales()) at.tokens.side.scales = reinterpret_cast<kv::u8*>(one.pointer());
    KV_TRY(program, make_codec_program(format, head_dim, *arch, registry));
    return Program::create(context, program);
  };
  KV_TRY(reader, end(call.from, source, from));
  KV_TRY(writer, end(call.to, target, to));
  const auto side = [&](const Format& format) {
    return CodecPlan{format, head_dim, false, false, 0, false, arch->name};
  };
  KV_TRY(plan, plan_copy(side(from), side(to), true, Program::alignment_of(call, *reader, *writer), registry));
  KV_CHECK(reader->copy(call, *writer, emit_copy(plan, registry), nullptr));
  KV_CHECK(backend->synchronize(nullptr));
  KV_CHECK(backend->copy_to_host(out.data(), target.pointer(), out.size()));
  const char* const how[] = {"bytes as they are", "decoded and encoded as both formats have them",
                             "decoded and encoded by way of the original domain"};
  cli.talk(fmt::format("by the kernel on {}: {}", info.name, how[int(plan.kind)]));
  return out;
}

Result<int> requantize(const Cli& cli, const RequantizeArgs& args) {
  KV_CHECK(check_apart({args.in}, {args.out}));
  KV_TRY(registry, cli.registry());
  KV_TRY(from, registry.format_for(args.from, args.head_dim, {}));
  KV_TRY(to, registry.format_for(args.to, args.head_dim, {}));
  KV_TRY(bytes, read_bytes(args.in));
  const auto row_bytes = static_cast<std::size_t>(from.head_bytes(args.head_dim));
  if (bytes.empty() || bytes.size() % row_bytes != 0)
    return fail(Code::bad_input, fmt::format("{}: has {} bytes; heads of {} values as {} take {} each", args.in,
                                             bytes.size(), args.head_dim, from.name, row_bytes));
  const auto rows = static_cast<long long>(bytes.size() / row_bytes);
  if (rows > kMaxRows) return fail(Code::unsupported, "at most 2^30 rows");
  std::vector<std::uint8_t> out;
  if (cli.options.device != DeviceKind::automatic) {
    KV_TRY(copied, copy_on_device(cli, registry, from, to, args.head_dim, bytes, rows));
    out = std::move(copied);
  } else if (from.name == to.name) {
    out = bytes;
  } else {
    for (std::size_t at = 0; at < bytes.size(); at += row_bytes) {
      const auto values = decode_row(from, std::span(bytes).subspan(at, row_bytes), args.head_dim, false);
      const std::vector<float> x(values.begin(), values.end());
      const auto row = encode_row(to, x);
      KV_CHECK(check_stored(to, x, row, args.head_dim, args.in));
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  KV_CHECK(write_bytes(args.out, out));
  cli.print({{"from", from.name}, {"to", to.name}, {"rows", rows}, {"bytes", out.size()}, {"file", args.out}},
            fmt::format("{} rows of {} as {}: {} bytes\n", rows, from.name, to.name, out.size()));
  return 0;
}

void add_requantize(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<RequantizeArgs>();
  CLI::App* verb = app.add_subcommand("requantize", "stored bytes of one format to those of another");
  verb->add_option("--from", args->from, "name or alias of the format they have")->required()->type_name("FORMAT");
  verb->add_option("--to", args->to, "name or alias of the one they get")->required()->type_name("FORMAT");
  whole_number(verb->add_option("--head-dim", args->head_dim, "values of a head"), "D", 1, kMostValues)->required();
  verb->add_option("IN", args->in, "the bytes: whole blocks in element order")->required()->type_name("IN.bin");
  verb->add_option("OUT", args->out, "the bytes, likewise")->required()->type_name("OUT.bin");
  verb->callback([&cli, args] { cli.action = [&cli, args] { return requantize(cli, *args); }; });
}

}  // namespace

void add_codec_verbs(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<CodecVerbArgs>();
  const auto codec_verb = [&](const char* name, const char* help, const char* in, const char* out, auto run) {
    CLI::App* verb = app.add_subcommand(name, help);
    verb->add_option("--format", args->format, "name or alias of a format")->required()->type_name("FORMAT");
    whole_number(verb->add_option("--head-dim", args->head_dim, "values that are encoded together"), "D", 1,
                 kMostValues)
        ->default_str("the row");
    verb->add_option("IN", args->in, in)->required()->type_name("FILE");
    verb->add_option("OUT", args->out, out)->required()->type_name("FILE");
    verb->callback([&cli, args, run] { cli.action = [&cli, args, run] { return run(cli, *args); }; });
    return verb;
  };
  codec_verb("quantize", "numbers to stored bytes: whole blocks in element order", "rows of numbers, .npy", "the bytes",
             quantize);
  CLI::App* back = codec_verb("dequantize", "stored bytes to numbers", "the bytes", "f32 .npy", dequantize);
  whole_number(back->add_option("--shape", args->shape, "rows and columns of the numbers"), "R,C", 1, 1LL << 40)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  back->add_flag("--rotated", args->is_rotated, "leave the values in the rotated domain");
  add_requantize(app, cli);
}

}  // namespace kvjit
