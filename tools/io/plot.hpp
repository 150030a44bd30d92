// Charts as SVG text and pages as HTML text. They need no script and no other file, and are readable on a light and on
// a dark background. place_labels places labels so that they do not overlap.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace kvjit {

// A rectangle, in pixels.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;

  bool overlaps(const Box& other) const {
    return left < other.left + other.width && other.left < left + width && top < other.top + other.height &&
           other.top < top + height;
  }
  bool contains(const Box& other) const {
    return left <= other.left && top <= other.top && other.left + other.width <= left + width &&
           other.top + other.height <= top + height;
  }
};

// Finds a place for the label of each point: near the point, inside `area`, over no other label and no marker, and with
// few leader lines across labels, markers and other leader lines. `sizes` are width and height of each label, in
// pixels; a point of width 0 gets no label. A label without a free place gets a box of width 0.
using Point = std::pair<double, double>;  // x and y
std::vector<Box> place_labels(const std::vector<Point>& points, const std::vector<Point>& sizes, const Box& area);

// The end of a point's leader line: the nearest point of its label.
Point leader_end(const Box& label, const Point& point);
bool crosses(const Point& from, const Point& to, const Box& box);  // whether the line from .. to passes through the box

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string label;
  std::size_t kind = 0;  // an index of Scatter::kinds
};
// Points from `low` to `high` along x that a second panel shows larger.
struct Zoom {
  std::string title;
  double low = 0;
  double high = 0;
};
struct Scatter {
  std::string x_title, y_title;
  std::vector<std::string> kinds;  // each has a colour and a marker
  std::vector<PlotPoint> points;   // x is positive; y is an error, positive or 0
  Zoom zoom;                       // drawn if it has at least three points, but not all
};

// A scatter plot of errors, in up to two panels, with a legend of the kinds and the frontier. The error axis is
// logarithmic. Points without error stand in a narrow band below it.
std::string scatter_svg(const Scatter& scatter);

// The points that no other point beats: none has at most the x and at most the y of such a point and less of one of
// them. Indices, by ascending x.
std::vector<std::size_t> frontier(const std::vector<PlotPoint>& points);

// A bar for each number; marked bars have the second colour. `line` is the y of a horizontal line for comparison.
std::string bars_svg(const std::string& x_title, const std::string& y_title, const std::vector<double>& bars,
                     const std::vector<bool>& marked, double line);

struct Axis {
  std::string title;
  bool is_log = false;                     // logarithmic with ticks at powers of two; else linear from 0
  std::string (*print)(double) = nullptr;  // the text of a tick
};
struct Series {
  std::string label;
  std::vector<Point> points;
  bool is_roof = false;  // an upper bound for the other series; drawn dashed
};

// A line for each series, with its label near its last point. Every point has its numbers as a tooltip.
std::string lines_svg(const Axis& x, const Axis& y, const std::vector<Series>& series);

std::string escaped(const std::string& text);  // for HTML: & < > "
std::string html_table(const std::vector<std::string>& headings, const std::vector<std::vector<std::string>>& rows);
std::string html_page(const std::string& title, const std::string& body);

}  // namespace kvjit
