// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gemm: matrix products on a GPU in BLAS's convention: matrices are column-major.

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
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

/// A matrix of 8 bits, and the factor in device memory that scales it back.
struct Fp8Matrix {
  Fp8 format = Fp8::e4m3;
  const uint8_t* data = nullptr;
  const float* from_fp8 = nullptr;
};

struct GemmTypes {
  DataType operands = DataType::float32;  // of a and b
  DataType result = DataType::float32;    // of c, and of epilogues' inputs and outputs
  auto operator<=>(const GemmTypes&) const = default;
};

/// An operation on a product before it is written.
struct Epilogue {
  enum class Kind : uint8_t {
    none,
    bias,           // `vector` [m] is added to every column
    gelu,           // like bias, unless null; `matrix` [m, n] gets the sum, c its gelu_tanh
    gelu_gradient,  // c = the product times the slope of gelu_tanh at `matrix`
    sums            // `vector` [n] gets the sums of op(b) over k
  };
  Kind kind = Kind::none;
  void* vector = nullptr;
  void* matrix = nullptr;
};
inline Epilogue with_bias(const void* bias) {
  if (bias == nullptr) return {};
  return {Epilogue::Kind::bias, const_cast<void*>(bias), nullptr};
}

/// Device functions that products use.
struct GemmTools {
  std::function<void(cudaEvent_t)> wait_for;
  /// Whether these numbers are all zero.
  std::function<bool(DataType, int64_t count, const void*)> is_zero;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// With `accumulate` the product is added to c. Products of 16 bits are summed in float. Returns false, and
  /// does nothing, if no kernel has this epilogue for these sizes and addresses. Throws RunError if no kernel
  /// exists at all. Several threads may call it, each with a different stream.
  virtual bool run(cudaStream_t stream, const GemmTypes& types, const GemmShape& shape, const void* a,
                   const void* b, const Epilogue& epilogue, bool accumulate, void* c) = 0;
  /// The same with operands of 8 bits; a is transposed and b is not, as Hopper requires. The result has 16
  /// bits or is float.
  virtual bool run_fp8(cudaStream_t stream, DataType result, const GemmShape& shape, const Fp8Matrix& a,
                       const Fp8Matrix& b, const Epilogue& epilogue, bool accumulate, void* c) = 0;
  /// Memory that it holds in addition to the callers' buffers.
  virtual int64_t workspace_bytes() const = 0;
};

/// For the current device. With `timed` the first use of a product times the algorithms for it, and the
/// fastest is kept.
std::unique_ptr<Gemm> make_gemm(GemmTools tools, bool timed);

}  // namespace mpt::runtime::cuda
