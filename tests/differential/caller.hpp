// Makes calls of any shape over one cache of layout rows, placed as an engine might place it, and over one workspace.
// `KernelHarness` aligns its caches and gives each call a workspace of its own; this class calls Program directly and
// does neither. The CPU tests and the GPU tests share it.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>

#include "tests/differential/harness.hpp"

namespace kvjit::test {

// Where rows lie in memory: at any 2-byte alignment, with token strides that may be odd multiples of 2.
struct Placement {
  int front = 0;   // bytes before the first row
  int behind = 0;  // bytes after the heads of each token
};

class Caller {
 public:
  struct Shape {
    int sequences = 1, tokens = 1, blocks = 0;
    std::vector<int> lengths = {};  // tokens of each sequence; empty: the call passes no lengths
    ManyRows many_rows = ManyRows::chosen;
  };

  Caller(const std::shared_ptr<Context>& context, const Planned& one, const CacheShape& capacity,
         const Placement& placement = {})
      : backend_(context->backend()),
        one_(one),
        capacity_(capacity),
        program_(must(Program::create(context, one.source))) {
    REQUIRE(one_.problem.layout == Layout::rows);
    REQUIRE(one_.problem.q_type == Element::f16);
    for (const int side : {0, 1}) place(side, placement);
    Rng rng(3);
    q_ = rounded_to(Element::f16, rng.normals(std::size_t(capacity_.sequences) * values()));
    std::vector<std::uint16_t> halves;
    for (const float v : q_) halves.push_back(f16_from_float(v));
    q_at_ = upload(halves);
    out_at_ = allocate(q_.size() * sizeof(float));
    workspace_bytes_ = program_->workspace_bytes(call({capacity_.sequences, int(capacity_.tokens), kMostBlocks}));
    workspace_ = allocate(workspace_bytes_);
    must(backend_->fill(workspace_, 0xff, workspace_bytes_));
    set_counters(0);
  }

  // `ahead` gets the address of the call's lengths and launches something before the call.
  using Ahead = std::function<Result<void>(DevicePointer)>;
  Result<LaunchReport> run(const Shape& shape, const Ahead& ahead = {}) {
    const AttentionCall one = call(shape);
    REQUIRE(program_->workspace_bytes(one) <= workspace_bytes_);
    must(backend_->fill(out_at_, 0xff, q_.size() * sizeof(float)));
    if (ahead) KV_CHECK(ahead(reinterpret_cast<DevicePointer>(one.lengths)));
    KV_TRY(report, program_->attention(one, workspace_, nullptr));
    KV_CHECK(backend_->synchronize(nullptr));
    return report;
  }
  // Returns the relative error of the last run, which must have been of this shape.
  double error(const Shape& shape) const {
    std::vector<float> out(std::size_t(shape.sequences) * values());
    must(backend_->copy_to_host(out.data(), out_at_, out.size() * sizeof(float)));
    return relative_error(out, exact(shape));
  }

  void set_counters(kv::u32 value) {
    const std::vector<kv::u32> all(kCounterBytes / sizeof value, value);
    must(backend_->copy_to_device(workspace_, all.data(), kCounterBytes));
  }
  bool counters_are_zero() const {
    std::vector<kv::u32> all(kCounterBytes / sizeof(kv::u32), 1);
    must(backend_->copy_to_host(all.data(), workspace_, kCounterBytes));
    return std::all_of(all.begin(), all.end(), [](kv::u32 n) { return n == 0; });
  }

 private:
  template <class T>
  static T* pointer(DevicePointer address) {
    return reinterpret_cast<T*>(address);
  }
  DevicePointer allocate(std::size_t bytes) {
    buffers_.push_back(must(Buffer::make(backend_, bytes)));
    return buffers_.back().pointer();
  }
  template <class T>
  DevicePointer upload(const std::vector<T>& data) {
    const DevicePointer at = allocate(data.size() * sizeof(T));
    must(backend_->copy_to_device(at, data.data(), data.size() * sizeof(T)));
    return at;
  }
  std::size_t dim() const { return std::size_t(one_.test.head_dim); }
  std::size_t values() const {  // of a sequence: [query head][query][dim]
    return std::size_t(capacity_.kv_heads * one_.test.gqa * one_.test.query_length) * dim();
  }

