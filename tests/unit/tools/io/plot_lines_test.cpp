// tools/io/plot_lines.cpp: every point of a line chart is drawn at its coordinates, ticks are round numbers, and a
// chart of one point works.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <regex>

#include "tools/io/plot.hpp"

namespace kvjit {
namespace {

std::string plain(double value) { return fmt::format("{:g}", value); }

// Returns the centres of all circles in the SVG text.
std::vector<Point> circles(const std::string& svg) {
  std::vector<Point> places;
  const std::regex circle("<circle[^>]* cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), circle), end; it != end; ++it)
    places.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  return places;
}

TEST_CASE("logarithmic across, linear up: steps of a factor are equal steps, twice as much is twice as high") {
  const std::string svg = lines_svg({"tokens", true, plain}, {"GB/s", false, plain},
                                    {{"a", {{1024, 100}, {4096, 200}, {16384, 400}}, false}});
  const auto at = circles(svg);
  REQUIRE(at.size() == 3);
  CHECK(at[1].first - at[0].first == doctest::Approx(at[2].first - at[1].first).epsilon(0.001));
  CHECK(at[1].second - at[2].second == doctest::Approx(2 * (at[0].second - at[1].second)).epsilon(0.002));
  for (const char* tick : {">1024<", ">2048<", ">16384<", ">0<", ">200<", ">400<"})
    CHECK_MESSAGE(svg.find(tick) != std::string::npos, tick);
}

TEST_CASE("logarithmic both ways: a line of slope 1 is straight") {
  const auto at = circles(
      lines_svg({"tokens", true, plain}, {"us", true, plain}, {{"a", {{1, 10}, {16, 160}, {256, 2560}}, false}}));
  REQUIRE(at.size() == 3);
  CHECK(at[1].first - at[0].first == doctest::Approx(at[2].first - at[1].first).epsilon(0.001));
  CHECK(at[0].second - at[1].second == doctest::Approx(at[1].second - at[2].second).epsilon(0.001));
  CHECK(at[0].second > at[1].second);
}

TEST_CASE("one point, no point, and names that need escaping") {
  const std::string svg = lines_svg({"x", true, plain}, {"y", false, plain},
                                    {{"a<b", {{8, 3}}, false}, {"none", {}, false}, {"roof", {{8, 4}}, true}});
  CHECK(circles(svg).size() == 2);
  CHECK(svg.find("a&lt;b") != std::string::npos);
  CHECK(svg.find("role=\"img\" aria-label=\"y against x\">") != std::string::npos);
  CHECK(svg.find("first and last points: a&lt;b (8, 3 to 8, 3); roof (8, 4 to 8, 4).</desc>") != std::string::npos);
  CHECK(svg.find("none") == std::string::npos);
  CHECK(svg.find("class=\"roof line\"") != std::string::npos);
  CHECK(svg.find("class=\"c0 line\"") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(lines_svg({"x", true, plain}, {"y", true, plain}, {{"none", {}, false}}).empty());
}

TEST_CASE("ticks of a linear axis are round and few, whatever the size") {
  const std::regex up("text-anchor=\"end\">([^<]*)<");
  for (const double high : {0.013, 0.9, 4.0, 17.0, 4800.0, 99000.0}) {
    const std::string svg =
        lines_svg({"x", true, plain}, {"y", false, plain}, {{"a", {{1, high}, {2, high / 2}}, false}});
    std::vector<double> ticks;
    for (std::sregex_iterator it(svg.begin(), svg.end(), up), end; it != end; ++it)
      ticks.push_back(std::stod((*it)[1]));
    CAPTURE(high);
    REQUIRE(ticks.size() >= 4);
    CHECK(ticks.size() <= 12);
    CHECK(ticks[0] == 0);
    const double lead = ticks[1] / std::pow(10, std::floor(std::log10(ticks[1]) + 1e-9));
    CHECK((std::abs(lead - 1) < 1e-6 || std::abs(lead - 2) < 1e-6 || std::abs(lead - 5) < 1e-6));
  }
}

}  // namespace
}  // namespace kvjit
