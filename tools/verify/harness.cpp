// KernelHarness's memory, its calls and their results: see harness.hpp. harness_rows.cpp has the rows of the cache.
// SPDX-License-Identifier: MIT
#include "tools/verify/harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tools/verify/harness_data.hpp"
#include "tools/verify/inputs/unmapped.hpp"
#include "tools/verify/uniform.hpp"

namespace kvjit {

using namespace harness;

namespace {

constexpr std::size_t kNoNumber = std::numeric_limits<std::size_t>::max();

// The memory of one copy of the cache: K, a gap, V, a gap. The gaps stay 0xFF, so that a read past the end of a side is
// noticed.
struct Places {
  std::size_t values_at = 0;   // bytes from K to V
  std::size_t copy_bytes = 0;  // bytes of the copy
};
constexpr std::size_t kGuard = 256;  // least bytes of a gap, and the alignment of a side

Places places(std::size_t k_bytes, std::size_t v_bytes) {
  const auto end = [](std::size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard + kGuard; };
  constexpr std::size_t kMost = std::size_t{1} << 60;  // far above any memory, far below an overflow
  if (k_bytes > kMost || v_bytes > kMost) return {kNoNumber, kNoNumber};
  return {end(k_bytes), end(k_bytes) + end(v_bytes)};
}

// Whether V is in K's rows: by the program, or only by where the rows of this cache are.
bool is_in_keys(const ProgramSource& source, const CacheShape& shape) {
  return source.values_in_keys || shape.rows.has_values_in_keys;
}

SideGeometry geometry_of(const ProgramSource& source, const SideInfo& info, const CacheShape& shape) {
  const SideInfo& stored = is_in_keys(source, shape) ? source.k : info;
  if (shape.rows != RowPlaces{})
    return rows_geometry(stored, shape.sequences, shape.kv_heads, shape.tokens, shape.rows);
  if (source.page_tokens == 0) return side_geometry(source, stored, shape.sequences, shape.kv_heads, shape.tokens);
  return pool_geometry(source, stored, shape.kv_heads, pool_pages(source.page_tokens, shape.sequences, shape.tokens),
                       shape.places);
}

}  // namespace

std::size_t memory_bytes(const ProgramSource& source, const CacheShape& shape) {
  const auto side = [&](const SideInfo& info) { return geometry_of(source, info, shape).total_bytes; };
  std::size_t bytes = places(side(source.k), is_in_keys(source, shape) ? 0 : side(source.v)).copy_bytes;
  return __builtin_mul_overflow(bytes, static_cast<std::size_t>(shape.copies), &bytes) ? kNoNumber : bytes;
}

std::vector<float> rounded_to(Element type, std::span<const float> x) { return unpacked(type, packed(type, x)); }

std::vector<float> new_token_rows(std::span<const float> x, const CacheShape& shape, const std::vector<int>& lengths,
                                  int count, int dim) {
  const auto width = static_cast<std::size_t>(dim);
  std::vector<float> rows;
  for (int s = 0; s < shape.sequences; ++s)
    for (int i = 0; i < count; ++i)
      for (int h = 0; h < shape.kv_heads; ++h) {
        const long long token = lengths[static_cast<std::size_t>(s)] - count + i;
        const auto at = static_cast<std::size_t>((s * shape.kv_heads + h) * shape.tokens + token) * width;
        if (token < 0)
          rows.resize(rows.size() + width);
        else
          rows.insert(rows.end(), x.begin() + static_cast<std::ptrdiff_t>(at),
                      x.begin() + static_cast<std::ptrdiff_t>(at + width));
      }
  return rows;
}

namespace {

// Calls visit(row of the batch, row of its sequence's place) for each row of a ragged batch.
template <class Visit>
void for_each_ragged_row(std::size_t rows, const std::vector<int>& query_counts, Visit visit) {
  const auto all = static_cast<std::size_t>(std::accumulate(query_counts.begin(), query_counts.end(), 0));
  if (all == 0) return;
  const std::size_t heads = rows / all;
  std::size_t first = 0, of_sequence = 0;
  for (const int count : query_counts) {
    const auto queries = static_cast<std::size_t>(count);
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < queries; ++i) visit(h * all + first + i, of_sequence++);
    first += queries;
  }
}

// Moves the rows of a ragged batch to their places in the order of the batch, or in that of its sequences.
std::vector<float> reordered(std::span<const float> rows, const std::vector<int>& query_counts, int dim,
                             bool is_to_batch) {
  const auto width = static_cast<std::size_t>(dim);
  std::vector<float> out(rows.size());
  for_each_ragged_row(rows.size() / width, query_counts, [&](std::size_t of_batch, std::size_t of_sequence) {
    const std::size_t from = is_to_batch ? of_sequence : of_batch, to = is_to_batch ? of_batch : of_sequence;
    std::copy_n(&rows[from * width], width, &out[to * width]);
  });
  return out;
}

}  // namespace

