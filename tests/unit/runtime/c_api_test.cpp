// The C interface as an engine uses it: TOML -> context -> program -> quantise -> attention, on the CPU
// back-end, against a double loop over the values that the cache really holds; then what it says when it is
// misused.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/kvjit_api.hpp"

using kvjit::api::sized;

namespace {

constexpr int kHeadDim = 64, kGroup = 2, kSequences = 2, kHeads = 2, kTokens = 70, kCapacity = 100;

std::string spec(const std::string& rotation, const std::string& layout) {
  return "[k]\nbits = 4\nblock = 64\nrotation = \"" + rotation + "\"\n[v]\nbits = 3\nblock = 64\nrotation = \"" +
         rotation + "\"\n[attention]\nhead_dim = 64\nq_heads_per_kv = 2\nq_type = \"f32\"\n[cache]\nlayout = \"" +
         layout + "\"\n";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Session {
  kvjit_error error = sized<kvjit_error>();
  kvjit::api::Context context;
  kvjit::api::Program program;

  Session() {
    auto options = sized<kvjit_context_options>();
    options.device = KVJIT_DEVICE_CPU;
    options.cache_dir = "off";
    INFO(error.message);
    REQUIRE(context.open(options, error) == KVJIT_OK);
  }
  void ok(kvjit_status status) {
    INFO(error.message << "\n" << error.notes);
    REQUIRE(status == KVJIT_OK);
  }
  kvjit::api::Memory memory(std::size_t bytes) {
    kvjit::api::Memory made;
    ok(made.allocate(context, bytes, error));
    return made;
  }
  kvjit::api::Memory upload(const std::vector<float>& values) {
    kvjit::api::Memory made = memory(values.size() * sizeof(float));
    ok(kvjit_copy_to_device(context.get(), made.get(), values.data(), made.bytes(), &error));
    return made;
  }
  std::vector<float> download(const kvjit::api::Memory& from) {
    std::vector<float> values(from.bytes() / sizeof(float));
    ok(kvjit_synchronize(context.get(), nullptr, &error));
    ok(kvjit_copy_to_host(context.get(), values.data(), from.get(), from.bytes(), &error));
    return values;
  }
};

std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

std::size_t row_at(int sequence, int token, int tokens, int head, int heads) {
  return static_cast<std::size_t>(((sequence * tokens + token) * heads + head) * kHeadDim);
}

// softmax(q k^T / sqrt(d)) v for one query row.
std::vector<double> attend(const float* q, const std::vector<float>& k, const std::vector<float>& v, int sequence,
                           int head, int length) {
  std::vector<double> scores(static_cast<std::size_t>(length)), out(kHeadDim);
  double sum = 0;
  for (int t = 0; t < length; ++t) {
    const float* row = &k[row_at(sequence, t, kTokens, head, kHeads)];
    double dot = 0;
    for (int i = 0; i < kHeadDim; ++i) dot += static_cast<double>(q[i]) * row[i];
    sum += scores[static_cast<std::size_t>(t)] = std::exp(dot / std::sqrt(static_cast<double>(kHeadDim)));
  }
  for (int t = 0; t < length; ++t)
    for (int i = 0; i < kHeadDim; ++i)
      out[static_cast<std::size_t>(i)] += scores[static_cast<std::size_t>(t)] / sum *
                                          v[row_at(sequence, t, kTokens, head, kHeads) + static_cast<std::size_t>(i)];
  return out;
}

}  // namespace

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
    auto facts = sized<kvjit_program_facts>();
    s.ok(kvjit_program_describe(s.program.get(), &facts, &s.error));
    CHECK(facts.page_tokens == (is_paged ? kPageTokens : 0));
    CHECK(facts.checks == is_paged);
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
      s.ok(kvjit_quantise(s.program.get(), side, &call, &s.error));
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
    CHECK(check.count == 2);  // of K's table and of V's
  }
}

