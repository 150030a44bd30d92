// Draws scatter plots, bars, labels and pages: see plot.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tools/io/svg.hpp"

namespace kvjit {
namespace {

using namespace svg;

constexpr double kHeightPerLabel = 16;  // pixels of a plot's height for each label, so that all labels fit

Box around(const Point& point) { return {point.first - kMarker, point.second - kMarker, 2 * kMarker, 2 * kMarker}; }

}  // namespace

Point leader_end(const Box& label, const Point& point) {
  return {std::clamp(point.first, label.left, label.left + label.width),
          std::clamp(point.second, label.top, label.top + label.height)};
}

// Clips the line to the box, one pair of parallel sides after the other (Liang and Barsky 1984).
bool crosses(const Point& from, const Point& to, const Box& box) {
  double enter = 0, leave = 1;
  const auto clip = [&](double start, double step, double low, double high) {
    if (step == 0) return start > low && start < high;
    const double a = (low - start) / step, b = (high - start) / step;
    enter = std::max(enter, std::min(a, b));
    leave = std::min(leave, std::max(a, b));
    return enter < leave;
  };
  return clip(from.first, to.first - from.first, box.left, box.left + box.width) &&
         clip(from.second, to.second - from.second, box.top, box.top + box.height);
}

std::vector<Box> place_labels(const std::vector<Point>& points, const std::vector<Point>& sizes, const Box& area) {
  constexpr int kDirections = 48;
  constexpr double kGap = 3, kStep = 4;
  constexpr double kCrossing = 50;  // cost of a leader line across a label, in pixels of distance
  std::vector<Box> placed(points.size());
  const auto is_free = [&](const Box& box) {
    return area.contains(box) &&
           std::none_of(placed.begin(), placed.end(), [&](const Box& other) { return box.overlaps(other); }) &&
           std::none_of(points.begin(), points.end(), [&](const Point& p) { return box.overlaps(around(p)); });
  };
  // Counts the labels that the leader line of label i crosses, and the leader lines that cross label i.
  const auto crossings = [&](std::size_t i, const Box& box) {
    int count = 0;
    for (std::size_t j = 0; j < placed.size(); ++j)
      if (placed[j].width > 0)
        count += crosses(points[j], leader_end(placed[j], points[j]), box) +
                 crosses(points[i], leader_end(box, points[i]), placed[j]);
    return count;
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [width, height] = sizes[i];
    Box found;
    double least = area.width + area.height;
    for (double reach = kMarker + kGap; reach < least; reach += kStep)
      for (int direction = 0; direction < kDirections; ++direction) {
        // Direction 0 is to the right, where a label reads best.
        const double angle = 2 * std::numbers::pi * direction / kDirections;
        const double along = std::cos(angle), down = std::sin(angle);
        const Box box{points[i].first + along * (reach + width / 2) - width / 2,
                      points[i].second + down * (reach + height / 2) - height / 2, width, height};
        if (!is_free(box)) continue;
        if (const double cost = reach + kCrossing * crossings(i, box); cost < least) least = cost, found = box;
      }
    placed[i] = found;
  }
  return placed;
}

std::string scatter_svg(const std::string& x_title, const std::string& y_title, const std::vector<PlotPoint>& points) {
  double x_low = 1e300, x_high = -1e300, y_low = 1e300, y_high = 1e-300;
  bool has_zero = false;
  for (const PlotPoint& p : points) {
    x_low = std::min(x_low, p.x), x_high = std::max(x_high, p.x);
    if (p.y > 0)
      y_low = std::min(y_low, p.y), y_high = std::max(y_high, p.y);
    else
      has_zero = true;
  }
  if (points.empty()) return "";
  if (y_low > y_high) y_low = 0.1, y_high = 1;  // all y are 0
  const int decade_low = static_cast<int>(std::floor(std::log10(y_low))) - has_zero;
  const int decade_high = std::max(decade_low + 1, static_cast<int>(std::ceil(std::log10(y_high))));
  const double log_low = std::log2(x_low / 1.15), log_high = std::log2(x_high * 1.25);
  const double height = std::max(520.0, kTop + kBottom + kHeightPerLabel * static_cast<double>(points.size()));
  const Box area{kLeft, kTop, kWidth - kLeft - kRight, height - kTop - kBottom};
  const auto x_of = [&](double x) { return area.left + area.width * (std::log2(x) - log_low) / (log_high - log_low); };
  const auto y_of = [&](double y) {
    const double decade = y > 0 ? std::log10(y) : decade_low;
    return area.top + area.height * (decade_high - decade) / (decade_high - decade_low);
  };

  std::string svg;
  for (const double tick : {0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0}) {
    if (std::log2(tick) < log_low || std::log2(tick) > log_high) continue;
    svg += line_svg(x_of(tick), area.top, x_of(tick), area.top + area.height, "grid");
    svg += text_svg(x_of(tick), area.top + area.height + 16, "middle", fmt::format("{:g}", tick));
  }
  for (int decade = decade_low; decade <= decade_high; ++decade) {
    const double y = y_of(decade == decade_low && has_zero ? 0 : std::pow(10.0, decade));
    svg += line_svg(area.left, y, area.left + area.width, y, "grid");
    svg +=
        text_svg(area.left - 6, y + 4, "end", decade == decade_low && has_zero ? "exact" : fmt::format("1e{}", decade));
  }
  std::vector<Point> places, sizes;
  for (const PlotPoint& p : points) {
    places.emplace_back(x_of(p.x), y_of(p.y));
    sizes.push_back(label_size(p.label));
  }
  const std::vector<Box> labels = place_labels(places, sizes, area);
  for (std::size_t i = 0; i < points.size(); ++i) svg += leader_svg(labels[i], places[i]);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [x, y] = places[i];
    svg += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.0f}\"><title>{}: {:g}, {:.3g}</title></circle>\n",
        points[i].is_hollow ? "hollow" : "solid", x, y, kMarker, escaped(points[i].label), points[i].x, points[i].y);
    svg += label_svg(labels[i], points[i].label);
  }
  return frame_svg(height, area, x_title, y_title, svg);
}