std::vector<float> of_sequences(std::span<const float> rows, const std::vector<int>& query_counts, int dim) {
  return reordered(rows, query_counts, dim, false);
}

std::vector<float> of_batch(std::span<const float> rows, const std::vector<int>& query_counts, int dim) {
  return reordered(rows, query_counts, dim, true);
}

void KernelHarness::set_new_tokens(int side, std::vector<float> x, Element type) {
  new_tokens_[side] = std::move(x);
  new_tokens_type_ = type;
}

struct KernelHarness::Launch {
  Call of;
  Buffer q, lengths, query_starts, new_tokens[2], tables[2];
  Guarded out, lse, workspace;
  std::vector<Buffer> features;
  AttentionCall call;
};

Result<void> KernelHarness::prepare_features(Launch& launch) const {
  const std::shared_ptr<Backend>& backend = context_->backend();
  kv::FeatureArgs& args = launch.call.features;
  const auto upload = [&](const auto& values, auto*& to) -> Result<void> {
    if (values.empty()) return {};
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    KV_TRY(buffer, uploaded(backend, {bytes, values.size() * sizeof values[0]}));
    to = static_cast<std::remove_reference_t<decltype(to)>>(device_data(buffer.pointer()));
    launch.features.push_back(std::move(buffer));
    return {};
  };
  std::vector<std::uint16_t> mask;
  for (const float x : features_.mask) mask.push_back(f16_from_float(x));
  KV_CHECK(upload(mask, args.mask));
  KV_CHECK(upload(features_.packed_mask, args.packed_mask));
  KV_CHECK(upload(features_.position_offsets, args.position_offsets));
  KV_CHECK(upload(features_.token_ranges, args.token_ranges));
  KV_CHECK(upload(features_.slopes, args.slopes));
  KV_CHECK(upload(features_.sinks, args.sinks));
  args.mask_sequence_stride = features_.mask_strides.sequence, args.mask_head_stride = features_.mask_strides.head,
  args.mask_query_stride = features_.mask_strides.query;
  args.packed_sequence_stride = features_.packed_strides.sequence,
  args.packed_head_stride = features_.packed_strides.head, args.packed_query_stride = features_.packed_strides.query;
  args.packed_tokens = features_.packed_tokens;
  args.position_offset = features_.position_offset;
  launch.call.leaves_sinks = features_.leaves_sinks;
  if (!program_->source().features.lse) return {};
  const QueryShape shape = query_shape(launch.of, 1);
  const long long rows = shape.sequences * shape.heads * shape.queries;
  KV_TRY(lse, Guarded::make(backend, static_cast<std::size_t>(rows) * sizeof(float), 0xFF));
  launch.lse = std::move(lse);
  args.lse = static_cast<float*>(device_data(launch.lse.pointer()));
  return {};
}

// Kernels write lse as [sequences][queries][q_heads]; Outcome has [sequences][q_heads][queries].
Result<std::vector<float>> KernelHarness::lse_of(const Launch& launch) const {
  std::vector<float> raw_lse(launch.lse.bytes() / sizeof(float)), lse;
  if (raw_lse.empty()) return lse;
  KV_CHECK(context_->backend()->copy_to_host(raw_lse.data(), launch.lse.pointer(), launch.lse.bytes()));
  const QueryShape shape = query_shape(launch.of, 1);
  for (long long s = 0; s < shape.sequences; ++s)
    for (long long h = 0; h < shape.heads; ++h)
      for (long long i = 0; i < shape.queries; ++i)
        lse.push_back(raw_lse[static_cast<std::size_t>((s * shape.queries + i) * shape.heads + h)]);
  return launch.of.query_counts.empty() ? lse : of_sequences(lse, launch.of.query_counts, 1);
}

