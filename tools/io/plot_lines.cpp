// Draws line charts: lines_svg of plot.hpp.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/io/svg.hpp"

namespace kvjit {
namespace {

using namespace svg;

// Maps numbers to 0 .. 1 along an axis, and chooses its ticks.
class Scale {
 public:
  Scale(const Axis& axis, const std::vector<Series>& series, double Point::*of) : is_log_(axis.is_log) {
    double low = 1e300, high = -1e300;
    for (const Series& line : series)
      for (const Point& point : line.points) low = std::min(low, point.*of), high = std::max(high, point.*of);
    if (is_log_) {
      low_ = std::log2(low), high_ = std::log2(high);
      const double margin = std::max(0.06 * (high_ - low_), 0.1);
      low_ -= margin, high_ += margin;
    } else {
      high_ = high > 0 ? 1.06 * high : 1;
    }
  }

  double operator()(double value) const { return ((is_log_ ? std::log2(value) : value) - low_) / (high_ - low_); }

  std::vector<double> ticks() const {
    constexpr double kMost = 12;
    std::vector<double> ticks;
    if (is_log_) {
      const double step = std::max(1.0, std::ceil((high_ - low_) / kMost));
      for (double power = std::ceil(low_); power <= high_; power += step) ticks.push_back(std::exp2(power));
      return ticks;
    }
    double step = std::pow(10, std::floor(std::log10(high_)));  // at most 10 steps; finer if these are few
    if (high_ / step < 5) step /= high_ / step < 2 ? 5 : 2;
    for (double value = 0; value <= high_; value += step) ticks.push_back(value);
    return ticks;
  }

 private:
  bool is_log_;
  double low_ = 0, high_ = 1;
};

// The ends of each line.
std::string description(const Axis& x, const Axis& y, const std::vector<Series>& series) {
  std::string text = "Lines with their first and last points: ", separator;
  for (const Series& line : series) {
    if (line.points.empty()) continue;
    const Point &first = line.points.front(), &last = line.points.back();
    text += fmt::format("{}{} ({}, {} to {}, {})", separator, line.label, x.print(first.first), y.print(first.second),
                        x.print(last.first), y.print(last.second));
    separator = "; ";
  }
  return text + ".";
}

}  // namespace

std::string lines_svg(const Axis& x, const Axis& y, const std::vector<Series>& series) {
  constexpr double kHeight = 520;
  if (std::all_of(series.begin(), series.end(), [](const Series& line) { return line.points.empty(); })) return "";
  const Box area{kLeft, kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom};
  const Scale across(x, series, &Point::first), up(y, series, &Point::second);
  double label_space = 0;  // pixels to the right of the last points
  for (const Series& line : series) label_space = std::max(label_space, label_size(line.label).first);
  const auto x_of = [&](double value) { return area.left + (area.width - label_space) * across(value); };
  const auto y_of = [&](double value) { return area.top + area.height * (1 - up(value)); };

  std::string svg;
  for (const double tick : across.ticks()) {
    svg += line_svg(x_of(tick), area.top, x_of(tick), area.top + area.height, "grid");
    svg += text_svg(x_of(tick), area.top + area.height + 16, "middle", x.print(tick));
  }
  for (const double tick : up.ticks()) {
    svg += line_svg(area.left, y_of(tick), area.left + area.width, y_of(tick), "grid");
    svg += text_svg(area.left - 6, y_of(tick) + 4, "end", y.print(tick));
  }
  std::vector<Point> ends, sizes;
  std::vector<std::string> names;
  int colour = 0;
  for (const Series& line : series) {
    if (line.points.empty()) continue;
    const std::string kind = line.is_roof ? "roof" : fmt::format("c{}", colour++ % kColours);
    std::string path;
    for (const Point& point : line.points) path += fmt::format("{:.1f},{:.1f} ", x_of(point.first), y_of(point.second));
    svg += fmt::format("<polyline class=\"{} line\" points=\"{}\"/>\n", kind, path);
    for (const Point& point : line.points)
      svg += fmt::format(
          "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {}, {}</title></circle>\n", kind,
          x_of(point.first), y_of(point.second), escaped(line.label), x.print(point.first), y.print(point.second));
    ends.emplace_back(x_of(line.points.back().first), y_of(line.points.back().second));
    sizes.push_back(label_size(line.label));
    names.push_back(line.label);
  }
  const std::vector<Box> labels = place_labels(ends, sizes, area);
  for (std::size_t i = 0; i < ends.size(); ++i) svg += leader_svg(labels[i], ends[i]) + label_svg(labels[i], names[i]);
  return picture_svg(kHeight, y.title + " against " + x.title, description(x, y, series),
                     panel_svg(area, x.title, y.title, svg));
}

}  // namespace kvjit
