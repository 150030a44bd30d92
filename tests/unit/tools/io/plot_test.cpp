// tools/io/plot.cpp: labels do not collide, values may be 0, and a page needs no other file.
// SPDX-License-Identifier: MIT
#include "tools/io/plot.hpp"

#include <doctest/doctest.h>

#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

void check_places(const std::vector<Point>& points, const Box& area) {
  std::vector<Point> sizes;
  for (std::size_t i = 0; i < points.size(); ++i) sizes.emplace_back(40.0 + 20 * double(i % 8), 13.0);
  const std::vector<Box> labels = place_labels(points, sizes, area);
  REQUIRE(labels.size() == points.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    CHECK(labels[i].width == sizes[i].first);
    CHECK(area.contains(labels[i]));
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(labels[i].overlaps(labels[j]));
    for (const auto& [x, y] : points) CHECK_FALSE(labels[i].overlaps({x - 3, y - 3, 6, 6}));
  }
}

TEST_CASE("a line crosses a box only if it passes through it") {
  const Box box{10, 10, 20, 10};
  CHECK(crosses({0, 15}, {40, 15}, box));
  CHECK(crosses({15, 0}, {15, 12}, box));        // ends inside
  CHECK(crosses({5, 10}, {20, 25}, box));        // cuts a corner
  CHECK_FALSE(crosses({0, 15}, {10, 15}, box));  // ends at the edge
  CHECK_FALSE(crosses({0, 5}, {40, 5}, box));
  CHECK_FALSE(crosses({0, 12}, {12, 30}, box));
  CHECK_FALSE(crosses({31, 0}, {31, 40}, box));
  CHECK(leader_end(box, {0, 0}) == Point(10, 10));
  CHECK(leader_end(box, {15, 40}) == Point(15, 20));
}

TEST_CASE("labels collide with no other label and no marker, crowded or in a corner") {
  const Box area{0, 0, 860, 900};
  check_places({{430, 450}}, area);
  check_places({{0, 0}, {860, 0}, {0, 900}, {860, 900}}, area);
  check_places(std::vector<Point>(50, {430, 450}), area);  // all in one place
  test::Rng rng(1);
  std::vector<Point> cloud;
  for (int i = 0; i < 60; ++i) cloud.emplace_back(200 + 40 * rng.normal(), 450 + 15 * rng.normal());
  check_places(cloud, area);
}

TEST_CASE("few leader lines cross a label") {
  test::Rng rng(2);
  std::vector<Point> points;
  for (int i = 0; i < 40; ++i) points.emplace_back(430 + 80 * rng.normal(), 450 + 40 * rng.normal());
  const std::vector<Box> labels = place_labels(points, std::vector<Point>(40, {60, 13}), {0, 0, 860, 900});
  int crossed = 0;
  for (std::size_t i = 0; i < points.size(); ++i)
    for (std::size_t j = 0; j < points.size(); ++j)
      crossed += i != j && crosses(points[i], leader_end(labels[i], points[i]), labels[j]);
  CHECK(crossed <= 10);  // 19 if the placement ignored lines
}

TEST_CASE("a label that fits nowhere is left out, not drawn over others") {
  const auto labels = place_labels({{10, 10}}, {{100, 13}}, {0, 0, 50, 50});
  CHECK(labels[0].width == 0);
}

TEST_CASE("a plot names every point, and one without error stands on a line of its own") {
  const std::string svg = scatter_svg("bits", "error", {{4, 0.1, "a<b"}, {16, 0, "exact one"}, {8, 1e-3, "c", true}});
  CHECK(svg.find("a&lt;b") != std::string::npos);
  CHECK(svg.find(">exact<") != std::string::npos);
  CHECK(svg.find("class=\"hollow\"") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  const std::string all_exact = scatter_svg("bits", "error", {{16, 0, "f16"}});
  CHECK(all_exact.find("nan") == std::string::npos);
  CHECK(scatter_svg("bits", "error", {}).empty());
}

TEST_CASE("bars: as many as numbers, marked ones in their own colour") {
  const std::string svg = bars_svg("channel", "variance", {1, 2, 0.5}, {false, true, false}, 1);
  const auto count = [&](const std::string& word) {
    int n = 0;
    for (std::size_t at = svg.find(word); at != std::string::npos; at = svg.find(word, at + 1)) ++n;
    return n;
  };
  CHECK(count("class=\"bar\"") == 2);
  CHECK(count("class=\"marked\"") == 1);
  CHECK(bars_svg("c", "v", {0, 0}, {false, false}, 0).find("nan") == std::string::npos);
}

TEST_CASE("a page is one file without script, for light and dark") {
  const std::string page = html_page("t & u", html_table({"a", "b"}, {{"1", "<2>"}}));
  CHECK(page.find("<title>t &amp; u</title>") != std::string::npos);
  CHECK(page.find("<td>&lt;2&gt;</td>") != std::string::npos);
  CHECK(page.find("prefers-color-scheme: dark") != std::string::npos);
  for (const char* word : {"<script", "http", "src=", "href=", "@import", "url("})
    CHECK(page.find(word) == std::string::npos);
}

}  // namespace
}  // namespace kvjit
