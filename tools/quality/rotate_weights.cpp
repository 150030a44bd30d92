// Rotates weights and checks the request: see rotate_weights.hpp.
// SPDX-License-Identifier: MIT
#include "tools/quality/rotate_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "generator/formats/reference_codec.hpp"

namespace kvjit {
namespace {

std::size_t bytes_of(WeightType type) { return type == WeightType::f32 ? 4 : 2; }

// Rounds a double to float by rounding to odd. Rounding the result to fewer bits then equals a single rounding of the
// double.
float to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (nearest == x || !std::isfinite(nearest) || (std::bit_cast<std::uint32_t>(nearest) & 1)) return nearest;
  return std::nextafter(nearest, x > nearest ? INFINITY : -INFINITY);
}

// The numbers of a tensor: get widens a number to double, put rounds a double to the tensor's type.
class Weights {
 public:
  Weights(WeightType type, std::span<const std::uint8_t> bytes) : type_(type), bytes_(bytes.begin(), bytes.end()) {}

  std::size_t count() const { return bytes_.size() / bytes_of(type_); }
  double get(std::size_t i) const {
    float wide = 0;
    std::uint16_t half = 0;
    if (type_ == WeightType::f32) return std::memcpy(&wide, &bytes_[4 * i], 4), wide;
    std::memcpy(&half, &bytes_[2 * i], 2);
    return type_ == WeightType::f16 ? float_from_f16(half) : float_from_bf16(half);
  }
  // False if x is finite and its stored form is not.
  bool put(std::size_t i, double x) {
    if (type_ == WeightType::f32) {
      const float wide = static_cast<float>(x);
      std::memcpy(&bytes_[4 * i], &wide, 4);
    } else {
      const std::uint16_t half = type_ == WeightType::f16 ? f16_from_float(to_odd(x)) : bf16_from_float(to_odd(x));
      std::memcpy(&bytes_[2 * i], &half, 2);
    }
    return std::isfinite(get(i)) || !std::isfinite(x);
  }
  std::vector<std::uint8_t> taken() { return std::move(bytes_); }

 private:
  WeightType type_;
  std::vector<std::uint8_t> bytes_;
};

// Rotates groups of rotation.size numbers, which lie `stride` numbers apart in memory. first(g): index of the first
// number of group g.
template <class First>
Result<std::vector<std::uint8_t>> rotate_groups(const Rotation& rotation, WeightType type,
                                                std::span<const std::uint8_t> bytes, long long groups, long long stride,
                                                First first) {
  Weights weights(type, bytes);
  std::vector<double> y(static_cast<std::size_t>(rotation.size));
  for (long long group = 0; group < groups; ++group) {
    const auto at = [&](std::size_t i) {
      return static_cast<std::size_t>(first(group) + static_cast<long long>(i) * stride);
    };
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = weights.get(at(i));
    rotate_forward(rotation, y.data(), rotation.size);
    for (std::size_t i = 0; i < y.size(); ++i)
      if (!weights.put(at(i), y[i]))
        return fail(Code::unsupported, fmt::format("the rotated weight {} is beyond the range of its type", y[i]));
  }
  return weights.taken();
}

Result<void> check(const Rotation& rotation, WeightType type, long long outputs, long long inputs, bool is_output,
                   std::size_t bytes) {
  const long long channels = is_output ? outputs : inputs;
  if (channels % rotation.size != 0)
    return fail(Code::bad_input, fmt::format("its {} {} are not whole groups of {} channels", channels,
                                             is_output ? "outputs" : "inputs", rotation.size));
  if (bytes != static_cast<std::size_t>(outputs) * static_cast<std::size_t>(inputs) * bytes_of(type))
    return fail(Code::internal, "the bytes do not fit the shape");
  return {};
}

Result<WeightType> type_of(const std::string& name, const Tensor& tensor) {
  if (tensor.dtype == "F32") return WeightType::f32;
  if (tensor.dtype == "F16") return WeightType::f16;
  if (tensor.dtype == "BF16") return WeightType::bf16;
  return fail(Code::unsupported, fmt::format("'{}' is {}", name, tensor.dtype), {}, {"F32, F16 and BF16 are rotated"});
}

// A projection with a bias is rotated as a whole or not at all.
Result<void> check_bias(const Safetensors& model, const WeightRequest& request, const std::string& name) {
  const std::string end = ".weight";
  if (!name.ends_with(end) || request.side == "o") return {};  // the output projection's bias is added to its outputs
  const std::string bias = name.substr(0, name.size() - end.size()) + ".bias";
  if (!model.tensors.contains(bias) || std::count(request.tensors.begin(), request.tensors.end(), bias)) return {};
  return fail(Code::bad_input, fmt::format("'{}' has a bias that is not named: '{}'", name, bias), {},
              {"weight and bias make one projection: name both"});
}

Result<void> check_side(const WeightRequest& request) {
  if (request.side == "v" || request.side == "o" || (request.has_no_rope && request.has_no_qk_norm)) return {};
  return fail(
      Code::unsupported,
      fmt::format("the {} projection cannot be rotated where RoPE or a QK norm follows it",
                  request.side == "k" ? "key" : "query"),
      {},
      {"RoPE rotates pairs of channels by the position and a QK norm scales channels: neither commutes with a rotation",
       "--no-rope --no-qk-norm states that this model has neither; V can always be rotated"});
}

}  // namespace