  // Places rows as [sequence][token][head]. Bytes around rows are 0xff, so that a scale read from there is NaN.
  void place(int side, const Placement& placement) {
    const Format& format = side == 0 ? one_.problem.k : one_.problem.v;
    cache_[side] = &encoded(format, one_.test.head_dim, capacity_, side);
    const auto row = std::size_t(format.head_bytes(one_.test.head_dim)), front = std::size_t(placement.front);
    const std::size_t stride = std::size_t(capacity_.kv_heads) * row + std::size_t(placement.behind);
    const auto tokens = std::size_t(capacity_.tokens), rows = cache_[side]->rows.size() / row;
    std::vector<std::uint8_t> memory(front + rows / std::size_t(capacity_.kv_heads) * stride, 0xff);
    for (std::size_t i = 0; i < rows; ++i) {  // `encoded` has the order [sequence][head][token]
      const std::size_t token = i % tokens, pair = i / tokens, heads = std::size_t(capacity_.kv_heads);
      std::copy_n(&cache_[side]->rows[i * row], row,
                  &memory[front + (pair / heads * tokens + token) * stride + pair % heads * row]);
    }
    kv::CacheSide& placed = sides_[side] = {};
    placed.codes = pointer<kv::u8>(upload(memory) + front);
    placed.codes_sequence_stride = (long long)(tokens * stride);
    placed.codes_head_stride = (long long)(row);
    placed.codes_token_stride = (long long)(stride);
  }

  AttentionCall call(const Shape& shape) {
    AttentionCall call;
    const auto sequence = (long long)(values()), query = (long long)(dim()), head = query * one_.test.query_length;
    call.q = {pointer<void>(q_at_), sequence, query, head};
    call.out = {pointer<void>(out_at_), sequence, query, head};
    call.many_rows = shape.many_rows;
    call.k = sides_[0], call.v = sides_[1];
    call.sequences = shape.sequences, call.kv_heads = capacity_.kv_heads;
    call.tokens = shape.tokens, call.blocks = shape.blocks;
    if (!shape.lengths.empty()) call.lengths = pointer<const int>(upload(shape.lengths));
    return call;
  }

  std::vector<double> exact(const Shape& shape) const {
    std::vector<double> all;
    for (int s = 0; s < shape.sequences; ++s) {
      const int tokens = shape.lengths.empty() ? shape.tokens : shape.lengths[std::size_t(s)];
      std::vector<double> attended[2];
      for (const int side : {0, 1})
        for (int head = 0; head < capacity_.kv_heads; ++head) {
          const std::size_t row = std::size_t(s * capacity_.kv_heads + head) * std::size_t(capacity_.tokens);
          const auto first = cache_[side]->decoded.begin() + std::ptrdiff_t(row * dim());
          attended[side].insert(attended[side].end(), first, first + std::ptrdiff_t(std::size_t(tokens) * dim()));
        }
      const auto q = q_.begin() + std::ptrdiff_t(std::size_t(s) * values());
      const auto one = oracle_attention({capacity_.kv_heads * one_.test.gqa, capacity_.kv_heads, one_.test.query_length,
                                         tokens, one_.test.head_dim, one_.test.is_causal, 0},
                                        std::vector<double>(q, q + std::ptrdiff_t(values())), attended[0], attended[1]);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  std::shared_ptr<Backend> backend_;
  Planned one_;
  CacheShape capacity_;
  std::shared_ptr<Program> program_;
  std::vector<Buffer> buffers_;
  const Encoded* cache_[2];
  kv::CacheSide sides_[2];
  std::vector<float> q_;
  DevicePointer q_at_ = 0, out_at_ = 0, workspace_ = 0;
  std::size_t workspace_bytes_ = 0;
};

inline void check_placement(const std::shared_ptr<Context>& context, const Registry& registry, const Case& test,
                            const Placement& placement) {
  constexpr int kTokens = 257;
  Caller caller(context, planned(registry, test, context->backend()->info().arch), {1, kKvHeads, kTokens}, placement);
  for (const int tokens : {1, 31, 33, kTokens}) {
    must(caller.run({1, tokens}));
    const double error = caller.error({1, tokens});
    CHECK_MESSAGE(error <= kMaxKernelError, test.name(), " at ", placement.front, "+", placement.behind, ": error ",
                  error, " over ", tokens, " tokens");
  }
}

inline void check_placements(const std::shared_ptr<Context>& context, const Registry& registry) {
  for (const char* format : kFormats)
    for (const Placement& placement :
         {Placement{0, 0}, Placement{2, 0}, Placement{0, 2}, Placement{6, 10}, Placement{16, 14}})
      check_placement(context, registry, {format, format, 128, 4, 1, Layout::rows, false}, placement);
  // Every offset within a 16-byte chunk, with rows that all have the same misalignment and rows that do not; the
  // formats need unaligned loads of 4, 8 and 16 bytes.
  for (const Case& test :
       {Case{"q8_0", "q4_0", 128, 4, 1, Layout::rows}, Case{"tbq4_0", "tbq4_0", 128, 4, 1, Layout::rows},
        Case{"kv4", "tbq4_0", 256, 4, 1, Layout::rows}, Case{"kv2", "kv8", 128, 4, 1, Layout::rows}})
    for (const int front : {0, 2, 4, 6, 8, 10, 12, 14})
      for (const int behind : {0, 2, 8, 12}) check_placement(context, registry, test, {front, behind});
}

}  // namespace kvjit::test