Result<KernelHarness> KernelHarness::make(std::shared_ptr<Context> context, std::shared_ptr<Program> program,
                                          const Problem& problem, const CacheShape& shape) {
  KernelHarness harness;
  harness.context_ = std::move(context);
  harness.program_ = std::move(program);
  harness.problem_ = problem;
  harness.shape_ = shape;
  const ProgramSource& source = harness.program_->source();
  if (shape.rows != RowPlaces{} && (source.page_tokens > 0 || source.is_planar()))
    return fail(Code::internal, "rows are placed in a cache of another layout");
  for (int side : {0, 1}) {
    harness.geometry_[side] = geometry_of(source, harness.info(side), shape);
    harness.pages_[side] = deal_pages(source.page_tokens, shape.sequences, shape.tokens, std::uint64_t(side) + 1);
  }
  const bool shares_rows = is_in_keys(source, shape);
  const Places found = places(harness.geometry_[0].total_bytes, shares_rows ? 0 : harness.geometry_[1].total_bytes);
  harness.values_at_ = shares_rows ? 0 : found.values_at;
  if (source.values_in_keys) harness.pages_[1] = harness.pages_[0];
  harness.copy_bytes_ = found.copy_bytes;
  KV_TRY(memory, Buffer::make(harness.context_->backend(), memory_bytes(source, shape)));
  // An unwritten row reads as NaN or as extreme codes, so that a stray read is noticed.
  KV_CHECK(harness.context_->backend()->fill(memory.pointer(), 0xFF, memory.bytes()));
  harness.memory_ = std::move(memory);
  const std::vector<float> ones(static_cast<std::size_t>(shape.kv_heads), 1.f);
  for (const int side : {0, 1})
    if (harness.info(side).has_head_scales) KV_CHECK(harness.set_head_scales(side, ones));
  if (source.checks) {
    KV_TRY(check, Buffer::make(harness.context_->backend(), sizeof(kv::CheckRecord)));
    KV_CHECK(harness.context_->backend()->fill(check.pointer(), 0, check.bytes()));
    harness.check_ = std::move(check);
  }
  return harness;
}

Result<void> KernelHarness::set_head_scales(int side, std::vector<float> scales) {
  KV_CHECK(check_count("the scales of heads", scales.size(), static_cast<std::size_t>(shape_.kv_heads)));
  KV_TRY(memory, uploaded(context_->backend(),
                          {reinterpret_cast<const std::uint8_t*>(scales.data()), scales.size() * sizeof(float)}));
  head_scale_memory_[side] = std::move(memory);
  head_scales_[side] = std::move(scales);
  return {};
}

Result<void> KernelHarness::vary_head_scales() {
  for (const int side : {0, 1})
    if (info(side).has_head_scales) KV_CHECK(set_head_scales(side, varied_head_scales(format(side), shape_.kv_heads)));
  return {};
}

kv::CacheSide KernelHarness::cache(int side, int copy) const {
  kv::CacheSide cache = at(geometry_[side], memory(copy, side) + static_cast<std::size_t>(shape_.rows.front));
  if (info(side).has_head_scales) {  // a dense array, wherever the codes lie
    cache.scales = static_cast<kv::u8*>(device_data(head_scale_memory_[side].pointer()));
    cache.scales_sequence_stride = cache.scales_token_stride = 0, cache.scales_head_stride = sizeof(float);
  }
  return cache;
}

kv::CodecArgs KernelHarness::codec_args(int side, DevicePointer x, int dim, Element type) const {
  const long long head = shape_.tokens * dim;
  kv::CodecArgs args{};
  args.x = {device_data(x), shape_.kv_heads * head, dim, head};
  args.x_type = row_type(type);
  args.side = cache(side);
  args.sequences = shape_.sequences;
  args.tokens = static_cast<int>(shape_.tokens);
  args.heads = shape_.kv_heads;
  args.tensor_scale = tensor_scale_[side];
  return args;
}

