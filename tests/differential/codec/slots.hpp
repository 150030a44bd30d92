// Quantize to slots and dequantize from slots: with 64-bit and 32-bit slot numbers, one row a warp and in bulk, to
// tensors of any strides. The expected rows come from calls without slots. The CPU tests and the GPU tests share it.
// SPDX-License-Identifier: MIT
#pragma once
#include <numeric>

#include "generator/kernels/operations/operations.hpp"
#include "tests/differential/arrays.hpp"

namespace kvjit::test::slots {

constexpr int kTokens = 70, kDim = 128, kGap = 8;  // kGap: values between the rows of x, which no kernel may write
constexpr float kUntouched = -77.f;

// Returns the tokens of a cache in random order, some twice or not at all. Every fifth number is negative: a slot that
// is skipped.
inline std::vector<long long> shuffled_tokens(int sequences, bool may_repeat) {
  Rng rng(9);
  std::vector<long long> all;
  for (int s = 0; s < sequences; ++s) {
    std::vector<long long> one(kTokens);
    std::iota(one.begin(), one.end(), 0);
    for (int i = kTokens - 1; i > 0; --i) std::swap(one[std::size_t(i)], one[std::size_t(rng.uniform() * (i + 1))]);
    for (int i = 0; i < kTokens; ++i) {
      if (may_repeat && i % 7 == 3) one[std::size_t(i)] = one[std::size_t(i - 1)];
      if (i % 5 == 2) one[std::size_t(i)] = -1 - i;
    }
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

struct Indexed {
  std::shared_ptr<Context> context;
  Planned one;
  std::shared_ptr<Program> program;
  CacheShape shape;
  int side;
  PageDeal pages = deal_pages(one.source.page_tokens, shape.sequences, kTokens, std::uint64_t(side) + 1);

  KernelHarness harness() const { return must(KernelHarness::make(context, program, one.problem, shape)); }
  // Returns the slots of tokens; in a paged cache the page table maps them.
  std::vector<long long> slots_of(std::vector<long long> tokens) const {
    for (std::size_t i = 0; i < tokens.size() && pages.page_tokens > 0; ++i)
      if (long long& t = tokens[i]; t >= 0)
        t = (long long)(pages.page_of((long long)(i) / kTokens, t)) * pages.page_tokens + t % pages.page_tokens;
    return tokens;
  }
  // Returns rows [sequence][head][token][kDim] as [sequence][token][head][kDim + kGap].
  std::vector<float> spaced(const std::vector<float>& rows) const {
    std::vector<float> x(rows.size() / kDim * (kDim + kGap), kUntouched);
    for (std::size_t i = 0; i < rows.size() / kDim && !rows.empty(); ++i)
      std::copy_n(&rows[i * kDim], kDim, &x[place(i)]);
    return x;
  }
  std::size_t place(std::size_t row) const {
    const std::size_t token = row % kTokens, head = row / kTokens % kKvHeads, sequence = row / kTokens / kKvHeads;
    return ((sequence * kTokens + token) * kKvHeads + head) * (kDim + kGap);
  }
  template <class Number>
  void run(const Registry& registry, bool is_writing, const KernelHarness& harness, std::vector<float>& x,
           const std::vector<long long>& tokens) const {
    const std::vector<long long> wide = slots_of(tokens);
    Arrays arrays(context);
    const SlotNumbers slots{arrays.upload(std::vector<Number>(wide.begin(), wide.end())),
                            sizeof(Number) == 4 ? kv::SlotType::i32 : kv::SlotType::i64};
    kv::CodecArgs args{};
    constexpr long long kRow = kDim + kGap;
    float* const data = arrays.upload(x);
    args.x = {data, kTokens * kKvHeads * kRow, kKvHeads * kRow, kRow};
    args.x_type = kv::RowType::f32;
    args.side = harness.cache(side);
    args.sequences = shape.sequences, args.tokens = kTokens, args.heads = kKvHeads;
    args.tensor_scale = 1;
    if (is_writing && slots.type == kv::SlotType::i64) {
      args.slots = static_cast<const kv::i64*>(slots.slots);
      must(program->quantize(side, args, nullptr));
    } else {
      const Role role = program->codec_role(side, is_writing, args);
      const Source kernel = must(make_by_slots(one.problem, role, slots.type, registry));
      must(program->by_slots(side, is_writing, args, slots, kernel, nullptr));
    }
    arrays.download(x, data);
  }
};

template <class Number>
bool scatters(const Registry& registry, const Indexed& c, const std::vector<float>& values,
              const std::vector<std::uint8_t>& stored) {
  const std::vector<long long> tokens = shuffled_tokens(c.shape.sequences, false);
  const KernelHarness harness = c.harness();
  std::vector<float> x = c.spaced(values);
  c.run<Number>(registry, true, harness, x, tokens);
  const std::vector<std::uint8_t> got = must(harness.rows(c.side));
  std::vector<std::uint8_t> want(got.size(), 0xff);  // 0xff: not written
  const std::size_t row = got.size() / (values.size() / kDim);
  for (std::size_t i = 0; i < values.size() / kDim; ++i) {  // i counts [sequence][head][token]
    const std::size_t head = i / kTokens;
    if (const long long to = tokens[head / kKvHeads * kTokens + i % kTokens]; to >= 0)
      std::copy_n(&stored[i * row], row, &want[(head * kTokens + std::size_t(to)) * row]);
  }
  return got == want;
}

template <class Number>
bool gathers(const Registry& registry, const Indexed& c, KernelHarness& harness,
             const std::vector<std::uint8_t>& stored) {
  const std::vector<long long> tokens = shuffled_tokens(c.shape.sequences, true);
  must(harness.set_rows(c.side, stored));
  const std::vector<float> values = must(harness.dequantize(c.side));
  std::vector<float> picked(values.size()), got = c.spaced(picked);
  std::fill(got.begin(), got.end(), kUntouched);
  for (std::size_t i = 0; i < values.size() / kDim; ++i) {
    const std::size_t head = i / kTokens;
    if (const long long from = tokens[head / kKvHeads * kTokens + i % kTokens]; from >= 0)
      std::copy_n(&values[(head * kTokens + std::size_t(from)) * kDim], kDim, &picked[i * kDim]);
  }
  c.run<Number>(registry, false, harness, got, tokens);
  return got == c.spaced(picked);
}

inline const Case kCases[] = {{"tbq4_0", "q8_0", kDim, 1, 1, Layout::planar},
                              {"tbq4_0", "q8_0", kDim, 1, 1, Layout::paged, false, 0, 16, Layout::rows}};

// With 2 sequences a warp takes one row; with 16 the bulk kernels run, if there are any.
struct Answer {
  bool scatters = true, gathers = true;
};
inline Answer answer(const std::shared_ptr<Context>& context, const Registry& registry, const Case& test, int side,
                     int sequences) {
  const Planned one = planned(registry, test, context->backend()->info().arch);
  const Indexed c{context,
                  one,
                  must(Program::create(context, must(make_reference_program(one.problem, registry)))),
                  {sequences, kKvHeads, kTokens},
                  side};
  const auto x = heavy_tailed(3, std::size_t(sequences * kKvHeads * kTokens * kDim), kDim);
  KernelHarness harness = c.harness();
  must(harness.quantize(side, x));
  const std::vector<std::uint8_t> stored = must(harness.rows(side));
  return {scatters<int>(registry, c, x, stored) && scatters<kv::i64>(registry, c, x, stored),
          gathers<int>(registry, c, harness, stored) && gathers<kv::i64>(registry, c, harness, stored)};
}

inline void check_slots(const std::shared_ptr<Context>& context) {
  for (const Case& test : kCases)
    for (const int sequences : {2, 16})
      for (const int side : {0, 1}) {
        if (test.page_tokens > 0 && side + sequences != 2) continue;
        INFO(test.name(), ", side ", side, ", sequences ", sequences);
        const Answer got = answer(context, registry(), test, side, sequences);
        CHECK(got.scatters);
        CHECK(got.gathers);
      }
}

}  // namespace kvjit::test::slots
