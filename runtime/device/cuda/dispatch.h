// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a type of elements that is known at run time to a call of the kernel for it.

#include <type_traits>

#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {

/// Calls `body` with a null pointer of the element type.
template <class F>
void with_type(DataType type, F&& body) {
  switch (type) {
    case DataType::float32:
      return body(static_cast<float*>(nullptr));
    case DataType::float64:
      return body(static_cast<double*>(nullptr));
    case DataType::bfloat16:
      return body(static_cast<Bfloat16*>(nullptr));
    case DataType::float16:
      return body(static_cast<Half*>(nullptr));
  }
}

}  // namespace mpt::runtime::cuda

/// The call with T as the element type, and S as the type of its sums.
#define MPT_DISPATCH(type, ...)                     \
  with_type(type, [&](auto* tag) {                  \
    using T = std::remove_pointer_t<decltype(tag)>; \
    using S = State<T>;                             \
    (void)static_cast<S*>(nullptr);                 \
    __VA_ARGS__;                                    \
  })