Result<void> KernelHarness::quantize(int side, std::span<const float> x, Element type) {
  const auto count = static_cast<std::size_t>(shape_.sequences * shape_.kv_heads * shape_.tokens * problem_.dim(side));
  KV_CHECK(check_count("the input of quantize", x.size(), count));
  KV_TRY(input, uploaded(context_->backend(), packed(type, x)));
  Buffer table_memory;
  KV_TRY(table, upload_table(side, {}, table_memory));
  KV_CHECK(
      program_->quantize(side, codec_args(side, input.pointer(), problem_.dim(side), type), nullptr, table, bounds()));
  return finish();
}

Result<void> KernelHarness::quantize_slots(int side, std::span<const float> x, const std::vector<bool>& skipped) {
  const PageDeal& pages = pages_[side];
  std::vector<kv::i64> slots;
  for (long long s = 0; s < shape_.sequences; ++s)
    for (long long t = 0; t < shape_.tokens; ++t) {
      const kv::i64 slot = kv::i64(pages.page_of(s, t)) * pages.page_tokens + t % pages.page_tokens;
      slots.push_back(skipped[slots.size()] ? -1 - slot : slot);
    }
  const std::shared_ptr<Backend>& backend = context_->backend();
  KV_TRY(input, uploaded(backend, packed(Element::f32, x)));
  KV_TRY(slot_memory, uploaded(backend, {reinterpret_cast<const std::uint8_t*>(slots.data()), slots.size() * 8}));
  kv::CodecArgs args = codec_args(side, input.pointer(), problem_.dim(side), Element::f32);
  args.slots = static_cast<const kv::i64*>(device_data(slot_memory.pointer()));
  KV_CHECK(program_->quantize(side, args, nullptr, {}, bounds()));
  return finish();
}

CheckBounds KernelHarness::bounds() const {
  return {static_cast<kv::CheckRecord*>(device_data(check_.pointer())), pages_[0].pool, pages_[1].pool, shape_.tokens};
}

Result<void> KernelHarness::finish() const {
  const std::shared_ptr<Backend>& backend = context_->backend();
  KV_CHECK(backend->synchronize(nullptr));
  if (!program_->source().checks) return {};
  kv::CheckRecord record{};
  KV_CHECK(backend->copy_to_host(&record, check_.pointer(), sizeof record));
  return check_passed(record);
}

Result<kv::PageTable> KernelHarness::upload_table(int side, const std::vector<int>& lengths, Buffer& buffer) const {
  const PageDeal& pages = pages_[side];
  if (pages.page_tokens == 0) return kv::PageTable{};
  std::vector<int> table = pages.table(lengths);
  if (!lengths.empty())  // of attention; quantize needs the pages
    for (const auto& [index, entry] : freed_[side]) table[index] = entry;
  KV_TRY(uploaded_table, uploaded(context_->backend(),
                                  {reinterpret_cast<const std::uint8_t*>(table.data()), table.size() * sizeof(int)}));
  buffer = std::move(uploaded_table);
  return kv::PageTable{static_cast<const int*>(device_data(buffer.pointer())), pages.row_stride()};
}

void KernelHarness::free_pages(int side, const std::vector<bool>& freed, std::uint64_t seed) {
  // 2^40 bytes from the pool is an address without memory, and no number wraps on the way.
  constexpr long long kFar = 1ll << 40;
  freed_[side].clear();
  const PageDeal& pages = pages_[side];
  if (pages.page_tokens == 0) return;
  const long long page_bytes = std::max(geometry_[side].strides.codes_sequence_stride, kv::i64{1});
  std::vector<bool> is_used(static_cast<std::size_t>(pages.pool));
  for (std::size_t i = 0; i < pages.entries.size(); ++i)
    if (static_cast<long long>(i) % pages.row_stride() < pages.each)
      is_used[static_cast<std::size_t>(pages.entries[i])] = true;
  const auto unused = static_cast<int>(std::find(is_used.begin(), is_used.end(), false) - is_used.begin());
  const int far = static_cast<int>(std::min(kFar / page_bytes, 1'000'000ll));
  Uniform random(seed);
  for (std::size_t i = 0; i < freed.size(); ++i)
    if (freed[i])
      freed_[side][i / static_cast<std::size_t>(pages.each) * static_cast<std::size_t>(pages.row_stride()) +
                   i % static_cast<std::size_t>(pages.each)] = random.one_of<int>({unused, -1, far, -far});
}

