// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/comm/reduction.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 value) {
  float wide;
  mpt::runtime::widen(mpt::runtime::DataType::bfloat16, &value, 1, &wide);
  return wide;
}
inline __nv_bfloat16 __float2bfloat16(float value) {
  __nv_bfloat16 narrow;
  mpt::runtime::narrow(mpt::runtime::DataType::bfloat16, &value, 1, &narrow);
  return narrow;
}
