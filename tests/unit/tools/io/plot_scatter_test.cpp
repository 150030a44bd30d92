// tools/io/plot_scatter.cpp: the frontier, one or two panels, points without error, ticks, colours and names.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "tests/support/rng.hpp"
#include "tools/io/plot.hpp"
#include "tools/io/scale.hpp"

namespace kvjit {
namespace {

const Zoom kZoom = {"2 to 5 bits", 2, 5};

Scatter scatter_of(const std::vector<PlotPoint>& points, const Zoom& zoom = kZoom) {
  return {"bits", "error", {"floats", "integers", "a<b"}, points, zoom};
}

// As many points as a table of all formats has, most of them from 2 to 5 bits.
std::vector<PlotPoint> many_points() {
  std::vector<PlotPoint> points = {
      {1.125, 0.8, "kv1", 1}, {8.5, 5e-3, "q8_0", 1}, {16, 2e-3, "bf16", 0}, {16, 0, "f16", 0}, {32, 0, "f32", 0}};
  test::Rng rng(3);
  for (int i = 0; i < 50; ++i) {
    const double bits = (i % 3) + 2.125 + 0.125 * (i % 2);
    points.push_back({bits, std::exp2(-bits + 0.1 * rng.normal()), fmt::format("format_of_a_fork_{}", i), 2});
  }
  return points;
}

struct Text {
  double x, y;
  std::string text;
  bool is_label;
};

std::vector<Text> texts(const std::string& svg) {
  std::vector<Text> all;
  const std::regex text("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" text-anchor=\"[a-z]+\"([^>]*)>([^<]*)<");
  for (std::sregex_iterator it(svg.begin(), svg.end(), text), end; it != end; ++it)
    all.push_back({std::stod((*it)[1]), std::stod((*it)[2]), (*it)[4],
                   (*it)[3].str().find("class=\"label") != std::string::npos});
  return all;
}

struct Marker {
  std::string colour;
  double x, y;
  std::string title;
};

std::vector<Marker> markers(const std::string& svg) {
  std::vector<Marker> all;
  const std::regex marker("<g class=\"(c[0-9]) marker\" transform=\"translate.([0-9.]+) ([0-9.]+).\"><title>([^<]*)<");
  for (std::sregex_iterator it(svg.begin(), svg.end(), marker), end; it != end; ++it)
    all.push_back({(*it)[1], std::stod((*it)[2]), std::stod((*it)[3]), (*it)[4]});
  return all;
}

std::vector<Box> frames(const std::string& svg) {
  std::vector<Box> all;
  const std::regex frame("class=\"frame\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" height=\"([0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), frame), end; it != end; ++it)
    all.push_back({std::stod((*it)[1]), std::stod((*it)[2]), std::stod((*it)[3]), std::stod((*it)[4])});
  return all;
}

// The level and the upright lines of the frontier, that of the legend included.
std::vector<Box> frontier_lines(const std::string& svg) {
  std::vector<Box> all;
  const std::regex line("class=\"frontier\" x1=\"([-0-9.]+)\" y1=\"([-0-9.]+)\" x2=\"([-0-9.]+)\" y2=\"([-0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), line), end; it != end; ++it) {
    const double left = std::stod((*it)[1]), top = std::stod((*it)[2]);
    all.push_back({left, top, std::stod((*it)[3]) - left, std::stod((*it)[4]) - top});
  }
  return all;
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST_CASE("the frontier has the points that no other point beats") {
  CHECK(frontier({{4, 0.1, "a"}, {2, 0.5, "b"}, {3, 0.6, "c"}, {4, 0.2, "d"}, {8, 0.01, "e"}, {9, 0.1, "f"}}) ==
        std::vector<std::size_t>{1, 0, 4});
  CHECK(frontier({{16, 0, "f16"}, {32, 0, "f32"}, {16, 1e-3, "bf16"}}) == std::vector<std::size_t>{0});
  CHECK(frontier({{4, 0.1, "twice"}, {4, 0.1, "twice"}}).size() == 2);
  CHECK(frontier({}).empty());
  test::Rng rng(4);
  std::vector<PlotPoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({std::exp(rng.normal()), std::exp(rng.normal()), ""});
  const std::vector<std::size_t> best = frontier(points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool is_beaten = std::any_of(points.begin(), points.end(), [&](const PlotPoint& p) {
      return p.x < points[i].x && p.y < points[i].y;  // no two numbers are equal
    });
    CHECK((std::count(best.begin(), best.end(), i) == 1) == !is_beaten);
  }
}

TEST_CASE("the frontier is drawn behind the markers, inside the panels, and has an entry in the legend") {
  const std::string svg = scatter_svg(scatter_of(many_points()));
  CHECK(count(svg, ">frontier") == 1);
  CHECK(count(svg, "class=\"label best\"") >= 3);
  const std::vector<Box> areas = frames(svg);
  REQUIRE(areas.size() == 2);
  int inside = 0;
  for (const Box& box : frontier_lines(svg)) {
    if (box.top < areas[0].top) continue;  // of the legend
    ++inside;
    CHECK((box.width == 0 || box.height == 0));
    CHECK((areas[0].contains(box) || areas[1].contains(box)));
  }
  CHECK(inside > 8);
  const std::size_t panel = svg.find("class=\"grid\"");
  CHECK(svg.find("class=\"frontier\"", panel) < svg.find(" marker\"", panel));
}

TEST_CASE("the frontier leaves the zoomed panel through its edges") {
  // The exact point is no point of the zoom: from its x the frontier falls out of the panel, if that is in the panel.
  for (const double exact : {3.5, 16.0}) {
    CAPTURE(exact);
    const std::string svg =
        scatter_svg(scatter_of({{2.5, 0.4, "a"}, {3, 0.3, "b"}, {4, 0.1, "c"}, {exact, 0, "exact"}, {8, 0.2, "d"}}));
    const std::vector<Box> areas = frames(svg);
    REQUIRE(areas.size() == 2);
    const std::vector<Box> lines = frontier_lines(svg);
    REQUIRE(!lines.empty());
    const Box& last = lines.back();
    if (exact < 4) {
      CHECK(last.width == 0);
      CHECK(last.top + last.height == doctest::Approx(areas[1].top + areas[1].height));
    } else {
      CHECK(last.height == 0);
      CHECK(last.left + last.width == doctest::Approx(areas[1].left + areas[1].width));
    }
  }
}

TEST_CASE("the legend names the kinds of the chart and no other, each with its own marker") {
  const std::string svg = scatter_svg(scatter_of({{4, 0.1, "q4", 1}, {16, 1e-3, "bf16", 2}}));
  CHECK(svg.find(">integers<") != std::string::npos);
  CHECK(svg.find(">a&lt;b<") != std::string::npos);
  CHECK(svg.find(">floats<") == std::string::npos);
  const std::vector<Marker> all = markers(svg);
  REQUIRE(all.size() == 4);
  CHECK(all[0].colour == "c1");
  CHECK(all[1].colour == "c2");
  CHECK(all[2].colour == "c1");
  CHECK(all[2].title == "q4 (integers): 4, 0.1");
  CHECK(all[3].title == "bf16 (a&lt;b): 16, 0.001");
}

TEST_CASE("a second panel shows the zoomed points and their labels, if there are enough and others are outside") {
  const std::string svg = scatter_svg(scatter_of(many_points()));
  const std::vector<Box> areas = frames(svg);
  REQUIRE(areas.size() == 2);
  CHECK(areas[1].top > areas[0].top + areas[0].height);
  int below = 0, above = 0;
  for (const Marker& one : markers(svg))
    below += one.y > areas[1].top, above += areas[0].contains({one.x, one.y, 0, 0});
  CHECK(below == 50);
  CHECK(above == 55);
  int labels = 0;
  for (const Text& text : texts(svg)) {
    if (!text.is_label) continue;
    ++labels;
    const bool is_zoomed = text.text.starts_with("format_of_a_fork_");
    CHECK(areas[is_zoomed ? 1 : 0].contains({text.x, text.y - 10, 6.7 * double(text.text.size()), 10}));
  }
  CHECK(labels == 55);

  const std::vector<PlotPoint> few = {{4, 0.1, "a"}, {3, 0.2, "b"}, {8, 0.01, "c"}};
  const std::vector<PlotPoint> within = {{4, 0.1, "a"}, {3, 0.2, "b"}, {2.5, 0.3, "c"}};
  for (const auto& points : {few, within}) {
    const std::string one = scatter_svg(scatter_of(points));
    CHECK(frames(one).size() == 1);
    CHECK(one.find("2 to 5 bits") == std::string::npos);
    for (const char* label : {">a<", ">b<", ">c<"}) CHECK(count(one, label) == 1);
  }
  CHECK(frames(scatter_svg(scatter_of(many_points(), {}))).size() == 1);
}

TEST_CASE("labels of a panel overlap neither each other nor a marker, and few leaders cross") {
  const std::string svg = scatter_svg(scatter_of(many_points()));
  std::vector<Box> labels;
  for (const Text& text : texts(svg))
    if (text.is_label) labels.push_back({text.x, text.y - 9, 6.7 * double(text.text.size()), 11});
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(labels[i].overlaps(labels[j]));
    for (const Marker& one : markers(svg)) CHECK_FALSE(labels[i].overlaps({one.x - 3, one.y - 3, 6, 6}));
  }
}

TEST_CASE("points without error stand in a narrow band and stretch no axis") {
  const std::vector<PlotPoint> inexact = {{2, 0.5, "a"}, {4, 0.1, "b"}, {8, 0.01, "c"}};
  std::vector<PlotPoint> all = inexact;
  all.push_back({16, 0, "f16"});
  all.push_back({4, 0, "at 4"});
  const std::string before = scatter_svg(scatter_of(inexact, {})), after = scatter_svg(scatter_of(all, {}));
  const std::vector<Marker> old_places = markers(before), places = markers(after);
  REQUIRE(old_places.size() == 4);  // one of the legend
  REQUIRE(places.size() == 6);
  const Box area = frames(after).at(0);
  // The axis is only narrower by the space beside it.
  CHECK(places[1].x - area.left < old_places[1].x - area.left + 1);
  CHECK(places[3].x - places[1].x > 0.85 * (old_places[3].x - old_places[1].x));
  for (std::size_t i = 1; i < 4; ++i) {
    CHECK(std::abs(places[i].y - old_places[i].y) < 0.08 * area.height);
  }
  for (std::size_t i = 4; i < 6; ++i) {
    CHECK(places[i].y > area.top + 0.92 * area.height);
    CHECK(area.contains({places[i].x - 3, places[i].y - 3, 6, 6}));
  }
  CHECK(places[4].x > places[3].x + 30);
  CHECK(places[5].x == places[2].x);  // both have 4
  CHECK(after.find(">f16 (16)<") != std::string::npos);
  CHECK(after.find(">at 4<") != std::string::npos);
  CHECK(after.find(">exact<") != std::string::npos);
  CHECK(before.find(">exact<") == std::string::npos);
}

TEST_CASE("ticks are numbers that people read") {
  using Numbers = std::vector<double>;
  CHECK(svg::tick_text(1) == "1");
  CHECK(svg::tick_text(0.1) == "0.1");
  CHECK(svg::tick_text(0.05) == "0.05");
  CHECK(svg::tick_text(0.01) == "0.01");
  CHECK(svg::tick_text(1e-3) == "1e-3");
  CHECK(svg::tick_text(5 * std::pow(10, -7)) == "5e-7");
  CHECK(svg::tick_text(0) == "0");
  CHECK(svg::tick_text(12.5) == "12.5");
  const auto close = [](const Numbers& have, const Numbers& want) {
    REQUIRE(have.size() == want.size());
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(have[i] == doctest::Approx(want[i]));
  };
  close(svg::Scale(1.1e-3, 0.9, true, 0.7).decades(), {0.001, 0.01, 0.1, 1});
  close(svg::Scale(0.06, 0.9, true, 0.7).decades(), {0.1, 0.2, 0.5, 1});
  close(svg::Scale(0.21, 0.7, true, 0.7).decades(), {0.2, 0.3, 0.5, 0.7});
  close(svg::Scale(1.125, 16, true, 0.1).doublings(), {1, 1.5, 2, 3, 4, 6, 8, 12, 16});
  close(svg::Scale(2.125, 4.5, false, 0.1).even(), {2.5, 3, 3.5, 4, 4.5});
  for (const double high : {2.2, 3.0, 17.0, 480.0}) {
    CAPTURE(high);
    const Numbers even = svg::Scale(2, high, false, 0.1).even();
    CHECK(even.size() >= 2);
    CHECK(even.size() <= 9);
  }
  // Errors that are nearly equal have ticks, too.
  const svg::Scale narrow(0.31, 0.32, true, 0.7);
  CHECK(narrow.decades().size() >= 2);
  CHECK(narrow(0.31) > 0.4);
  CHECK(narrow(0.32) < 0.6);

  const std::string svg = scatter_svg(scatter_of(many_points()));
  CHECK(svg.find(">0.1<") != std::string::npos);
  CHECK(svg.find("1e0") == std::string::npos);
}

TEST_CASE("a chart has a name and a description, and no number that is none") {
  const std::string svg = scatter_svg(scatter_of(many_points()));
  CHECK(count(svg, "<svg") == 1);
  CHECK(svg.find("role=\"img\" aria-label=\"error against bits\">") != std::string::npos);
  CHECK(svg.find("<title>error against bits</title>") != std::string::npos);
  CHECK(svg.find("<desc>55 points: floats; integers; a&lt;b. Frontier, from left to right: kv1 (1.125, 0.8), ") !=
        std::string::npos);
  CHECK(scatter_svg(scatter_of({})).empty());
  for (const auto& points : {many_points(),
                             {{16, 0, "f16"}},
                             {{16, 0, "f16"}, {32, 0, "f32"}},
                             {{4, 0.1, "alone"}},
                             {{4, 0.1, "same"}, {4, 0.1, "same"}, {4, 0.1, "same"}, {9, 0.1, "c"}}}) {
    const std::string one = scatter_svg(scatter_of(points));
    CHECK(one.find("nan") == std::string::npos);
    CHECK(one.find("inf") == std::string::npos);
    CHECK(frames(one).size() >= 1);
  }
}

}  // namespace
}  // namespace kvjit