Result<std::vector<float>> KernelHarness::dequantize(int side, bool rotated, Element type) const {
  const int dim = rotated ? format(side).stored_dim(problem_.dim(side)) : problem_.dim(side);
  const auto count = static_cast<std::size_t>(shape_.sequences * shape_.kv_heads * shape_.tokens * dim);
  KV_TRY(output, Buffer::make(context_->backend(), count * element_bytes(type)));
  kv::CodecArgs args = codec_args(side, output.pointer(), dim, type);
  args.keep_rotated = rotated;
  Buffer table_memory;
  KV_TRY(table, upload_table(side, {}, table_memory));
  KV_CHECK(program_->dequantize(side, args, nullptr, table, bounds()));
  KV_CHECK(finish());
  std::vector<std::uint8_t> bytes(output.bytes());
  KV_CHECK(context_->backend()->copy_to_host(bytes.data(), output.pointer(), bytes.size()));
  return unpacked(type, bytes);
}

Result<Backend::Timing> KernelHarness::time_codec(int side, bool is_writing, Element type,
                                                  std::span<const float> sample, int repeats) const {
  const std::shared_ptr<Backend>& backend = context_->backend();
  const std::vector<std::uint8_t> some = packed(type, sample);
  const auto bytes = static_cast<std::size_t>(shape_.sequences * shape_.kv_heads * shape_.tokens * problem_.dim(side)) *
                     element_bytes(type);
  KV_TRY(x, Buffer::make(backend, bytes));
  const std::size_t filled = std::min(some.size(), bytes);
  KV_CHECK(backend->copy_to_device(x.pointer(), some.data(), filled));
  KV_CHECK(repeat(*backend, x.pointer(), filled, bytes));
  KV_CHECK(backend->synchronize(nullptr));
  kv::CodecArgs args = codec_args(side, x.pointer(), problem_.dim(side), type);
  const long long token = static_cast<long long>(shape_.kv_heads) * problem_.dim(side);
  args.x = {device_data(x.pointer()), shape_.tokens * token, token, problem_.dim(side)};
  Buffer table_memory;
  KV_TRY(table, upload_table(side, {}, table_memory));
  return backend->time(
      [&](Stream stream, int) {
        return is_writing ? program_->quantize(side, args, stream, table, bounds())
                          : program_->dequantize(side, args, stream, table, bounds());
      },
      repeats, 1);
}

QueryShape KernelHarness::query_shape(const Call& call, int dim) const {
  const long long heads = static_cast<long long>(shape_.kv_heads) * problem_.q_heads_per_kv;
  if (call.query_counts.empty())
    return {shape_.sequences, heads, call.queries > 0 ? call.queries : problem_.query_length, dim};
  return {1, heads, std::accumulate(call.query_counts.begin(), call.query_counts.end(), 0ll), dim};
}

