// SPDX-License-Identifier: Apache-2.0

// Products in bf16, own ones and oneDNN's, against sums in double. Operands are bf16, so their products are
// exact in float. A sum of n such products is off by n unit roundoffs of float times the sum of magnitudes,
// in any order. A result in bf16 is rounded once more.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/cpu/products.h"

namespace mpt::runtime {
namespace {

constexpr DataType kType = DataType::bfloat16;
constexpr double kUnitOfFp32 = 0x1p-24, kUnitOfBf16 = 0x1p-8;
// Rows, columns, inner. Each has more than oneDNN's fewest multiplications.
constexpr std::array<std::array<int64_t, 3>, 7> kShapes{{{1, 771, 513},
                                                         {1, 512, 768},
                                                         {7, 257, 301},
                                                         {7, 640, 128},
                                                         {256, 65, 33},
                                                         {256, 129, 515},
                                                         {256, 256, 64}}};

// What MPT_PRODUCTS is while it lives.
class Choice {
 public:
  explicit Choice(const char* name) { setenv("MPT_PRODUCTS", name, 1); }
  ~Choice() { unsetenv("MPT_PRODUCTS"); }
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;
};

std::string missing() {
  std::string reason;
  return cpu::make_onednn_products(reason) != nullptr ? "" : reason;
}

// A matrix on the device, and what it holds.
struct Matrix {
  Buffer data;
  DataType type;
  std::vector<double> values;

  Matrix(Device& device, DataType of, int64_t count, uint32_t seed)
      : data(device, count * size_of(of)), type(of), values(static_cast<size_t>(count)) {
    std::mt19937 random{seed};
    std::normal_distribution<double> draw;
    for (double& v : values) v = draw(random);
    device.upload(type, values.data(), count, data.data());
    read(device);
  }
  void read(Device& device) { device.download(type, data.data(), int64_t(values.size()), values.data()); }
};

// All operands and results of one linear layer.
struct Layer {
  explicit Layer(Device& device, const LinearShape& s)
      : shape(s),
        x(device, kType, s.rows * s.inner, 1),
        w(device, kType, s.columns * s.inner, 2),
        bias(device, kType, s.columns, 3),
        dy(device, kType, s.rows * s.columns, 4),
        y(device, kType, s.rows * s.columns, 5),
        unbiased(device, kType, s.rows * s.columns, 5),
        dx(device, kType, s.rows * s.inner, 6),
        dw(device, DataType::float32, s.columns * s.inner, 7) {}

  void run(Device& device) {
    device.run(kType, LinearForward{.shape = shape,
                                    .x = x.data.data(),
                                    .w = w.data.data(),
                                    .bias = bias.data.data(),
                                    .y = y.data.data()});
    device.run(kType, LinearForward{
                          .shape = shape, .x = x.data.data(), .w = w.data.data(), .y = unbiased.data.data()});
    device.run(kType, LinearBackwardInput{
                          .shape = shape, .dy = dy.data.data(), .w = w.data.data(), .dx = dx.data.data()});
    device.run(kType, LinearBackwardWeight{
                          .shape = shape, .dy = dy.data.data(), .x = x.data.data(), .dw = dw.data.data()});
    for (Matrix* m : {&y, &unbiased, &dx, &dw}) m->read(device);
  }

  LinearShape shape;
  Matrix x, w, bias, dy, y, unbiased, dx, dw;
};

// got[i, j] against start(i, j) + the sum over k of a(i, k) b(k, j).
void check(const Matrix& got, int64_t rows, int64_t columns, int64_t inner,
           const std::function<double(int64_t, int64_t)>& start,
           const std::function<double(int64_t, int64_t)>& a,
           const std::function<double(int64_t, int64_t)>& b) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = start(i, j), magnitude = std::fabs(sum);
      for (int64_t k = 0; k < inner; ++k) {
        const double product = a(i, k) * b(k, j);
        sum += product;
        magnitude += std::fabs(product);
      }
      const double of_sum = double(inner + 1) * kUnitOfFp32 * magnitude;
      const double of_result = got.type == kType ? kUnitOfBf16 * (std::fabs(sum) + of_sum) : 0.0;
      ASSERT_NEAR(got.values[size_t(i * columns + j)], sum, of_sum + of_result) << i << ", " << j;
    }
  }
}

class ProductsInBf16 : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("onednn") && !missing().empty()) GTEST_SKIP() << missing();
  }
};

TEST_P(ProductsInBf16, FollowSumsInDouble) {
  const Choice choice(GetParam());
  const auto device = make_cpu_device();
  for (const auto& [rows, columns, inner] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " x " << inner);
    Layer l(*device, {rows, columns, inner});
    const Matrix before = Matrix(*device, DataType::float32, columns * inner, 7);
    l.run(*device);
    const auto at = [](const Matrix& m, int64_t width) {
      return [&m, width](int64_t i, int64_t j) { return m.values[size_t(i * width + j)]; };
    };
    const auto turned = [](const Matrix& m, int64_t width) {
      return [&m, width](int64_t i, int64_t j) { return m.values[size_t(j * width + i)]; };
    };
    const auto zero = [](int64_t, int64_t) { return 0.0; };
    const auto x = at(l.x, inner), w = at(l.w, inner), dy = at(l.dy, columns);
    check(l.y, rows, columns, inner, at(l.bias, 0), x, turned(l.w, inner));
    check(l.unbiased, rows, columns, inner, zero, x, turned(l.w, inner));
    check(l.dx, rows, inner, columns, zero, dy, w);
    check(l.dw, columns, inner, rows, at(before, inner), turned(l.dy, columns), x);
  }
}

