// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime::cuda {

struct CudaOptions {
  // The first use of a matrix product times several algorithms for it. The bits of results then depend on
  // the outcome.
  bool times_products = false;
};
/// Of GPU `index`. Throws RunError if it cannot be used.
std::unique_ptr<StreamDevice> make_cuda_device(int index, const CudaOptions& options = {});

}  // namespace mpt::runtime::cuda
