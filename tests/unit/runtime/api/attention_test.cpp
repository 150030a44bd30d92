// The C interface as an engine uses it: TOML, context, program, quantize, attention, on the CPU back-end. The oracle is
// a double loop over the values that the cache holds. Wrong calls must be refused with status, place and notes.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstring>

#include "tests/unit/runtime/api/session.hpp"

namespace kvjit::test {
namespace {

// Returns softmax(q k^T / sqrt(d)) v for one query row.
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

TEST_CASE("a program says the types of its queries and outputs, whatever the pair") {
  const std::pair<const char*, int> kTypes[] = {{"f16", KVJIT_F16}, {"bf16", KVJIT_BF16}, {"f32", KVJIT_F32}};
  Session s;
  for (const auto& [q_name, q_type] : kTypes)
    for (const auto& [out_name, out_type] : kTypes) {
      CAPTURE(q_name);
      CAPTURE(out_name);
      const std::string toml = std::string("[k]\nformat = \"q8_0\"\n[v]\nformat = \"q8_0\"\n[attention]\nq_type = \"") +
                               q_name + "\"\nout_type = \"" + out_name + "\"\n";
      kvjit::api::Program program;
      s.ok(program.open(s.context, toml.c_str(), "types.toml", nullptr, s.error));
      auto info = sized<kvjit_program_info>();
      s.ok(kvjit_program_describe(program.get(), &info, &s.error));
      CHECK(info.q_type == q_type);
      CHECK(info.out_type == out_type);
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

      auto info = sized<kvjit_program_info>();
      s.ok(kvjit_program_describe(s.program.get(), &info, &s.error));
      CHECK(info.head_dim == kHeadDim);
      CHECK(info.q_heads_per_kv == kGroup);
      CHECK(info.q_type == KVJIT_F32);
      CHECK(info.is_planar == (std::string(layout) == "planar"));

      // Quantizes and dequantizes one side after the other; `held` is what the cache holds.
      const kvjit_rows tokens_of_x = {nullptr, kTokens * kHeads * kHeadDim, kHeads * kHeadDim, kHeadDim};
      kvjit_side cache[2];
      kvjit::api::Memory storage[2];
      std::vector<float> held[2];
      const char* formats[2] = {};
      for (int side = 0; side < 2; ++side) {
        auto side_info = sized<kvjit_side_info>();
        s.ok(kvjit_program_side(s.program.get(), side, &side_info, &s.error));
        CHECK(side_info.is_rotated == is_rotated);
        CHECK(side_info.row_bytes == kHeadDim * (side == 0 ? 4 : 3) / 8 + 2);
        CHECK(side_info.bits_per_value == doctest::Approx(8.0 * static_cast<double>(side_info.row_bytes) / kHeadDim));
        formats[side] = side_info.format;
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
        s.ok(kvjit_quantize(s.program.get(), side, &codec, &s.error));
        const auto decoded = s.memory(x.bytes());
        codec.x.data = decoded.get();
        s.ok(kvjit_dequantize(s.program.get(), side, &codec, &s.error));
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
        CHECK(worst < (run == &kvjit_attention ? 4e-3 : 2e-5));  // attention keeps probabilities and values of V in f16
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
  kvjit_device_info unset{};
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
  older.log = reinterpret_cast<void (*)(void*, const char*)>(1);  // lies beyond the stated size
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
  auto info = sized<kvjit_side_info>();
  CHECK(kvjit_program_side(s.program.get(), 2, &info, &s.error) == KVJIT_USAGE);
  std::size_t bytes = 0;
  CHECK(kvjit_cache_layout(s.program.get(), 0, 1, 0, 1, nullptr, nullptr, &bytes, &s.error) == KVJIT_BAD_INPUT);
  CHECK(kvjit_cache_layout(s.program.get(), 0, 1ll << 40, 1ll << 40, 1, nullptr, nullptr, &bytes, &s.error) ==
        KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "does not fit"));
  auto codec = sized<kvjit_codec_call>();
  codec.x_type = 4;
  CHECK(kvjit_quantize(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_USAGE);
  codec.x_type = 0;
  CHECK(kvjit_dequantize(s.program.get(), KVJIT_K, &codec, &s.error) == KVJIT_USAGE);
}

TEST_CASE("a program that appends: tokens of zeros are in the cache until a call brings them") {
  Session s;
  std::string toml = spec("wht_signed", "planar");
  toml.replace(toml.find("[attention]\n"), 12, "[attention]\nappend = true\n");
  s.ok(s.program.open(s.context, toml.c_str(), nullptr, nullptr, s.error));
  auto info = sized<kvjit_program_info>();
  s.ok(kvjit_program_describe(s.program.get(), &info, &s.error));
  CHECK(info.appends == 1);

  // One token of one head of one sequence: the output is the token's V, whatever the scores.
  auto call = sized<kvjit_attention_call>();
  call.tokens = call.sequences = call.kv_heads = 1;
  kvjit::api::Memory storage[2], new_tokens[2];
  const std::vector<float> values = normal(kHeadDim, 4);
  for (int side = 0; side < 2; ++side) {
    kvjit_side& cache = side == 0 ? call.k : call.v;
    std::size_t bytes = 0;
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, nullptr, nullptr, &bytes, &s.error));
    storage[side] = s.memory(bytes);
    s.ok(kvjit_cache_layout(s.program.get(), side, 1, 1, kCapacity, storage[side].get(), &cache, nullptr, &s.error));
    new_tokens[side] = s.upload(values);
  }
  const auto q = s.upload(normal(kGroup * kHeadDim, 5)), out = s.memory(q.bytes());
  call.q = {q.get(), 0, 0, kHeadDim};
  call.out = {out.get(), 0, 0, kHeadDim};
  s.ok(kvjit_workspace_bytes(s.program.get(), &call, &call.workspace_bytes, &s.error));
  const auto workspace = s.upload(std::vector<float>(call.workspace_bytes / sizeof(float)));
  call.workspace = workspace.get();
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);  // element type 0
  CHECK(contains(s.error.message, "new_k, new_v has type 0"));
  call.new_type = KVJIT_F32;
  CHECK(kvjit_attention(s.program.get(), &call, nullptr, &s.error) == KVJIT_BAD_INPUT);
  CHECK(contains(s.error.message, "new_k is a null pointer"));
  call.new_k = {new_tokens[0].get(), kHeadDim, kHeadDim, kHeadDim};
  call.new_v = {new_tokens[1].get(), kHeadDim, kHeadDim, kHeadDim};
  s.ok(kvjit_attention(s.program.get(), &call, nullptr, &s.error));
  const std::vector<float> got = s.download(out);
  double error = 0, power = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - values[i % kHeadDim], 2);
    power += std::pow(static_cast<double>(values[i % kHeadDim]), 2);
  }
  CHECK(error / power < 0.06);                                       // three bits
  s.ok(kvjit_reference(s.program.get(), &call, nullptr, &s.error));  // reads the stored cache
  const std::vector<float> read = s.download(out);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(read[i] - got[i]) < 4e-3);

  Session other;
  other.ok(other.program.open(other.context, spec("wht_signed", "planar").c_str(), nullptr, nullptr, other.error));
  CHECK(kvjit_attention(other.program.get(), &call, nullptr, &other.error) == KVJIT_BAD_INPUT);
  CHECK(contains(other.error.message, "which does not append: attention.append = true"));
}

}  // namespace
}  // namespace kvjit::test