TEST_P(ProductsInBf16, AreTheSameBitsOnEveryDeviceAndEachTime) {
  const Choice choice(GetParam());
  const auto one = make_cpu_device(), other = make_cpu_device();
  for (const auto& [rows, columns, inner] : kShapes) {
    Layer first(*one, {rows, columns, inner}), second(*one, first.shape), third(*other, first.shape);
    first.run(*one);
    second.run(*one);
    third.run(*other);
    for (const Layer* l : {&second, &third}) {
      EXPECT_EQ(first.y.values, l->y.values);
      EXPECT_EQ(first.dx.values, l->dx.values);
      EXPECT_EQ(first.dw.values, l->dw.values);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ProductsInBf16, testing::Values("own", "onednn"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OneDnnProducts, ComputeEveryShapeButSmallOnesWithoutMoreThreads) {
  if (!missing().empty()) GTEST_SKIP() << missing();
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = threads();
  std::string reason;
  const auto products = cpu::make_onednn_products(reason);
  cpu::WideningMemory memory;
  constexpr int64_t kMost = 1024 * 1024;
  const std::vector<uint16_t> a(kMost), b(kMost), bias(kMost);
  std::vector<float> c(kMost);
  const cpu::ProductOperands operands{a.data(), b.data(), bias.data(), c.data()};
  std::vector<std::array<int64_t, 3>> shapes(kShapes.begin(), kShapes.end());
  shapes.push_back({1024, 1024, 1024});
  for (const auto& [rows, columns, inner] : shapes) {
    EXPECT_TRUE(products->multiply({rows, columns, inner, false, true, false, true}, operands, memory));
    EXPECT_TRUE(products->multiply({rows, inner, columns}, operands, memory));
    EXPECT_TRUE(products->multiply({columns, inner, rows, true, false, true}, operands, memory));
  }
  EXPECT_FALSE(products->multiply({16, 16, 16}, operands, memory));
  EXPECT_FALSE(products->multiply({0, 768, 768}, operands, memory)) << "an expert without tokens";
  EXPECT_EQ(threads(), before);
}

// More shapes than are kept: they are made again.
TEST(OneDnnProducts, AreRightWithMoreShapesThanAreKept) {
  if (!missing().empty()) GTEST_SKIP() << missing();
  const Choice choice("onednn");
  const auto device = make_cpu_device();
  Layer again(*device, {7, 640, 128});
  again.run(*device);
  const std::vector<double> expected = again.y.values;
  for (int64_t rows = 8; rows < 308; ++rows) {
    const LinearShape shape{rows, 320, 128};
    const Buffer x(*device, rows * 128 * 2), w(*device, 320 * 128 * 2), y(*device, rows * 320 * 2);
    device->zero(x.data(), x.bytes());
    device->zero(w.data(), w.bytes());
    device->run(kType, LinearForward{.shape = shape, .x = x.data(), .w = w.data(), .y = y.data()});
  }
  again.run(*device);
  EXPECT_EQ(again.y.values, expected);
}

// Products of 8 bits and those in float32 and float16 stay as they are.
TEST(OneDnnProducts, LeaveOtherTypesAlone) {
  if (!missing().empty()) GTEST_SKIP() << missing();
  std::vector<double> results[2];
  for (const bool own : {false, true}) {
    const Choice choice(own ? "own" : "onednn");
    const auto device = make_cpu_device();
    for (const auto& [type, fp8] :
         {std::pair{kType, true}, {DataType::float16, false}, {DataType::float32, false}}) {
      Matrix x(*device, type, 128 * 96, 1), w(*device, type, 64 * 96, 2), y(*device, type, 128 * 64, 3);
      device->run(
          type, LinearForward{
                    .shape = {128, 64, 96, fp8}, .x = x.data.data(), .w = w.data.data(), .y = y.data.data()});
      y.read(*device);
      results[own].insert(results[own].end(), y.values.begin(), y.values.end());
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Products, AreNamedByTheEnvironmentAndOthersRefused) {
  const auto message = [](const char* name) -> std::string {
    const Choice choice(name);
    try {
      make_cpu_device();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(""), "");
  EXPECT_EQ(message("own"), "");
  EXPECT_NE(message("mkl").find("mkl"), std::string::npos) << message("mkl");
  EXPECT_NE(message("mkl").find("own or onednn"), std::string::npos) << message("mkl");
  EXPECT_NE(message("mkl").find("export MPT_PRODUCTS=own"), std::string::npos) << message("mkl");
  if (missing().empty()) {
    EXPECT_EQ(message("onednn"), "");
  } else {
    EXPECT_NE(message("onednn").find("onednn, but " + missing()), std::string::npos) << message("onednn");
  }
}

}  // namespace
}  // namespace mpt::runtime
