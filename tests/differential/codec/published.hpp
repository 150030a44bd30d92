// The quantize kernel against images of published writers, on any back-end.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/differential/arrays.hpp"
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
    const int heads = int(published::heads_of(image, 0).size());
    std::vector<float> x;
    for (int head = 0; head < heads; ++head)
      for (int row = 0; row < rows; ++row) {
        const std::vector<float> values = published::heads_of(image, row)[std::size_t(head)];
        x.insert(x.end(), values.begin(), values.end());
      }
    const ProgramSource source = must(make_reference_program(problem, registry()));
    KernelHarness harness =
        must(KernelHarness::make(context, must(Program::create(context, source)), problem, {1, heads, rows}));
    if (problem.k.has_tensor_scale()) harness.set_tensor_scale(0, image["tensor_scale"]);
    if (problem.k.has_head_scales()) must(harness.set_head_scales(0, image["head_scales"]));
    must(harness.quantize(0, x, Element::f32));
    const published::Bytes stored = must(harness.rows(0));
    const std::vector<std::size_t> places = published::places_of(image, problem.k);
    const std::size_t head_bytes = stored.size() / std::size_t(heads * rows);
    for (int row = 0; row < rows; ++row) {
      published::Bytes got;
      for (int head = 0; head < heads; ++head)
        for (const std::size_t place : places)
          got.push_back(stored[std::size_t(head * rows + row) * head_bytes + place]);
      const int wrong = published::wrong_bytes(image, row, got);
      CHECK_MESSAGE(wrong == 0, key, ", ", name, ", row ", row, ": ", wrong, " bytes differ");
    }
  }
}

// Quantizes tokens into a page that is laid out as published writers lay it out, by addresses and strides, and compares
// the whole page.
inline void check_published_pages(const std::shared_ptr<Context>& context) {
  for (const published::Json& image : published::file()["pages"]) {
    const std::string key = image["key"], name = image["format"];
    const int dim = image["head_dim"], heads = image["heads"], tokens = image["tokens"];
    Case test{name, name, dim, 1, 1, Layout::paged, false};
    test.page_tokens = image["page_tokens"], test.page_layout = Layout::planar;
    test.has_swizzled_values = image["sides"].back().contains("swizzle");
    const Planned one = planned(registry(), test, context->backend()->info().arch);
    const auto program = must(Program::create(context, must(make_reference_program(one.problem, registry()))));
    const Format& f = one.problem.k;
    const published::Bytes want = published::bytes_from(image["page"].get<std::string>());
    Arrays arrays(context);
    published::Bytes got(want.size(), 0);
    std::uint8_t* const page = arrays.upload(got);
    std::vector<long long> slots(std::size_t(tokens), 0);
    std::iota(slots.begin(), slots.end(), 0);
    for (const published::Json& side : image["sides"]) {
      std::vector<float> x;
      for (int token = 0; token < tokens; ++token)
        for (const auto& head : published::heads_of(image, side["first_row"].get<int>() + token))
          x.insert(x.end(), head.begin(), head.end());
      REQUIRE(x.size() == std::size_t(tokens * heads * dim));
      kv::CodecArgs args{};
      args.x = {arrays.upload(x), 0, (long long)(heads)*dim, dim};
      args.x_type = kv::RowType::f32;
      args.side.codes = page + side["codes_at"].get<int>(), args.side.scales = page + side["scales_at"].get<int>();
      const long long code_row = dim / f.block * f.code_bytes, scale_row = dim / f.block * f.scale_bytes,
                      head_rows = side["head_rows"], token_rows = side["token_rows"];
      args.side.codes_sequence_stride = args.side.scales_sequence_stride = (long long)(want.size());
      args.side.codes_head_stride = head_rows * code_row, args.side.codes_token_stride = token_rows * code_row;
      args.side.scales_head_stride = head_rows * scale_row, args.side.scales_token_stride = token_rows * scale_row;
      args.sequences = 1, args.tokens = tokens, args.heads = heads;
      args.tensor_scale = image["tensor_scale"];
      args.slots = arrays.upload(std::vector<kv::i64>(slots.begin(), slots.end()));
      must(program->quantize(side.contains("swizzle") ? 1 : 0, args, nullptr));
    }
    arrays.download(got, page);
    int wrong = 0;
    for (std::size_t i = 0; i < want.size(); ++i) wrong += got[i] != want[i];
    CHECK_MESSAGE(wrong == 0, key, ": ", wrong, " bytes differ");
  }
}

}  // namespace kvjit::test
