// Plots as SVG text and pages as HTML text: no script, no other file, readable on a light and on a dark ground.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace kvjit {

struct Box {
  double left = 0, top = 0, width = 0, height = 0;

  bool overlaps(const Box& other) const {
    return left < other.left + other.width && other.left < left + width && top < other.top + other.height &&
           other.top < top + height;
  }
  bool contains(const Box& other) const {
    return left <= other.left && top <= other.top && other.left + other.width <= left + width &&
           other.top + other.height <= top + height;
  }
};

// A place for the label of each point: near it, inside `area`, over no other label and no marker, and with as few
// leader lines across labels as there is room for. sizes: width and height of each label. One that finds no free place
// gets a box of width 0.
using Point = std::pair<double, double>;
std::vector<Box> place_labels(const std::vector<Point>& points, const std::vector<Point>& sizes, const Box& area);

// Where the leader line of a point ends: the nearest point of its label.
Point leader_end(const Box& label, const Point& point);
bool crosses(const Point& from, const Point& to, const Box& box);  // does the line from .. to pass through the box

struct PlotPoint {
  double x = 0, y = 0;
  std::string label;
  bool is_hollow = false;
};

// Both axes logarithmic. A y of 0 stands on a line of its own below the decades.
std::string scatter_svg(const std::string& x_title, const std::string& y_title, const std::vector<PlotPoint>& points);

// One bar a number, those of `marked` in the second colour; `line`: a horizontal line to compare with.
std::string bars_svg(const std::string& x_title, const std::string& y_title, const std::vector<double>& bars,
                     const std::vector<bool>& marked, double line);

struct Axis {
  std::string title;
  bool is_log = false;                     // ticks at powers of two; else from 0 up
  std::string (*print)(double) = nullptr;  // of a tick
};
struct Series {
  std::string label;
  std::vector<Point> points;
  bool is_roof = false;  // what the others are compared with: dashed
};

// One line a series, its label near its last point; every point has its numbers as a tooltip.
std::string lines_svg(const Axis& x, const Axis& y, const std::vector<Series>& series);

std::string escaped(const std::string& text);  // & < > "
std::string html_table(const std::vector<std::string>& headings, const std::vector<std::vector<std::string>>& rows);
std::string html_page(const std::string& title, const std::string& body);

}  // namespace kvjit
