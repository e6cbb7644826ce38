// SPDX-License-Identifier: Apache-2.0
#include "core/quantity.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace mpt {
namespace {

TEST(Quantity, PrintsThreeDigitsInTheRightUnit) {
  EXPECT_EQ(format_seconds(1.2345), "1.23 s");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(45.6e-6), "45.6 us");
  EXPECT_EQ(format_seconds(0.0), "0 ns");
  EXPECT_EQ(format_duration(95.4), "95 s");
  EXPECT_EQ(format_duration(43.0 * 60.0), "43 min");
  EXPECT_EQ(format_duration(15224.0), "4.2 h");
  EXPECT_EQ(format_duration(1227818.0), "14.2 days");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(double(kGiB) * 79.2), "79.2 GiB");
  EXPECT_EQ(format_bandwidth(12.34e9), "12.3 GB/s");
  EXPECT_EQ(format_flop_rate(312e12), "312 TFLOP/s");
  EXPECT_EQ(format_magnitude(124439808), "124M");
  EXPECT_EQ(format_percent(0.1234), "12.3%");
}

TEST(Quantity, GroupsDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1234), "-1,234");
}

TEST(Quantity, ReadsSizesInBothFamiliesOfUnits) {
  EXPECT_EQ(parse_bytes("2GiB", "x"), 2 * kGiB);
  EXPECT_EQ(parse_bytes("512 MiB", "x"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("80GB", "x"), 80'000'000'000);
  EXPECT_EQ(parse_bytes("1.5gib", "x"), 3 * kGiB / 2);
  EXPECT_EQ(parse_bytes("1073741824", "x"), kGiB);
}

TEST(Quantity, RefusesWhatIsNoSize) {
  for (const char* bad : {"", "GiB", "2 parsecs", "-1GiB", "nan", "1e300GiB", "2GiB extra"}) {
    EXPECT_THROW(parse_bytes(bad, "--memory"), UserError) << bad;
  }
}

}  // namespace
}  // namespace mpt
