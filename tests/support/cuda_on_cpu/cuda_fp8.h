// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device/fp8.h"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
inline uint8_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t, __nv_fp8_interpretation_t format) {
  return mpt::runtime::to_fp8(value, format == __NV_E4M3 ? mpt::runtime::Fp8::e4m3 : mpt::runtime::Fp8::e5m2);
}