TEST_CASE("TOML to attention, over the values the cache holds") {
  for (const char* rotation : {"none", "wht_signed"})
    for (const char* layout : {"planar", "rows"}) {
      CAPTURE(rotation);
      CAPTURE(layout);
      Session s;
      s.ok(s.program.open(s.context, spec(rotation, layout).c_str(), "test.toml", nullptr, s.error));
      const bool is_rotated = std::strcmp(rotation, "none") != 0;

      auto facts = sized<kvjit_program_facts>();
      s.ok(kvjit_program_describe(s.program.get(), &facts, &s.error));
      CHECK(facts.head_dim == kHeadDim);
      CHECK(facts.q_heads_per_kv == kGroup);
      CHECK(facts.q_type == KVJIT_F32);
      CHECK(facts.is_planar == (std::string(layout) == "planar"));

      // The cache, one side after the other, and what it really holds.
      const kvjit_rows tokens_of_x = {nullptr, kTokens * kHeads * kHeadDim, kHeads * kHeadDim, kHeadDim};
      kvjit_side cache[2];
      kvjit::api::Memory storage[2];
      std::vector<float> held[2];
      const char* formats[2] = {};
      for (int side = 0; side < 2; ++side) {
        auto side_facts = sized<kvjit_side_facts>();
        s.ok(kvjit_program_side(s.program.get(), side, &side_facts, &s.error));
        CHECK(side_facts.is_rotated == is_rotated);
        CHECK(side_facts.row_bytes == kHeadDim * (side == 0 ? 4 : 3) / 8 + 2);
        CHECK(side_facts.bits_per_value == doctest::Approx(8.0 * static_cast<double>(side_facts.row_bytes) / kHeadDim));
        formats[side] = side_facts.format;
        std::size_t bytes = 0;
        s.ok(kvjit_cache_layout(s.program.get(), side, kSequences, kHeads, kCapacity, nullptr, nullptr, &bytes,
                                &s.error));
        storage[side] = s.memory(bytes);
        s.ok(kvjit_cache_layout(s.program.get(), side, kSequences, kHeads, kCapacity, storage[side].get(), &cache[side],
                                nullptr, &s.error));

        const auto x = s.upload(normal(kSequences * kTokens * kHeads * kHeadDim, 1u + static_cast<unsigned>(side)));
        auto codec = sized<kvjit_codec_call>();
        codec.x = tokens_of_x;
        codec.x.data = x.get();
        codec.x_type = KVJIT_F32;
        codec.cache = cache[side];
        codec.sequences = kSequences;
        codec.tokens = kTokens;
        codec.heads = kHeads;
        s.ok(kvjit_quantise(s.program.get(), side, &codec, &s.error));
        const auto decoded = s.memory(x.bytes());
        codec.x.data = decoded.get();
        s.ok(kvjit_dequantise(s.program.get(), side, &codec, &s.error));
        held[side] = s.download(decoded);
        const std::vector<float> original = s.download(x);
        double error = 0, power = 0;
        for (std::size_t i = 0; i < original.size(); ++i) {
          error += std::pow(static_cast<double>(held[side][i]) - original[i], 2);
          power += std::pow(static_cast<double>(original[i]), 2);
        }
        CHECK(error / power < (side == 0 ? 0.015 : 0.05));  // Lloyd-Max: 0.0095 and 0.0345
      }

      constexpr int kQHeads = kHeads * kGroup;
      const std::vector<float> queries = normal(kSequences * kQHeads * kHeadDim, 9);
      const auto q = s.upload(queries);
      const std::vector<int> lengths = {kTokens, 33};
      const auto device_lengths = s.memory(sizeof(int) * 2);
      s.ok(kvjit_copy_to_device(s.context.get(), device_lengths.get(), lengths.data(), sizeof(int) * 2, &s.error));
      auto call = sized<kvjit_attention_call>();
      const auto out = s.memory(q.bytes());
      call.q = {q.get(), kQHeads * kHeadDim, kQHeads * kHeadDim, kHeadDim};
      call.out = {out.get(), kQHeads * kHeadDim, kQHeads * kHeadDim, kHeadDim};
      call.k = cache[0];
      call.v = cache[1];
      call.lengths = static_cast<const int*>(device_lengths.get());
      call.tokens = kTokens;
      call.sequences = kSequences;
      call.kv_heads = kHeads;
      call.blocks = 2;
      s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
      const auto workspace = s.memory(call.workspace_bytes);
      call.workspace = workspace.get();
      const std::vector<char> zeros(KVJIT_COUNTER_BYTES);
      s.ok(kvjit_copy_to_device(s.context.get(), workspace.get(), zeros.data(), zeros.size(), &s.error));

      for (auto* run : {&kvjit_attention, &kvjit_reference}) {
        auto report = sized<kvjit_report>();
        s.ok(run(s.program.get(), &call, &report, &s.error));
        CHECK(report.kernel_count == (run == &kvjit_reference && is_rotated ? 3 : 1));
        CHECK(std::string(report.k_reader) == formats[0]);
        CHECK(std::string(report.v_reader) == formats[1]);
        CHECK(report.converted_bytes == 0);
        const std::vector<float> got = s.download(out);
        double worst = 0;
        for (int sequence = 0; sequence < kSequences; ++sequence)
          for (int head = 0; head < kQHeads; ++head) {
            const std::size_t at = row_at(sequence, 0, 1, head, kQHeads);
            const auto expected = attend(&queries[at], held[0], held[1], sequence, head / kGroup,
                                         lengths[static_cast<std::size_t>(sequence)]);
            for (std::size_t i = 0; i < kHeadDim; ++i) {
              const double off = std::abs(got[at + i] - expected[i]);
              worst = off > worst || std::isnan(off) ? off : worst;
            }
          }
        CHECK(worst < (run == &kvjit_attention ? 4e-3 : 2e-5));  // attention holds probabilities and V's values as f16
      }
    }
}

