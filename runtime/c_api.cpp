// The C interface: convert, call, catch. runtime/kvjit.h is its manual; nothing is decided here. The only
// file that catches.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>

#include "generator/program.hpp"
#include "generator/registry.hpp"
#include "generator/spec.hpp"
#include "runtime/backend.hpp"
#include "runtime/c_api_convert.hpp"
#include "runtime/context.hpp"
#include "runtime/kvjit.h"
#include "runtime/program.hpp"

using kvjit::Code;
using kvjit::Error;
using kvjit::fail;
using kvjit::Result;
using kvjit::c_api::address;
using kvjit::c_api::convert;

static_assert(sizeof(kvjit_index) == 8 && sizeof(void*) == 8, "64-bit platforms only");
static_assert(static_cast<int>(Code::internal) == KVJIT_INTERNAL && static_cast<int>(Code::usage) == KVJIT_USAGE &&
              static_cast<int>(Code::bad_input) == KVJIT_BAD_INPUT &&
              static_cast<int>(Code::unsupported) == KVJIT_UNSUPPORTED &&
              static_cast<int>(Code::compile) == KVJIT_COMPILE && static_cast<int>(Code::differs) == KVJIT_DIFFERS &&
              static_cast<int>(Code::environment) == KVJIT_ENVIRONMENT &&
              static_cast<int>(Code::integrity) == KVJIT_INTEGRITY);

struct kvjit_context {
  std::shared_ptr<kvjit::Context> context;
};

struct kvjit_program {
  std::shared_ptr<kvjit::Context> context;
  std::shared_ptr<kvjit::Program> program;
  std::mutex mutex;
  std::set<std::string> texts;  // handed out; nodes do not move
  const char* keep(const std::string& text) {
    const std::lock_guard lock(mutex);
    return texts.insert(text).first->c_str();
  }
};

namespace {

void copy_text(char* to, std::size_t size, std::string_view text) {
  if (size == 0) return;
  constexpr std::string_view kCut = "...";
  const std::size_t kept = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), kept);
  to[kept] = '\0';
  if (kept < text.size() && kept >= kCut.size()) std::memcpy(to + kept - kCut.size(), kCut.data(), kCut.size());
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string lines(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += (text.empty() ? "" : "\n") + note;
  return text;
}

// Writes as much of a struct as the caller's version of it has.
template <class Struct>
void write_struct(Struct* to, Struct value) {
  const std::size_t size = to->size;
  value.size = size;
  std::memcpy(to, &value, std::min(size, sizeof value));
}

template <class Struct>
Result<void> check_output(const Struct* to, const char* name) {
  if (!to) return fail(Code::usage, fmt::format("{} is NULL", name));
  if (to->size < sizeof to->size)
    return fail(Code::usage, fmt::format("{}->size is {}; set it with KVJIT_INIT", name, to->size));
  return {};
}

// A caller built with an older header gets defaults for what it does not know; one built with a newer header
// is refused if it uses what this library does not know.
template <class Struct>
Result<Struct> read_struct(const Struct* from, const char* name) {
  KV_CHECK(check_output(from, name));
  constexpr std::size_t kMostBytes = 4096;  // of any struct to come; more is memory that nobody set
  if (from->size > kMostBytes)
    return fail(Code::usage, fmt::format("{}: size {} is no size of a struct", name, from->size));
  Struct value{};
  std::memcpy(&value, from, std::min(from->size, sizeof value));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof value; i < from->size; ++i)
    if (bytes[i] != 0)
      return fail(Code::unsupported, fmt::format("{} sets a member that version {} of the library does not have", name,
                                                 KVJIT_VERSION_NUMBER));
  return value;
}

kvjit_status tell(const Error& error, kvjit_error* to) noexcept {
  if (to && to->size >= sizeof to->size) {
    kvjit_error value{};
    value.status = static_cast<int>(error.code);
    value.line = error.where.line;
    value.column = error.where.column;
    copy_text(value.file, sizeof value.file, error.where.file);
    copy_text(value.message, sizeof value.message, error.message);
    try {
      copy_text(value.notes, sizeof value.notes, lines(error.notes));
    } catch (...) {
      copy_text(value.notes, sizeof value.notes, "(no memory for the notes)");
    }
    write_struct(to, value);
  }
  return static_cast<kvjit_status>(error.code);
}

