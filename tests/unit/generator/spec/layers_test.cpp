// generator/spec/layers.cpp: which layer gets which formats, by the rules of a spec and by the published policies.
// SPDX-License-Identifier: MIT
#include "generator/resolve/layers.hpp"

#include <doctest/doctest.h>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/spec/layers.hpp"

using namespace kvjit;

namespace {

std::string text_of(const std::string& layers, const std::string& k = "tbq4_0", const std::string& v = "q4_0") {
  return "k = { format = '" + k + "' }\nv = { format = '" + v + "' }\n[layers]\n" + layers;
}

std::vector<Spec> expanded(const std::string& text, const Registry& registry) {
  const std::vector<Spec> specs = parse_specs(text, "s.toml").value();
  REQUIRE(specs.size() == 1);
  const auto layers = expand_layers(specs[0], registry);
  REQUIRE_MESSAGE(layers, (layers ? "" : render(layers.error())));
  return *layers;
}

Error refused(const std::string& text, const Registry& registry) {
  const auto specs = parse_all(text, "s.toml", registry);
  REQUIRE_FALSE(specs);
  return specs.error();
}

// Returns "K/V" for each layer.
std::vector<std::string> pairs(const std::vector<Spec>& layers) {
  std::vector<std::string> names;
  for (const Spec& spec : layers) names.push_back(spec.k.format + "/" + spec.v.format);
  return names;
}

std::vector<std::string> repeated(std::initializer_list<std::pair<int, std::string>> runs) {
  std::vector<std::string> names;
  for (const auto& [count, name] : runs) names.insert(names.end(), std::size_t(count), name);
  return names;
}

const Registry& plain() {
  static const Registry registry = Registry::load(embedded_files()).value();
  return registry;
}

}  // namespace

TEST_CASE("a spec without [layers] stands for itself") {
  const Spec spec = parse_specs("k = { format = 'q8_0' }\nv = { format = 'q8_0' }", "s.toml").value()[0];
  const auto layers = expand_layers(spec, plain()).value();
  REQUIRE(layers.size() == 1);
  CHECK(layers[0].label.empty());
}

TEST_CASE("rules: first, last, by number, every layer; later rules win") {
  CHECK(pairs(expanded(text_of("count = 3"), plain())) == repeated({{3, "tbq4_0/q4_0"}}));
  CHECK(pairs(expanded(text_of("count = 6\nrule = [{ first = 1, last = 2, k = 'q8_0' }]"), plain())) ==
        repeated({{1, "q8_0/q4_0"}, {3, "tbq4_0/q4_0"}, {2, "q8_0/q4_0"}}));
  CHECK(pairs(expanded(text_of("count = 4\nrule = [{ v = 'f16' }, { layers = [0, 2], v = 'q8_0' }]"), plain())) ==
        std::vector<std::string>{"tbq4_0/q8_0", "tbq4_0/f16", "tbq4_0/q8_0", "tbq4_0/f16"});
  CHECK(pairs(expanded(text_of("count = 5\nrule = [{ first = 4, last = 4, k = 'f16', v = 'f16' }]"), plain())) ==
        repeated({{5, "f16/f16"}}));
  CHECK(pairs(expanded(text_of("count = 3\nrule = [{ first = 0, k = 'f16' }]"), plain())) ==
        repeated({{3, "tbq4_0/q4_0"}}));
}

TEST_CASE("fractions round up and have a minimum") {
  const std::string rule = "\nrule = [{ first = { fraction = [1, 3], minimum = 2 }, k = 'f16' }]";
  const auto taken = [&](int count) {
    const auto names = pairs(expanded(text_of("count = " + std::to_string(count) + rule), plain()));
    return std::count(names.begin(), names.end(), "f16/q4_0");
  };
  CHECK(taken(1) == 1);
  CHECK(taken(3) == 2);  // the minimum
  CHECK(taken(4) == 2);
  CHECK(taken(9) == 3);
  CHECK(taken(10) == 4);
}

