// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/reduction.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mpt::runtime {
namespace {

uint16_t narrowed(DataType type, double value) {
  const auto number = float(value);
  uint16_t bits = 0;
  narrow(type, &number, 1, &bits);
  return bits;
}

// Half-way between two numbers the even one is next; beyond, the nearer one. `ulp` is the step above 1.
TEST(Reduction, NarrowingRoundsTiesToEven) {
  const struct {
    DataType type;
    double ulp;
    uint16_t one;
  } types[] = {{DataType::bfloat16, std::ldexp(1.0, -7), 0x3f80},
               {DataType::float16, std::ldexp(1.0, -10), 0x3c00}};
  for (const auto& [type, ulp, one] : types) {
    for (const auto& [steps, up] :
         {std::pair{0.0, 0}, {0.5, 0}, {0.501, 1}, {1.0, 1}, {1.499, 1}, {1.5, 2}, {2.5, 2}, {3.5, 4}}) {
      EXPECT_EQ(narrowed(type, 1.0 + steps * ulp), one + up) << steps;
      EXPECT_EQ(narrowed(type, -1.0 - steps * ulp), 0x8000 | (one + up)) << -steps;
    }
  }
}

TEST(Reduction, NarrowingKeepsWhatIsNotFinite) {
  EXPECT_EQ(narrowed(DataType::bfloat16, INFINITY), 0x7f80);
  EXPECT_EQ(narrowed(DataType::bfloat16, 3.4e38), 0x7f80);  // beyond the largest
  EXPECT_EQ(narrowed(DataType::float16, 65520.0), 0x7c00);  // half-way beyond the largest
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    const uint16_t bits = narrowed(type, NAN);
    float back = 0.0f;
    widen(type, &bits, 1, &back);
    EXPECT_TRUE(std::isnan(back));
  }
}

}  // namespace
}  // namespace mpt::runtime
