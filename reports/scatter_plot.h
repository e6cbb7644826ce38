// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScatterPlot: predicted against measured on two logarithmic axes as a self-contained SVG, with the diagonal
// and the band of a tenth around it; what a point is shows on hover.

#include <string>
#include <vector>

namespace mpt::reports {

struct ScatterPoint {
  double x = 0.0, y = 0.0;  // above 0
  std::string group, label;
};

struct ScatterPlot {
  std::string title, x_title, y_title;
  std::vector<ScatterPoint> points;
};

std::string to_svg(const ScatterPlot& plot);

}  // namespace mpt::reports
