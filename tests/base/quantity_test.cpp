// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <gtest/gtest.h>

#include <charconv>
#include <functional>

#include "base/error.h"

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
  EXPECT_EQ(format_difference(0.1234), "12.3%");
  EXPECT_EQ(format_difference(15.326), "a factor of 16.3") << "1532.6% is read twice";
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

std::string error_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Quantity, AsksForTheUnitOfASize) {
  for (const char* unclear : {"20", "20G", "20g", "20gb", "20Gb", "20 Gbit", "20b"}) {
    const std::string error = error_of([&] { parse_bytes(unclear, "--memory"); });
    EXPECT_NE(error.find("write 20GiB or 20GB"), std::string::npos) << unclear << ": " << error;
  }
  EXPECT_NE(error_of([] { parse_bytes("512M", "x"); }).find("write 512MiB or 512MB"), std::string::npos);
}

TEST(Quantity, TellsBitsFromBytes) {
  for (const char* bits : {"100Gb/s", "100Gbit/s", "100Gbps", "100 Gb/s", "100gbps", "100gbit/s", "100GBIT/S",
                           "0.1Tb/s", "100 Gbits/s"})
    EXPECT_DOUBLE_EQ(parse_bandwidth(bits, "x"), 12.5e9) << bits;
  for (const char* bytes : {"12.5GB/s", "12.5GBps", "12500MB/s", "0.0125TB/s", "12.5 Gbytes/s"})
    EXPECT_DOUBLE_EQ(parse_bandwidth(bytes, "x"), 12.5e9) << bytes;
  EXPECT_DOUBLE_EQ(parse_bandwidth("2GiB/s", "x"), 2.0 * double(kGiB));
  EXPECT_DOUBLE_EQ(parse_bandwidth("8Gib/s", "x"), double(kGiB));
}

TEST(Quantity, AsksForTheUnitOfABandwidth) {
  for (const char* unclear : {"100", "100G", "100gb/s", "100GB", "100Gb"}) {
    const std::string error = error_of([&] { parse_bandwidth(unclear, "--cluster"); });
    EXPECT_NE(error.find("write 100Gbit/s for bits or 100GB/s for bytes, per second"), std::string::npos)
        << unclear << ": " << error;
  }
  for (const char* bad : {"", "fast", "-1GB/s", "0GB/s", "1e9TB/s", "12.5 parsecs/s", "12.5GGB/s"})
    EXPECT_THROW(parse_bandwidth(bad, "x"), UserError) << bad;
}

TEST(Quantity, ReadsTokensOfASequence) {
  EXPECT_EQ(parse_sequence("8192", "x"), 8192);
  EXPECT_EQ(parse_sequence("8k", "x"), 8192);
  EXPECT_EQ(parse_sequence("128K", "x"), 131072);
  EXPECT_EQ(parse_sequence("1M", "x"), 1048576);
  for (const char* bad : {"", "k", "0", "-8k", "8.3k", "8kk", "8b", "1e12", "512M"})
    EXPECT_THROW(parse_sequence(bad, "x"), UserError) << bad;
}

// The reference is the library's own, which not every platform has.
TEST(Quantity, LeadingNumbersAreThoseOfTheLibrary) {
  for (const std::string text : {"1",
                                 "-1",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "01",
                                 "1.",
                                 ".5",
                                 ".",
                                 "-",
                                 "-.",
                                 "-.5",
                                 "1e",
                                 "1e5",
                                 "1E+5x",
                                 "1e-5",
                                 "1e+",
                                 "1.5e3.2",
                                 "0x10",
                                 "1,5",
                                 "1e308",
                                 "1e309",
                                 "-1e309",
                                 "1e-400",
                                 "0e-400",
                                 "-0",
                                 "4.9e-324",
                                 "2.2250738585072011e-308",
                                 "9007199254740993",
                                 "0.1",
                                 "123456789012345678901234567890",
                                 "1e999999999999",
                                 "12GiB",
                                 "e5",
                                 "",
                                 "--1",
                                 "1..2"}) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const LeadingNumber read = leading_number(text);
    EXPECT_EQ(read.length, error == std::errc{} ? size_t(end - text.data()) : 0) << text;
    EXPECT_EQ(read.value, error == std::errc{} ? value : 0.0) << text;
  }
  for (const char* text : {"inf", "-inf", "nan", "infinity"})
    EXPECT_EQ(leading_number(text).length, 0u) << text;
  EXPECT_EQ(number_of<double>("1.5"), 1.5);
  EXPECT_EQ(number_of<double>("1.5 "), std::nullopt);
  EXPECT_EQ(number_of<int64_t>("-3"), -3);
  EXPECT_EQ(number_of<int64_t>("3.0"), std::nullopt);
  EXPECT_EQ(number_of<int8_t>("300"), std::nullopt);
}

}  // namespace
}  // namespace mpt
