// Places the labels of charts: place_labels of plot.hpp. Each label takes the cheapest free place around its point;
// then all labels are placed again, because the first ones did not know the others.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tools/io/svg.hpp"

namespace kvjit {
namespace {

using namespace svg;

// Costs of a place, in pixels of distance from the point.
constexpr double kOverLabel = 50;   // a leader line across a label
constexpr double kOverLeader = 30;  // a leader line across another one
constexpr double kOverMarker = 15;  // a leader line across a marker

Box around(const Point& point) { return {point.first - kMarker, point.second - kMarker, 2 * kMarker, 2 * kMarker}; }

struct Line {
  Point from;
  Point to;
};

// Positive if `point` lies on one side of the line, negative on the other.
double side_of(const Line& line, const Point& point) {
  return (line.to.first - line.from.first) * (point.second - line.from.second) -
         (line.to.second - line.from.second) * (point.first - line.from.first);
}

bool do_cross(const Line& a, const Line& b) {
  return side_of(a, b.from) * side_of(a, b.to) < 0 && side_of(b, a.from) * side_of(b, a.to) < 0;
}

class Placement {
 public:
  Placement(const std::vector<Point>& points, const std::vector<Point>& sizes, const Box& area)
      : points_(points), sizes_(sizes), area_(area), placed_(points.size()) {}

  // Places label i anew; returns whether it moved.
  bool place(std::size_t i) {
    constexpr int kDirections = 48;
    constexpr double kGap = 3, kStep = 4;
    const Box before = placed_[i];
    placed_[i] = {};
    const auto [width, height] = sizes_[i];
    Box found;
    double least = area_.width + area_.height;
    for (double reach = kMarker + kGap; reach < least; reach += kStep)
      for (int direction = 0; direction < kDirections; ++direction) {
        // Direction 0 is to the right, where a label reads best.
        const double angle = 2 * std::numbers::pi * direction / kDirections;
        const double along = std::cos(angle), down = std::sin(angle);
        const Box box{points_[i].first + along * (reach + width / 2) - width / 2,
                      points_[i].second + down * (reach + height / 2) - height / 2, width, height};
        if (!is_free(box)) continue;
        if (const double cost = reach + crossings(i, box); cost < least) least = cost, found = box;
      }
    placed_[i] = found;
    return found.left != before.left || found.top != before.top;
  }

  const std::vector<Box>& placed() const { return placed_; }

 private:
  bool is_free(const Box& box) const {
    return area_.contains(box) &&
           std::none_of(placed_.begin(), placed_.end(),
                        [&](const Box& other) { return other.width > 0 && box.overlaps(other); }) &&
           std::none_of(points_.begin(), points_.end(), [&](const Point& p) { return box.overlaps(around(p)); });
  }

  // The cost of what the leader line of label i crosses if the label is `box`, and of leader lines that cross `box`.
  double crossings(std::size_t i, const Box& box) const {
    const Line leader{points_[i], leader_end(box, points_[i])};
    double cost = 0;
    for (std::size_t j = 0; j < placed_.size(); ++j) {
      if (j == i) continue;
      cost += kOverMarker * crosses(leader.from, leader.to, around(points_[j]));
      if (placed_[j].width <= 0) continue;
      const Line other{points_[j], leader_end(placed_[j], points_[j])};
      cost += kOverLabel * (crosses(other.from, other.to, box) + crosses(leader.from, leader.to, placed_[j])) +
              kOverLeader * do_cross(leader, other);
    }
    return cost;
  }

  const std::vector<Point>& points_;
  const std::vector<Point>& sizes_;
  Box area_;
  std::vector<Box> placed_;
};

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
  constexpr int kMostPasses = 6;  // places seldom move after the fourth
  Placement placement(points, sizes, area);
  bool has_moved = true;
  for (int pass = 0; pass < kMostPasses && has_moved; ++pass) {
    has_moved = false;
    for (std::size_t i = 0; i < points.size(); ++i)
      if (sizes[i].first > 0) has_moved |= placement.place(i);
  }
  return placement.placed();
}

}  // namespace kvjit
