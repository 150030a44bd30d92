// The quantize kernel against images of published writers, on any back-end.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tests/differential/harness.hpp"
#include "tests/support/published.hpp"

namespace kvjit::test {

inline void check_published(const std::shared_ptr<Context>& context) {
  for (const published::Json& image : published::file()["images"]) {
    const std::string key = image["key"], name = image["format"];
    const int dim = image["head_dim"], rows = int(image["rows"].size());
    Problem problem;
    problem.k = problem.v = must(registry().format_for(name, dim, {}));
    problem.head_dim = problem.head_dim_v = dim;
    problem.query_length = 1;
    problem.layout = Layout::rows;
    problem.arch = *must(registry().require_arch(context->backend()->info().arch, {}));
    problem.id = fmt::format("{}.d{}", name, dim);
    std::vector<float> x;
    for (int row = 0; row < rows; ++row)
      for (const std::vector<float>& head : published::heads_of(image, row))
        x.insert(x.end(), head.begin(), head.end());
    const int heads = int(x.size()) / dim;
    const ProgramSource source = must(make_reference_program(problem, registry()));
    KernelHarness harness =
        must(KernelHarness::make(context, must(Program::create(context, source)), problem, {1, 1, heads}));
    if (problem.k.has_tensor_scale()) harness.set_tensor_scale(0, image["tensor_scale"]);
    must(harness.quantize(0, x, Element::f32));
    const published::Bytes stored = must(harness.rows(0));
    const std::vector<std::size_t> places = published::places_of(image, problem.k);
    const std::size_t head_bytes = stored.size() / std::size_t(heads);
    for (int row = 0; row < rows; ++row) {
      published::Bytes got;
      for (int head = row * heads / rows; head < (row + 1) * heads / rows; ++head)
        for (const std::size_t place : places) got.push_back(stored[std::size_t(head) * head_bytes + place]);
      const int wrong = published::wrong_bytes(image, row, got);
      CHECK_MESSAGE(wrong == 0, key, ", ", name, ", row ", row, ": ", wrong, " bytes differ");
    }
  }
}

}  // namespace kvjit::test
