// Writes the SVG elements of charts: see svg.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/svg.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <numbers>

#include "tools/io/report.hpp"

namespace kvjit {

std::string escaped(const std::string& text) {
  return with_replaced(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

namespace svg {

std::string text_svg(double x, double y, const char* anchor, const std::string& text, const char* extra) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, extra,
                     escaped(text));
}

std::string line_svg(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1, x2,
                     y2);
}

std::string marker_svg(std::size_t kind, const Point& at, const std::string& title) {
  // Stars of some spokes, whose corners lie at a radius and between the spokes at a part of it. With a part of 0 there
  // are no corners between. The radii give all shapes about the same area.
  struct Shape {
    int spokes;     // 0: a circle
    double radius;  // in kMarker
    double part;
    double angle;  // of the first spoke, in revolutions; 0 is up
  };
  constexpr Shape kShapes[] = {{0, 1, 0, 0},      {4, 1.25, 0, 0.125}, {3, 1.5, 0, 0},
                               {4, 1.4, 0, 0},    {3, 1.5, 0, 0.5},    {4, 1.5, 0.45, 0.125},
                               {5, 1.6, 0.45, 0}, {4, 1.6, 0.45, 0},   {6, 1.15, 0, 0}};
  static_assert(std::size(kShapes) == kColours);
  const Shape& shape = kShapes[kind % kColours];
  std::string form = fmt::format("<circle r=\"{:.1f}\"/>", kMarker);
  if (shape.spokes > 0) {
    std::string corners;
    const int count = shape.spokes * (shape.part > 0 ? 2 : 1);
    for (int i = 0; i < count; ++i) {
      const double angle = 2 * std::numbers::pi * (shape.angle + static_cast<double>(i) / count);
      const double radius = kMarker * shape.radius * (shape.part > 0 && i % 2 == 1 ? shape.part : 1);
      corners += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", radius * std::sin(angle), -radius * std::cos(angle));
    }
    form = fmt::format("<polygon points=\"{}\"/>", corners);
  }
  return fmt::format("<g class=\"c{} marker\" transform=\"translate({:.1f} {:.1f})\"><title>{}</title>{}</g>\n",
                     kind % kColours, at.first, at.second, escaped(title), form);
}

std::string panel_svg(const Box& area, const std::string& x_title, const std::string& y_title,
                      const std::string& inside) {
  return inside +
         fmt::format("<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                     area.left, area.top, area.width, area.height) +
         text_svg(area.left + area.width / 2, area.top + area.height + kBottom - 16, "middle", x_title) +
         text_svg(0, 0, "middle", y_title,
                  fmt::format(" transform=\"translate(14 {:.1f}) rotate(-90)\"", area.top + area.height / 2).c_str());
}

std::string picture_svg(double height, const std::string& name, const std::string& description,
                        const std::string& inside) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n<desc>{}</desc>\n{}"
      "</svg>\n",
      kWidth, height, escaped(name), escaped(name), escaped(description), inside);
}

Point label_size(const std::string& label) {
  constexpr double kLetter = 6.7;  // pixels of width of a letter of 11 px monospace text
  return {kLetter * static_cast<double>(label.size()) + 2, kLabelHeight};
}

std::string label_svg(const Box& box, const std::string& label, const char* kind) {
  if (box.width <= 0) return "";  // no place was free
  return text_svg(box.left + 1, box.top + kLabelHeight - 3, "start", label, fmt::format(" class=\"{}\"", kind).c_str());
}

std::string leader_svg(const Box& label, const Point& point) {
  const auto [x, y] = leader_end(label, point);
  if (label.width <= 0 || std::hypot(x - point.first, y - point.second) <= 3 * kMarker) return "";
  return line_svg(point.first, point.second, x, y, "leader");
}

}  // namespace svg
}  // namespace kvjit
