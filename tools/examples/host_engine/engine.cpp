// Computes the model's layers, with attention by kvjit's C ABI: see engine.hpp.
// SPDX-License-Identifier: MIT
#include "engine.hpp"

#include <fmt/format.h>

namespace engine {

using kvjit::api::sized;

namespace {

std::string spec_of(const Shape& shape, const Formats& formats) {
  return fmt::format(
      "[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nhead_dim = {}\nq_heads_per_kv = {}\n"
      "query_length = \"any\"\nfeatures = [\"causal\"]\nq_type = \"f32\"\nout_type = \"f16\"\n[cache]\n"
      "layout = \"planar\"\n",
      formats.k, formats.v, shape.head_dim, shape.q_heads / shape.kv_heads);
}

}  // namespace

Engine::Engine(const kvjit::api::Context& context, Math& math, const Model& model, const Formats& formats,
               int sequences, int capacity)
    : context_(context), math_(math), model_(model), sequences_(sequences), capacity_(capacity) {
  const Shape& shape = model.shape();
  auto error = sized<kvjit_error>();
  require(program_.open(context_, spec_of(shape, formats).c_str(), "host_engine", nullptr, error), error);
  const kvjit_program* const any = program_.get();
  std::size_t bytes[2];
  for (const int side : {KVJIT_K, KVJIT_V}) {
    auto info = sized<kvjit_side_info>();
    require(kvjit_program_side(any, side, &info, &error), error);
    bits_per_value_ += info.bits_per_value / 2;
    require(kvjit_cache_layout(any, side, sequences, shape.kv_heads, capacity, nullptr, nullptr, &bytes[side], &error),
            error);
    bytes[side] = (bytes[side] + 255) / 256 * 256;
  }
  grow(cache_memory_, (bytes[0] + bytes[1]) * static_cast<std::size_t>(shape.layers));
  auto* place = static_cast<char*>(cache_memory_.get());
  cache_.resize(static_cast<std::size_t>(shape.layers));
  for (auto& layer : cache_)
    for (const int side : {KVJIT_K, KVJIT_V}) {
      require(kvjit_cache_layout(any, side, sequences, shape.kv_heads, capacity, place, &layer[side], nullptr, &error),
              error);
      place += bytes[side];
    }
}

void Engine::grow(Memory& memory, std::size_t bytes) {
  auto error = sized<kvjit_error>();
  if (memory.bytes() < bytes) require(memory.allocate(context_, bytes, error), error);
}
float* Engine::floats(Memory& memory, long long count) {
  grow(memory, static_cast<std::size_t>(count) * sizeof(float));
  return static_cast<float*>(memory.get());
}
half_bits* Engine::halves(Memory& memory, long long count) {
  grow(memory, static_cast<std::size_t>(count) * sizeof(half_bits));
  return static_cast<half_bits*>(memory.get());
}

// Quantizes k_ and v_ into the layer's cache and computes attention of q_ over it; out_ gets the output in f16.
void Engine::attend(int layer, int chunk) {
  const Shape& s = model_.shape();
  kvjit_program* const program = program_.get();
  const auto rows = [&](void* data, int heads) {
    const kvjit_index token = static_cast<kvjit_index>(heads) * s.head_dim;
    return kvjit_rows{data, chunk * token, token, s.head_dim};
  };
  auto error = sized<kvjit_error>();
  for (const int side : {KVJIT_K, KVJIT_V}) {
    auto call = sized<kvjit_codec_call>();
    call.x = rows((side == KVJIT_K ? k_ : v_).get(), s.kv_heads);
    call.x_type = KVJIT_F32;
    call.cache = cache_[static_cast<std::size_t>(layer)][side];
    call.first_token = length_;
    call.sequences = sequences_, call.tokens = chunk, call.heads = s.kv_heads;
    require(kvjit_quantize(program, side, &call, &error), error);
  }
  auto call = sized<kvjit_attention_call>();
  call.q = rows(q_.get(), s.q_heads);
  call.out = rows(halves(out_, static_cast<long long>(sequences_) * chunk * s.q_heads * s.head_dim), s.q_heads);
  call.k = cache_[static_cast<std::size_t>(layer)][KVJIT_K], call.v = cache_[static_cast<std::size_t>(layer)][KVJIT_V];
  call.queries = chunk;
  call.tokens = length_ + chunk, call.sequences = sequences_, call.kv_heads = s.kv_heads;
  require(kvjit_workspace_bytes(program, &call, &call.workspace_bytes, &error), error);
  if (workspace_.bytes() < call.workspace_bytes) {
    grow(workspace_, call.workspace_bytes);
    const std::vector<char> zeros(KVJIT_COUNTER_BYTES);
    require(kvjit_copy_to_device(context_.get(), workspace_.get(), zeros.data(), zeros.size(), &error), error);
  }
  call.workspace = workspace_.get();
  require(kvjit_attention(program, &call, nullptr, &error), error);
}

void Engine::feed(const std::vector<int>& tokens, int chunk) {
  const Shape& s = model_.shape();
  if (length_ + chunk > capacity_) throw std::runtime_error("the cache is full");
  chunk_ = chunk;
  const int rows = sequences_ * chunk;
  const long long count = static_cast<long long>(rows) * s.width;
  auto error = sized<kvjit_error>();
  grow(tokens_, tokens.size() * sizeof(int));
  require(kvjit_copy_to_device(context_.get(), tokens_.get(), tokens.data(), tokens.size() * sizeof(int), &error),
          error);
  float* const x = floats(x_, count);
  math_.run(EmbedArgs{static_cast<const int*>(tokens_.get()), model_.weight("emb.weight"), x, s.width}, count);
  for (int layer = 0; layer < s.layers; ++layer) {
    half_bits* const h = halves(h_, count);
    math_.run(NormArgs{x, model_.weight(layer, "n1.weight"), h, s.width}, rows);
    const auto project = [&](const char* name, Memory& memory, int heads, float theta) {
      float* const y = floats(memory, static_cast<long long>(rows) * heads * s.head_dim);
      math_.multiply(h, model_.weight(layer, fmt::format("{}.weight", name)), y, rows, s.width, heads * s.head_dim,
                     false);
      const BiasRopeArgs rope_args{
          y, model_.weight(layer, fmt::format("{}.bias", name)), heads, s.head_dim, chunk, length_, theta};
      math_.run(rope_args, static_cast<long long>(rows) * heads * s.head_dim / 2);
    };
    project("q", q_, s.q_heads, s.theta);
    project("k", k_, s.kv_heads, s.theta);
    project("v", v_, s.kv_heads, 0);
    attend(layer, chunk);
    math_.multiply(static_cast<const half_bits*>(out_.get()), model_.weight(layer, "o.weight"), x, rows,
                   s.q_heads * s.head_dim, s.width, true);

    math_.run(NormArgs{x, model_.weight(layer, "n2.weight"), h, s.width}, rows);
    const long long hidden = static_cast<long long>(rows) * s.hidden;
    float *const gate = floats(gate_, hidden), *const up = floats(up_, hidden);
    math_.multiply(h, model_.weight(layer, "g.weight"), gate, rows, s.width, s.hidden, false);
    math_.multiply(h, model_.weight(layer, "u.weight"), up, rows, s.width, s.hidden, false);
    half_bits* const gated = halves(gated_, hidden);
    math_.run(GateArgs{gate, up, gated}, hidden);
    math_.multiply(gated, model_.weight(layer, "dn.weight"), x, rows, s.hidden, s.width, true);
  }
  half_bits* const h = halves(h_, count);
  math_.run(NormArgs{x, model_.weight("norm.weight"), h, s.width}, rows);
  math_.multiply(h, model_.weight("head.weight"), floats(logits_, static_cast<long long>(rows) * s.vocabulary), rows,
                 s.width, s.vocabulary, false);
  length_ += chunk;
}

std::vector<float> Engine::losses(const std::vector<int>& targets) {
  auto error = sized<kvjit_error>();
  const std::size_t bytes = targets.size() * sizeof(int);
  grow(targets_, bytes);
  require(kvjit_copy_to_device(context_.get(), targets_.get(), targets.data(), bytes, &error), error);
  float* const losses = floats(losses_, static_cast<long long>(targets.size()));
  math_.run(LossArgs{static_cast<const float*>(logits_.get()), static_cast<const int*>(targets_.get()), losses,
                     model_.shape().vocabulary},
            static_cast<long long>(targets.size()));
  std::vector<float> all(targets.size());
  require(kvjit_copy_to_host(context_.get(), all.data(), losses, all.size() * sizeof(float), &error), error);
  return all;
}

std::vector<float> Engine::last_logits() {
  const auto width = static_cast<std::size_t>(model_.shape().vocabulary);
  std::vector<float> logits(width);
  const float* const last = static_cast<const float*>(logits_.get()) + static_cast<std::size_t>(chunk_ - 1) * width;
  auto error = sized<kvjit_error>();
  require(kvjit_copy_to_host(context_.get(), logits.data(), last, width * sizeof(float), &error), error);
  return logits;
}

}  // namespace engine