TEST_CASE("supported answers without a device, with every reason") {
  char reasons[4096];
  CHECK(kvjit_supported(spec("none", "planar").c_str(), "sm_90a", reasons, sizeof reasons) == KVJIT_OK);
  CHECK(std::string(reasons).empty());
  CHECK(kvjit_supported(spec("none", "planar").c_str(), nullptr, reasons, sizeof reasons) == KVJIT_USAGE);
  CHECK(kvjit_supported(nullptr, nullptr, nullptr, 0) == KVJIT_USAGE);

  const std::string two = "[matrix]\n\"attention.head_dim\" = [96, 160]\n" + spec("none", "planar");
  CHECK(kvjit_supported(two.c_str(), "sm_90a", reasons, sizeof reasons) ==
        KVJIT_BAD_INPUT);  // block = 64 divides neither
  CHECK(contains(reasons, "attention.head_dim=96"));
  CHECK(contains(reasons, "attention.head_dim=160"));
  const std::string layers = "[layers]\ncount = 4\nrule = [{ first = 1, k = { bits = 4, block = 512 } }]\n";
  CHECK(kvjit_supported((layers + spec("none", "planar")).c_str(), "sm_90a", reasons, sizeof reasons) ==
        KVJIT_BAD_INPUT);  // head_dim is smaller than the block of layer 0
  CHECK(contains(reasons, "layer=0"));
  CHECK(!contains(reasons, "layers=1-3"));
  char few[16];
  CHECK(kvjit_supported(two.c_str(), "sm_90a", few, sizeof few) == KVJIT_BAD_INPUT);
  CHECK(std::strlen(few) == sizeof few - 1);
  CHECK(std::string(few).substr(12) == "...");
}

