// The C interface: operations on caches (slots, copies between programs, rotary positions).
// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstring>

#include "tests/unit/runtime/api/session.hpp"

namespace kvjit::test {
namespace {

// K of two sequences with two heads, in a cache of its own program.
struct Keys {
  Session& s;
  kvjit::api::Program program;
  kvjit::api::Memory storage;
  kvjit_cache_tokens tokens = sized<kvjit_cache_tokens>();

  Keys(Session& session, const std::string& toml) : s(session) {
    s.ok(program.open(s.context, toml.c_str(), "test.toml", nullptr, s.error));
    std::size_t bytes = 0;
    s.ok(kvjit_cache_layout(program.get(), KVJIT_K, kSequences, kHeads, kCapacity, nullptr, nullptr, &bytes, &s.error));
    storage = s.memory(bytes);
    s.ok(kvjit_cache_layout(program.get(), KVJIT_K, kSequences, kHeads, kCapacity, storage.get(), &tokens.cache,
                            nullptr, &s.error));
  }
  kvjit_codec_call codec(std::vector<float>& x) const {
    auto call = sized<kvjit_codec_call>();
    call.x = {x.data(), kTokens * kHeads * kHeadDim, kHeads * kHeadDim, kHeadDim};
    call.x_type = KVJIT_F32;
    call.cache = tokens.cache;
    call.sequences = kSequences, call.tokens = kTokens, call.heads = kHeads;
    return call;
  }
  void write(std::vector<float> x, const kvjit_rope* rope = nullptr) {
    auto call = codec(x);
    call.rope = rope;
    s.ok(kvjit_quantize(program.get(), KVJIT_K, &call, &s.error));
  }
  std::vector<float> read(const std::vector<int>& slots = {}) {
    std::vector<float> x(kSequences * kTokens * kHeads * kHeadDim);
    auto call = codec(x);
    if (!slots.empty()) call.slots = slots.data(), call.slot_type = KVJIT_INT32;
    s.ok(kvjit_dequantize(program.get(), KVJIT_K, &call, &s.error));
    s.ok(kvjit_synchronize(s.context.get(), nullptr, &s.error));
    return x;
  }
};

double error_of(const std::vector<float>& got, const std::vector<float>& want) {
  double wrong = 0, all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += std::pow(got[i] - want[i], 2), all += std::pow(want[i], 2);
  return std::sqrt(wrong / all);
}

std::vector<float> turned(std::vector<float> x, double position) {
  for (std::size_t row = 0; row < x.size(); row += kHeadDim)
    for (std::size_t i = 0; i < kHeadDim / 2; ++i) {
      const double angle = position * std::pow(10000, -2.0 * double(i) / kHeadDim);
      float &a = x[row + i], &b = x[row + i + kHeadDim / 2];
      const double before = a;
      a = float(before * std::cos(angle) - b * std::sin(angle));
      b = float(before * std::sin(angle) + b * std::cos(angle));
    }
  return x;
}

std::vector<float> numbers() { return normal(kSequences * kTokens * kHeads * kHeadDim, 4); }

TEST_CASE("copy by the C interface says how it was made") {
  Session s;
  Keys rows(s, spec("wht_signed", "rows")), planar(s, spec("wht_signed", "planar")), plain(s, spec("none", "planar"));
  rows.write(numbers());
  const auto copy = [&](Keys& from, Keys& to) {
    auto call = sized<kvjit_copy_call>();
    call.from = &from.tokens, call.to = &to.tokens;
    call.sequences = kSequences, call.tokens = kTokens, call.heads = kHeads;
    auto report = sized<kvjit_copy_report>();
    s.ok(kvjit_copy(from.program.get(), KVJIT_K, to.program.get(), KVJIT_K, &call, &report, &s.error));
    CHECK(contains(report.kernel, report.kind == KVJIT_COPY_BYTES ? "copy." : "requantize."));
    return report.kind;
  };
  const std::vector<float> before = rows.read();
  for (int again = 0; again < 2; ++again) CHECK(copy(rows, planar) == KVJIT_COPY_BYTES);
  CHECK(planar.read() == before);
  CHECK(copy(planar, plain) == KVJIT_COPY_DEQUANTIZED);
  CHECK(error_of(plain.read(), before) < 0.15);
  std::vector<int> slots(kSequences * kTokens, 3);
  const auto third = plain.read(slots), all = plain.read();
  for (int h = 0; h < kHeads; ++h)
    CHECK(third[row_at(1, 9, kTokens, h, kHeads)] == all[row_at(1, 3, kTokens, h, kHeads)]);
}

TEST_CASE("copies by the C interface: many rows in bulk, few rows one by one") {
  constexpr int kMany = 2048;
  Session s;
  kvjit::api::Program programs[2];
  kvjit::api::Memory storage[2];
  kvjit_cache_tokens tokens[2] = {sized<kvjit_cache_tokens>(), sized<kvjit_cache_tokens>()};
  for (int i = 0; i < 2; ++i) {
    const std::string format = i == 0 ? "kv4" : "kv3",
                      toml =
                          "[k]\nformat = \"" + format + "\"\n[v]\nformat = \"kv3\"\n[attention]\nq_heads_per_kv = 1\n";
    s.ok(programs[i].open(s.context, toml.c_str(), "test.toml", nullptr, s.error));
    std::size_t bytes = 0;
    s.ok(kvjit_cache_layout(programs[i].get(), KVJIT_K, 1, 1, kMany, nullptr, nullptr, &bytes, &s.error));
    storage[i] = s.memory(bytes);
    s.ok(kvjit_cache_layout(programs[i].get(), KVJIT_K, 1, 1, kMany, storage[i].get(), &tokens[i].cache, nullptr,
                            &s.error));
  }
  for (const int count : {kMany, kMany - 1}) {
    auto call = sized<kvjit_copy_call>();
    call.from = &tokens[0], call.to = &tokens[1];
    call.sequences = 1, call.tokens = count, call.heads = 1;
    auto report = sized<kvjit_copy_report>();
    s.ok(kvjit_copy(programs[0].get(), KVJIT_K, programs[1].get(), KVJIT_K, &call, &report, &s.error));
    CHECK(contains(report.kernel, count == kMany ? "requantize_bulk." : "requantize."));
    s.ok(kvjit_synchronize(s.context.get(), nullptr, &s.error));
  }
}

TEST_CASE("a copy inside one cache: to tokens that it does not read, by strides or by slots") {
  Session s;
  for (const char* layout : {"rows", "planar"}) {
    Keys keys(s, spec("none", layout));
    keys.write(numbers());
    const std::vector<float> before = keys.read();
    kvjit_cache_tokens to = keys.tokens;
    auto call = sized<kvjit_copy_call>();
    call.from = &keys.tokens, call.to = &to;
    call.sequences = kSequences, call.tokens = 10, call.heads = kHeads;
    to.first_token = 9;
    CHECK(kvjit_copy(keys.program.get(), KVJIT_K, keys.program.get(), KVJIT_K, &call, nullptr, &s.error) ==
          KVJIT_BAD_INPUT);
    CHECK(std::string(s.error.message) == "to.codes overlaps from.codes; what a call writes must be apart from it");
    to.first_token = 10;
    s.ok(kvjit_copy(keys.program.get(), KVJIT_K, keys.program.get(), KVJIT_K, &call, nullptr, &s.error));
    const std::vector<float> after = keys.read();
    const auto at = [](const std::vector<float>& x, int token) { return x[row_at(1, token, kTokens, 1, kHeads)]; };
    for (const int token : {0, 9}) CHECK(at(after, token + 10) == at(before, token));
    CHECK(at(after, 20) == at(before, 20));
    std::vector<int> slots(kSequences * 10);
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = 30 + int(i);
    to.slots = slots.data(), to.slot_type = KVJIT_INT32, to.first_token = 0;  // the slots, not token 0, are written
    s.ok(kvjit_copy(keys.program.get(), KVJIT_K, keys.program.get(), KVJIT_K, &call, nullptr, &s.error));
    s.ok(kvjit_synchronize(s.context.get(), nullptr, &s.error));
  }
}

TEST_CASE("rotary positions by the C interface: quantized with positions, and shifted in place") {
  Session s;
  Keys keys(s, spec("wht_signed", "planar"));
  auto rope = sized<kvjit_rope>();
  rope.pairs = KVJIT_ROPE_HALVES, rope.dims = kHeadDim, rope.position = 20;
  keys.write(turned(numbers(), 20));
  const std::vector<float> want = keys.read();
  keys.write(numbers(), &rope);
  CHECK(error_of(keys.read(), want) < 1e-2);  // some values lie at bounds
  auto call = sized<kvjit_shift_call>();
  call.cache = &keys.tokens, call.rope = &rope;
  call.sequences = kSequences, call.tokens = kTokens, call.heads = kHeads;
  rope.position = -13;
  s.ok(kvjit_shift(keys.program.get(), KVJIT_K, &call, &s.error));
  CHECK(error_of(keys.read(), turned(numbers(), 7)) < 0.2);
  CHECK(error_of(keys.read(), turned(numbers(), 20)) > 0.5);
}

// A call by slots has no page table. The number of slots comes from that of the pool's pages, or is stated itself.
TEST_CASE("checked operations by slots over pages: quantize, with positions, dequantize, copy, shift; both types") {
  constexpr int kPages = 4, kPageTokens = 8, kCount = 6;
  Session s;
  for (const char* layout : {"planar", "rows"}) {
    CAPTURE(layout);
    const std::string toml =
        "k = { format = 'q8_0' }\nv = { format = 'q4_0' }\nattention = { head_dim = 64, q_type = 'f32' }\ncache = { "
        "layout = 'paged', page_tokens = 8, page_layout = '" +
        std::string(layout) + "' }\ntarget = { checks = true }\n";
    s.ok(s.program.open(s.context, toml.c_str(), "test.toml", nullptr, s.error));
    std::size_t bytes = 0;
    kvjit_side cache;
    s.ok(kvjit_cache_layout(s.program.get(), KVJIT_K, 1, 1, kPages * kPageTokens, nullptr, nullptr, &bytes, &s.error));
    const kvjit::api::Memory storage = s.memory(bytes);
    s.ok(kvjit_cache_layout(s.program.get(), KVJIT_K, 1, 1, kPages * kPageTokens, storage.get(), &cache, nullptr,
                            &s.error));
    alignas(16) char record[KVJIT_CHECK_BYTES] = {};
    // Waits, and returns the index and the largest value of the entry that the record holds, or -1 for none.
    const auto found = [&] {
      auto check = sized<kvjit_check>();
      s.ok(kvjit_read_check(s.program.get(), record, nullptr, &check, &s.error));
      std::memset(record, 0, sizeof record);
      return check.array ? std::pair(int(check.index), int(check.most)) : std::pair(-1, -1);
    };
    const std::pair none(-1, -1), last(kCount - 1, kPages * kPageTokens - 1);
    auto rope = sized<kvjit_rope>();
    rope.pairs = KVJIT_ROPE_HALVES, rope.dims = 64, rope.position = 3;
    for (const bool is_wide : {false, true})
      for (const bool counts_pages : {false, true}) {
        CAPTURE(is_wide);
        CAPTURE(counts_pages);
        std::vector<int> narrow = {0, 9, -1, 17, 8, kPages * kPageTokens - 1}, other = {1, 10, 2, 18, 11, 30};
        std::vector<long long> wide(narrow.begin(), narrow.end());
        const auto set_last = [&](int slot) { narrow.back() = slot, wide.back() = slot; };
        const void* const slots = is_wide ? static_cast<const void*>(wide.data()) : narrow.data();
        const auto count = [&](auto& call) {
          call.slots = slots, call.slot_type = is_wide ? KVJIT_INT64 : KVJIT_INT32;
          (counts_pages ? call.pages.pool_pages : call.slot_count) = counts_pages ? kPages : kPages * kPageTokens;
        };
        std::vector<float> x = normal(kCount * 64, 5), back(x.size(), 7.f);
        auto codec = sized<kvjit_codec_call>();
        codec.x = {x.data(), kCount * 64, 64, 64};
        codec.x_type = KVJIT_F32, codec.cache = cache, codec.check = record;
        codec.sequences = codec.heads = 1, codec.tokens = kCount;
        count(codec);
        for (const kvjit_rope* positions :
             {static_cast<const kvjit_rope*>(&rope), static_cast<const kvjit_rope*>(nullptr)}) {
          codec.rope = positions;
          s.ok(kvjit_quantize(s.program.get(), KVJIT_K, &codec, &s.error));
          CHECK(found() == none);
          set_last(kPages * kPageTokens);
          s.ok(kvjit_quantize(s.program.get(), KVJIT_K, &codec, &s.error));
          CHECK(found() == last);
          set_last(kPages * kPageTokens - 1);
        }
        codec.x.data = back.data();
        s.ok(kvjit_dequantize(s.program.get(), KVJIT_K, &codec, &s.error));
        CHECK(found() == none);
        for (int i = 0; i < kCount * 64; ++i)
          CHECK(back[std::size_t(i)] == doctest::Approx(i / 64 == 2 ? 0.f : x[std::size_t(i)]).epsilon(0.02).scale(2));

        auto from = sized<kvjit_cache_tokens>(), to = from;
        from.cache = to.cache = cache;
        count(from), count(to);
        to.slots = other.data(), to.slot_type = KVJIT_INT32;
        auto copy = sized<kvjit_copy_call>();
        copy.from = &from, copy.to = &to, copy.check = record;
        copy.sequences = copy.heads = 1, copy.tokens = kCount;
        s.ok(kvjit_copy(s.program.get(), KVJIT_K, s.program.get(), KVJIT_K, &copy, nullptr, &s.error));
        CHECK(found() == none);
        other.back() = kPages * kPageTokens;
        s.ok(kvjit_copy(s.program.get(), KVJIT_K, s.program.get(), KVJIT_K, &copy, nullptr, &s.error));
        CHECK(found() == last);
        auto shift = sized<kvjit_shift_call>();
        shift.cache = &from, shift.rope = &rope, shift.check = record;
        shift.sequences = shift.heads = 1, shift.tokens = kCount;
        s.ok(kvjit_shift(s.program.get(), KVJIT_K, &shift, &s.error));
        CHECK(found() == none);
      }
    auto codec = sized<kvjit_codec_call>();
    std::vector<float> x(64);
    const int slot = 0;
    codec.x = {x.data(), 64, 64, 64};
    codec.x_type = KVJIT_F32, codec.cache = cache, codec.check = record;
    codec.sequences = codec.heads = codec.tokens = 1;
    codec.slots = &slot, codec.slot_type = KVJIT_INT32;
    CHECK(kvjit_quantize(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_BAD_INPUT);
    CHECK(std::string(s.error.message) ==
          "0 slots; a checked program needs the number of those that there are: slot_count, or for pages "
          "pages.pool_pages");
  }
}

TEST_CASE("operations by the C interface: what makes no sense is refused") {
  Session s;
  Keys keys(s, spec("none", "planar"));
  std::vector<float> x = numbers();
  auto rope = sized<kvjit_rope>();
  auto codec = keys.codec(x);
  codec.rope = &rope;
  const auto refusal = [&](kvjit_status status, kvjit_status want) {
    CHECK(status == want);
    return std::string(s.error.message);
  };
  kvjit_program* const program = keys.program.get();
  CHECK(refusal(kvjit_dequantize(program, 0, &codec, &s.error), KVJIT_USAGE) ==
        "rope is set for dequantize, which does not rotate rows");
  const auto refused_rope = [&] { return refusal(kvjit_quantize(program, 0, &codec, &s.error), KVJIT_BAD_INPUT); };
  CHECK(refused_rope() == "rope.dims 0; even numbers from 2 to 512 are possible");
  rope.dims = 64, rope.first = 2;
  CHECK(refused_rope() == "rope rotates values 2 to 65 of heads of 64");
  rope.first = 0, rope.pairs = 2;
  CHECK(refused_rope() == "rope.pairs 2; neighbours (0) and halves (1) are possible");
  rope.pairs = 0, rope.base = 0.5;
  CHECK(refused_rope() == "rope.base 0.5; a number above 1 is needed");
  rope.base = 0, rope.extrapolation = 1;
  CHECK(refused_rope() == "rope.extrapolation without trained_tokens, beta_fast and beta_slow, which must be positive");
  auto shift = sized<kvjit_shift_call>();
  shift.cache = &keys.tokens;
  CHECK(refusal(kvjit_shift(program, 0, &shift, &s.error), KVJIT_USAGE) == "rope is NULL");
  auto copy = sized<kvjit_copy_call>();
  CHECK(refusal(kvjit_copy(program, 0, program, 2, &copy, nullptr, &s.error), KVJIT_USAGE) ==
        "side 2; KVJIT_K (0) and KVJIT_V (1) are possible");
  CHECK(refusal(kvjit_copy(program, 0, program, 0, &copy, nullptr, &s.error), KVJIT_USAGE) == "call->from is NULL");
}

}  // namespace
}  // namespace kvjit::test