Result<KernelHarness::Launch> KernelHarness::prepare(std::span<const float> q_of_sequences, const Call& call) const {
  const QueryShape q_shape = query_shape(call, problem_.head_dim), out_shape = query_shape(call, problem_.v_dim());
  const long long queries = q_shape.queries, rows = q_shape.sequences * q_shape.heads * queries;
  KV_CHECK(check_count("q", q_of_sequences.size(), static_cast<std::size_t>(rows * q_shape.dim)));
  const bool is_ragged = !call.query_counts.empty();
  std::vector<float> q(q_of_sequences.begin(), q_of_sequences.end());
  if (is_ragged) q = of_batch(q, call.query_counts, problem_.head_dim);
  Launch launch;
  launch.of = call;
  const std::shared_ptr<Backend>& backend = context_->backend();
  const auto dim = static_cast<std::size_t>(q_shape.dim);
  std::vector<float> placed(static_cast<std::size_t>(rows) * (dim + static_cast<std::size_t>(call.q.gap)), NAN);
  for_each_query_row(q_shape, call.q,
                     [&](std::size_t place, std::size_t row) { std::copy_n(&q[row * dim], dim, &placed[place]); });
  KV_TRY(q_buffer, uploaded(backend, packed(problem_.q_type, placed)));
  KV_TRY(out_buffer,
         Guarded::make(
             backend,
             static_cast<std::size_t>(rows * (out_shape.dim + call.out.gap)) * element_bytes(problem_.out_type), 0xFF));
  launch.q = std::move(q_buffer);
  launch.out = std::move(out_buffer);
  AttentionCall& c = launch.call;
  c.q = placed_rows(launch.q.pointer(), q_shape, call.q);
  c.out = placed_rows(launch.out.pointer(), out_shape, call.out);
  c.scale = call.scale;
  c.k = cache(0);
  c.v = cache(1);
  c.tokens = call.tokens ? call.tokens : static_cast<int>(shape_.tokens);
  c.sequences = shape_.sequences;
  c.kv_heads = shape_.kv_heads;
  c.blocks = call.blocks;
  c.many_rows = call.many_rows;
  c.context_chunk_bytes = call.context_chunk_bytes;
  c.k_tensor_scale = tensor_scale_[0];
  c.v_tensor_scale = tensor_scale_[1];
  c.check = bounds();
  c.queries = call.queries > 0 || !problem_.varlen ? call.queries : problem_.query_length;
  if (is_ragged) {
    std::vector<int> starts{0};
    for (const int count : call.query_counts) starts.push_back(starts.back() + count);
    KV_TRY(query_starts,
           uploaded(backend, {reinterpret_cast<const std::uint8_t*>(starts.data()), starts.size() * sizeof(int)}));
    launch.query_starts = std::move(query_starts);
    c.query_starts = static_cast<const int*>(device_data(launch.query_starts.pointer()));
    if (call.queries == 0)
      c.queries = std::max(1, *std::max_element(call.query_counts.begin(), call.query_counts.end()));
    c.query_rows = starts.back();
  }
  if (!call.lengths.empty()) {
    c.tokens = *std::max_element(call.lengths.begin(), call.lengths.end());
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(call.lengths.data());
    KV_TRY(lengths, uploaded(backend, {bytes, call.lengths.size() * sizeof(int)}));
    launch.lengths = std::move(lengths);
    c.lengths = static_cast<const int*>(device_data(launch.lengths.pointer()));
  }
  const std::vector<int> lengths =
      call.lengths.empty() ? std::vector<int>(static_cast<std::size_t>(shape_.sequences), c.tokens) : call.lengths;
  for (const int side : {0, 1}) {
    KV_TRY(table, upload_table(side, lengths, launch.tables[side]));
    (side == 0 ? c.k_table : c.v_table) = table;
  }
  if (program_->source().values_in_keys) c.v_table = c.k_table;
  if (program_->source().append && !call.is_reference) {
    for (const int side : {0, 1}) {
      KV_CHECK(
          check_count("the new tokens", new_tokens_[side].size(),
                      static_cast<std::size_t>(shape_.sequences * queries * shape_.kv_heads * problem_.dim(side))));
      KV_TRY(new_tokens, uploaded(backend, packed(new_tokens_type_, new_tokens_[side])));
      launch.new_tokens[side] = std::move(new_tokens);
      const long long row = problem_.dim(side), token = shape_.kv_heads * row;
      (side == 0 ? c.new_k : c.new_v) =
          kv::Rows{device_data(launch.new_tokens[side].pointer()), queries * token, token, row};
    }
    c.new_type = row_type(new_tokens_type_);
  }
  KV_CHECK(prepare_features(launch));
  // 0xFF bytes are NaN, so that a read of an unwritten partial result is noticed.
  KV_TRY(workspace, Guarded::make(backend, program_->workspace_bytes(c), 0xFF));
  KV_CHECK(backend->fill(workspace.pointer(), 0, kCounterBytes));
  launch.workspace = std::move(workspace);
  return launch;
}

