// SPDX-License-Identifier: Apache-2.0
#include "reports/scatter_plot.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <vector>

namespace mpt::reports {
namespace {

// Heights of the legend's dots, and whether it speaks of others.
struct Legend {
  std::vector<double> heights;
  bool has_others = false;
};
Legend legend_of(int groups) {
  ScatterPlot plot{"time", "measured", "predicted", {}};
  for (int g = 0; g < groups; ++g) plot.points.push_back({1.0, 2.0, fmt::format("group {:03}", g), "point"});
  const std::string svg = to_svg(plot);
  static const std::regex dot("cy=\"([0-9.]+)\" r=\"4\"");
  Legend legend;
  for (std::sregex_iterator found(svg.begin(), svg.end(), dot), end; found != end; ++found)
    legend.heights.push_back(std::stod((*found)[1]));
  legend.has_others =
      svg.find(fmt::format("and {} others", size_t(groups) - legend.heights.size())) != std::string::npos;
  return legend;
}

TEST(ScatterPlot, LegendStaysInsideThePicture) {
  constexpr double kBottom = 560;
  for (const int groups : {1, 15, 20, 21, 35}) {
    const Legend legend = legend_of(groups);
    ASSERT_EQ(legend.heights.size(), size_t(groups));
    EXPECT_LT(legend.heights.back(), kBottom - 4) << groups;
    EXPECT_FALSE(legend.has_others) << groups;
  }
  const Legend many = legend_of(200);
  EXPECT_TRUE(many.has_others);
  EXPECT_GE(many.heights.size(), 30U);
  EXPECT_LT(many.heights.back(), kBottom - 14) << "the others' line is below";
  for (size_t i = 1; i < many.heights.size(); ++i)
    EXPECT_GE(many.heights[i] - many.heights[i - 1], 13.9) << "lines of 12 pixels do not touch";
}

TEST(ScatterPlot, LeavesOutWhatHasNoPlaceOnALogarithmicAxis) {
  ScatterPlot plot{"a < b", "x", "y", {{0.0, 1.0, "g", "zero"}, {1.0, 2.0, "g", "good & well"}}};
  const std::string svg = to_svg(plot);
  EXPECT_EQ(svg.find("zero"), std::string::npos);
  EXPECT_NE(svg.find("good &amp; well"), std::string::npos);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
}

}  // namespace
}  // namespace mpt::reports
