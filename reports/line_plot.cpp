// SPDX-License-Identifier: Apache-2.0
#include "reports/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "reports/html.h"

namespace mpt::reports {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 90, kRight = 24, kTop = 48, kBottom = 56;
constexpr int kTicks = 5;
// A plot of about 700 units is shown on 340 pixels there: 21 of them are the 10 pixels that can be read.
constexpr const char* kLargerOnPhones =
    "@media(max-width:760px){svg text{font-size:21px}svg .title{font-size:23px}}";

// A step of 1, 2 or 5 times a power of ten that cuts `range` into about kTicks.
double tick_step(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / kTicks)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= kTicks + 1) return factor * power;
  }
  return 10.0 * power;
}

// From zero to a little above the largest value.
struct Axis {
  double end = 1.0, step = 0.2;

  explicit Axis(double largest) {
    if (largest <= 0.0) return;
    step = tick_step(largest);
    end = step * std::ceil(largest / step * 1.02);
  }
};

}  // namespace

std::string to_svg(const LinePlot& plot) {
  double most_x = 0.0, most_y = 0.0;
  for (const PlotPoint& p : plot.points) {
    most_x = std::max(most_x, p.x);
    most_y = std::max(most_y, p.y);
  }
  const Axis x_axis(most_x), y_axis(most_y);
  const auto x_of = [&](double x) { return kLeft + x / x_axis.end * (kWidth - kLeft - kRight); };
  const auto y_of = [&](double y) { return kHeight - kBottom - y / y_axis.end * (kHeight - kTop - kBottom); };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n"
      "<title>{2}</title>\n<style>text{{font:13px system-ui,sans-serif;fill:#1b1f24}}.title{{font-weight:600;"
      "font-size:15px}}.grid{{stroke:#d0d7de;stroke-width:1}}.line{{fill:none;stroke:#0b62c4;stroke-width:2}}"
      "{4}"
      ".dot{{fill:#0b62c4}}.page{{fill:#ffffff}}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}"
      ".grid{{stroke:#3d444d}}.line{{stroke:#79b8ff}}.dot{{fill:#79b8ff}}.page{{fill:#0d1117}}}}</style>\n"
      "<rect class=\"page\" width=\"{0}\" height=\"{1}\"/>\n<text class=\"title\" x=\"{3}\" "
      "y=\"26\">{2}</text>\n",
      kWidth, kHeight, escape_html(plot.title), kLeft, kLargerOnPhones);
  for (double y = 0.0; y <= y_axis.end * 1.0001; y += y_axis.step) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kWidth - kRight, y_of(y), y_of(y), kLeft - 8, y_of(y) + 4, format_magnitude(y));
  }
  for (double x = 0.0; x <= x_axis.end * 1.0001; x += x_axis.step) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x_of(x),
                       kHeight - kBottom + 20, format_magnitude(x));
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 12, escape_html(plot.x_title));
  svg += fmt::format("<text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, escape_html(plot.y_title));
  svg += "<polyline class=\"line\" points=\"";
  for (const PlotPoint& p : plot.points) svg += fmt::format("{:.1f},{:.1f} ", x_of(p.x), y_of(p.y));
  svg += "\"/>\n";
  for (const PlotPoint& p : plot.points) {
    svg += fmt::format(
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}: {}, {}</title></circle>\n",
        x_of(p.x), y_of(p.y), format_magnitude(p.x), format_magnitude(p.y), escape_html(p.label));
  }
  return svg + "</svg>\n";
}

}  // namespace mpt::reports
