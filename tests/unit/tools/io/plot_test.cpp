// tools/io/plot.cpp, plot_labels.cpp and svg.cpp: labels do not collide, colours stand out in both themes, and a page
// needs no other file.
// SPDX-License-Identifier: MIT
#include "tools/io/plot.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "tests/support/rng.hpp"
#include "tools/io/svg.hpp"

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

TEST_CASE("few leader lines cross each other or a marker") {
  test::Rng rng(2);
  std::vector<Point> points;
  for (int i = 0; i < 40; ++i) points.emplace_back(430 + 80 * rng.normal(), 450 + 40 * rng.normal());
  const std::vector<Box> labels = place_labels(points, std::vector<Point>(40, {60, 13}), {0, 0, 860, 900});
  const auto side = [](const Point& a, const Point& b, const Point& c) {
    return (b.first - a.first) * (c.second - a.second) - (b.second - a.second) * (c.first - a.first);
  };
  int crossed = 0, over = 0;
  for (std::size_t i = 0; i < points.size(); ++i)
    for (std::size_t j = 0; j < points.size(); ++j) {
      const Point a = points[i], b = leader_end(labels[i], a), c = points[j], d = leader_end(labels[j], c);
      crossed += i < j && side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0;
      over += i != j && crosses(a, b, {c.first - 4, c.second - 4, 8, 8});
    }
  CHECK(crossed <= 5);
  CHECK(over <= 5);
}

TEST_CASE("a point without a label is only avoided") {
  const auto labels = place_labels({{20, 20}, {60, 20}}, {{0, 0}, {30, 13}}, {0, 0, 200, 200});
  CHECK(labels[0].width == 0);
  CHECK(labels[1].width == 30);
}

TEST_CASE("a label that fits nowhere is left out, not drawn over others") {
  const auto labels = place_labels({{10, 10}}, {{100, 13}}, {0, 0, 50, 50});
  CHECK(labels[0].width == 0);
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
  CHECK(svg.find("role=\"img\" aria-label=\"variance of each channel\">") != std::string::npos);
  CHECK(count(">-0<") == 0);
  for (const char* tick : {">0<", ">0.5<", ">1<", ">1.5<", ">2<"}) CHECK_MESSAGE(count(tick) >= 1, tick);
  CHECK(svg.find("<desc>3 bars, 1 of them marked; the highest is 1, 2. A line at 1.</desc>") != std::string::npos);
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

// The relative luminance of a colour "#rrggbb", as WCAG 2 defines it.
double luminance(const std::string& colour) {
  const auto linear = [&](std::size_t at) {
    const double part = std::stoi(colour.substr(at, 2), nullptr, 16) / 255.0;
    return part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5);
}

TEST_CASE("in both themes every colour of a chart stands out from the ground, and no two are equal") {
  const std::string page = html_page("t", "");
  const std::size_t dark = page.find("prefers-color-scheme: dark"), end = page.find("body {");
  REQUIRE(end != std::string::npos);
  const std::regex variable("--([a-z]+): (#[0-9a-f]{6});");
  for (const std::string& theme : {page.substr(0, dark), page.substr(dark, end - dark)}) {
    std::map<std::string, std::string> colours;
    for (std::sregex_iterator it(theme.begin(), theme.end(), variable), last; it != last; ++it)
      colours[(*it)[1]] = (*it)[2];
    REQUIRE(colours.size() == svg::kColours + 3);
    const double ground = luminance(colours["ground"]);
    std::set<std::string> distinct;
    for (const auto& [name, colour] : colours) {
      distinct.insert(colour);
      if (name == "ground" || name == "faint") continue;
      const double own = luminance(colour);
      CAPTURE(name);
      CHECK((std::max(own, ground) + 0.05) / (std::min(own, ground) + 0.05) >= 3);
    }
    CHECK(distinct.size() == colours.size());
  }
  for (std::size_t i = 0; i < svg::kColours; ++i) CHECK(page.find(fmt::format(".c{} {{", i)) != std::string::npos);
}

TEST_CASE("each kind of points has its own shape") {
  std::set<std::string> shapes;
  for (std::size_t kind = 0; kind < svg::kColours; ++kind) {
    const std::string text = svg::marker_svg(kind, {1, 2}, "t");
    shapes.insert(text.substr(text.find("</title>")));
  }
  CHECK(shapes.size() == svg::kColours);
}

}  // namespace
}  // namespace kvjit