TEST_CASE("errors carry status, place and notes") {
  Session s;
  std::string typo = spec("none", "planar");
  typo.replace(typo.find("head_dim"), 8, "head_dimm");
  CHECK(s.program.open(s.context, typo.c_str(), "mine.toml", nullptr, s.error) == KVJIT_BAD_INPUT);
  CHECK(s.error.status == KVJIT_BAD_INPUT);
  CHECK(std::string(s.error.file) == "mine.toml");
  CHECK(s.error.line == 10);
  CHECK(contains(s.error.message, "head_dimm"));
  CHECK(s.program.get() == nullptr);

  const std::string matrix = "[matrix]\n\"k.bits\" = [2, 4]\n" + spec("none", "planar");
  CHECK(s.program.open(s.context, matrix.c_str(), nullptr, nullptr, s.error) == KVJIT_UNSUPPORTED);
  CHECK(contains(s.error.message, "[matrix]"));
  const std::string layers = "[layers]\ncount = 4\nrule = [{ first = 1, k = \"f16\" }]\n" + spec("none", "planar");
  CHECK(s.program.open(s.context, layers.c_str(), nullptr, nullptr, s.error) == KVJIT_UNSUPPORTED);
  CHECK(contains(s.error.message, "[layers] give 2 specs"));

  void* pointer = nullptr;
  CHECK(kvjit_allocate(nullptr, 1, &pointer, &s.error) == KVJIT_USAGE);
  CHECK(contains(s.error.message, "context is NULL"));
  CHECK(kvjit_allocate(s.context.get(), 16, &pointer, &s.error) == KVJIT_OK);
  CHECK(s.error.status == KVJIT_OK);
  CHECK(std::string(s.error.message).empty());
  kvjit_release(s.context.get(), pointer);
  CHECK(kvjit_allocate(s.context.get(), SIZE_MAX / 2, &pointer, nullptr) == KVJIT_ENVIRONMENT);
}

TEST_CASE("long texts end in dots; an older, smaller error struct is not overrun") {
  Session s;
  const std::string key(5000, 'x');
  CHECK(s.program.open(s.context, (key + " = 1\n").c_str(), nullptr, nullptr, s.error) == KVJIT_BAD_INPUT);
  CHECK(std::strlen(s.error.message) == sizeof s.error.message - 1);
  CHECK(std::string(s.error.message).substr(1020) == "...");

  auto old = sized<kvjit_error>();
  old.size = offsetof(kvjit_error, file);
  old.file[0] = '!';
  CHECK(s.program.open(s.context, "nonsense", "mine.toml", nullptr, old) == KVJIT_BAD_INPUT);
  CHECK(old.status == KVJIT_BAD_INPUT);
  CHECK(old.size == offsetof(kvjit_error, file));
  CHECK(old.file[0] == '!');
}

TEST_CASE("structs: without a size refused, shorter gets defaults, longer only if it says nothing new") {
  Session s;
  kvjit_device_facts unset{};
  CHECK(kvjit_context_device(s.context.get(), &unset, &s.error) == KVJIT_USAGE);
  CHECK(contains(s.error.message, "KVJIT_INIT"));

  struct Newer {
    kvjit_context_options known;
    int added;
  } newer{};
  newer.known.size = sizeof newer;
  newer.known.device = KVJIT_DEVICE_CPU;
  newer.known.cache_dir = "off";
  kvjit_context* context = nullptr;
  CHECK(kvjit_context_create(&newer.known, &context, &s.error) == KVJIT_OK);
  kvjit_context_destroy(context);
  newer.added = 1;
  CHECK(kvjit_context_create(&newer.known, &context, &s.error) == KVJIT_UNSUPPORTED);
  kvjit_context_options older{};
  older.size = offsetof(kvjit_context_options, log);
  older.device = KVJIT_DEVICE_CPU;
  older.cache_dir = "off";
  older.log = reinterpret_cast<void (*)(void*, const char*)>(1);  // lies beyond its size
  CHECK(kvjit_context_create(&older, &context, &s.error) == KVJIT_OK);
  kvjit_context_destroy(context);
  CHECK(kvjit_version() == KVJIT_VERSION_NUMBER);
}