Result<KernelHarness::Outcome> KernelHarness::attend(std::span<const float> q, const Call& call) const {
  KV_TRY(launch, prepare(q, call));
  Outcome outcome;
  const auto run = [&]() -> Result<LaunchReport> {
    KV_TRY(report, call.is_reference ? program_->reference(launch.call, launch.workspace.pointer(), nullptr)
                                     : program_->attention(launch.call, launch.workspace.pointer(), nullptr));
    KV_CHECK(finish());
    return report;
  };
  if (context_->backend()->info().is_gpu) {
    KV_TRY(report, run());
    outcome.report = report;
  } else {
    const Unmapped unmapped(unmapped_ranges());
    const auto report = run();
    if (Unmapped::count() > 0)
      return fail(Code::differs,
                  fmt::format("{} pages were touched that no query sees, or that are no memory; the "
                              "first address is {} bytes from K's cache",
                              Unmapped::count(), static_cast<std::int64_t>(Unmapped::first() - memory(0, 0))));
    KV_CHECK(report);
    outcome.report = *report;
  }
  Backend& backend = *context_->backend();
  KV_CHECK(launch.out.check(backend, "the output"));
  KV_CHECK(launch.lse.check(backend, "lse"));
  KV_CHECK(launch.workspace.check(backend, "the workspace"));
  KV_TRY(out, out_of(launch));
  outcome.out = std::move(out);
  KV_TRY(lse, lse_of(launch));
  outcome.lse = std::move(lse);
  return outcome;
}

Result<int> KernelHarness::differing(std::span<const float> q, std::span<const float> other, const Call& call,
                                     int calls) const {
  // Calls between two comparisons. The number is even, so that each place of `outs` always has the same queries.
  constexpr int kRound = 64;
  KV_TRY(first, prepare(q, call));
  KV_TRY(second, prepare(other, call));
  const std::shared_ptr<Backend>& backend = context_->backend();
  const std::size_t bytes = first.out.bytes();
  KV_TRY(outs, Buffer::make(backend, bytes * kRound));
  std::vector<std::uint8_t> outputs(bytes * kRound), expected;
  int differing = 0;
  for (int done = 0; done < calls; done += kRound) {
    const int count = std::min(kRound, calls - done);
    KV_CHECK(backend->fill(outs.pointer(), 0xFF, outs.bytes()));
    for (int i = 0; i < count; ++i) {
      AttentionCall& c = (i % 2 == 0 ? first : second).call;
      c.out.data = device_data(outs.pointer() + static_cast<std::size_t>(i) * bytes);
      KV_CHECK(program_->attention(c, first.workspace.pointer(), nullptr));
    }
    KV_CHECK(finish());
    KV_CHECK(backend->copy_to_host(outputs.data(), outs.pointer(), outs.bytes()));
    if (expected.empty()) expected.assign(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(2 * bytes));
    for (int i = 0; i < count; ++i)
      differing += std::memcmp(&outputs[static_cast<std::size_t>(i) * bytes], &expected[(i % 2) * bytes], bytes) != 0;
  }
  return differing;
}

Result<std::vector<float>> KernelHarness::out_of(const Launch& launch) const {
  const QueryShape shape = query_shape(launch.of, problem_.v_dim());
  const QueryPlaces& places = launch.of.out;
  const std::size_t dim = static_cast<std::size_t>(shape.dim), gap = static_cast<std::size_t>(places.gap),
                    each = element_bytes(problem_.out_type);
  std::vector<std::uint8_t> bytes(launch.out.bytes());
  KV_CHECK(context_->backend()->copy_to_host(bytes.data(), launch.out.pointer(), bytes.size()));
  const std::vector<float> placed = unpacked(problem_.out_type, bytes);
  std::vector<float> out(placed.size() / (dim + gap) * dim);
  bool is_gap_whole = true;
  for_each_query_row(shape, places, [&](std::size_t place, std::size_t row) {
    std::copy_n(&placed[place], dim, &out[row * dim]);
    const auto* behind = bytes.data() + (place + dim) * each;
    is_gap_whole &= std::all_of(behind, behind + gap * each, [](std::uint8_t b) { return b == 0xFF; });
  });
  if (!is_gap_whole) return fail(Code::differs, "the output was written between its rows");
  return launch.of.query_counts.empty() ? out : of_sequences(out, launch.of.query_counts, problem_.v_dim());
}

