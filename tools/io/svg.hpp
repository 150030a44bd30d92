// The SVG elements of charts: text, lines, frames. Only the files that implement plot.hpp include this one.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "tools/io/plot.hpp"

namespace kvjit::svg {

// Sizes in pixels.
constexpr double kWidth = 960;  // width of the picture
constexpr double kLeft = 80;    // margin for the numbers of the y axis
constexpr double kRight = 20;   // margin
constexpr double kTop = 16;     // margin
constexpr double kBottom = 52;  // margin for the numbers and the title of the x axis
constexpr double kMarker = 4;   // radius of a point
constexpr double kLabelHeight = 13;

std::string text_svg(double x, double y, const char* anchor, const std::string& text, const char* extra = "");
std::string line_svg(double x1, double y1, double x2, double y2, const char* kind);
// The whole picture: the frame around `area`, `inside` in it, and the titles of the axes.
std::string frame_svg(double height, const Box& area, const std::string& x_title, const std::string& y_title,
                      const std::string& inside);

Point label_size(const std::string& label);
std::string label_svg(const Box& box, const std::string& label);
std::string leader_svg(const Box& label, const Point& point);  // empty if the label is next to its point

}  // namespace kvjit::svg