TEST_CASE("a workspace that is too small, and sides that do not exist") {
  Session s;
  s.ok(s.program.open(s.context, spec("none", "planar").c_str(), nullptr, nullptr, s.error));
  auto call = sized<kvjit_attention_call>();
  call.tokens = call.sequences = call.kv_heads = 1;
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "workspace of 0 bytes"));
  call.sequences = -1;
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "-1 sequences"));
  auto facts = sized<kvjit_side_facts>();
  CHECK(kvjit_program_side(s.program.get(), 2, &facts, &s.error) == KVJIT_USAGE);
  std::size_t bytes = 0;
  CHECK(kvjit_cache_layout(s.program.get(), 0, 1, 0, 1, nullptr, nullptr, &bytes, &s.error) == KVJIT_BAD_INPUT);
  CHECK(kvjit_cache_layout(s.program.get(), 0, 1ll << 40, 1ll << 40, 1, nullptr, nullptr, &bytes, &s.error) ==
        KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "does not fit"));
  auto codec = sized<kvjit_codec_call>();
  codec.x_type = 4;
  CHECK(kvjit_quantise(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_USAGE);
  codec.x_type = 0;
  CHECK(kvjit_dequantise(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_USAGE);
}

TEST_CASE("a program that appends: tokens of zeros are in the cache until a call brings them") {
  Session s;
  std::string toml = spec("wht_signed", "planar");
  toml.replace(toml.find("[attention]\n"), 12, "[attention]\nappend = true\n");
  s.ok(s.program.open(s.context, toml.c_str(), nullptr, nullptr, s.error));
  auto facts = sized<kvjit_program_facts>();
  s.ok(kvjit_program_describe(s.program.get(), &facts, &s.error));
  CHECK(facts.appends == 1);

  // One head of one sequence, one token: the output is that token's V, whatever the scores.
  auto call = sized<kvjit_attention_call>();
  call.tokens = call.sequences = call.kv_heads = 1;
  kvjit::api::Memory storage[2], newest[2];
  const std::vector<float> values = normal(kHeadDim, 4);
  for (int side = 0; side < 2; ++side) {
    kvjit_side& cache = side == 0 ? call.k : call.v;
    std::size_t bytes = 0;
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, nullptr, nullptr, &bytes, &s.error));
    storage[side] = s.memory(bytes);
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, storage[side].get(), &cache, nullptr, &s.error));
    newest[side] = s.upload(values);
  }
  const auto q = s.upload(normal(kGroup * kHeadDim, 5)), out = s.memory(q.bytes());
  call.q = {q.get(), 0, 0, kHeadDim};
  call.out = {out.get(), 0, 0, kHeadDim};
  s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
  const auto workspace = s.upload(std::vector<float>(call.workspace_bytes / sizeof(float)));
  call.workspace = workspace.get();
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);  // of type 0
  CHECK(contains(s.error.message, "new_k, new_v has type 0"));
  call.new_type = KVJIT_F32;
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "new_k is a null pointer"));
  call.new_k = {newest[0].get(), kHeadDim, kHeadDim, kHeadDim};
  call.new_v = {newest[1].get(), kHeadDim, kHeadDim, kHeadDim};
  s.ok(kvjit_attention(s.program.get(), &call, nullptr, &s.error));
  const std::vector<float> got = s.download(out);
  double error = 0, power = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - values[i % kHeadDim], 2);
    power += std::pow(static_cast<double>(values[i % kHeadDim]), 2);
  }
  CHECK(error / power < 0.06);                                       // three bits
  s.ok(kvjit_reference(s.program.get(), &call, nullptr, &s.error));  // reads what was stored
  const std::vector<float> read = s.download(out);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(read[i] - got[i]) < 4e-3);

  Session other;
  other.ok(other.program.open(other.context, spec("wht_signed", "planar").c_str(), nullptr, nullptr, other.error));
  CHECK(kvjit_attention(other.program.get(), &call, nullptr, &other.error) == KVJIT_BAD_INPUT);
  CHECK(contains(other.error.message, "which does not append: attention.append = true"));
}

