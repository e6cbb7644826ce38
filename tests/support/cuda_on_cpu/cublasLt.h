// SPDX-License-Identifier: Apache-2.0
#pragma once

// cuBLASLt, as far as runtime/device/cuda uses it, on the CPU: products in plain loops, as BLAS defines them.
// What NVIDIA's documents ask of a call is checked (cublasLt.h of CUDA 13.0 and the cuBLAS guide,
// "cublasLtMatmul()" and "cublasLtMatmulDescAttributes_t"):
//  - Combinations of types: operands of 16 bits give 16 bits of their kind or float; of 8 bits, not both
//    e5m2, 16 bits or float, with a transposed, b not, and sides and addresses of whole 16 bytes.
//  - Leading dimensions hold a column. In place, c and d have one layout.
//  - An algorithm gets addresses aligned as its preferences promised, and the workspace that it asked for.
//  - A bias and an auxiliary matrix are aligned to 16 bytes, which the heuristic learns from their pointers.
//  - The auxiliary matrix of GELU has the type of d, and a leading dimension that is a multiple of 8 and
//    holds a column of d.
//  - A gradient of the bias is written, not added, in the type of d.
//  - Epilogues beside the bias are for operands of 16 bits. A float result has no GELU.
// It takes a liberty that was seen on an H100: the first algorithm, if its reduction is allowed, splits long
// products along k, and rounds them to the type of d before the epilogue.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cudaDataType_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
  CUDA_R_8F_E4M3 = 28,
  CUDA_R_8F_E5M2 = 29
};
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU_AUX = 32 | 128,
  CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 32 | 128 | 4,
  CUBLASLT_EPILOGUE_DGELU = 64 | 128,
  CUBLASLT_EPILOGUE_BGRADB = 512
};
enum cublasLtReductionScheme_t {
  CUBLASLT_REDUCTION_SCHEME_NONE = 0,
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
  CUBLASLT_REDUCTION_SCHEME_MASK = 7
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA,
  CUBLASLT_MATMUL_DESC_TRANSB,
  CUBLASLT_MATMUL_DESC_EPILOGUE,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
  CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
  CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
  CUBLASLT_MATMUL_DESC_FAST_ACCUM
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
};

using cublasLtHandle_t = struct FakeCublas*;
using cublasLtMatmulDesc_t = struct FakeOperation*;
using cublasLtMatrixLayout_t = struct FakeLayout*;
using cublasLtMatmulPreference_t = struct FakePreference*;
struct cublasLtMatmulAlgo_t {
  int number = 0;
  bool split = false;
  uint32_t alignment[4] = {1, 1, 1, 1};  // that it needs of a, b, c and d
  size_t workspace_bytes = 0;
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize = 0;
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
};

const char* cublasLtGetStatusString(cublasStatus_t status);
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes);
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream);

namespace cuda_on_cpu {

/// A product that was launched.
struct LaunchedProduct {
  int64_t m = 0, n = 0, k = 0;
  uint32_t epilogue = 0;
  int algorithm = 0;
};
/// Those since the last call.
std::vector<LaunchedProduct> take_products();
/// From now on every algorithm but this takes a second longer; -1: none does.
void set_fastest_algorithm(int number);
/// Products with this epilogue take a second longer; 0: none does.
void set_slow_epilogue(uint32_t epilogue);
/// This algorithm is found, and refuses to run; -1: none does.
void set_broken_algorithm(int number);
/// Heuristics find nothing for this epilogue; 0: they do for all.
void refuse_epilogue(uint32_t epilogue);

}  // namespace cuda_on_cpu
