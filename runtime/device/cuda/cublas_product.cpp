// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cublas_product.h"

#include "base/error.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int kMostAlgorithms = 8;

// GELU is the approximation by tanh.
uint32_t cublas_epilogue(const ProductKind& kind) {
  switch (kind.epilogue) {
    case Epilogue::Kind::none:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::Kind::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::Kind::gelu:
      return kind.has_vector ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::Kind::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::Kind::sums:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  MPT_CHECK(false, "no such epilogue");
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type, uint64_t(rows), uint64_t(columns), ld),
        "cublasLtMatrixLayoutCreate");
  return made;
}

}  // namespace

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_run("{} failed: {}", call, cublasLtGetStatusString(status));
}

cudaDataType_t cuda_type(DataType type) {
  constexpr cudaDataType_t kTypes[] = {CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF, CUDA_R_16F};  // by DataType
  return kTypes[size_t(type)];
}

cudaDataType_t cuda_type(Fp8 format) { return format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

CublasProduct::CublasProduct(cublasLtHandle_t handle, const ProductKind& kind, const ProductCall& call)
    : handle_(handle), kind_(kind) {
  describe(call);
  find_algorithms();
}

CublasProduct::~CublasProduct() {
  for (const cublasLtMatrixLayout_t made : {a_, b_, c_})
    if (made != nullptr) cublasLtMatrixLayoutDestroy(made);
  if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
}

void CublasProduct::describe(const ProductCall& call) {
  const ProductTypes& types = kind_.types;
  const GemmShape& s = kind_.shape;
  const bool is_double = types.a == CUDA_R_64F;
  check(cublasLtMatmulDescCreate(&operation_, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 is_double ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublas_epilogue(kind_));
  if (kind_.epilogue == Epilogue::Kind::gelu || kind_.epilogue == Epilogue::Kind::gelu_gradient)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.ldc);
  // Hopper's sums of 8-bit products may keep fewer bits if allowed to. Training tolerates that in the forward
  // but not in gradients (NVIDIA Transformer Engine: split accumulator in the backward products only).
  if (types.are_fp8())
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(types.a == CUDA_R_8F_E4M3 && types.b == CUDA_R_8F_E4M3));
  set_pointers(call);
  a_ = layout(types.a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda);
  b_ = layout(types.b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb);
  c_ = layout(types.result, s.m, s.n, s.ldc);
}

void CublasProduct::set_pointers(const ProductCall& call) const {
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const void* to) {
    if (to == nullptr) return;
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &to, sizeof to),
          "cublasLtMatmulDescSetAttribute");
  };
  point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.epilogue.vector);
  point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.epilogue.matrix);
  point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.a_scale);
  point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.b_scale);
}

void CublasProduct::find_algorithms() {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kind_.alignment.a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kind_.alignment.b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind_.alignment.c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind_.alignment.c);
  // Products split along k are rounded to 16 bits before the epilogue (seen on an H100).
  const bool is_16_bits = kind_.types.result == CUDA_R_16BF || kind_.types.result == CUDA_R_16F;
  if (kind_.epilogue != Epilogue::Kind::none && is_16_bits)
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE));
  cublasLtMatmulHeuristicResult_t found[kMostAlgorithms];
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, c_, c_,
                                                               preference, kMostAlgorithms, found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(found[i].algo);
}

bool CublasProduct::run(const ProductCall& call, size_t algorithm, void* workspace) const {
  set_pointers(call);
  const double one = 1.0, factor = call.accumulate ? 1.0 : 0.0;
  const float one_f = 1.0f, factor_f = call.accumulate ? 1.0f : 0.0f;
  const bool is_double = kind_.types.a == CUDA_R_64F;
  const void* const alpha = is_double ? static_cast<const void*>(&one) : &one_f;
  const void* const beta = is_double ? static_cast<const void*>(&factor) : &factor_f;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, operation_, alpha, call.a, a_, call.b, b_, beta, call.c, c_, call.c, c_,
                     &algorithms_[algorithm], workspace, kWorkspaceBytes, call.stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  check(status, "cublasLtMatmul");
  return true;
}

}  // namespace mpt::runtime::cuda