TEST_CASE("a rule's side is a name or a whole table, and its place follows it") {
  const auto layers = expanded(
      "k = { bits = 3, block = 64 }\nv = { format = 'q8_0' }\n[layers]\ncount = 2\nrule = [\n"
      "  { layers = [1], k = 'q8_0', v = { bits = 4, rotation = 'wht_signed', calibration = 'c' } },\n]",
      plain());
  CHECK(layers[0].k.bits == 3);
  CHECK(layers[1].k.format == "q8_0");
  CHECK_FALSE(layers[1].k.bits);
  CHECK(layers[1].v.format.empty());
  CHECK(layers[1].v.bits == 4);
  CHECK(layers[1].v.calibration == "c");
  CHECK(layers[1].where("k.format").line == 6);
  CHECK(layers[1].where("k.bits").line == 0);
  CHECK(layers[0].where("k.bits").line == 1);
}

TEST_CASE("layers that nobody expanded are not resolved as if they were alike") {
  const Spec spec = parse_specs(text_of("count = 4\nrule = [{ first = 1, k = 'f16' }]"), "s.toml").value()[0];
  const auto problem = resolve(spec, plain(), "sm_90a");
  REQUIRE_FALSE(problem);
  CHECK(problem.error().code == Code::unsupported);
  CHECK(problem.error().where.line == 3);
}

TEST_CASE("labels: after the combination of the matrix") {
  const std::string text =
      text_of("count = 4\nrule = [{ first = 1, last = 2, k = 'q8_0' }]\n[matrix]\n'v.format' = ['f16', 'q8_0']");
  const auto specs = parse_all(text, "s.toml", plain()).value();
  REQUIRE(specs.size() == 4);
  CHECK(specs[0].label == "v.format=f16 layers=0,2-3");
  CHECK(specs[0].layer_label == "layers=0,2-3");
  CHECK(specs[3].label == "v.format=q8_0 layer=1");
  CHECK_FALSE(specs[0].layers);
  const Spec one = parse_specs(text, "s.toml").value()[1];
  CHECK(expand_layers(one, plain()).value()[3].label == "v.format=q8_0 layer=3");
}

TEST_CASE("published policies, layer by layer") {
  const Registry& registry = plain();
  const auto of = [&](const std::string& policy, int count) {
    return pairs(expanded(text_of("count = " + std::to_string(count) + "\npolicy = '" + policy + "'"), registry));
  };
  const std::string own = "tbq4_0/q4_0";
  CHECK(of("first_last_q8_0", 12) == repeated({{4, "q8_0/q8_0"}, {4, own}, {4, "q8_0/q8_0"}}));
  CHECK(of("last_q8_0", 12) == repeated({{4, own}, {8, "q8_0/q8_0"}}));
  CHECK(of("boundary_v_turbo4", 9) ==
        repeated({{2, "tbq4_0/turbo4_0"}, {5, "tbq4_0/turbo2_0"}, {2, "tbq4_0/turbo4_0"}}));
  CHECK(of("last_v_turbo4", 10) == repeated({{2, "tbq4_0/turbo2_0"}, {8, "tbq4_0/turbo4_0"}}));
  CHECK(of("boundary_v_q8_0", 8) == repeated({{2, "tbq4_0/q8_0"}, {4, "tbq4_0/turbo2_0"}, {2, "tbq4_0/q8_0"}}));
  CHECK(of("vllm_skip", 6) == repeated({{2, "bf16/bf16"}, {2, own}, {2, "bf16/bf16"}}));
  CHECK(of("atlas_boundary", 6) == repeated({{2, "bf16/bf16"}, {2, own}, {2, "bf16/bf16"}}));
  CHECK(pairs(expanded(text_of("count = 9\npolicy = 'atlas_boundary'\nn = 3"), registry)) ==
        repeated({{3, "bf16/bf16"}, {3, own}, {3, "bf16/bf16"}}));
  CHECK(refused(text_of("count = 7\npolicy = 'last_q8_0'"), registry).message ==
        "policy 'last_q8_0' is for models of 8 layers or more, count is 7");
}

