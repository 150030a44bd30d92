// Loads a safetensors file into one allocation of device memory: see model.hpp.
// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/io/safetensors.hpp"

namespace engine {
namespace {

template <class T>
T taken(kvjit::Result<T> result) {
  if (!result) throw std::runtime_error(kvjit::render(result.error()));
  return *std::move(result);
}

Shape shape_of(const kvjit::Safetensors& file) {
  const auto found = file.metadata.find("config");
  const auto config = nlohmann::json::parse(found == file.metadata.end() ? "" : found->second, nullptr, false);
  if (!config.is_object()) throw std::runtime_error(file.file + ": its metadata have no config");
  Shape shape;
  const std::pair<const char*, int Shape::*> numbers[] = {
      {"vocab", &Shape::vocabulary}, {"d", &Shape::width},     {"layers", &Shape::layers}, {"hq", &Shape::q_heads},
      {"hkv", &Shape::kv_heads},     {"hd", &Shape::head_dim}, {"ff", &Shape::hidden},     {"ctx", &Shape::context}};
  for (const auto& [key, member] : numbers) {
    shape.*member = config.value(key, 0);
    if (shape.*member < 1 || shape.*member > 1 << 20)
      throw std::runtime_error(fmt::format("{}: config has no usable {}", file.file, key));
  }
  shape.theta = config.value("theta", 10000.f);
  return shape;
}

// Every tensor that the model needs, with the number of its elements.
std::map<std::string, long long> needed(const Shape& s) {
  const long long q = static_cast<long long>(s.q_heads) * s.head_dim,
                  kv = static_cast<long long>(s.kv_heads) * s.head_dim, width = s.width, hidden = s.hidden;
  std::map<std::string, long long> all = {
      {"emb.weight", s.vocabulary * width}, {"head.weight", s.vocabulary * width}, {"norm.weight", width}};
  for (int layer = 0; layer < s.layers; ++layer)
    for (const auto& [name, count] : std::map<std::string, long long>{{"n1.weight", width},
                                                                      {"n2.weight", width},
                                                                      {"q.weight", q * width},
                                                                      {"q.bias", q},
                                                                      {"k.weight", kv * width},
                                                                      {"k.bias", kv},
                                                                      {"v.weight", kv * width},
                                                                      {"v.bias", kv},
                                                                      {"o.weight", width * q},
                                                                      {"g.weight", hidden * width},
                                                                      {"u.weight", hidden * width},
                                                                      {"dn.weight", width * hidden}})
      all[fmt::format("layers.{}.{}", layer, name)] = count;
  return all;
}

}  // namespace

void require(kvjit_status status, const kvjit_error& error) {
  if (status != KVJIT_OK)
    throw std::runtime_error(fmt::format("{}{}{}", error.message, *error.notes ? "\n" : "", error.notes));
}

Model::Model(const kvjit::api::Context& context, const std::string& file) {
  const kvjit::Safetensors opened = taken(kvjit::open_safetensors(file));
  shape_ = shape_of(opened);
  std::vector<std::uint8_t> all;
  for (const auto& [name, count] : needed(shape_)) {
    const kvjit::Tensor& tensor = *taken(opened.tensor(name));
    if (tensor.dtype != "F16" || tensor.bytes() != static_cast<std::uint64_t>(count) * 2)
      throw std::runtime_error(
          fmt::format("{}: {} is {} {}, not {} halves", file, name, tensor.dtype, tensor.shape_text(), count));
    places_[name] = all.size();
    const auto bytes = taken(kvjit::read_tensor(opened, tensor));
    all.insert(all.end(), bytes.begin(), bytes.end());
    all.resize((all.size() + 255) / 256 * 256);
  }
  auto error = kvjit::api::sized<kvjit_error>();
  require(memory_.allocate(context, all.size(), error), error);
  require(kvjit_copy_to_device(context.get(), memory_.get(), all.data(), all.size(), &error), error);
}

const half_bits* Model::weight(const std::string& name) const {
  return reinterpret_cast<const half_bits*>(static_cast<const char*>(memory_.get()) + places_.at(name));
}
const half_bits* Model::weight(int layer, const std::string& name) const {
  return weight(fmt::format("layers.{}.{}", layer, name));
}

}  // namespace engine
