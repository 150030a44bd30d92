// Draws scatter plots: scatter_svg of plot.hpp. A legend stands above one or two panels: all points, and below them the
// points of the zoom, whose labels the first panel leaves out.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/io/scale.hpp"
#include "tools/io/svg.hpp"

namespace kvjit {
namespace {

using namespace svg;

constexpr double kHeight = 300;         // pixels of a panel's area; more if its labels need it
constexpr double kHeightPerLabel = 12;  // pixels of area for each label: two or three labels stand side by side
constexpr double kExactBand = 22;       // pixels below the decades, for points without error
constexpr double kBeyond = 72;          // pixels beside the axis, for points without error that are beyond it
constexpr double kLine = 18;            // pixels between lines of the legend and above a panel
constexpr std::size_t kLeastZoomed = 3;

struct Panel {
  std::string title;
  bool is_zoom = false;
  std::vector<std::size_t> shown;     // indices of points
  std::vector<std::size_t> labelled;  // those of `shown` that have a label
};

// The places of a panel's points.
class Frame {
 public:
  Frame(const Panel& panel, const std::vector<PlotPoint>& points, const Box& area) : area_(area) {
    Range x, y, all;
    for (const std::size_t i : panel.shown) {
      all.add(points[i].x);
      if (points[i].y > 0)
        x.add(points[i].x), y.add(points[i].y);
      else
        has_exact_ = true;
    }
    if (x.low > x.high) x = all, y = {0.1, 1};  // no point has an error
    constexpr double kLong = 4;                 // last number / first number of a logarithmic axis
    constexpr double kLeastDecades = 0.7;       // so that two ticks fit
    is_log_ = !panel.is_zoom && x.high / x.low >= kLong;
    across_ = Scale(x.low, x.high, is_log_, is_log_ ? 0.1 : 0.1 * x.high);
    up_ = Scale(y.low, y.high, true, kLeastDecades);
    if (is_beyond(all.high)) beyond_ = kBeyond;
  }

  const Box& area() const { return area_; }
  bool has_exact() const { return has_exact_; }
  double decades_height() const { return area_.height - (has_exact_ ? kExactBand : 0); }
  bool is_beyond(double x) const { return across_(x) < 0 || across_(x) > 1; }
  double x_of(double x) const { return area_.left + (area_.width - beyond_) * across_(x); }
  double y_of(double y) const {
    if (y > 0) return area_.top + decades_height() * (1 - up_(y));
    return area_.top + area_.height + (has_exact_ ? -kExactBand / 2 : kExactBand);  // outside, if there is no band
  }
  // The place of a point. One without error does not stretch the axis: it stands beside the axis if its x is beyond.
  Point place_of(const PlotPoint& p) const {
    const double x = x_of(p.x), left = area_.left + 2 * kMarker, right = area_.left + area_.width - beyond_;
    return {p.y > 0 || !has_exact_ ? x : std::clamp(x, left, right), y_of(p.y)};
  }
  std::vector<double> ticks_across() const { return is_log_ ? across_.doublings() : across_.even(); }
  std::vector<double> ticks_up() const { return up_.decades(); }

 private:
  struct Range {
    double low = 1e300;
    double high = -1e300;
    void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  };