TEST_CASE("Atlas' automatic rule depends on the formats") {
  const Registry& registry = plain();
  const auto kept = [&](int count, const std::string& k, const std::string& v) {
    const auto names =
        pairs(expanded(text_of("count = " + std::to_string(count) + "\npolicy = 'atlas_automatic'", k, v), registry));
    return std::count(names.begin(), names.end(), "bf16/bf16");
  };
  CHECK(kept(40, "atlas_turbo2", "atlas_turbo2") == 40);  // 32 layers at each end
  CHECK(kept(40, "atlas_turbo4", "atlas_turbo4") == 28);  // 14 layers at each end
  CHECK(kept(40, "bf16", "atlas_turbo3") == 40);
  CHECK(kept(40, "bf16", "atlas_turbo4") == 28);
  CHECK(kept(5, "atlas_turbo8", "q8_0") == 4);
  CHECK(kept(40, "q8_0", "q4_0") == 0);
}

TEST_CASE("every built-in policy has a title, a source and rules") {
  CHECK(plain().policies().size() >= 8);
  for (const auto& [name, policy] : plain().policies()) {
    CAPTURE(name);
    CHECK_FALSE(policy.title.empty());
    CHECK_FALSE(policy.source.empty());
    CHECK_FALSE(policy.rules.empty());
  }
}

TEST_CASE("every built-in policy names formats that there are, as heads of 128 store them") {
  int names = 0;
  for (const auto& [name, policy] : plain().policies())
    for (const LayerRule& rule : policy.rules) {
      CAPTURE(name);
      std::vector<std::string> formats = rule.when_k;
      formats.insert(formats.end(), rule.when_v.begin(), rule.when_v.end());
      for (const auto& side : {rule.k, rule.v})
        if (side) formats.push_back(side->format);
      for (const std::string& format : formats) {
        CAPTURE(format);
        CHECK(plain().format_for(format, 128, {}));
        ++names;
      }
    }
  CHECK(names >= 20);
}

TEST_CASE("what does not fit is refused where it stands") {
  const Error layer = refused(text_of("count = 4\nrule = [{ layers = [1, 4], k = 'f16' }]"), plain());
  CHECK(layer.message == "layer 4 does not exist: layers are numbered 0..3");
  CHECK(layer.where.column == 24);
  CHECK(refused(text_of("count = 4\nrule = [{ first = 5, k = 'f16' }]"), plain()).message ==
        "a rule takes 5 layers, count is 4");
  const Error n = refused(text_of("count = 4\nrule = [{ first = 'n', k = 'f16' }]"), plain());
  CHECK(n.message == "a rule takes \"n\" layers, but n is not given");
  CHECK(refused(text_of("count = 9\npolicy = 'atlas_boundary'\nn = 10"), plain()).where.line == 6);
  CHECK(refused(text_of("count = 9\npolicy = 'last_q8_0'\nn = 3"), plain()).message ==
        "policy 'last_q8_0' has no parameter n");
  // A condition on a format that does not exist would never be true, and the user would not notice.
  const Error when = refused(text_of("count = 9\nrule = [{ when = { k = ['tbq5_0'] }, k = 'f16' }]"), plain());
  CHECK(when.message == "format 'tbq5_0' is not known");
  CHECK(when.where.line == 5);
}

TEST_CASE("a condition knows aliases, and inline numbers have no name") {
  const std::string rule = "count = 1\nrule = [{ when = { k = ['tbq4_wht_dfirst_corr'] }, v = 'f16' }]";
  CHECK(pairs(expanded(text_of(rule), plain())) == repeated({{1, "tbq4_0/f16"}}));
  const auto inline_sides = expanded("k = { bits = 4 }\nv = { format = 'q8_0' }\n[layers]\n" + rule, plain());
  CHECK(inline_sides[0].v.format == "q8_0");
}
