// Draws bars, tables and pages: see plot.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/plot.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/io/scale.hpp"
#include "tools/io/svg.hpp"

namespace kvjit {
using namespace svg;

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
  for (const double y : Scale(0, high, false, 0).even()) {
    svg += line_svg(area.left, y_of(y), area.left + area.width, y_of(y), "grid");
    svg += text_svg(area.left - 6, y_of(y) + 4, "end", tick_text(y));
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
  const auto highest = std::max_element(bars.begin(), bars.end());
  return picture_svg(
      kHeight, y_title + " of each " + x_title,
      fmt::format("{} bars, {} of them marked; the highest is {}, {:.4g}. A line at {:g}.", bars.size(),
                  std::count(marked.begin(), marked.end(), true), highest - bars.begin(), *highest, line),
      panel_svg(area, x_title, y_title, svg));
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
  --one: #1f5fbf; --two: #dd5208; --three: #12703a; --four: #8b2fe0; --five: #854d0e; --six: #0891b2;
  --seven: #db2777; --eight: #52525b; --nine: #6b9a00; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e4e4e4; --faint: #3a3d44;
    --one: #6aa3ff; --two: #ff8a3c; --three: #4cc97a; --four: #c084fc; --five: #c8a06a; --six: #5fe3f0;
    --seven: #ff7ab8; --eight: #b4b8c0; --nine: #e8e04a; }
}
body { background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; max-width: 1000px;
  margin: 24px auto; padding: 0 16px; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 11px ui-monospace, monospace; }
.frame { fill: none; stroke: var(--ink); }
.grid { stroke: var(--faint); }
.leader { stroke: var(--ink); stroke-width: 0.6; opacity: 0.6; }
svg .label { paint-order: stroke; stroke: var(--ground); stroke-width: 3px; stroke-linejoin: round; }
svg .best { font-weight: bold; }
.edge { stroke: var(--ink); stroke-width: 0.6; stroke-dasharray: 2 3; }
.part { fill: var(--faint); opacity: 0.35; }
.frontier { stroke: var(--ink); stroke-width: 2; opacity: 0.55; }
.bar { fill: var(--one); }
.marked { fill: var(--two); }
.c0 { stroke: var(--one); fill: var(--one); }
.c1 { stroke: var(--two); fill: var(--two); }
.c2 { stroke: var(--three); fill: var(--three); }
.c3 { stroke: var(--four); fill: var(--four); }
.c4 { stroke: var(--five); fill: var(--five); }
.c5 { stroke: var(--six); fill: var(--six); }
.c6 { stroke: var(--seven); fill: var(--seven); }
.c7 { stroke: var(--eight); fill: var(--eight); }
.c8 { stroke: var(--nine); fill: var(--nine); }
.marker { stroke: var(--ground); stroke-width: 0.8; }
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
