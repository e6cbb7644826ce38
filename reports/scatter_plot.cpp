// SPDX-License-Identifier: Apache-2.0
#include "reports/scatter_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/quantity.h"
#include "reports/html.h"
#include "reports/plot_style.h"

namespace mpt::reports {
namespace {

constexpr double kSize = 560, kLeftMargin = 80, kTopMargin = 44, kBottomMargin = 56, kLegend = 150;

// Hues far apart in turn; lightness is the style sheet's, so that both are readable on light and dark.
int hue_of(size_t index) { return int(index * 137) % 360; }

// Powers of ten around all values of both axes.
struct Decades {
  int first = 0, last = 1;
  explicit Decades(const std::vector<ScatterPoint>& points) {
    if (points.empty()) return;
    double least = points.front().x, most = least;
    for (const ScatterPoint& p : points) {
      least = std::min({least, p.x, p.y});
      most = std::max({most, p.x, p.y});
    }
    first = int(std::floor(std::log10(least)));
    last = std::max(first + 1, int(std::ceil(std::log10(most))));
  }
};

// As far apart as there is room for, and no closer than lines of text; of more groups the first, and how many
// others there are.
std::string legend(const std::map<std::string, size_t>& groups) {
  constexpr double kFarthest = 24.0, kClosest = 14.0, kHeight = kSize - kTopMargin - 20;
  constexpr auto kMost = size_t(kHeight / kClosest);
  const size_t shown = groups.size() <= kMost ? groups.size() : kMost - 1;
  const double step =
      std::min(kFarthest, kHeight / double(std::max<size_t>(1, std::min(groups.size(), kMost))));
  const auto y_of = [&](size_t row) { return kTopMargin + 10 + step * double(row); };
  std::string svg;
  for (const auto& [name, number] : groups) {
    if (number >= shown) continue;
    svg += fmt::format(
        "<circle cx=\"{}\" cy=\"{:.1f}\" r=\"4\" fill=\"hsl({} 65% 48%)\"/><text x=\"{}\" "
        "y=\"{:.1f}\">{}</text>\n",
        kSize + 4, y_of(number), hue_of(number), kSize + 14, y_of(number) + 4, escape_html(name));
  }
  if (shown == groups.size()) return svg;
  return svg + fmt::format("<text x=\"{}\" y=\"{:.1f}\">and {} others</text>\n", kSize + 14, y_of(shown) + 4,
                           groups.size() - shown);
}

}  // namespace

std::string to_svg(const ScatterPlot& plot) {
  std::vector<ScatterPoint> points;
  for (const ScatterPoint& p : plot.points) {
    if (p.x > 0.0 && p.y > 0.0 && std::isfinite(p.x) && std::isfinite(p.y)) points.push_back(p);
  }
  const Decades decades(points);
  const double end = kSize - 20, bottom = kSize - kBottomMargin,
               scale_x = (end - kLeftMargin) / (decades.last - decades.first),
               scale_y = (bottom - kTopMargin) / (decades.last - decades.first);
  const auto x_of = [&](double x) { return kLeftMargin + (std::log10(x) - decades.first) * scale_x; };
  const auto y_of = [&](double y) { return bottom - (std::log10(y) - decades.first) * scale_y; };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n"
      "<title>{2}</title>\n<style>text{{font:12px "
      "system-ui,sans-serif;fill:#59636e}}.title{{font-weight:600;font-size:15px}}"
      ".grid{{stroke:#d9dee3}}.even{{stroke:#59636e}}.band{{stroke:#59636e;stroke-dasharray:3 4}}"
      "circle{{fill-opacity:.65;stroke-opacity:.9}}{4}@media(prefers-color-scheme:dark){{text{{fill:#a3adb8}}"
      ".grid{{stroke:#343b42}}.even,.band{{stroke:#a3adb8}}}}</style>\n<text class=\"title\" x=\"{3}\" "
      "y=\"24\">{2}</text>\n",
      kSize + kLegend, kSize, escape_html(plot.title), kLeftMargin, kLargerOnPhones);
  for (int d = decades.first; d <= decades.last; ++d) {
    const double value = std::pow(10.0, d);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{2}\" x2=\"{0:.1f}\" y2=\"{3}\"/><line class=\"grid\" "
        "x1=\"{4}\" "
        "y1=\"{1:.1f}\" x2=\"{5}\" y2=\"{1:.1f}\"/>\n<text x=\"{0:.1f}\" y=\"{6}\" "
        "text-anchor=\"middle\">{7:g}</text>"
        "<text x=\"{8}\" y=\"{9:.1f}\" text-anchor=\"end\">{7:g}</text>\n",
        x_of(value), y_of(value), kTopMargin, bottom, kLeftMargin, end, bottom + 22, value, kLeftMargin - 8,
        y_of(value) + 4);
  }
  const double low = std::pow(10.0, decades.first), high = std::pow(10.0, decades.last);
  const auto diagonal = [&](const char* kind, double factor) {
    const double from = std::max(low, low / factor), to = std::min(high, high / factor);
    svg += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind,
                       x_of(from), y_of(from * factor), x_of(to), y_of(to * factor));
  };
  diagonal("even", 1.0);
  diagonal("band", 1.1);
  diagonal("band", 1.0 / 1.1);
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n<text transform=\"translate(16 {:.1f}) "
      "rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      (kLeftMargin + end) / 2, kSize - 16, escape_html(plot.x_title), (kTopMargin + bottom) / 2,
      escape_html(plot.y_title));
  std::map<std::string, size_t> groups;
  for (const ScatterPoint& p : points) groups.emplace(p.group, 0);
  size_t index = 0;
  for (auto& [name, number] : groups) number = index++;
  for (const ScatterPoint& p : points) {
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"hsl({} 65% 48%)\"><title>{}</title></circle>\n",
        x_of(p.x), y_of(p.y), hue_of(groups[p.group]), escape_html(p.label));
  }
  return svg + legend(groups) + "</svg>\n";
}

}  // namespace mpt::reports
