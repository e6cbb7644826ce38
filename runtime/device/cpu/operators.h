// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CPU's operators (runtime/device/operations.h), for float and double, and for 16 bits through floats.
// Single-threaded and deterministic: a rank is a thread. Compiled with the machine's own instruction set.

#include "runtime/device/cpu/products.h"
#include "runtime/device/cpu/widened.h"
#include "runtime/device/operations.h"

namespace mpt::runtime::cpu {

/// What an operator needs of its device for one call.
struct Call {
  DataType type;
  WideningMemory& memory;
  Products* products = nullptr;  // of a library; null: there are none

  /// Whether a library computed this.
  bool multiplied(const ProductShape& shape, const ProductOperands& operands) const {
    return type == DataType::bfloat16 && products != nullptr && products->multiply(shape, operands, memory);
  }
  /// Calls `body` with what gives it operands in the type that kernels compute in, AsTheyAre or Widened, and
  /// with a null pointer to numbers of that type.
  template <class Body>
  auto compute(Body&& body) const {
    if (type == DataType::float32) {
      AsTheyAre<float> operands;
      return body(operands, static_cast<const float*>(nullptr));
    }
    if (type == DataType::float64) {
      AsTheyAre<double> operands;
      return body(operands, static_cast<const double*>(nullptr));
    }
    Widened operands(type, memory);
    return body(operands, static_cast<const float*>(nullptr));
  }
  /// Calls `body` with a null pointer to numbers of the type's size, for kernels that only copy.
  template <class Body>
  void copy(Body&& body) const {
    if (type == DataType::float32) return body(static_cast<const float*>(nullptr));
    if (type == DataType::float64) return body(static_cast<const double*>(nullptr));
    body(static_cast<const uint16_t*>(nullptr));
  }
};

#define MPT_RUN(operation) run(const Call&, const operation&)
void MPT_OPERATIONS(MPT_RUN);
#undef MPT_RUN
double sum_of_squares(const Call&, const Stretch&);

/// Between float32 and a narrower type, or within a type.
void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count);

}  // namespace mpt::runtime::cpu