Result<std::vector<std::uint8_t>> rotate_outputs(const Rotation& rotation, WeightType type, long long outputs,
                                                 long long inputs, std::span<const std::uint8_t> weights) {
  KV_CHECK(check(rotation, type, outputs, inputs, true, weights.size()));
  return rotate_groups(rotation, type, weights, outputs / rotation.size * inputs, inputs,
                       [&](long long group) { return group / inputs * rotation.size * inputs + group % inputs; });
}

Result<std::vector<std::uint8_t>> rotate_inputs(const Rotation& rotation, WeightType type, long long outputs,
                                                long long inputs, std::span<const std::uint8_t> weights) {
  KV_CHECK(check(rotation, type, outputs, inputs, false, weights.size()));
  return rotate_groups(rotation, type, weights, outputs * (inputs / rotation.size), 1,
                       [&](long long group) { return group * rotation.size; });
}

Result<std::map<std::string, std::vector<std::uint8_t>>> rotated_tensors(const Safetensors& model,
                                                                         const WeightRequest& request) {
  KV_CHECK(check_side(request));
  if (request.head_dim % request.rotation.size != 0)
    return fail(Code::usage, fmt::format("head_dim {} is not a multiple of the {} channels of the rotation",
                                         request.head_dim, request.rotation.size));
  const bool is_output = request.side != "o";
  std::map<std::string, std::vector<std::uint8_t>> changed;
  for (const std::string& name : request.tensors) {
    KV_TRY(tensor, model.tensor(name));
    KV_TRY(type, type_of(name, *tensor));
    KV_CHECK(check_bias(model, request, name));
    const std::size_t rank = tensor->shape.size();
    if (rank == 0 || rank > 2 || (rank == 1 && !is_output))
      return fail(Code::bad_input, fmt::format("'{}' has shape {}", name, tensor->shape_text()), {},
                  {"a projection is [outputs, inputs], and a bias [outputs]"});
    const long long outputs = tensor->shape[0], inputs = rank == 2 ? tensor->shape[1] : 1;
    const long long channels = is_output ? outputs : inputs;
    if (channels % request.head_dim != 0)
      return fail(Code::bad_input,
                  fmt::format("'{}' has {} channels, not whole heads of {}", name, channels, request.head_dim));
    if (changed.contains(name)) return fail(Code::usage, fmt::format("'{}' is named twice", name));
    KV_TRY(bytes, read_tensor(model, *tensor));
    auto rotated = is_output ? rotate_outputs(request.rotation, type, outputs, inputs, bytes)
                             : rotate_inputs(request.rotation, type, outputs, inputs, bytes);
    if (!rotated) {
      rotated.error().message = fmt::format("'{}': {}", name, rotated.error().message);
      return tl::unexpected(rotated.error());
    }
    changed[name] = std::move(*rotated);
  }
  return changed;
}

}  // namespace kvjit
