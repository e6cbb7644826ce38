// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/comm/reduction.h"

struct __half {
  uint16_t bits;
};
inline float __half2float(__half value) {
  float wide;
  mpt::runtime::widen(mpt::runtime::DataType::float16, &value, 1, &wide);
  return wide;
}
inline __half __float2half(float value) {
  __half narrow;
  mpt::runtime::narrow(mpt::runtime::DataType::float16, &value, 1, &narrow);
  return narrow;
}