// Every entry runs in here: a Result becomes a status, and nothing is thrown past it.
template <class Work>
kvjit_status guarded(kvjit_error* error, Work work) noexcept {
  try {
    const Result<void> result = work();
    if (!result) return tell(result.error(), error);
    if (error && error->size >= sizeof error->size) write_struct(error, kvjit_error{});
    return KVJIT_OK;
  } catch (const std::bad_alloc&) {
    return tell({Code::environment, "no memory"}, error);
  } catch (const std::exception& e) {
    return tell({Code::internal, e.what()}, error);
  } catch (...) {
    return tell({Code::internal, "an unknown exception"}, error);
  }
}

Result<void> need(const void* pointer, const char* name) {
  if (!pointer) return fail(Code::usage, fmt::format("{} is NULL", name));
  return {};
}

Result<const kvjit::SideFacts*> side_of(const kvjit_program* program, int side) {
  KV_CHECK(need(program, "program"));
  if (side != KVJIT_K && side != KVJIT_V)
    return fail(Code::usage, fmt::format("side {}; KVJIT_K (0) and KVJIT_V (1) are possible", side));
  return side == KVJIT_K ? &program->program->source().k : &program->program->source().v;
}

Result<const kvjit::Registry*> registry() {
  static const Result<kvjit::Registry> loaded = kvjit::Registry::load(kvjit::embedded_files());
  if (!loaded) return tl::unexpected<Error>(loaded.error());
  return &*loaded;
}

// device: what the program will run on, "" if that is not known.
Result<kvjit::ProgramSource> generate(const kvjit::Spec& spec, const std::string& arch, const std::string& device) {
  KV_TRY(known, registry());
  KV_TRY(problem, kvjit::resolve(spec, *known, arch));
  problem.device = device;
  return kvjit::make_program(problem, *known);
}

// The caller's choice, else the device's own arch if the spec allows it. The CPU back-end runs kernels of any
// arch.
Result<std::string> choose_arch(const kvjit::Spec& spec, const char* arch, const kvjit::DeviceFacts& device) {
  if (arch) return std::string(arch);
  if (spec.archs.empty() || std::count(spec.archs.begin(), spec.archs.end(), device.arch)) return device.arch;
  if (!device.is_gpu) return spec.archs.front();
  return fail(
      Code::unsupported,
      fmt::format("the spec is for {}; this device is {} ({})", fmt::join(spec.archs, ", "), device.arch, device.name),
      spec.where("target.arch"), {fmt::format("add \"{}\" to [target] arch, or leave it out", device.arch)});
}

// Shared by quantise and dequantise; `run` is the member of Program.
Result<void> codec(kvjit_program* program, int side, const kvjit_codec_call* call,
                   Result<void> (kvjit::Program::*run)(int, const kv::CodecArgs&, kvjit::Stream, const kv::PageTable&,
                                                       const kvjit::CheckBounds&) const) {
  KV_CHECK(side_of(program, side));
  KV_TRY(c, read_struct(call, "call"));
  if (c.x_type != KVJIT_F16 && c.x_type != KVJIT_BF16 && c.x_type != KVJIT_F32)
    return fail(Code::usage,
                fmt::format("x_type {}; KVJIT_F16 (1), KVJIT_BF16 (2) and KVJIT_F32 (3) are possible", c.x_type));
  kv::CodecArgs args{};
  args.x = convert(c.x);
  args.side = convert(c.cache);
  static_assert(sizeof(kv::i64) == sizeof(kvjit_index));
  args.slots = reinterpret_cast<const kv::i64*>(c.slots);
  args.first_token = c.first_token;
  args.sequences = c.sequences;
  args.tokens = c.tokens;
  args.heads = c.heads;
  static_assert(int(kv::RowType::f16) == KVJIT_F16 && int(kv::RowType::bf16) == KVJIT_BF16 &&
                int(kv::RowType::f32) == KVJIT_F32);
  args.x_type = static_cast<kv::RowType>(c.x_type);
  args.keep_rotated = c.keep_rotated != 0;
  args.tensor_scale = c.tensor_scale != 0 ? c.tensor_scale : 1;
  return ((*program->program).*run)(
      side, args, c.stream, convert(c.pages),
      {static_cast<kv::CheckRecord*>(c.check), c.pages.pool_pages, c.pages.pool_pages, c.slot_count});
}

