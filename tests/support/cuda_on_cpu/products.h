// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products as BLAS defines them, in plain loops, with cuBLASLt's epilogues.

#include <cublasLt.h>

namespace cuda_on_cpu {

struct ProductOperand {
  cudaDataType_t type = CUDA_R_32F;
  const void* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
  const float* scale = nullptr;  // device memory; null: 1
};

/// d [m, n] = epilogue(alpha op(a) [m, k] op(b) [k, n] + beta d), all column-major.
struct ProductCall {
  ProductOperand a, b;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1.0, beta = 0.0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_ld = 0;
  cudaDataType_t type = CUDA_R_32F;
  void* d = nullptr;
  int64_t ld = 0;
  bool split = false;  // rounded to the type of d before the epilogue
  void* workspace = nullptr;
};

/// Tells the race checker what the call touches.
void note(const ProductCall& call);
void multiply(const ProductCall& call);

}  // namespace cuda_on_cpu
