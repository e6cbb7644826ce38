// SPDX-License-Identifier: Apache-2.0
#include "core/plan_words.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

SearchCertificate certificate() {
  SearchCertificate c;
  c.layouts = 10;
  c.over_memory = 3;
  c.over_bound = 2;
  c.simulated = 1;
  c.same = 4;
  c.optimal = true;
  c.seconds = 0.5;
  return c;
}

TEST(SearchWords, CountsOfTheProofAreAllOfTheLayouts) {
  SearchCertificate c = certificate();
  const std::string counts = "3 do not fit, 2 are provably slower, 4 are duplicates, 1 simulated in full";
  EXPECT_EQ(describe_certificate(c, 2.0),
            "Searched all 10 layouts in 500 ms: " + counts + "; none is faster by MPT's model.");
  c.optimal = false;
  c.not_reached = 5;
  c.layouts = 15;
  c.gap = 0.03;
  EXPECT_EQ(
      describe_certificate(c, 2.0),
      "Stopped after 500 ms: of 15 layouts 3 do not fit, 2 are provably slower, 4 are duplicates, 5 not "
      "reached, 1 simulated in full; the best is at most 3.0% faster.");
  c.counted = false;
  EXPECT_NE(describe_certificate(c, 2.0).find("of at least 15 layouts"), std::string::npos);
}

TEST(SearchWords, TellHowFarThePlanIsFromTheFastest) {
  SearchCertificate c = certificate();
  c.fastest_s = 1.98;
  EXPECT_NE(describe_certificate(c, 2.0).find(
                "; by MPT's model a layout 1.0% faster exists, which is less simple or larger"),
            std::string::npos)
      << describe_certificate(c, 2.0);
  c.fastest_s = 2.0;
  EXPECT_NE(describe_certificate(c, 2.0).find("none is faster"), std::string::npos);
}

}  // namespace
}  // namespace mpt