TEST_CASE("features: sinks, a mask and the logarithm of sums, and parts merged by it") {
  Session s;
  std::string toml = spec("wht_signed", "planar");
  toml.replace(toml.find("[attention]\n"), 12, "[attention]\nfeatures = [\"mask\", \"sinks\", \"lse\"]\n");
  s.ok(s.program.open(s.context, toml.c_str(), nullptr, nullptr, s.error));
  auto facts = sized<kvjit_program_facts>();
  s.ok(kvjit_program_describe(s.program.get(), &facts, &s.error));
  CHECK(std::string(facts.features) == "mask, sinks, lse");

  // A cache of zeros: every score is 0, so sums count tokens. The mask hides 30 of 70 from the second head.
  auto call = sized<kvjit_attention_call>();
  call.sequences = call.kv_heads = 1;
  call.tokens = kTokens;
  kvjit::api::Memory storage[2];
  for (int side = 0; side < 2; ++side) {
    kvjit_side& cache = side == 0 ? call.k : call.v;
    std::size_t bytes = 0;
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, nullptr, nullptr, &bytes, &s.error));
    storage[side] = s.upload(std::vector<float>(bytes / sizeof(float)));
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, storage[side].get(), &cache, nullptr, &s.error));
  }
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

  // Two parts whose outputs are all 1 and all 3, with sums of 70 and 210 tokens.
  const auto ones = s.upload(std::vector<float>(kGroup * kHeadDim, 1.f)),
             threes = s.upload(std::vector<float>(kGroup * kHeadDim, 3.f)),
             more = s.upload({std::log(210.f), -INFINITY}), all = s.memory(kGroup * 4);
  const kvjit_merge_part parts[2] = {{{ones.get(), 0, 0, kHeadDim}, static_cast<const float*>(lse.get())},
                                     {{threes.get(), 0, 0, kHeadDim}, static_cast<const float*>(more.get())}};
  auto merge = sized<kvjit_merge_call>();
  merge.parts = parts;
  merge.part_count = 2;
  merge.sequences = merge.kv_heads = 1;
  merge.out = call.out;
  merge.lse = static_cast<float*>(all.get());
  s.ok(kvjit_merge(s.program.get(), &merge, &s.error));
  const auto merged = s.download(out);
  CHECK(merged[0] == doctest::Approx(2.5));
  CHECK(merged[kHeadDim] == doctest::Approx(1));  // the second head saw nothing in the second part
  CHECK(std::exp(s.download(all)[0]) == doctest::Approx(280).epsilon(1e-5));
  merge.part_count = KVJIT_MOST_MERGE_PARTS + 1;
  CHECK(kvjit_merge(s.program.get(), &merge, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "17 parts; 1 to 16 are possible"));

  Session other;
  other.ok(other.program.open(other.context, spec("none", "planar").c_str(), nullptr, nullptr, other.error));
  merge.part_count = 2;
  CHECK(kvjit_merge(other.program.get(), &merge, &other.error) == KVJIT_UNSUPPORTED);
  call.lse = nullptr;
  CHECK(kvjit_attention(other.program.get(), &call, nullptr, &other.error) == KVJIT_BAD_INPUT);
  CHECK(contains(other.error.message, "mask is given to program"));
}

TEST_CASE("slopes of ALiBi") {
  float slopes[4] = {};
  CHECK(kvjit_alibi_slopes(8, 4, slopes, nullptr) == KVJIT_OK);
  CHECK(slopes[0] == doctest::Approx(0.25));
  CHECK(slopes[3] == doctest::Approx(1 / 256.));
  CHECK(kvjit_alibi_slopes(8, 4, nullptr, nullptr) == KVJIT_USAGE);
  auto error = sized<kvjit_error>();
  CHECK(kvjit_alibi_slopes(8, -4, slopes, &error) == KVJIT_BAD_INPUT);
  CHECK(contains(error.message, "slopes of -4 heads"));
}
