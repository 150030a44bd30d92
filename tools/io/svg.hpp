// Pieces of SVG that plots are made of. Internal to the files of plot.hpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "tools/io/plot.hpp"

namespace kvjit::svg {

constexpr double kWidth = 960, kLeft = 80, kRight = 20, kTop = 16, kBottom = 52;
constexpr double kMarker = 4;  // radius
constexpr double kLabelHeight = 13;

std::string text_svg(double x, double y, const char* anchor, const std::string& text, const char* extra = "");
std::string line_svg(double x1, double y1, double x2, double y2, const char* kind);
// The whole picture: the frame around `area`, what is inside, the titles of the axes.
std::string frame_svg(double height, const Box& area, const std::string& x_title, const std::string& y_title,
                      const std::string& inside);

Point label_size(const std::string& label);
std::string label_svg(const Box& box, const std::string& label);
std::string leader_svg(const Box& label, const Point& point);  // nothing where the label is next to its point

}  // namespace kvjit::svg
