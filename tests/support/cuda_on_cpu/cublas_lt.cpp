// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "products.h"
#include "streams.h"

struct FakeCublas {};
struct FakeOperation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *aux = nullptr;
  const void *a_scale = nullptr, *b_scale = nullptr;
  int64_t aux_ld = 0;
  int8_t fast_accumulation = 0;
};
struct FakeLayout {
  cudaDataType_t type;
  int64_t rows, columns, ld;
  bool operator==(const FakeLayout&) const = default;
};
struct FakePreference {
  size_t workspace_bytes = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};  // what is taken for granted
};

namespace cuda_on_cpu {
namespace {

struct Settings {
  std::mutex mutex;
  std::vector<LaunchedProduct> launched;
  int fastest = -1, broken = -1;
  uint32_t refused = 0, slow = 0;
};
Settings& settings() {
  static Settings settings;
  return settings;
}

bool is_8_bits(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
bool is_16_bits(cudaDataType_t type) { return type == CUDA_R_16F || type == CUDA_R_16BF; }
bool has_bias(uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool has_aux(uint32_t epilogue) { return (epilogue & 128) != 0; }
bool is_aligned(const void* data, uint32_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

template <class T>
cublasStatus_t set_to(T& to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// The table of types of cublasLtMatmul(), as far as it is used.
bool types_go_together(const FakeOperation& o, cudaDataType_t a, cudaDataType_t b, cudaDataType_t d) {
  if (a == CUDA_R_64F) return b == a && d == a && o.compute == CUBLAS_COMPUTE_64F && o.scale == CUDA_R_64F;
  if (o.compute != CUBLAS_COMPUTE_32F || o.scale != CUDA_R_32F) return false;
  if (is_8_bits(a)) {
    return is_8_bits(b) && !(a == CUDA_R_8F_E5M2 && b == a) && (is_16_bits(d) || d == CUDA_R_32F) &&
           o.transpose_a == CUBLAS_OP_T && o.transpose_b == CUBLAS_OP_N;
  }
  return a == b && (d == a || (is_16_bits(a) && d == CUDA_R_32F));
}

cublasStatus_t check_epilogue(const FakeOperation& o, const FakeLayout& a, const FakeLayout& d) {
  const bool fp8 = is_8_bits(a.type);
  if (o.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (has_bias(o.epilogue) && o.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (has_bias(o.epilogue) && !is_aligned(o.bias, 16)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue == CUBLASLT_EPILOGUE_BIAS) return CUBLAS_STATUS_SUCCESS;
  if (fp8 || !is_16_bits(a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!has_aux(o.epilogue)) return CUBLAS_STATUS_SUCCESS;
  if (d.type == CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.aux == nullptr || o.aux_ld % 8 != 0 || o.aux_ld < d.rows) return CUBLAS_STATUS_INVALID_VALUE;
  return is_aligned(o.aux, 16) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t check_call(const FakeOperation& o, const FakeLayout& a, const FakeLayout& b,
                          const FakeLayout& d) {
  const bool ta = o.transpose_a == CUBLAS_OP_T, tb = o.transpose_b == CUBLAS_OP_T;
  const int64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns, n = tb ? b.rows : b.columns;
  if (k != (tb ? b.columns : b.rows) || d.rows != m || d.columns != n) return CUBLAS_STATUS_INVALID_VALUE;
  for (const FakeLayout& layout : {a, b, d}) {
    if (layout.ld < layout.rows || layout.rows <= 0 || layout.columns <= 0)
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!types_go_together(o, a.type, b.type, d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (is_8_bits(a.type) && (m % 16 != 0 || n % 16 != 0 || k % 16 != 0)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return check_epilogue(o, a, d);
}

bool launch_may_have(const FakeOperation& o, cudaStream_t stream, const ProductCall& call) {
  for (const void* pointer : {call.a.data, call.b.data, static_cast<const void*>(call.d), o.a_scale,
                              o.b_scale, static_cast<const void*>(call.workspace)}) {
    if (!kernel_may_have(stream, pointer)) return false;
  }
  return (!has_bias(o.epilogue) || kernel_may_have(stream, o.bias)) &&
         (!has_aux(o.epilogue) || kernel_may_have(stream, o.aux));
}

// What the heuristic was promised.
bool keeps_promises(const ProductCall& call, const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes) {
  const void* const pointers[] = {call.a.data, call.b.data, call.d, call.d};
  for (int i = 0; i < 4; ++i) {
    if (!is_aligned(pointers[i], algorithm.alignment[i])) return false;
  }
  if (is_8_bits(call.a.type) && (!is_aligned(call.a.data, 16) || !is_aligned(call.b.data, 16))) return false;
  return workspace_bytes >= algorithm.workspace_bytes && is_aligned(call.workspace, 16);
}

ProductCall call_of(const FakeOperation& o, const FakeLayout& a, const FakeLayout& b, const FakeLayout& d,
                    const void* alpha, const void* beta) {
  const auto number = [&](const void* at) {
    return o.scale == CUDA_R_64F ? *static_cast<const double*>(at) : double(*static_cast<const float*>(at));
  };
  const bool ta = o.transpose_a == CUBLAS_OP_T, tb = o.transpose_b == CUBLAS_OP_T;
  ProductCall call;
  call.a = {a.type, nullptr, a.ld, ta, static_cast<const float*>(o.a_scale)};
  call.b = {b.type, nullptr, b.ld, tb, static_cast<const float*>(o.b_scale)};
  call.m = d.rows;
  call.n = d.columns;
  call.k = ta ? a.rows : a.columns;
  call.alpha = number(alpha);
  call.beta = number(beta);
  call.epilogue = o.epilogue;
  call.bias = o.bias;
  call.aux = o.aux;
  call.aux_ld = o.aux_ld;
  call.type = d.type;
  call.ld = d.ld;
  return call;
}

// Notes the launch; the seconds that it takes longer than the fastest.
double note_launch(const ProductCall& call, int algorithm) {
  const std::lock_guard lock(settings().mutex);
  settings().launched.push_back({call.m, call.n, call.k, call.epilogue, algorithm});
  return (settings().fastest >= 0 && settings().fastest != algorithm ? 1.0 : 0.0) +
         (settings().slow == call.epilogue ? 1.0 : 0.0);
}

}  // namespace

std::vector<LaunchedProduct> take_products() {
  const std::lock_guard lock(settings().mutex);
  return std::exchange(settings().launched, {});
}
void set_fastest_algorithm(int number) { settings().fastest = number; }
void set_broken_algorithm(int number) { settings().broken = number; }
void set_slow_epilogue(uint32_t epilogue) { settings().slow = epilogue; }
void refuse_epilogue(uint32_t epilogue) { settings().refused = epilogue; }

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "no such status";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new FakeCublas;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = new FakeOperation{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set_to(o->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set_to(o->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set_to(o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set_to(o->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set_to(o->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set_to(o->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set_to(o->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set_to(o->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set_to(o->fast_accumulation, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *made = new FakeLayout{type, int64_t(rows), int64_t(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = new FakePreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return set_to(preference->workspace_bytes, value, bytes);
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    return set_to(preference->reductions, value, bytes);
  return set_to(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t o,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  constexpr int kAlgorithms = 5;
  constexpr int64_t kLong = 32;  // along k, for the one that splits it
  constexpr size_t kSplitBytes = 4096;
  *found = 0;
  const cublasStatus_t status = check_call(*o, *a, *b, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!(*c == *d) || o->epilogue == settings().refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int64_t k = o->transpose_a == CUBLAS_OP_T ? a->rows : a->columns;
  const bool splits = k >= kLong && (preference->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 &&
                      preference->workspace_bytes >= kSplitBytes;
  for (int number = 0; number < kAlgorithms && *found < wanted; ++number) {
    if (number == 0 && !splits) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {{number, number == 0, {}, number == 0 ? kSplitBytes : 0}};
    std::memcpy(result.algo.alignment, preference->alignment, sizeof result.algo.alignment);
    result.workspaceSize = result.algo.workspace_bytes;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t o, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const cublasStatus_t status = check_call(*o, *a_layout, *b_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (c != d || !(*c_layout == *d_layout)) return CUBLAS_STATUS_NOT_SUPPORTED;  // never asked for
  ProductCall call = call_of(*o, *a_layout, *b_layout, *d_layout, alpha, beta);
  call.a.data = a;
  call.b.data = b;
  call.d = d;
  call.workspace = workspace;
  if (!launch_may_have(*o, stream, call) || !keeps_promises(call, *algorithm, workspace_bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->number == settings().broken) return CUBLAS_STATUS_NOT_SUPPORTED;
  call.split = algorithm->split;
  if (!call.split) call.workspace = nullptr;
  const double extra_s = note_launch(call, algorithm->number);
  // Other sizes may need another kernel, and here they do.
  const auto kernel =
      fmt::format("product {} {} {} {} {} {} {} {} {}", int(call.type), int(call.a.type), call.a.transposed,
                  call.b.transposed, call.epilogue, algorithm->number, call.m, call.n, call.k);
  if (load(stream, kernel) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto run = [call] {
    note(call);
    multiply(call);
    return cudaSuccess;
  };
  const cudaError_t submitted = submit(stream, run, "a product", nullptr, extra_s);
  return submitted == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
