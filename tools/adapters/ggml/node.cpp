// Reads attention nodes and describes them to kvjit: see node.hpp.
// SPDX-License-Identifier: MIT
#include "node.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <vector>

#include "ggml_tables.hpp"

namespace kvjit::plugin {
namespace {

constexpr int kFloatBytes = 4, kHalfBytes = 2;

float parameter(const ggml_tensor* tensor, int index) {
  float value;
  std::memcpy(&value, &tensor->op_params[index], sizeof value);
  return value;
}

kvjit_side side_of(const ggml_tensor* tensor) {
  kvjit_side side{};
  side.codes = tensor->data;
  side.codes_sequence_stride = kvjit_index(tensor->nb[3]);
  side.codes_head_stride = kvjit_index(tensor->nb[2]);
  side.codes_token_stride = kvjit_index(tensor->nb[1]);
  return side;
}

void* at(const ggml_tensor* tensor, std::size_t bytes) { return static_cast<char*>(tensor->data) + bytes; }

}  // namespace

std::optional<Node> read_node(const ggml_tensor* tensor) {
  if (int(tensor->op) != ggml_tables().flash_attn_ext) return std::nullopt;
  if (!tensor->src[0] || !tensor->src[1] || !tensor->src[2]) return std::nullopt;
  return Node{tensor->src[0], tensor->src[1],       tensor->src[2],       tensor->src[3],      tensor->src[4],
              tensor,         parameter(tensor, 0), parameter(tensor, 1), parameter(tensor, 2)};
}

std::string misfit(const Node& node) {
  const ggml_tensor &q = *node.q, &k = *node.k, &v = *node.v;
  if (q.type != GGML_TYPE_F32 || node.out->type != GGML_TYPE_F32) return "queries or output are not f32";
  if (q.ne[3] != k.ne[3] || q.ne[3] != v.ne[3]) return "K, V and queries are of different numbers of sequences";
  if (k.ne[2] != v.ne[2] || k.ne[2] < 1 || q.ne[2] % k.ne[2] != 0) return "heads of K and V do not divide those of Q";
  if (k.ne[1] != v.ne[1] || k.ne[1] < 1 || k.ne[1] > 1 << 30) return "K and V have no common number of tokens";
  if (q.ne[0] != k.ne[0]) return "queries and K have heads of different sizes";
  const std::size_t dense = std::size_t(kFloatBytes);
  if (q.nb[0] != dense || node.out->nb[0] != dense) return "elements of a head are not dense";
  for (const ggml_tensor* side : {node.k, node.v}) {
    const std::size_t block = ggml_type_size(side->type);
    if (side->nb[0] != block) return "blocks of K or V are not dense";
  }
  if (node.mask) {
    const ggml_tensor& mask = *node.mask;
    if (mask.type != GGML_TYPE_F16 || mask.nb[0] != std::size_t(kHalfBytes)) return "the mask is not of dense f16";
    if (mask.ne[0] < k.ne[1] || mask.ne[1] < q.ne[1]) return "the mask is smaller than the scores";
    if (mask.ne[2] != 1 && mask.ne[2] != q.ne[2]) return "the mask is for groups of heads";
    if (mask.ne[3] != 1 && mask.ne[3] != q.ne[3]) return "the mask is for groups of sequences";
  } else if (node.max_bias > 0) {
    return "ALiBi without a mask";
  }
  constexpr int kMostSequences = 65535, kMostBias = 126;  // kvjit.h
  if (q.ne[3] > kMostSequences || q.ne[2] > kMostSequences) return "too many sequences or heads";
  if (!(node.scale > 0) || !(node.max_bias <= kMostBias)) return "a scale or a bias out of range";
  if (node.sinks && node.sinks->type != GGML_TYPE_F32) return "sinks are not f32";
  return "";
}

bool has_token_heads(const Node& node) {
  constexpr std::size_t kAlignment = 16;  // of bulk copies, in bytes
  constexpr int kMostHeads = 16;          // cache.token_heads (specs/docs/spec.md)
  const auto fits = [](const ggml_tensor& side) {
    const std::size_t row = ggml_row_size(side.type, side.ne[0]), token = row * std::size_t(side.ne[2]);
    return side.nb[2] == row && side.nb[1] == token && token % kAlignment == 0 && side.nb[3] % kAlignment == 0 &&
           reinterpret_cast<std::uintptr_t>(side.data) % kAlignment == 0;
  };
  return node.kv_heads() > 1 && node.kv_heads() <= kMostHeads && fits(*node.k) && fits(*node.v);
}

std::string spec_of(const Node& node, int queries, const Reading& reading) {
  std::vector<std::string> features;
  if (node.mask) features.emplace_back("\"mask\"");
  if (node.max_bias > 0) features.emplace_back("\"mask_slopes\"");
  if (node.sinks) features.emplace_back("\"sinks\"");
  if (reading.token_ranges) features.emplace_back("\"token_ranges\"");
  return fmt::format(
      "k = {{ format = \"{}\" }}\nv = {{ format = \"{}\" }}\n[cache]\nlayout = \"rows\"\n{}[attention]\n"
      "head_dim_k = {}\nhead_dim_v = {}\nq_heads_per_kv = {}\n{}q_type = \"f32\"\nout_type = "
      "\"f32\"\nsoftcap = {}\n"
      "features = [{}]\n",
      ggml_type_name(node.k->type), ggml_type_name(node.v->type),
      reading.token_heads ? fmt::format("token_heads = {}\n", node.kv_heads()) : "", node.k->ne[0], node.v->ne[0],
      node.heads() / node.kv_heads(),
      queries == kAnyQueries ? fmt::format("query_length = \"any\"\nmax_query_length = {}\n", kMostQueries)
                             : fmt::format("query_length = {}\n", queries),
      node.softcap, fmt::join(features, ", "));
}

kvjit_attention_call call_of(const Node& node, int first, int count) {
  kvjit_attention_call call{};
  call.size = sizeof call;
  const ggml_tensor &q = *node.q, &out = *node.out;
  call.q = {at(node.q, std::size_t(first) * q.nb[1]), kvjit_index(q.nb[3]) / kFloatBytes,
            kvjit_index(q.nb[1]) / kFloatBytes, kvjit_index(q.nb[2]) / kFloatBytes};
  call.out = {at(node.out, std::size_t(first) * out.nb[2]), kvjit_index(out.nb[3]) / kFloatBytes,
              kvjit_index(out.nb[2]) / kFloatBytes, kvjit_index(out.nb[1]) / kFloatBytes};
  call.k = side_of(node.k);
  call.v = side_of(node.v);
  call.tokens = node.tokens();
  call.sequences = node.sequences();
  call.kv_heads = node.kv_heads();
  call.scale = node.scale;
  call.queries = count;
  if (node.mask) {
    const ggml_tensor& mask = *node.mask;
    call.mask = at(node.mask, std::size_t(first) * mask.nb[1]);
    call.mask_query_stride = kvjit_index(mask.nb[1]) / kHalfBytes;
    call.mask_head_stride = mask.ne[2] == 1 ? 0 : kvjit_index(mask.nb[2]) / kHalfBytes;
    call.mask_sequence_stride = mask.ne[3] == 1 ? 0 : kvjit_index(mask.nb[3]) / kHalfBytes;
  }
  if (node.sinks) call.sinks = static_cast<const float*>(node.sinks->data);
  return call;
}

std::string describe(const Node& node) {
  return fmt::format("{}, {}, heads of {} and {}, {} / {}, {} queries over {} tokens{}{}{}",
                     ggml_type_name(node.k->type), ggml_type_name(node.v->type), node.k->ne[0], node.v->ne[0],
                     node.heads(), node.kv_heads(), node.queries(), node.tokens(), node.max_bias > 0 ? ", ALiBi" : "",
                     node.softcap > 0 ? ", softcap" : "", node.sinks ? ", sinks" : "");
}

}  // namespace kvjit::plugin
