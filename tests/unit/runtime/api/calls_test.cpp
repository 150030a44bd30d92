// The C interface: arguments of calls besides Q, K and V (features of scores, pages, parts of a context).
// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/api/support.hpp"
#include "tests/unit/runtime/api/session.hpp"

namespace kvjit::test {
namespace {

// Gives the call zeroed caches of one KV head and kCapacity tokens. Returns their memory, K's and V's.
std::array<api::Memory, 2> add_caches(Session& s, kvjit_attention_call& call) {
  std::array<api::Memory, 2> storage;
  for (int side = 0; side < 2; ++side) {
    kvjit_side& cache = side == 0 ? call.k : call.v;
    std::size_t bytes = 0;
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, nullptr, nullptr, &bytes, &s.error));
    storage[side] = s.upload(std::vector<float>(bytes / sizeof(float)));
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, storage[side].get(), &cache, nullptr, &s.error));
  }
  return storage;
}

TEST_CASE("pages by the C interface: the answer of layout planar; a wrong entry is reported") {
  constexpr int kPages = 3, kPageTokens = 8, kLength = 20;
  Session s;
  const auto text = [](const char* cache, const char* target) {
    return std::string(
               "k = { format = 'q8_0' }\nv = { format = 'q4_0' }\nattention = { head_dim = 64, q_type = 'f32' }\n") +
           cache + target;
  };
  std::vector<float> x(kLength * 64), q(64), out[2];
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 0.37f);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::cos(static_cast<float>(i));
  int table[] = {2, 0, 1, 77};
  alignas(16) char record[KVJIT_CHECK_BYTES] = {};
  for (const bool is_paged : {false, true}) {
    const std::string toml =
        is_paged ? text("cache = { layout = 'paged', page_tokens = 8 }\n", "target = { checks = true }\n")
                 : text("", "");
    s.ok(s.program.open(s.context, toml.c_str(), "test.toml", nullptr, s.error));
    auto info = sized<kvjit_program_info>();
    s.ok(kvjit_program_describe(s.program.get(), &info, &s.error));
    CHECK(info.page_tokens == (is_paged ? kPageTokens : 0));
    CHECK(info.checks == is_paged);
    const kvjit_pages pages = {is_paged ? table : nullptr, 4, kPages};
    kvjit_side cache[2];
    kvjit::api::Memory storage[2];
    for (int side = 0; side < 2; ++side) {
      std::size_t bytes = 0;
      s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kLength, nullptr, nullptr, &bytes, &s.error));
      storage[side] = s.memory(bytes);
      s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kLength, storage[side].get(), &cache[side], nullptr,
                              &s.error));
      auto call = sized<kvjit_codec_call>();
      call.x = {x.data(), 0, 64, 64};
      call.x_type = KVJIT_F32;
      call.cache = cache[side];
      call.sequences = call.heads = 1, call.tokens = kLength;
      call.pages = pages, call.check = is_paged ? record : nullptr;
      s.ok(kvjit_quantize(s.program.get(), side, &call, &s.error));
    }
    out[is_paged].assign(64, -1.f);
    auto call = sized<kvjit_attention_call>();
    call.q = {q.data(), 64, 64, 64}, call.out = {out[is_paged].data(), 64, 64, 64};
    call.k = cache[0], call.v = cache[1];
    call.k_pages = call.v_pages = pages;
    call.check = is_paged ? record : nullptr;
    call.tokens = kLength, call.sequences = call.kv_heads = 1;
    s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
    kvjit::api::Memory workspace = s.memory(call.workspace_bytes);
    std::memset(workspace.get(), 0, call.workspace_bytes);
    call.workspace = workspace.get();
    s.ok(kvjit_attention(s.program.get(), &call, nullptr, &s.error));
    if (!is_paged) continue;
    CHECK(out[0] == out[1]);
    auto check = sized<kvjit_check>();
    s.ok(kvjit_read_check(s.program.get(), record, nullptr, &check, &s.error));
    CHECK(check.array == nullptr);
    table[1] = kPages;
    s.ok(kvjit_attention(s.program.get(), &call, nullptr, &s.error));
    s.ok(kvjit_read_check(s.program.get(), record, nullptr, &check, &s.error));
    REQUIRE(check.array != nullptr);
    CHECK(check.index == 1);
    CHECK(check.value == kPages);
    CHECK(check.most == kPages - 1);
    CHECK(check.count == 2);  // K's page table and V's
  }
}