  Box area_;
  bool has_exact_ = false, is_log_ = false;
  double beyond_ = 0;  // pixels at the right that the axis does not cover
  Scale across_, up_;
};

// The steps of the frontier: level from one point to the x of the next, then down to it; after the last point level to
// the right edge, unless that point has no error. Lines outside the area are left out.
std::string frontier_svg(const std::vector<PlotPoint>& points, const Frame& frame) {
  const Box& area = frame.area();
  const double right = area.left + area.width, bottom = area.top + area.height;
  const std::vector<std::size_t> best = frontier(points);
  std::vector<Point> corners;
  for (const std::size_t i : best) {
    const Point place = frame.place_of(points[i]);
    if (!corners.empty()) corners.emplace_back(place.first, corners.back().second);
    corners.push_back(place);
  }
  if (points[best.back()].y > 0) corners.emplace_back(std::max(right, corners.back().first), corners.back().second);
  std::string svg;
  for (std::size_t i = 1; i < corners.size(); ++i) {
    const auto [x1, x2] = std::minmax(corners[i - 1].first, corners[i].first);
    const auto [y1, y2] = std::minmax(corners[i - 1].second, corners[i].second);
    if (x2 < area.left || x1 > right || y2 < area.top || y1 > bottom) continue;
    svg += line_svg(std::max(x1, area.left), std::max(y1, area.top), std::min(x2, right), std::min(y2, bottom),
                    "frontier");
  }
  return svg;
}

std::string ticks_svg(const Frame& frame) {
  const Box& area = frame.area();
  std::string svg;
  for (const double tick : frame.ticks_across()) {
    const double x = frame.x_of(tick);
    svg += line_svg(x, area.top, x, area.top + area.height, "grid");
    svg += text_svg(x, area.top + area.height + 16, "middle", tick_text(tick));
  }
  for (const double tick : frame.ticks_up()) {
    const double y = frame.y_of(tick);
    svg += line_svg(area.left, y, area.left + area.width, y, "grid");
    svg += text_svg(area.left - 6, y + 4, "end", tick_text(tick));
  }
  if (frame.has_exact()) {
    const double edge = area.top + frame.decades_height();
    svg += line_svg(area.left, edge, area.left + area.width, edge, "edge");
    svg += text_svg(area.left - 6, frame.y_of(0) + 4, "end", "exact");
  }
  return svg;
}

// Markers and labels of the points, over the frontier.
std::string points_svg(const Scatter& scatter, const Panel& panel, const Frame& frame) {
  const std::vector<std::size_t> best = frontier(scatter.points);
  std::vector<Point> places, sizes(panel.shown.size());
  std::vector<std::string> names;
  for (const std::size_t i : panel.shown) {
    const PlotPoint& p = scatter.points[i];
    places.push_back(frame.place_of(p));
    names.push_back(frame.is_beyond(p.x) ? fmt::format("{} ({:g})", p.label, p.x) : p.label);
    if (std::count(panel.labelled.begin(), panel.labelled.end(), i) != 0)
      sizes[names.size() - 1] = label_size(names.back());
  }
  const std::vector<Box> labels = place_labels(places, sizes, frame.area());
  std::string svg;
  for (std::size_t i = 0; i < names.size(); ++i) svg += leader_svg(labels[i], places[i]);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const PlotPoint& p = scatter.points[panel.shown[i]];
    const bool is_best = std::count(best.begin(), best.end(), panel.shown[i]) != 0;
    svg +=
        marker_svg(p.kind, places[i], fmt::format("{} ({}): {:g}, {:.3g}", p.label, scatter.kinds[p.kind], p.x, p.y)) +
        label_svg(labels[i], names[i], is_best ? "label best" : "label");
  }
  return svg;
}

// The part of the first panel that the second one shows.
std::string zoomed_part_svg(const Zoom& zoom, const Frame& frame) {
  const Box& area = frame.area();
  const double left = std::max(area.left, frame.x_of(zoom.low)),
               right = std::min(area.left + area.width, frame.x_of(zoom.high));
  return fmt::format("<rect class=\"part\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", left,
                     area.top, right - left, frame.decades_height()) +
         text_svg((left + right) / 2, area.top - 6, "middle", zoom.title + ": names below");
}

std::set<std::size_t> kinds_of(const Scatter& scatter) {
  std::set<std::size_t> kinds;
  for (const PlotPoint& p : scatter.points) kinds.insert(p.kind);
  return kinds;
}

// Appends lines of the legend from `top` on and returns the first pixel below them.
double draw_legend(const Scatter& scatter, double top, std::string& svg) {
  constexpr double kSign = 22, kGap = 18;  // width of a marker with its margins; pixels between entries
  const char* const kFrontier = "frontier, names in bold: no other point is lower and as far left";
  double x = kLeft, y = top + kLine / 2;
  const auto next = [&](const std::string& text) {
    const double width = kSign + label_size(text).first;
    if (x > kLeft && x + width > kWidth - kRight) x = kLeft, y += kLine;
    const Point at{x + kSign / 2, y};
    svg += text_svg(x + kSign, y + 4, "start", text);
    x += width + kGap;
    return at;
  };
  for (const std::size_t kind : kinds_of(scatter))
    svg += marker_svg(kind, next(scatter.kinds[kind]), scatter.kinds[kind]);
  const auto [left, middle] = next(kFrontier);
  svg += line_svg(left - kSign / 2, middle, left + kSign / 2 - 4, middle, "frontier");
  return y + kLine;
}

std::string description(const Scatter& scatter) {
  std::string text = fmt::format("{} points", scatter.points.size()), separator = ": ";
  for (const std::size_t kind : kinds_of(scatter)) text += separator + scatter.kinds[kind], separator = "; ";
  text += ". Frontier, from left to right";
  separator = ": ";
  for (const std::size_t i : frontier(scatter.points)) {
    const PlotPoint& p = scatter.points[i];
    text += separator + fmt::format("{} ({:g}, {:.3g})", p.label, p.x, p.y), separator = ", ";
  }
  return text + ".";
}

}  // namespace

std::vector<std::size_t> frontier(const std::vector<PlotPoint>& points) {
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto is_better = [&](const PlotPoint& other) {
      return other.x <= points[i].x && other.y <= points[i].y && (other.x < points[i].x || other.y < points[i].y);
    };
    if (std::none_of(points.begin(), points.end(), is_better)) best.push_back(i);
  }
  std::sort(best.begin(), best.end(), [&](std::size_t a, std::size_t b) { return points[a].x < points[b].x; });
  return best;
}

std::string scatter_svg(const Scatter& scatter) {
  if (scatter.points.empty()) return "";
  Panel all, zoomed{scatter.zoom.title, true, {}, {}};
  for (std::size_t i = 0; i < scatter.points.size(); ++i) {
    const PlotPoint& p = scatter.points[i];
    const bool is_zoomed = p.y > 0 && p.x >= scatter.zoom.low && p.x <= scatter.zoom.high;
    all.shown.push_back(i);
    (is_zoomed ? zoomed : all).labelled.push_back(i);
  }
  zoomed.shown = zoomed.labelled;
  const bool has_zoom = zoomed.shown.size() >= kLeastZoomed && zoomed.shown.size() < all.shown.size();
  if (!has_zoom) all.labelled = all.shown;

  std::string svg;
  double top = draw_legend(scatter, kTop, svg);
  const auto draw = [&](const Panel& panel) {
    if (has_zoom) top += kLine;
    const double height = std::max(kHeight, kHeightPerLabel * static_cast<double>(panel.labelled.size()));
    const Frame frame(panel, scatter.points, {kLeft, top, kWidth - kLeft - kRight, height});
    if (has_zoom && panel.is_zoom) svg += text_svg(kLeft, top - 6, "start", panel.title);
    if (has_zoom && !panel.is_zoom) svg += zoomed_part_svg(scatter.zoom, frame);
    svg += panel_svg(frame.area(), scatter.x_title, scatter.y_title,
                     ticks_svg(frame) + frontier_svg(scatter.points, frame) + points_svg(scatter, panel, frame));
    top += height + kBottom;
  };
  draw(all);
  if (has_zoom) draw(zoomed);
  return picture_svg(top, scatter.y_title + " against " + scatter.x_title, description(scatter), svg);
}

}  // namespace kvjit
