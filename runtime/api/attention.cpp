// The C interface of attention, memory and descriptions of programs. Each function converts its structs, calls the
// runtime and turns the result into a status. runtime/kvjit.h is the manual.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "generator/resolve/layers.hpp"
#include "runtime/api/convert.hpp"
#include "runtime/api/support.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/launch/kv_checks.hpp"
#include "runtime/launch/kv_layout.hpp"

using namespace kvjit::c_api;
using kvjit::Code;
using kvjit::Error;
using kvjit::fail;
using kvjit::Result;

namespace {

Result<void> attention(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                       Result<kvjit::LaunchReport> (kvjit::Program::*run)(const kvjit::AttentionCall&,
                                                                          kvjit::DevicePointer, kvjit::Stream) const) {
  KV_CHECK(need(program, "program"));
  KV_TRY(c, read_struct(call, "call"));
  if (report) KV_CHECK(check_output(report, "report"));
  const kvjit::AttentionCall converted = convert(c);
  // SIZE_MAX means counts that make no sense. The program refuses them with a better message.
  if (const std::size_t needed = program->program->workspace_bytes(converted);
      needed != SIZE_MAX && c.workspace_bytes < needed)
    return fail(Code::bad_input, fmt::format("workspace of {} bytes; this call needs {}", c.workspace_bytes, needed));
  KV_TRY(ran, ((*program->program).*run)(converted, address(c.workspace), c.stream));
  if (!report) return {};
  kvjit_report value{};
  for (const std::string& name : ran.kernels)
    if (value.kernel_count < static_cast<int>(std::size(value.kernels)))
      value.kernels[value.kernel_count++] = program->intern(name);
  value.k_reader = program->intern(ran.k_reader);
  value.v_reader = program->intern(ran.v_reader);
  value.cache_bytes = ran.cache_bytes;
  value.converted_bytes = ran.converted_bytes;
  value.blocks = ran.blocks;
  value.features = program->intern(listed(ran.features));
  write_struct(report, value);
  return {};
}

Answer refusal_of(const Error& error) {
  std::string text = kvjit::render(error);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return {static_cast<kvjit_status>(error.code), std::move(text)};
}

// The answer to a question that was not asked before.
Answer find_out(const char* toml, const char* arch, const kvjit::Registry& registry) {
  Answer answer;
  const auto refuse = [&](const Error& error, const std::string& prefix) {
    const Answer one = refusal_of(error);
    if (answer.status == KVJIT_OK) answer.status = one.status;
    answer.reasons += (answer.reasons.empty() ? "" : "\n") + prefix + one.reasons;
  };
  const Result<std::vector<kvjit::Spec>> specs = kvjit::parse_all(toml, "spec", registry);
  if (!specs) return refuse(specs.error(), ""), answer;
  for (const kvjit::Spec& spec : *specs) {
    const std::vector<std::string> archs = arch ? std::vector<std::string>{arch} : spec.archs;
    if (archs.empty()) return refuse({Code::usage, "the spec names no arch; pass one, such as sm_90a"}, ""), answer;
    for (const std::string& name : archs) {
      const auto problem = kvjit::resolve(spec, registry, name);
      const Result<void> checked = problem ? kvjit::check_program(*problem, registry) : tl::unexpected(problem.error());
      if (!checked) refuse(checked.error(), fmt::format("{}{}{}: ", spec.label, spec.label.empty() ? "" : " ", name));
    }
  }
  return answer;
}

template <class RegistryOf>
kvjit_status supported(const RegistryOf& registry_of, Answers& answers, const char* toml, const char* arch,
                       char* reasons, size_t reasons_size) {
  kvjit_status said = KVJIT_OK;
  const auto tell = [&](const Answer& answer) {
    said = answer.status;
    if (reasons) copy_text(reasons, reasons_size, answer.reasons);
  };
  const kvjit_status failed = guarded(nullptr, [&]() -> Result<void> {
    if (!toml) return tell(refusal_of({Code::usage, "toml is NULL"})), Result<void>{};
    std::string key = Answers::key(toml, arch);
    if (answers.find(key, tell)) return {};
    const auto registry = registry_of();
    if (!registry) return tell(refusal_of(registry.error())), Result<void>{};
    Answer answer = find_out(toml, arch, **registry);
    tell(answer);
    answers.keep(std::move(key), std::move(answer));
    return {};
  });
  if (failed == KVJIT_OK) return said;
  if (reasons) copy_text(reasons, reasons_size, "no answer: out of memory or a bug");
  return failed;
}

}  // namespace

int kvjit_version(void) { return KVJIT_VERSION_NUMBER; }

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
  guarded([&] {
    if (context && pointer) context->context->backend()->release(address(pointer));
  });
}

kvjit_status kvjit_copy_to_device(kvjit_context* context, void* to, const void* from, size_t bytes,
                                  kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    if (bytes == 0) return {};
    KV_CHECK(need(from, "from"));
    KV_CHECK(kvjit::check_pointer("to", to, 1));
    return context->context->backend()->copy_to_device(address(to), from, bytes);
  });
}

kvjit_status kvjit_copy_to_host(kvjit_context* context, void* to, const void* from, size_t bytes, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    if (bytes == 0) return {};
    KV_CHECK(need(to, "to"));
    KV_CHECK(kvjit::check_pointer("from", from, 1));
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
  static Answers answers;
  return supported([] { return registry(); }, answers, toml, arch, reasons, reasons_size);
}

