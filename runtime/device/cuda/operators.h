// SPDX-License-Identifier: Apache-2.0
#pragma once

// The GPU's operators (runtime/device/operations.h), each in the file of its kernels. This header chooses a
// kernel for an element type that is known at run time. In kernels T is float, double, Bfloat16 or Half; S is
// State<T>.

#include <span>
#include <type_traits>
#include <vector>

#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime::cuda {

#define MPT_RUN(operation) run(StreamDevice&, DataType, const operation&)
void MPT_OPERATIONS(MPT_RUN);
#undef MPT_RUN

double squared_norm(StreamDevice&, DataType, std::span<const Stretch>);
/// Mover::reduce() of at most kMostSources parts.
constexpr int kMostSources = 64;
void reduce(StreamDevice&, DataType, ReduceOperation, const std::vector<const void*>& parts, int64_t begin,
            int64_t end, void* to);

/// Calls `body` with a null pointer of the element type.
template <class F>
void with_type(DataType type, F&& body) {
  if (type == DataType::float32) return body(static_cast<float*>(nullptr));
  if (type == DataType::float64) return body(static_cast<double*>(nullptr));
  if (type == DataType::bfloat16) return body(static_cast<Bfloat16*>(nullptr));
  body(static_cast<Half*>(nullptr));
}

}  // namespace mpt::runtime::cuda

/// Makes the call with T as the element type, and S as the type of its sums.
#define MPT_DISPATCH(type, ...)                     \
  with_type(type, [&](auto* tag) {                  \
    using T = std::remove_pointer_t<decltype(tag)>; \
    using S [[maybe_unused]] = State<T>;            \
    __VA_ARGS__;                                    \
  })