Result<void> attention(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                       Result<kvjit::LaunchReport> (kvjit::Program::*run)(const kvjit::AttentionCall&,
                                                                          kvjit::DevicePointer, kvjit::Stream) const) {
  KV_CHECK(need(program, "program"));
  KV_TRY(c, read_struct(call, "call"));
  if (report) KV_CHECK(check_output(report, "report"));
  const kvjit::AttentionCall converted = convert(c);
  // SIZE_MAX: sizes that make no sense, which the program refuses by name.
  if (const std::size_t needed = program->program->workspace_bytes(converted);
      needed != SIZE_MAX && c.workspace_bytes < needed)
    return fail(Code::bad_input, fmt::format("workspace of {} bytes; this call needs {}", c.workspace_bytes, needed));
  KV_TRY(ran, ((*program->program).*run)(converted, address(c.workspace), c.stream));
  if (!report) return {};
  kvjit_report value{};
  for (const std::string& name : ran.kernels)
    if (value.kernel_count < static_cast<int>(std::size(value.kernels)))
      value.kernels[value.kernel_count++] = program->keep(name);
  value.k_reader = program->keep(ran.k_reader);
  value.v_reader = program->keep(ran.v_reader);
  value.cache_bytes = ran.cache_bytes;
  value.converted_bytes = ran.converted_bytes;
  value.blocks = ran.blocks;
  value.features = program->keep(listed(ran.features));
  write_struct(report, value);
  return {};
}

}  // namespace

int kvjit_version(void) { return KVJIT_VERSION_NUMBER; }

kvjit_status kvjit_context_create(const kvjit_context_options* options, kvjit_context** context, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    kvjit::Options chosen = kvjit::Options::from_environment();
    if (options) {
      KV_TRY(given, read_struct(options, "options"));
      if (given.device == KVJIT_DEVICE_GPU)
        chosen.device = kvjit::DeviceKind::gpu;
      else if (given.device == KVJIT_DEVICE_CPU)
        chosen.device = kvjit::DeviceKind::cpu;
      else if (given.device != KVJIT_DEVICE_AUTOMATIC)
        return fail(
            Code::usage,
            fmt::format("device {}; KVJIT_DEVICE_AUTOMATIC (0), _GPU (1) and _CPU (2) are possible", given.device));
      chosen.device_ordinal = given.ordinal;
      if (given.cache_dir) chosen.cache_dir = given.cache_dir;
      if (given.log)
        chosen.log = [log = given.log, user = given.log_user](const std::string& message) {
          log(user, message.c_str());
        };
    }
    KV_TRY(opened, kvjit::Context::open(chosen));
    *context = new kvjit_context{std::move(opened)};
    return {};
  });
}

void kvjit_context_destroy(kvjit_context* context) { delete context; }

kvjit_status kvjit_context_device(const kvjit_context* context, kvjit_device_facts* facts, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(check_output(facts, "facts"));
    const kvjit::DeviceFacts& device = context->context->backend()->facts();
    write_struct(facts, {0, device.name.c_str(), device.arch.c_str(), device.is_gpu, device.multiprocessors,
                         device.driver_version, device.memory_bytes});
    return {};
  });
}

kvjit_status kvjit_allocate(kvjit_context* context, size_t bytes, void** pointer, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(need(pointer, "pointer"));
    KV_TRY(allocated, context->context->backend()->allocate(bytes));
    *pointer = reinterpret_cast<void*>(allocated);
    return {};
  });
}

void kvjit_release(kvjit_context* context, void* pointer) {
  if (context && pointer) context->context->backend()->release(address(pointer));
}

kvjit_status kvjit_copy_to_device(kvjit_context* context, void* to, const void* from, size_t bytes,
                                  kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    return context->context->backend()->copy_to_device(address(to), from, bytes);
  });
}

kvjit_status kvjit_copy_to_host(kvjit_context* context, void* to, const void* from, size_t bytes, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    return context->context->backend()->copy_to_host(to, address(from), bytes);
  });
}

kvjit_status kvjit_synchronize(kvjit_context* context, void* stream, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    return context->context->backend()->synchronize(stream);
  });
}

