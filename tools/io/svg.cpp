// Writes the SVG elements of charts: see svg.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/svg.hpp"

#include <fmt/format.h>

#include <cmath>

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

std::string frame_svg(double height, const Box& area, const std::string& x_title, const std::string& y_title,
                      const std::string& inside) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n", kWidth, height) +
         fmt::format("<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                     area.left, area.top, area.width, area.height) +
         inside + text_svg(area.left + area.width / 2, height - 8, "middle", x_title) +
         text_svg(0, 0, "middle", y_title,
                  fmt::format(" transform=\"translate(14 {:.1f}) rotate(-90)\"", area.top + area.height / 2).c_str()) +
         "</svg>\n";
}

Point label_size(const std::string& label) {
  constexpr double kLetter = 6.7;  // pixels of width of a letter of 11 px monospace text
  return {kLetter * static_cast<double>(label.size()) + 2, kLabelHeight};
}

std::string label_svg(const Box& box, const std::string& label) {
  if (box.width <= 0) return "";  // no place was free
  return text_svg(box.left + 1, box.top + kLabelHeight - 3, "start", label, " class=\"label\"");
}

std::string leader_svg(const Box& label, const Point& point) {
  const auto [x, y] = leader_end(label, point);
  if (label.width <= 0 || std::hypot(x - point.first, y - point.second) <= 3 * kMarker) return "";
  return line_svg(point.first, point.second, x, y, "leader");
}

}  // namespace svg
}  // namespace kvjit