std::string bars_svg(const std::string& x_title, const std::string& y_title, const std::vector<double>& bars,
                     const std::vector<bool>& marked, double line) {
  constexpr double kHeight = 320;
  const Box area{kLeft, kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom};
  double high = line;
  for (const double bar : bars) high = std::max(high, bar);
  if (high <= 0) high = 1;
  const auto y_of = [&](double y) { return area.top + area.height * (1 - y / (1.05 * high)); };
  const double step = area.width / static_cast<double>(bars.size());
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    const double y = high * i / 4;
    svg += line_svg(area.left, y_of(y), area.left + area.width, y_of(y), "grid");
    svg += text_svg(area.left - 6, y_of(y) + 4, "end", fmt::format("{:.3g}", y));
  }
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double x = area.left + step * static_cast<double>(i);
    svg += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}: "
        "{:.4g}</title></rect>\n",
        marked[i] ? "marked" : "bar", x, y_of(bars[i]), 0.8 * step, y_of(0) - y_of(bars[i]), i, bars[i]);
    if (i % 16 == 0) svg += text_svg(x + 0.4 * step, area.top + area.height + 16, "middle", std::to_string(i));
  }
  svg += line_svg(area.left, y_of(line), area.left + area.width, y_of(line), "leader");
  return frame_svg(kHeight, area, x_title, y_title, svg);
}

std::string html_table(const std::vector<std::string>& headings, const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>\n<tr>";
  for (const std::string& heading : headings) html += "<th>" + escaped(heading) + "</th>";
  html += "</tr>\n";
  for (const auto& row : rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += "<td>" + escaped(cell) + "</td>";
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string html_page(const std::string& title, const std::string& body) {
  constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1c1c1c; --faint: #d9d9d9;
  --one: #1f5fbf; --two: #c2410c; --three: #15803d; --four: #7e22ce; --five: #a16207; --six: #0e7490; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e4e4e4; --faint: #3a3d44;
    --one: #7fb0ff; --two: #ff9a5c; --three: #6ee7a0; --four: #d8b4fe; --five: #fcd34d; --six: #67e8f9; }
}
body { background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; max-width: 1000px;
  margin: 24px auto; padding: 0 16px; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 11px ui-monospace, monospace; }
.frame { fill: none; stroke: var(--ink); }
.grid { stroke: var(--faint); }
.leader { stroke: var(--ink); stroke-width: 0.6; opacity: 0.6; }
.solid, .bar { fill: var(--one); }
.hollow { fill: var(--ground); stroke: var(--two); stroke-width: 2; }
.marked { fill: var(--two); }
.c0 { stroke: var(--one); fill: var(--one); }
.c1 { stroke: var(--two); fill: var(--two); }
.c2 { stroke: var(--three); fill: var(--three); }
.c3 { stroke: var(--four); fill: var(--four); }
.c4 { stroke: var(--five); fill: var(--five); }
.c5 { stroke: var(--six); fill: var(--six); }
.roof { stroke: var(--ink); fill: var(--ink); }
.line { fill: none; stroke-width: 1.5; }
.roof.line { stroke-dasharray: 6 4; }
table { border-collapse: collapse; font: 12px ui-monospace, monospace; }
th, td { padding: 2px 10px 2px 0; text-align: left; border-bottom: 1px solid var(--faint); }
)";
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n<style>{1}</style>\n"
      "</head>\n<body>\n<h1>{0}</h1>\n{2}</body>\n</html>\n",
      escaped(title), kStyle, body);
}

}  // namespace kvjit