TEST_CASE("messages show control characters of a spec as escapes") {
  Session s;
  const char* const toml = "k = { format = \"\\u001b[31m\" }\nv = { format = 'q4_0' }\n";
  CHECK(s.program.open(s.context, toml, "test.toml", nullptr, s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "\\x1b[31m"));
  CHECK(std::string(s.error.message).find('\x1b') == std::string::npos);
  CHECK(s.program.open(s.context, toml, "te\x1b[31mst.toml", nullptr, s.error) == KVJIT_BAD_INPUT);
  CHECK(std::string(s.error.file) == "te\\x1b[31mst.toml");
  CHECK(c_api::tell(Code::internal, "an\x1b[31m exception\n", &s.error) == KVJIT_INTERNAL);
  CHECK(std::string(s.error.message) == "an?[31m exception?");
}

TEST_CASE("log gets control characters of a path as escapes") {
  std::string log;
  auto options = sized<kvjit_context_options>();
  options.device = KVJIT_DEVICE_CPU;
  options.cache_dir = "relative\x1b[31m";
  options.log = [](void* user, const char* line) { static_cast<std::string*>(user)->append(line).append(1, '\n'); };
  options.log_user = &log;
  auto error = sized<kvjit_error>();
  kvjit::api::Context context;
  REQUIRE(context.open(options, error) == KVJIT_OK);
  kvjit::api::Program program;
  REQUIRE(program.open(context, spec("none", "planar").c_str(), nullptr, nullptr, error) == KVJIT_OK);
  INFO(log);
  CHECK(contains(log, "relative\\x1b[31m"));
  CHECK_FALSE(contains(log, "\x1b"));
}

TEST_CASE("a program of token-major heads says how many there are") {
  Session s;
  const char* const toml =
      "k = { format = 'q8_0' }\nv = { format = 'q4_0' }\nattention = { head_dim = 64 }\n"
      "cache = { layout = 'rows', token_heads = 4 }\n";
  s.ok(s.program.open(s.context, toml, "test.toml", nullptr, s.error));
  auto info = sized<kvjit_program_info>();
  s.ok(kvjit_program_describe(s.program.get(), &info, &s.error));
  CHECK(info.token_heads == 4);
  CHECK(info.checks == 0);
}

