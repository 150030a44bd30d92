// tools/verify/ggml/sample.cpp: samples of ggml's matrix have what they must have, and are the same every time.
// SPDX-License-Identifier: MIT
#include "tools/verify/ggml/sample.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace kvjit {
namespace {

std::vector<std::string> names(const std::vector<GgmlCase>& cases) {
  std::vector<std::string> all;
  for (const GgmlCase& one : cases) all.push_back(one.name());
  return all;
}

TEST_CASE("a sample has every value of every axis") {
  const std::vector<GgmlCase> all = ggml_matrix(), sample = ggml_sample(all, 200, 1);
  CHECK(sample.size() == 200);
  CHECK(ggml_left_out(all, sample).empty());
  CHECK(names(ggml_sample(all, 200, 1)) == names(sample));
  CHECK(names(ggml_sample(all, 200, 2)) != names(sample));
  std::vector<std::string> sorted = names(sample);
  std::sort(sorted.begin(), sorted.end());
  CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  CHECK(ggml_sample(all, 1000000, 1).size() == all.size());
}

TEST_CASE("a sample of programs has all cases that they serve") {
  const std::vector<GgmlCase> all = ggml_matrix(), sample = ggml_sample_of_programs(all, 100, 1e9);
  CHECK(sample.size() >= 100);
  std::set<std::string> programs;
  for (const GgmlCase& one : sample) {
    CHECK(ggml_work(one) <= 1e9);
    programs.insert(one.served_by().toml());
  }
  CHECK(std::size_t(std::count_if(all.begin(), all.end(), [&](const GgmlCase& one) {
          return ggml_work(one) <= 1e9 && programs.count(one.served_by().toml());
        })) == sample.size());
  CHECK(programs.size() < sample.size() / 4);
}

TEST_CASE("what a case leaves out, the program that serves it has") {
  for (const GgmlCase& one : ggml_matrix()) {
    const GgmlCase wide = one.served_by();
    CHECK(wide.has_sinks);
    CHECK((wide.max_bias > 0) == one.has_mask);
    CHECK(wide.served_by().toml() == wide.toml());
  }
}

}  // namespace
}  // namespace kvjit
