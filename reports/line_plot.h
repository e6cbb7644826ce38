// SPDX-License-Identifier: Apache-2.0
#pragma once

// LinePlot: one curve as a self-contained SVG, readable on light and dark pages.

#include <string>
#include <vector>

namespace mpt::reports {

struct PlotPoint {
  double x = 0.0, y = 0.0;
  std::string label;  // shown on hover
};

struct LinePlot {
  std::string title, x_title, y_title;
  std::vector<PlotPoint> points;
};

std::string to_svg(const LinePlot& plot);

}  // namespace mpt::reports