TEST_CASE("features: sinks, a mask and the logarithm of sums, and parts merged by it") {
  Session s;
  std::string toml = spec("wht_signed", "planar");
  toml.replace(toml.find("[attention]\n"), 12, "[attention]\nfeatures = [\"mask\", \"sinks\", \"lse\"]\n");
  s.ok(s.program.open(s.context, toml.c_str(), nullptr, nullptr, s.error));
  auto info = sized<kvjit_program_info>();
  s.ok(kvjit_program_describe(s.program.get(), &info, &s.error));
  CHECK(std::string(info.features) == "mask, sinks, lse");

  // In a cache of zeros every score is 0, so the sum counts the tokens. The mask hides 30 of 70 from the second head.
  auto call = sized<kvjit_attention_call>();
  call.sequences = call.kv_heads = 1;
  call.tokens = kTokens;
  const auto storage = add_caches(s, call);
  const auto q = s.upload(normal(kGroup * kHeadDim, 5)), out = s.memory(q.bytes()), lse = s.memory(kGroup * 4);
  call.q = {q.get(), 0, 0, kHeadDim};
  call.out = {out.get(), 0, 0, kHeadDim};
  s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
  const auto workspace = s.upload(std::vector<float>(call.workspace_bytes / sizeof(float)));
  call.workspace = workspace.get();
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "mask is a null pointer"));

  std::vector<unsigned short> mask(2 * kTokens);
  for (int t = 0; t < 30; ++t) mask[static_cast<std::size_t>(kTokens + t)] = 0xfc00;
  auto masks = s.memory(mask.size() * 2);
  s.ok(kvjit_copy_to_device(s.context.get(), masks.get(), mask.data(), masks.bytes(), &s.error));
  const auto sinks = s.upload({std::log(10.f), std::log(5.f)});
  call.mask = masks.get();
  call.mask_head_stride = kTokens;
  call.sinks = static_cast<const float*>(sinks.get());
  call.lse = static_cast<float*>(lse.get());
  auto report = sized<kvjit_report>();
  for (const auto run : {kvjit_attention, kvjit_reference}) {
    s.ok(run(s.program.get(), &call, &report, &s.error));
    const auto sums = s.download(lse);
    CHECK(std::exp(sums[0]) == doctest::Approx(kTokens + 10).epsilon(1e-5));
    CHECK(std::exp(sums[1]) == doctest::Approx(kTokens - 30 + 5).epsilon(1e-5));
    CHECK(std::string(report.features) == "mask, sinks, lse");
  }
  call.leaves_sinks = 1;
  call.sinks = nullptr;
  s.ok(kvjit_attention(s.program.get(), &call, &report, &s.error));
  CHECK(std::string(report.features) == "mask, lse");
  const auto sums = s.download(lse);
  CHECK(std::exp(sums[0]) == doctest::Approx(kTokens).epsilon(1e-5));

  // Two parts of a context, of 70 and 210 tokens, whose outputs are all 1 and all 3.
  const auto ones = s.upload(std::vector<float>(kGroup * kHeadDim, 1.f)),
             threes = s.upload(std::vector<float>(kGroup * kHeadDim, 3.f)),
             more = s.upload({std::log(210.f), -INFINITY}), all = s.memory(kGroup * 4);
  const kvjit_merge_context contexts[2] = {{{ones.get(), 0, 0, kHeadDim}, static_cast<const float*>(lse.get())},
                                           {{threes.get(), 0, 0, kHeadDim}, static_cast<const float*>(more.get())}};
  auto merge = sized<kvjit_merge_call>();
  merge.contexts = contexts;
  merge.context_count = 2;
  merge.sequences = merge.kv_heads = 1;
  merge.out = call.out;
  merge.lse = static_cast<float*>(all.get());
  s.ok(kvjit_merge(s.program.get(), &merge, &s.error));
  const auto merged = s.download(out);
  CHECK(merged[0] == doctest::Approx(2.5));
  CHECK(merged[kHeadDim] == doctest::Approx(1));  // the second head saw no token of the second part
  CHECK(std::exp(s.download(all)[0]) == doctest::Approx(280).epsilon(1e-5));
  merge.context_count = KVJIT_MOST_MERGE_CONTEXTS + 1;
  merge.contexts =
      reinterpret_cast<const kvjit_merge_context*>(alignof(kvjit_merge_context));  // so many are refused unread
  CHECK(kvjit_merge(s.program.get(), &merge, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "17 contexts; 1 to 16 are possible"));

  Session other;
  other.ok(other.program.open(other.context, spec("none", "planar").c_str(), nullptr, nullptr, other.error));
  merge.context_count = 2;
  merge.contexts = contexts;
  CHECK(kvjit_merge(other.program.get(), &merge, &other.error) == KVJIT_UNSUPPORTED);
  call.lse = nullptr;
  CHECK(kvjit_attention(other.program.get(), &call, nullptr, &other.error) == KVJIT_BAD_INPUT);
  CHECK(contains(other.error.message, "mask is given to program"));
}

