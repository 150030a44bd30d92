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

constexpr std::size_t kColours = 9;  // classes c0 .. c8 of html_page

std::string text_svg(double x, double y, const char* anchor, const std::string& text, const char* extra = "");
std::string line_svg(double x1, double y1, double x2, double y2, const char* kind);
// The marker of a kind of points, with its colour and shape. The title is shown when the mouse is over it.
std::string marker_svg(std::size_t kind, const Point& at, const std::string& title);
// The frame around `area` over what is inside, and the titles of the axes.
std::string panel_svg(const Box& area, const std::string& x_title, const std::string& y_title,
                      const std::string& inside);
// The whole picture. Who cannot see it is told its name and the description.
std::string picture_svg(double height, const std::string& name, const std::string& description,
                        const std::string& inside);

Point label_size(const std::string& label);
std::string label_svg(const Box& box, const std::string& label, const char* kind = "label");
std::string leader_svg(const Box& label, const Point& point);  // empty if the label is next to its point

}  // namespace kvjit::svg