kvjit_status kvjit_supported(const char* toml, const char* arch, char* reasons, size_t reasons_size) {
  std::vector<std::string> refusals;
  kvjit_status first = KVJIT_OK;
  const auto refuse = [&](const Error& error, const std::string& prefix) {
    if (first == KVJIT_OK) first = static_cast<kvjit_status>(error.code);
    std::string text = kvjit::render(error);
    if (!text.empty() && text.back() == '\n') text.pop_back();
    refusals.push_back(prefix + text);
  };
  const kvjit_status status = guarded(nullptr, [&]() -> Result<void> {
    if (!toml) return refuse({Code::usage, "toml is NULL"}, ""), Result<void>{};
    const auto known = registry();
    if (!known) return refuse(known.error(), ""), Result<void>{};
    const Result<std::vector<kvjit::Spec>> specs = kvjit::parse_all(toml, "spec", **known);
    if (!specs) return refuse(specs.error(), ""), Result<void>{};
    for (const kvjit::Spec& spec : *specs) {
      const std::vector<std::string> archs = arch ? std::vector<std::string>{arch} : spec.archs;
      if (archs.empty())
        return refuse({Code::usage, "the spec names no arch; pass one, such as sm_90a"}, ""), Result<void>{};
      for (const std::string& asked : archs)
        if (const auto made = generate(spec, asked, ""); !made)
          refuse(made.error(), fmt::format("{}{}{}: ", spec.label, spec.label.empty() ? "" : " ", asked));
    }
    return {};
  });
  if (reasons)
    copy_text(reasons, reasons_size, status == KVJIT_OK ? lines(refusals) : "no answer: out of memory or a bug");
  return status == KVJIT_OK ? first : status;
}

kvjit_status kvjit_program_create(kvjit_context* context, const char* toml, const char* file_name, const char* arch,
                                  kvjit_program** program, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(need(toml, "toml"));
    KV_CHECK(need(program, "program"));
    const std::string file = file_name ? file_name : "spec";
    KV_TRY(known, registry());
    KV_TRY(specs, kvjit::parse_all(toml, file, *known));
    if (specs.size() != 1)
      return fail(Code::unsupported,
                  fmt::format("[matrix] and [layers] give {} specs; a program is one spec", specs.size()), {file},
                  {"leave both out, or create one program for each combination and each group of layers"});
    KV_TRY(chosen, choose_arch(specs[0], arch, context->context->backend()->facts()));
    const kvjit::DeviceFacts& facts = context->context->backend()->facts();
    KV_TRY(source, generate(specs[0], chosen, facts.is_gpu ? facts.name : ""));
    KV_TRY(created, kvjit::Program::create(context->context, std::move(source)));
    auto handle = std::make_unique<kvjit_program>();
    handle->context = context->context;
    handle->program = std::move(created);
    *program = handle.release();
    return {};
  });
}

void kvjit_program_destroy(kvjit_program* program) { delete program; }

kvjit_status kvjit_alibi_slopes(float max_bias, int heads, float* slopes, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(slopes, "slopes"));
    KV_TRY(made, kvjit::alibi_slopes(max_bias, heads));
    std::copy(made.begin(), made.end(), slopes);
    return {};
  });
}

kvjit_status kvjit_program_describe(const kvjit_program* program, kvjit_program_facts* facts, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_CHECK(check_output(facts, "facts"));
    const kvjit::ProgramSource& s = program->program->source();
    const int q_type = s.q_bytes == 4 ? KVJIT_F32 : s.q_is_f16 ? KVJIT_F16 : KVJIT_BF16;
    const int out_type = s.out_is_f32 ? KVJIT_F32 : KVJIT_F16;
    std::vector<std::string> features = s.features.names();
    if (s.causal) features.insert(features.begin(), "causal");
    write_struct(facts, {0, s.id.c_str(), s.title.c_str(), s.arch.c_str(), s.is_planar, s.head_dim, s.q_heads_per_kv,
                         s.query_length, s.causal, q_type, out_type, s.tile_tokens, s.appends, s.head_dim_v,
                         const_cast<kvjit_program*>(program)->keep(listed(features)), s.page_tokens, s.checks});
    return {};
  });
}

kvjit_status kvjit_program_side(const kvjit_program* program, int side, kvjit_side_facts* facts, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_TRY(known, side_of(program, side));
    KV_CHECK(check_output(facts, "facts"));
    write_struct(facts, {0, known->format.c_str(), known->is_transformed, known->bits_per_value,
                         static_cast<kvjit_index>(known->row_bytes), static_cast<kvjit_index>(known->code_row_bytes),
                         static_cast<kvjit_index>(known->scale_row_bytes)});
    return {};
  });
}