TEST_CASE("ranges of tokens: found in a mask, and what is outside of them is not read") {
  Session s;
  std::string toml = spec("wht_signed", "planar");
  toml.replace(toml.find("[attention]\n"), 12, "[attention]\nfeatures = [\"mask\", \"token_ranges\", \"lse\"]\n");
  s.ok(s.program.open(s.context, toml.c_str(), nullptr, nullptr, s.error));
  auto call = sized<kvjit_attention_call>();
  call.sequences = 2, call.kv_heads = 1;
  call.tokens = kTokens;
  const auto storage = add_caches(s, call);
  call.k.codes_sequence_stride = call.k.scales_sequence_stride = 0;  // both sequences read one cache
  call.v.codes_sequence_stride = call.v.scales_sequence_stride = 0;
  const auto q = s.upload(normal(2 * kGroup * kHeadDim, 5)), out = s.memory(q.bytes()), lse = s.memory(2 * kGroup * 4);
  call.q = {q.get(), kGroup * kHeadDim, 0, kHeadDim};
  call.out = {out.get(), kGroup * kHeadDim, 0, kHeadDim};
  call.lse = static_cast<float*>(lse.get());
  s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
  const auto workspace = s.upload(std::vector<float>(call.workspace_bytes / sizeof(float)));
  call.workspace = workspace.get();

  // [sequence][head][token]: the first sequence sees tokens 30 to 59 by one head and 41 to 64 by the other; the second
  // sees nothing.
  std::vector<unsigned short> mask(2 * kGroup * kTokens, 0xfc00);
  for (int t = 30; t < 60; ++t) mask[std::size_t(t)] = 0;
  for (int t = 41; t < 65; ++t) mask[std::size_t(kTokens + t)] = 0;
  auto masks = s.memory(mask.size() * 2), ranges = s.memory(4 * sizeof(int));
  s.ok(kvjit_copy_to_device(s.context.get(), masks.get(), mask.data(), masks.bytes(), &s.error));
  call.mask = masks.get();
  call.mask_head_stride = kTokens, call.mask_sequence_stride = kGroup * kTokens;
  auto* const numbers = static_cast<int*>(ranges.get());
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "token_ranges is a null pointer"));
  CHECK(kvjit_mask_ranges(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "token_ranges is a null pointer"));
  s.ok(kvjit_mask_ranges(s.program.get(), &call, numbers, &s.error));
  int found[4];
  s.ok(kvjit_copy_to_host(s.context.get(), found, ranges.get(), sizeof found, &s.error));
  CHECK(found[0] == 30);
  CHECK(found[1] == 65);
  CHECK(found[2] >= found[3]);
  call.token_ranges = numbers;
  for (const auto run : {kvjit_attention, kvjit_reference}) {
    s.ok(run(s.program.get(), &call, nullptr, &s.error));
    const auto sums = s.download(lse);
    CHECK(std::exp(sums[0]) == doctest::Approx(30).epsilon(1e-5));  // in a cache of zeros the sum counts the tokens
    CHECK(std::exp(sums[1]) == doctest::Approx(24).epsilon(1e-5));
    CHECK(sums[2] == -INFINITY);
  }
  // A range hides what the mask shows.
  const int narrow[4] = {40, 50, 0, kTokens};
  s.ok(kvjit_copy_to_device(s.context.get(), ranges.get(), narrow, sizeof narrow, &s.error));
  s.ok(kvjit_attention(s.program.get(), &call, nullptr, &s.error));
  CHECK(std::exp(s.download(lse)[0]) == doctest::Approx(10).epsilon(1e-5));
  CHECK(std::exp(s.download(lse)[1]) == doctest::Approx(9).epsilon(1e-5));

  Session other;
  other.ok(other.program.open(other.context, spec("none", "planar").c_str(), nullptr, nullptr, other.error));
  CHECK(kvjit_mask_ranges(other.program.get(), &call, numbers, &other.error) == KVJIT_UNSUPPORTED);
  CHECK(contains(other.error.message, "has no mask whose ranges could be found"));
}

