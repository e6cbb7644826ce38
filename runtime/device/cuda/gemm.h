// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gemm: matrix products on a GPU, in BLAS terms: matrices are column-major.

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/device/fp8.h"

namespace mpt::runtime::cuda {

/// c [m, n] = op(a) [m, k] op(b) [k, n]; ld: elements from one column to the next.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  auto operator<=>(const GemmShape&) const = default;
};

/// A matrix of 8 bits with the factor, in device memory, that gives its numbers.
struct Fp8Matrix {
  Fp8 format = Fp8::e4m3;
  const uint8_t* data = nullptr;
  const float* from_fp8 = nullptr;
};

struct GemmTypes {
  DataType operands = DataType::float32;  // of a and b
  DataType result = DataType::float32;    // of c and bias
  auto operator<=>(const GemmTypes&) const = default;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// `bias` [m] is added to every column, if not null; with `accumulate` the product is added to c. Products
  /// of 16 bits are summed in float. May be called from several threads, each with a stream of its own.
  virtual void run(cudaStream_t stream, const GemmTypes& types, const GemmShape& shape, const void* a,
                   const void* b, const void* bias, bool accumulate, void* c) = 0;
  /// The same with operands of 8 bits, of which a is transposed and b is not, as Hopper requires. The result
  /// is of 16 bits or float.
  virtual void run_fp8(cudaStream_t stream, DataType result, const GemmShape& shape, const Fp8Matrix& a,
                       const Fp8Matrix& b, const void* bias, bool accumulate, void* c) = 0;
  /// Memory that it holds beside what callers gave.
  virtual int64_t workspace_bytes() const = 0;
};

/// Of the current device.
std::unique_ptr<Gemm> make_gemm();

}  // namespace mpt::runtime::cuda
