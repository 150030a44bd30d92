// expand_layers, layer_groups, parse_all: the rules of a policy, and then those of the spec, decide the formats of each
// layer. Later rules win.
// SPDX-License-Identifier: MIT
#include "generator/resolve/layers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvjit {
namespace {

// Expands one spec to a spec for each layer.
class Expander {
 public:
  Expander(const Spec& spec, const Registry& registry) : spec_(spec), layers_(*spec.layers), registry_(registry) {}

  Result<std::vector<Spec>> expand() {
    const std::size_t count = static_cast<std::size_t>(layers_.count);
    Spec plain = spec_;
    plain.layers = nullptr;
    std::vector<Spec> specs(count, plain);
    if (!layers_.policy.empty()) {
      KV_TRY(policy, registry_.policy(layers_.policy, layers_.policy_where));
      if (layers_.count < policy->least_layers)
        return fail(Code::bad_input,
                    fmt::format("policy '{}' is for models of {} layers or more, count is {}", policy->name,
                                policy->least_layers, layers_.count),
                    layers_.policy_where);
      n_ = layers_.n ? layers_.n : policy->n;
      if (layers_.n && !policy->n)
        return fail(Code::bad_input, fmt::format("policy '{}' has no parameter n", policy->name), layers_.n_where);
      for (const LayerRule& rule : policy->rules) KV_CHECK(apply(rule, specs));
    }
    n_ = layers_.n;
    for (const LayerRule& rule : layers_.rules) KV_CHECK(apply(rule, specs));
    return specs;
  }

 private:
  // Whether the spec's own format, before any rule, is one of `names`. True if there are no names.
  Result<bool> is_met(const SideSpec& own, const std::vector<std::string>& names,
                      const std::vector<Where>& places) const {
    bool is_one = names.empty();
    for (std::size_t i = 0; i < names.size(); ++i) {
      KV_TRY(wanted, registry_.format(names[i], places[i]));
      if (own.format.empty()) continue;  // an inline format has no name
      KV_TRY(have, registry_.format(own.format, own.key_where.at("format")));
      is_one = is_one || wanted == have;
    }
    return is_one;
  }

  // How many layers a rule takes from one end.
  Result<int> layers_of(const std::optional<LayerExtent>& extent, const LayerRule& rule) const {
    if (!extent) return 0;
    const int count = layers_.count;
    if (extent->kind == LayerExtent::Kind::fraction) {
      const int layers = (extent->numerator * count + extent->denominator - 1) / extent->denominator;
      return std::min(count, std::max(extent->minimum, layers));
    }
    const bool is_parameter = extent->kind == LayerExtent::Kind::parameter;
    if (is_parameter && !n_)
      return fail(Code::bad_input, "a rule takes \"n\" layers, but n is not given", rule.where,
                  {"add n = 2 to [layers]"});
    const int layers = is_parameter ? *n_ : extent->number;
    if (layers > count)
      return fail(Code::bad_input, fmt::format("a rule takes {} layers, count is {}", layers, count),
                  is_parameter && layers_.n ? layers_.n_where : rule.where);
    return layers;
  }

  // Replaces one side of a layer's spec, and the places of its keys.
  static void put(const char* key, const SideSpec& side, SideSpec& into, Spec& spec) {
    into = side;
    const std::string prefix = fmt::format("{}.", key);
    std::erase_if(spec.key_where, [&](const auto& entry) { return entry.first.starts_with(prefix); });
    for (const auto& [name, where] : side.key_where) spec.key_where[prefix + name] = where;
  }

  Result<void> apply(const LayerRule& rule, std::vector<Spec>& specs) const {
    KV_TRY(k_is_met, is_met(spec_.k, rule.when_k, rule.when_k_where));
    KV_TRY(v_is_met, is_met(spec_.v, rule.when_v, rule.when_v_where));
    KV_TRY(first, layers_of(rule.first, rule));
    KV_TRY(last, layers_of(rule.last, rule));
    for (std::size_t i = 0; i < rule.layers.size(); ++i)
      if (rule.layers[i] >= layers_.count)
        return fail(
            Code::bad_input,
            fmt::format("layer {} does not exist: layers are numbered 0..{}", rule.layers[i], layers_.count - 1),
            rule.layers_where[i]);
    if (!k_is_met || !v_is_met) return {};
    const bool is_every = !rule.first && !rule.last && rule.layers.empty();
    for (int layer = 0; layer < layers_.count; ++layer) {
      const bool is_listed = std::count(rule.layers.begin(), rule.layers.end(), layer) != 0;
      if (!is_every && layer >= first && layer < layers_.count - last && !is_listed) continue;
      Spec& spec = specs[static_cast<std::size_t>(layer)];
      if (rule.k) put("k", *rule.k, spec.k, spec);
      if (rule.v) put("v", *rule.v, spec.v, spec);
    }
    return {};
  }

  const Spec& spec_;
  const LayersSpec& layers_;
  const Registry& registry_;
  std::optional<int> n_;  // the parameter n of the rules that are applied
};

void add_label(Spec& spec, const std::string& label) {
  spec.layer_label = label;
  spec.label += (spec.label.empty() ? "" : " ") + label;
}

// Whether two sides are equal, apart from their places in the file.
bool is_alike(const SideSpec& a, const SideSpec& b) {
  return a.format == b.format && a.bits == b.bits && a.block == b.block && a.codebook == b.codebook &&
         a.scale == b.scale && a.rotation == b.rotation && a.calibration == b.calibration;
}

// {0, 1, 2, 7} -> "0-2,7"
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

Result<std::vector<Spec>> expand_layers(const Spec& spec, const Registry& registry) {
  if (!spec.layers) return std::vector<Spec>{spec};
  KV_TRY(specs, Expander(spec, registry).expand());
  for (std::size_t i = 0; i < specs.size(); ++i) add_label(specs[i], fmt::format("layer={}", i));
  return specs;
}

Result<std::vector<Spec>> layer_groups(const Spec& spec, const Registry& registry) {
  if (!spec.layers) return std::vector<Spec>{spec};
  KV_TRY(specs, Expander(spec, registry).expand());
  std::vector<Spec> groups;
  std::vector<std::vector<int>> members;
  for (std::size_t layer = 0; layer < specs.size(); ++layer) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Spec& group) {
      return is_alike(group.k, specs[layer].k) && is_alike(group.v, specs[layer].v);
    });
    members.resize(groups.size() + (same == groups.end()));
    members[static_cast<std::size_t>(same - groups.begin())].push_back(static_cast<int>(layer));
    if (same == groups.end()) groups.push_back(specs[layer]);
  }
  for (std::size_t i = 0; i < groups.size(); ++i)
    add_label(groups[i], fmt::format("layer{}={}", members[i].size() > 1 ? "s" : "", ranges(members[i])));
  return groups;
}

Result<std::vector<Spec>> parse_all(std::string_view toml_text, const std::string& file, const Registry& registry) {
  KV_TRY(specs, parse_specs(toml_text, file));
  std::vector<Spec> all;
  for (const Spec& spec : specs) {
    KV_TRY(groups, layer_groups(spec, registry));
    all.insert(all.end(), groups.begin(), groups.end());
  }
  return all;
}

}  // namespace kvjit