TEST_CASE("numbers are checked as the types that kernels use, and outputs overlap nothing") {
  Session s;
  s.ok(s.program.open(s.context, spec("none", "planar").c_str(), nullptr, nullptr, s.error));
  auto good = sized<kvjit_attention_call>();
  good.sequences = good.kv_heads = 1, good.tokens = kTokens;
  const auto storage = add_caches(s, good);
  const auto q = s.upload(normal(kGroup * kHeadDim, 5)), out = s.memory(q.bytes());
  good.q = {q.get(), 0, 0, kHeadDim}, good.out = {out.get(), 0, 0, kHeadDim};
  s.ok(kvjit_workspace_bytes(s.program.get(), &good, &good.workspace_bytes, &s.error));
  const auto workspace = s.upload(std::vector<float>(good.workspace_bytes / sizeof(float)));
  good.workspace = workspace.get();
  const auto refused = [&](const auto& corrupt, const char* message) {
    kvjit_attention_call call = good;
    corrupt(call);
    CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
    INFO(s.error.message);
    CHECK(contains(s.error.message, message));
  };
  for (const double scale : {1e-300, 1e300, 1e-42, 3e38, -1.0, std::nan("")})
    refused([&](auto& c) { c.scale = scale; }, "scale");
  refused([](auto& c) { c.k_tensor_scale = 1e-42f; }, "tensor scale");
  refused([](auto& c) { c.packed_tokens = 3; }, "packed_tokens 3 is given to program");
  for (const kvjit_index stride : {0, 1, -1, kHeadDim - 1})
    refused([&](auto& c) { c.out.head_stride = stride; }, "out: rows of 64 elements overlap");
  refused([](auto& c) { c.out.head_stride = PTRDIFF_MAX / 4; }, "do not fit 64 bits");
  refused([&](auto& c) { c.out = c.q; }, "out overlaps q");
  refused([&](auto& c) { c.out.data = static_cast<float*>(q.get()) + kHeadDim; }, "out overlaps q");
  s.ok(kvjit_attention(s.program.get(), &good, nullptr, &s.error));

  const auto x = s.upload(normal(kTokens * kHeadDim, 6));
  auto codec = sized<kvjit_codec_call>();
  codec.x = {x.get(), 0, kHeadDim, kHeadDim}, codec.x_type = KVJIT_F32, codec.cache = good.k;
  codec.sequences = codec.heads = 1, codec.tokens = kTokens;
  codec.first_token = kvjit_index{1} << 60;
  CHECK(kvjit_quantize(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "first token 1152921504606846976 of 70 tokens"));
  codec.first_token = 0, codec.keep_rotated = 1;
  CHECK(kvjit_quantize(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_USAGE);
  codec.x.query_stride = 1;
  CHECK(kvjit_dequantize(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "x: rows of 64 elements overlap"));

  kvjit_side cache;
  CHECK(kvjit_cache_layout(s.program.get(), KVJIT_K, 1, 1, kCapacity, static_cast<char*>(storage[0].get()) + 1, &cache,
                           nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "must be aligned"));
  CHECK(kvjit_copy_to_host(s.context.get(), nullptr, q.get(), 4, &s.error) == KVJIT_USAGE);
  CHECK(kvjit_copy_to_device(s.context.get(), nullptr, &cache, 4, &s.error) == KVJIT_BAD_INPUT);
  const void* const none[] = {nullptr};
  const size_t sizes[] = {100};
  auto options = sized<kvjit_context_options>();
  options.device = KVJIT_DEVICE_CPU, options.bundle_bytes = none, options.bundle_sizes = sizes;
  options.bundle_bytes_count = 1;
  kvjit_context* context = nullptr;
  CHECK(kvjit_context_create(&options, &context, &s.error) == KVJIT_USAGE);
  CHECK(contains(s.error.message, "bundle_bytes[0] is NULL"));
}

TEST_CASE("a scale for each KV head: copies that keep the bytes or convert them, and what is refused") {
  constexpr const char* kSpec =
      "[k]\nformat = \"vllm_fp8_per_head\"\n[v]\nformat = \"vllm_fp8_per_head\"\n[attention]\nhead_dim = 64\n"
      "q_heads_per_kv = 1\nq_type = \"f32\"\n[cache]\nlayout = \"rows\"\n";
  constexpr int kHeads = 2;
  Session s;
  s.ok(s.program.open(s.context, kSpec, nullptr, nullptr, s.error));
  auto info = sized<kvjit_side_info>();
  s.ok(kvjit_program_side(s.program.get(), KVJIT_K, &info, &s.error));
  CHECK(info.has_head_scales == 1);
  kvjit_side cache, other;
  size_t bytes = 0;
  s.ok(kvjit_cache_layout(s.program.get(), KVJIT_K, 1, kHeads, kTokens, nullptr, &cache, &bytes, &s.error));
  const auto memory = s.upload(std::vector<float>(bytes / sizeof(float))),
             to_memory = s.upload(std::vector<float>(bytes / sizeof(float)));
  s.ok(kvjit_cache_layout(s.program.get(), KVJIT_K, 1, kHeads, kTokens, memory.get(), &cache, &bytes, &s.error));
  CHECK(cache.codes == memory.get());
  CHECK(cache.scales == nullptr);
  CHECK(cache.scales_head_stride == sizeof(float));
  const auto scales = s.upload({0.5f, 0.03125f}), others = s.upload({0.25f, 0.125f}),
             zeros = s.upload(std::vector<float>(kHeads * kTokens * kHeadDim)),
             x = s.upload(normal(kTokens * kHeads * kHeadDim, 9));
  const auto codec_call = [&](const kvjit_side& side, const kvjit::api::Memory& rows) {
    auto codec = sized<kvjit_codec_call>();
    codec.x = {rows.get(), 0, kHeads * kHeadDim, kHeadDim}, codec.x_type = KVJIT_F32, codec.cache = side;
    codec.sequences = 1, codec.heads = kHeads, codec.tokens = kTokens;
    return codec;
  };
  const auto refused = [&](const kvjit_side& side, const char* message) {
    const auto call = codec_call(side, x);
    CHECK(kvjit_quantize(s.program.get(), KVJIT_K, &call, &s.error) == KVJIT_BAD_INPUT);
    INFO(s.error.message);
    CHECK(contains(s.error.message, message));
  };
  refused(cache, "k.scales is a null pointer; vllm_fp8_per_head has a scale for each KV head");
  cache.scales = scales.get();
  other = cache, other.scales = static_cast<char*>(scales.get()) + 2;
  refused(other, "k.scales is 2 bytes past a multiple of 4");
  other = cache, other.scales_head_stride = 6;
  refused(other, "k.scales: head stride 6; the scales of heads need a multiple of 4");
  other = cache, other.scales_token_stride = 4;
  refused(other, "k.scales: token stride 4; the scales of heads need 0");
  const auto stored = codec_call(cache, x);
  s.ok(kvjit_quantize(s.program.get(), KVJIT_K, &stored, &s.error));

  // Both copies have the values of the first cache.
  const auto values = [&](const kvjit_side& side) {
    const auto rows = s.memory(zeros.bytes());
    const auto call = codec_call(side, rows);
    s.ok(kvjit_dequantize(s.program.get(), KVJIT_K, &call, &s.error));
    return s.download(rows);
  };
  const std::vector<float> want = values(cache);
  for (const auto* to_scales : {&scales, &others}) {
    auto from = sized<kvjit_cache_tokens>(), to = sized<kvjit_cache_tokens>();
    from.cache = to.cache = cache;
    to.cache.codes = to_memory.get(), to.cache.scales = to_scales->get();
    auto copy = sized<kvjit_copy_call>();
    copy.from = &from, copy.to = &to, copy.sequences = 1, copy.heads = kHeads, copy.tokens = kTokens;
    auto report = sized<kvjit_copy_report>();
    s.ok(kvjit_copy(s.program.get(), KVJIT_K, s.program.get(), KVJIT_K, &copy, &report, &s.error));
    CHECK(report.kind == (to_scales == &scales ? KVJIT_COPY_BYTES : KVJIT_COPY_ROTATED));
    const std::vector<float> got = values(to.cache);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      error += std::pow(got[i] - want[i], 2), norm += double(want[i]) * want[i];
    CHECK(error <= (to_scales == &scales ? 0 : 1e-3) * norm);
  }

  // One scale in device memory for all heads: stride 0.
  kvjit_side same = cache;
  same.scales_head_stride = 0;
  const std::vector<float> broadcast = values(same);
  CHECK(std::equal(broadcast.begin(), broadcast.begin() + kHeadDim, want.begin()));
  CHECK(broadcast[kHeadDim] == 16 * want[kHeadDim]);
}

TEST_CASE("the largest window and the largest position offsets: every token is seen, or one, or none") {
  const auto with_window = [](const std::string& window) {
    std::string toml = spec("none", "planar");
    return toml.replace(toml.find("[attention]\n"), 12,
                        "[attention]\nfeatures = [\"position_offset\", \"lse\"]\nwindow = " + window + "\n");
  };
  constexpr int kMost = 1 << 29;
  CHECK(kvjit_supported(with_window("[536870913, 0]").c_str(), "sm_90a", nullptr, 0) == KVJIT_BAD_INPUT);
  CHECK(kvjit_supported(with_window("[0, 536870913]").c_str(), "sm_90a", nullptr, 0) == KVJIT_BAD_INPUT);
  Session s;
  s.ok(s.program.open(s.context, with_window("[536870912, 536870912]").c_str(), nullptr, nullptr, s.error));
  auto call = sized<kvjit_attention_call>();
  call.sequences = call.kv_heads = 1, call.tokens = kTokens;
  const auto storage = add_caches(s, call);
  const auto q = s.upload(normal(kGroup * kHeadDim, 5)), out = s.memory(q.bytes()), lse = s.memory(kGroup * 4);
  call.q = {q.get(), 0, 0, kHeadDim}, call.out = {out.get(), 0, 0, kHeadDim};
  call.lse = static_cast<float*>(lse.get());
  s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
  const auto workspace = s.upload(std::vector<float>(call.workspace_bytes / sizeof(float)));
  call.workspace = workspace.get();
  int of_sequence = 0;
  call.position_offsets = &of_sequence;
  // In a cache of zeros every score is 0, so the sum counts the tokens that are seen.
  const auto seen = [&](int offset, int of_the_sequence) {
    call.position_offset = offset, of_sequence = of_the_sequence;
    double counts[2] = {};
    for (const auto run : {kvjit_attention, kvjit_reference}) {
      s.ok(run(s.program.get(), &call, nullptr, &s.error));
      counts[run == kvjit_reference] = std::exp(s.download(lse)[0]);
    }
    CHECK(counts[0] == doctest::Approx(counts[1]));
    return counts[0];
  };
  CHECK(seen(0, 0) == doctest::Approx(kTokens));
  CHECK(seen(kMost, 0) == doctest::Approx(1));  // the query stands 2^29 behind the last token
  CHECK(seen(kMost - 1, 0) == doctest::Approx(2));
  CHECK(seen(kMost, kMost) == 0);
  CHECK(seen(-kMost, 0) == doctest::Approx(kTokens));  // 2^29 before the last token
  CHECK(seen(-kMost, -1) == doctest::Approx(kTokens - 1));
  CHECK(seen(-kMost, -kMost) == 0);
  for (const int offset : {kMost + 1, -kMost - 1}) {
    call.position_offset = offset;
    CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
    CHECK(contains(s.error.message, "-2^29 to 2^29 are possible"));
  }
}

TEST_CASE("slopes of ALiBi") {
  float slopes[4] = {};
  CHECK(kvjit_alibi_slopes(8, 4, slopes, nullptr) == KVJIT_OK);
  CHECK(slopes[0] == doctest::Approx(0.25));
  CHECK(slopes[3] == doctest::Approx(1 / 256.));
  CHECK(kvjit_alibi_slopes(8, 4, nullptr, nullptr) == KVJIT_USAGE);
  // Head counts that are no powers of two, by the rule of ALiBi's paper: the slopes of the power of two below, then
  // every second one of the power above.
  for (const int heads : {1, 2, 3, 5, 6, 7, 12, 25, 40, 71, 112, 232}) {
    CAPTURE(heads);
    std::vector<float> all(static_cast<std::size_t>(heads));
    CHECK(kvjit_alibi_slopes(8, heads, all.data(), nullptr) == KVJIT_OK);
    const int power = static_cast<int>(std::exp2(std::floor(std::log2(heads))));
    for (int i = 0; i < heads; ++i)
      CHECK(all[static_cast<std::size_t>(i)] == doctest::Approx(i < power
                                                                    ? std::exp2(-8. / power * (i + 1))
                                                                    : std::exp2(-4. / power * (2 * (i - power) + 1))));
  }
  auto error = sized<kvjit_error>();
  CHECK(kvjit_alibi_slopes(200, 4, slopes, &error) == KVJIT_BAD_INPUT);
  CHECK(contains(error.message, "max_bias 200; 0 to 126 are possible"));
  CHECK(kvjit_alibi_slopes(8, -4, slopes, &error) == KVJIT_BAD_INPUT);
  CHECK(contains(error.message, "slopes of -4 heads"));
}

}  // namespace
}  // namespace kvjit::test
