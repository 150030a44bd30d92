// Rows where an engine puts them: 2-byte alignment, odd multiples of 2 as token strides. Trial places caches neatly, so this talks to
// Program directly. Shared by the CPU and the GPU tests.
// SPDX-License-Identifier: MIT
#pragma once
#include "tests/differential/harness.hpp"

namespace kvjit::test {

struct Placement {
  int front = 0;   // bytes before the first row
  int behind = 0;  // bytes after the heads of each token
};

inline void check_placement(const std::shared_ptr<Context>& context, const Registry& registry, const Case& test,
                            const Placement& placement) {
  constexpr int kTokens = 257;
  const Planned one = planned(registry, test, context->backend()->facts().arch);
  const CacheShape shape{1, kKvHeads, kTokens};
  const auto program = must(Program::create(context, one.source));
  const auto backend = context->backend();
  const auto upload = [&](const void* data, std::size_t bytes) {
    Buffer buffer = must(Buffer::make(backend, bytes));
    must(backend->copy_to_device(buffer.pointer(), data, bytes));
    return buffer;
  };

  std::vector<Buffer> buffers;
  kv::CacheSide sides[2] = {};
  const Encoded* cache[2];
  for (const int side : {0, 1}) {
    const Format& format = side == 0 ? one.problem.k : one.problem.v;
    cache[side] = &encoded(format, test.head_dim, shape, side);
    const std::size_t row = std::size_t(format.row_bytes(test.head_dim)), stride = kKvHeads * row + placement.behind;
    std::vector<std::uint8_t> memory(placement.front + kTokens * stride,
                                     0xff);  // NaN scales around every row
    for (int head = 0; head < kKvHeads; ++head)
      for (int t = 0; t < kTokens; ++t)
        std::copy_n(&cache[side]->rows[(std::size_t(head) * kTokens + t) * row], row,
                    &memory[placement.front + t * stride + head * row]);
    buffers.push_back(upload(memory.data(), memory.size()));
    sides[side].codes = reinterpret_cast<kv::u8*>(buffers.back().pointer() + placement.front);
    sides[side].codes_head_stride = (long long)(row);
    sides[side].codes_token_stride = (long long)(stride);
  }

  const int heads = kKvHeads * test.gqa, values = heads * test.head_dim;
  Rng rng(3);
  const std::vector<float> q = rounded_to(Element::f16, rng.normals(std::size_t(values)));
  std::vector<std::uint16_t> halves;
  for (float v : q) halves.push_back(f16_from_float(v));
  buffers.push_back(upload(halves.data(), halves.size() * 2));
  const DevicePointer q_at = buffers.back().pointer();
  Buffer out = must(Buffer::make(backend, std::size_t(values) * 4));
  AttentionCall call;
  call.q = {reinterpret_cast<void*>(q_at), values, values, test.head_dim};
  call.out = {reinterpret_cast<void*>(out.pointer()), values, values, test.head_dim};
  call.k = sides[0];
  call.v = sides[1];
  call.kv_heads = kKvHeads;
  for (const int tokens : {1, 31, 33, kTokens}) {
    call.tokens = tokens;
    Buffer workspace = must(Buffer::make(backend, program->workspace_bytes(call)));
    must(program->attention(call, workspace.pointer(), nullptr));
    must(backend->synchronize(nullptr));
    std::vector<float> got(static_cast<std::size_t>(values));
    must(backend->copy_to_host(got.data(), out.pointer(), got.size() * 4));
    std::vector<double> kept[2];
    for (const int side : {0, 1})
      for (int head = 0; head < kKvHeads; ++head) {
        const auto first = cache[side]->decoded.begin() + std::ptrdiff_t(head) * kTokens * test.head_dim;
        kept[side].insert(kept[side].end(), first, first + std::ptrdiff_t(tokens) * test.head_dim);
      }
    const auto want = oracle_attention({heads, kKvHeads, 1, tokens, test.head_dim, false, 0},
                                       std::vector<double>(q.begin(), q.end()), kept[0], kept[1]);
    const double error = relative_error(got, want);
    CHECK_MESSAGE(error <= kMaxKernelError, test.name(), " at ", placement.front, "+", placement.behind, ": error ",
                  error, " over ", tokens, " tokens");
  }
}

inline void check_placements(const std::shared_ptr<Context>& context, const Registry& registry) {
  for (const char* format : kFormats)
    for (const Placement& placement :
         {Placement{0, 0}, Placement{2, 0}, Placement{0, 2}, Placement{6, 10}, Placement{16, 14}})
      check_placement(context, registry, {format, format, 128, 4, 1, Layout::rows, false}, placement);
}

}  // namespace kvjit::test