kvjit_status kvjit_cache_layout(const kvjit_program* program, int side, kvjit_index sequences, kvjit_index heads,
                                kvjit_index capacity_tokens, void* base, kvjit_side* cache, size_t* bytes,
                                kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_TRY(facts, side_of(program, side));
    if (std::min({sequences, heads, capacity_tokens}) < 1)
      return fail(Code::bad_input,
                  fmt::format("a cache of {} sequences, {} heads, {} tokens; at least 1 of each is needed", sequences,
                              heads, capacity_tokens));
    const auto geometry = kvjit::side_geometry(program->program->source(), *facts, sequences, heads, capacity_tokens);
    if (geometry.total_bytes > static_cast<std::size_t>(PTRDIFF_MAX))
      return fail(Code::bad_input, fmt::format("a cache of {} sequences, {} heads, {} tokens does not fit 64 bits",
                                               sequences, heads, capacity_tokens));
    if (cache) *cache = convert(base ? kvjit::at(geometry, address(base)) : geometry.strides);
    if (bytes) *bytes = geometry.total_bytes;
    return {};
  });
}

kvjit_status kvjit_quantise(kvjit_program* program, int side, const kvjit_codec_call* call, kvjit_error* error) {
  return guarded(error, [&] { return codec(program, side, call, &kvjit::Program::quantise); });
}

kvjit_status kvjit_dequantise(kvjit_program* program, int side, const kvjit_codec_call* call, kvjit_error* error) {
  return guarded(error, [&] { return codec(program, side, call, &kvjit::Program::dequantise); });
}

kvjit_status kvjit_read_check(const kvjit_program* program, const void* record, void* stream, kvjit_check* check,
                              kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_CHECK(need(record, "record"));
    KV_CHECK(check_output(check, "check"));
    static_assert(sizeof(kv::CheckRecord) == KVJIT_CHECK_BYTES);
    const std::shared_ptr<kvjit::Backend>& backend = program->context->backend();
    KV_CHECK(backend->synchronize(stream));
    kv::CheckRecord found{};
    KV_CHECK(backend->copy_to_host(&found, address(record), sizeof found));
    write_struct(check, convert(found));
    return {};
  });
}

kvjit_status kvjit_workspace_bytes(const kvjit_program* program, const kvjit_attention_call* call, size_t* bytes,
                                   kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_CHECK(need(bytes, "bytes"));
    KV_TRY(c, read_struct(call, "call"));
    const std::size_t needed = program->program->workspace_bytes(convert(c));
    if (needed > static_cast<std::size_t>(PTRDIFF_MAX))
      return fail(Code::bad_input, fmt::format("no workspace fits a call of {} sequences, {} heads, {} tokens",
                                               c.sequences, c.kv_heads, c.tokens));
    *bytes = needed;
    return {};
  });
}

kvjit_status kvjit_attention(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                             kvjit_error* error) {
  return guarded(error, [&] { return attention(program, call, report, &kvjit::Program::attention); });
}

kvjit_status kvjit_reference(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                             kvjit_error* error) {
  return guarded(error, [&] { return attention(program, call, report, &kvjit::Program::reference); });
}

kvjit_status kvjit_merge(kvjit_program* program, const kvjit_merge_call* call, kvjit_error* error) {
  static_assert(KVJIT_MOST_MERGE_PARTS == kv::kMostMergeParts);
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_TRY(c, read_struct(call, "call"));
    KV_CHECK(need(c.parts, "parts"));
    const kvjit::ProgramSource& source = program->program->source();
    kv::MergePartsArgs args{};
    args.count = c.part_count;  // which the program checks
    for (int i = 0; i < std::min(c.part_count, KVJIT_MOST_MERGE_PARTS); ++i)
      args.parts[i] = {convert(c.parts[i].out), c.parts[i].lse};
    args.sequences = c.sequences;
    args.queries = source.query_length;
    args.heads = c.kv_heads * source.q_heads_per_kv;
    args.out = convert(c.out);
    args.lse = c.lse;
    return program->program->merge(args, c.stream);
  });
}
