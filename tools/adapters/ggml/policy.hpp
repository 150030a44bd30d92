// Policy: which attention nodes kvjit takes where CUDA serves them too, as data (policy.toml).
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "node.hpp"

namespace kvjit::plugin {

struct Range {
  long long least = 0, most = 0;
  bool has(long long number) const { return least <= number && number <= most; }
};

class Policy {
 public:
  // Reads a policy, or says in `why` what is wrong with it and where.
  static std::optional<Policy> read(const std::string& toml, const std::string& file, std::string& why);
  // The policy of KVJIT_GGML_POLICY, else the one that the plugin was built with.
  static std::optional<Policy> choose(std::string& why);

  // Whether a rule takes the node, and how the first one that does wants the cache to be read, as far as the node
  // allows it.
  bool takes(const Node& node) const { return rule_of(node) != nullptr; }
  Reading reading_of(const Node& node) const;

 private:
  struct Rule {
    std::vector<std::string> k, v;  // names of ggml's types
    Range queries, tokens, head_dim;
    Reading reading;
  };
  const Rule* rule_of(const Node& node) const;
  std::vector<Rule> rules_;
};

// The policy of this process. If it cannot be read, a line says why, and it takes nothing.
const Policy& policy();

}  // namespace kvjit::plugin
