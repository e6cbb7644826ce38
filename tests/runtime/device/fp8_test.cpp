// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};

// Tables 1 and 2 of arXiv:2209.05433.
TEST(Fp8Test, HasThePublishedNumbers) {
  EXPECT_EQ(from_fp8(0x7e, Fp8::e4m3), 448.0f);
  EXPECT_EQ(from_fp8(0x08, Fp8::e4m3), std::ldexp(1.0f, -6));
  EXPECT_EQ(from_fp8(0x07, Fp8::e4m3), 0.875f * std::ldexp(1.0f, -6));
  EXPECT_EQ(from_fp8(0x01, Fp8::e4m3), std::ldexp(1.0f, -9));
  EXPECT_TRUE(std::isnan(from_fp8(0x7f, Fp8::e4m3)));
  EXPECT_EQ(from_fp8(0x7b, Fp8::e5m2), 57344.0f);
  EXPECT_EQ(from_fp8(0x04, Fp8::e5m2), std::ldexp(1.0f, -14));
  EXPECT_EQ(from_fp8(0x01, Fp8::e5m2), std::ldexp(1.0f, -16));
  EXPECT_TRUE(std::isinf(from_fp8(0x7c, Fp8::e5m2)));
  EXPECT_TRUE(std::isnan(from_fp8(0x7d, Fp8::e5m2)));
}

// Against the nearest of all codes, with the even one of two that are equally near.
TEST(Fp8Test, RoundsToTheNearestCode) {
  std::mt19937 random{1};
  std::uniform_real_distribution<float> exponent(-20.0f, 17.0f);
  for (const Fp8 format : kFormats) {
    std::vector<float> values{0.0f, -0.0f, largest(format), -largest(format)};
    for (int code = 0; code < 0x7f; ++code) {
      const float here = from_fp8(uint8_t(code), format), next = from_fp8(uint8_t(code + 1), format);
      if (!std::isfinite(here)) continue;
      values.push_back(-here);
      if (!std::isfinite(next)) continue;
      const float middle = (here + next) / 2;
      for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, next)})
        values.push_back(v);
    }
    for (int i = 0; i < 2000; ++i)
      values.push_back(std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0f : -1.0f));
    for (const float value : values) {
      int best = 0;
      double least = INFINITY;
      for (int code = 0; code < 0x7f; ++code) {
        const double candidate = from_fp8(uint8_t(code), format);
        if (!std::isfinite(candidate)) continue;
        const double distance = std::fabs(double(std::fabs(value)) - candidate);
        if (distance < least || (distance == least && code % 2 == 0)) best = code, least = distance;
      }
      const uint8_t code = to_fp8(value, format);
      EXPECT_EQ(code & 0x7f, best) << value;
      EXPECT_EQ(code >> 7, std::signbit(value) ? 1 : 0) << value;
    }
    EXPECT_EQ(to_fp8(1e30f, format), to_fp8(largest(format), format));
    EXPECT_TRUE(std::isnan(from_fp8(to_fp8(NAN, format), format)));
  }
}

TEST(Fp8Test, ScalesToTheLargestMagnitude) {
  const std::vector<float> values{1e-6f, -3e-6f, 0.0f, 2e-9f, 2e-12f};
  std::vector<float> rounded(values.size());
  round_to_fp8(Fp8::e4m3, 5, values.data(), rounded.data());
  EXPECT_FLOAT_EQ(rounded[1], -3e-6f);
  EXPECT_NEAR(rounded[0], 1e-6f, 1e-6f / 16);
  EXPECT_EQ(rounded[2], 0.0f);
  EXPECT_NEAR(rounded[3], 2e-9f, 2e-9f / 16);
  EXPECT_EQ(rounded[4], 0.0f) << "below half of the smallest subnormal number, 2^-9 of 3e-6 / 448";
  const std::vector<float> none(3, 0.0f), bad{1.0f, NAN, 2.0f}, endless{1.0f, INFINITY, 0.0f};
  rounded.resize(3);
  round_to_fp8(Fp8::e5m2, 3, none.data(), rounded.data());
  EXPECT_EQ(rounded, none);
  // What is not finite must not be lost: the step is skipped for it.
  for (const auto& wrong : {bad, endless}) {
    round_to_fp8(Fp8::e5m2, 3, wrong.data(), rounded.data());
    EXPECT_TRUE(std::isnan(rounded[1]));
  }
}

// Narrowing costs each operand at most 1/16 of itself (e4m3) or 1/8 (e5m2).
TEST(Fp8Test, ProductsAreNearThoseOf16Bits) {
  const auto device = make_cpu_device();
  const LinearShape wide{32, 16, 64}, narrow{32, 16, 64, true};
  std::mt19937 random{3};
  std::normal_distribution<double> draw;
  const auto buffer = [&](int64_t count) {
    std::vector<double> values(static_cast<size_t>(count));
    for (double& v : values) v = draw(random);
    Buffer made(*device, count * 2);
    device->upload(DataType::bfloat16, values.data(), count, made.data());
    return made;
  };
  const Buffer x = buffer(wide.rows * wide.inner), w = buffer(wide.columns * wide.inner);
  std::vector<double> results[2];
  for (const bool fp8 : {false, true}) {
    Buffer y(*device, wide.rows * wide.columns * 2);
    device->run(DataType::bfloat16,
                LinearForward{.shape = fp8 ? narrow : wide, .x = x.data(), .w = w.data(), .y = y.data()});
    results[fp8].resize(size_t(wide.rows * wide.columns));
    device->download(DataType::bfloat16, y.data(), wide.rows * wide.columns, results[fp8].data());
  }
  double difference = 0, size = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    difference += std::pow(results[1][i] - results[0][i], 2);
    size += std::pow(results[0][i], 2);
  }
  EXPECT_LT(std::sqrt(difference / size), 0.0625);
  EXPECT_GT(difference, 0.0);
}

}  // namespace
}  // namespace mpt::runtime