Result<KernelHarness::Outcome> KernelHarness::merge(const std::vector<Outcome>& contexts) const {
  const std::shared_ptr<Backend>& backend = context_->backend();
  const long long dim = problem_.v_dim(), queries = problem_.query_length,
                  heads = static_cast<long long>(shape_.kv_heads) * problem_.q_heads_per_kv;
  const auto rows = static_cast<std::size_t>(shape_.sequences * heads * queries);
  const auto rows_at = [&](DevicePointer data) -> kv::Rows {
    return {device_data(data), heads * queries * dim, dim, queries * dim};
  };
  // Transposes [sequences][row_count][column_count] to [sequences][column_count][row_count]: kernels take lse as
  // [sequences][queries][q_heads], Outcome has [sequences][q_heads][queries].
  const auto transposed = [&](std::span<const float> lse, std::size_t row_count, std::size_t column_count) {
    std::vector<float> out;
    for (std::size_t s = 0; s < lse.size(); s += row_count * column_count)
      for (std::size_t i = 0; i < column_count; ++i)
        for (std::size_t o = 0; o < row_count; ++o) out.push_back(lse[s + o * column_count + i]);
    return out;
  };
  std::vector<Buffer> buffers;
  const auto place = [&](std::span<const std::uint8_t> bytes) -> Result<DevicePointer> {
    KV_TRY(buffer, uploaded(backend, bytes));
    buffers.push_back(std::move(buffer));
    return buffers.back().pointer();
  };
  kv::MergeContextsArgs args{};
  args.count = static_cast<int>(contexts.size());
  args.sequences = shape_.sequences, args.queries = static_cast<int>(queries), args.heads = static_cast<int>(heads);
  for (std::size_t i = 0; i < std::min<std::size_t>(contexts.size(), kv::kMostMergeContexts); ++i) {
    const auto lse = transposed(contexts[i].lse, static_cast<std::size_t>(heads), static_cast<std::size_t>(queries));
    KV_TRY(out_at, place(packed(problem_.out_type, contexts[i].out)));
    KV_TRY(lse_at, place(packed(Element::f32, lse)));
    args.contexts[i] = {rows_at(out_at), static_cast<const float*>(device_data(lse_at))};
  }
  std::vector<std::uint8_t> out(rows * static_cast<std::size_t>(dim) * element_bytes(problem_.out_type), 0xFF),
      lse(rows * sizeof(float), 0xFF);
  KV_TRY(out_at, place(out));
  KV_TRY(lse_at, place(lse));
  args.out = rows_at(out_at);
  args.lse = static_cast<float*>(device_data(lse_at));
  KV_CHECK(program_->merge(args, nullptr));
  KV_CHECK(backend->synchronize(nullptr));
  KV_CHECK(backend->copy_to_host(out.data(), out_at, out.size()));
  KV_CHECK(backend->copy_to_host(lse.data(), lse_at, lse.size()));
  return Outcome{
      unpacked(problem_.out_type, out),
      transposed(unpacked(Element::f32, lse), static_cast<std::size_t>(queries), static_cast<std::size_t>(heads)),
      {}};
}

Result<KernelHarness::Timed> KernelHarness::time(std::span<const float> q, const Call& call, int repeats) const {
  KV_TRY(launch, prepare(q, call));
  Timed timed;
  const auto work = [&](Stream stream, int copy) -> Result<void> {
    launch.call.k = cache(0, copy);
    launch.call.v = cache(1, copy);
    KV_TRY(report, program_->attention(launch.call, launch.workspace.pointer(), stream));
    timed.report = std::move(report);
    return {};
  };
  KV_TRY(timing, context_->backend()->time(work, repeats, shape_.copies));
  timed.timing = timing;
  return timed;
}

}  // namespace kvjit