kvjit_status kvjit_context_supports(const kvjit_context* context, const char* toml, const char* arch, char* reasons,
                                    size_t reasons_size) {
  Answers none;
  const auto registry_of = [context]() -> Result<std::shared_ptr<const kvjit::Registry>> {
    KV_CHECK(need(context, "context"));
    return registry(*context);
  };
  return supported(registry_of, context ? context->answers : none, toml, arch, reasons, reasons_size);
}

kvjit_status kvjit_alibi_slopes(float max_bias, int heads, float* slopes, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(slopes, "slopes"));
    KV_TRY(values, kvjit::alibi_slopes(max_bias, heads));
    std::copy(values.begin(), values.end(), slopes);
    return {};
  });
}

kvjit_status kvjit_program_describe(const kvjit_program* program, kvjit_program_info* info, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_CHECK(check_output(info, "info"));
    const kvjit::ProgramSource& s = program->program->source();
    const auto type_of = [](kvjit::Element element) {
      return element == kvjit::Element::f32 ? KVJIT_F32 : element == kvjit::Element::bf16 ? KVJIT_BF16 : KVJIT_F16;
    };
    std::vector<std::string> features = s.features.names();
    if (s.causal) features.insert(features.begin(), "causal");
    write_struct(info, {0, s.id.c_str(), s.title.c_str(), s.arch.c_str(), s.is_planar(), s.head_dim, s.q_heads_per_kv,
                        s.query_length, s.causal, type_of(s.q_type), type_of(s.out_type), s.tile_tokens, s.append,
                        s.head_dim_v, const_cast<kvjit_program*>(program)->intern(listed(features)), s.page_tokens,
                        s.checks, s.token_heads, s.varlen});
    return {};
  });
}

kvjit_status kvjit_program_side(const kvjit_program* program, int side, kvjit_side_info* info, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_TRY(side_info, side_of(program, side));
    KV_CHECK(check_output(info, "info"));
    write_struct(info,
                 {0, side_info->format.c_str(), side_info->is_transformed, side_info->bits_per_value,
                  static_cast<kvjit_index>(side_info->row_bytes), static_cast<kvjit_index>(side_info->code_row_bytes),
                  static_cast<kvjit_index>(side_info->scale_row_bytes), side_info->has_head_scales});
    return {};
  });
}

kvjit_status kvjit_cache_layout(const kvjit_program* program, int side, kvjit_index sequences, kvjit_index heads,
                                kvjit_index capacity_tokens, void* base, kvjit_side* cache, size_t* bytes,
                                kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_TRY(info, side_of(program, side));
    if (std::min({sequences, heads, capacity_tokens}) < 1)
      return fail(Code::bad_input,
                  fmt::format("a cache of {} sequences, {} heads, {} tokens; at least 1 of each is needed", sequences,
                              heads, capacity_tokens));
    const auto geometry = kvjit::side_geometry(program->program->source(), *info, sequences, heads, capacity_tokens);
    if (geometry.total_bytes > static_cast<std::size_t>(PTRDIFF_MAX))
      return fail(Code::bad_input, fmt::format("a cache of {} sequences, {} heads, {} tokens does not fit 64 bits",
                                               sequences, heads, capacity_tokens));
    if (base) {  // the alignment that kernels need
      const kvjit::ProgramSource& source = program->program->source();
      const char* const name = side == KVJIT_K ? "k" : "v";
      const kv::CacheSide placed = kvjit::at(geometry, address(base));
      KV_CHECK(kvjit::check_planes(source, *info, name, placed, heads));
      KV_CHECK(kvjit::check_token_heads(source, *info, name, placed, heads));
    }
    if (cache) *cache = convert(base ? kvjit::at(geometry, address(base)) : geometry.strides);
    if (bytes) *bytes = geometry.total_bytes;
    return {};
  });
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

kvjit_status kvjit_mask_ranges(kvjit_program* program, const kvjit_attention_call* call, int* token_ranges,
                               kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_TRY(c, read_struct(call, "call"));
    return program->program->mask_ranges(convert(c), token_ranges, c.stream);
  });
}

kvjit_status kvjit_merge(kvjit_program* program, const kvjit_merge_call* call, kvjit_error* error) {
  static_assert(KVJIT_MOST_MERGE_CONTEXTS == kv::kMostMergeContexts);
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_TRY(c, read_struct(call, "call"));
    KV_CHECK(need(c.contexts, "contexts"));
    const kvjit::ProgramSource& source = program->program->source();
    kv::MergeContextsArgs args{};
    args.count = c.context_count;  // Program::merge refuses a count above kMostMergeContexts; no more are read here
    for (int i = 0; c.context_count <= KVJIT_MOST_MERGE_CONTEXTS && i < c.context_count; ++i)
      args.contexts[i] = {convert(c.contexts[i].out), c.contexts[i].lse};
    args.sequences = c.sequences;
    args.queries = c.queries > 0 ? c.queries : source.query_length;
    args.heads = c.kv_heads * source.q_heads_per_kv;
    args.out = convert(c.out);
    args.lse = c.lse;
    return program->program->merge(args, c.stream);
  });
}
