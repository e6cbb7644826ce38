// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

// NVIDIA's own recommendation for Hopper; older GPUs need less.
constexpr size_t kWorkspaceBytes = 32 << 20;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw RunError(fmt::format("{} failed: {}", call, cublasLtGetStatusString(status)));
}

cudaDataType_t cuda_type(DataType type) {
  switch (type) {
    case DataType::float32:
      return CUDA_R_32F;
    case DataType::float64:
      return CUDA_R_64F;
    case DataType::bfloat16:
      return CUDA_R_16BF;
    case DataType::float16:
      return CUDA_R_16F;
  }
  MPT_CHECK(false, "no such type");
}

cudaDataType_t cuda_type(Fp8 format) { return format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

// A product's descriptors and the algorithm that cuBLASLt's heuristic prefers for it.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    for (const cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
};

class CublasGemm final : public Gemm {
 public:
  CublasGemm() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }
  ~CublasGemm() override {
    products_.clear();
    for (const auto& [stream, memory] : workspaces_) cudaFree(memory);
    cublasLtDestroy(handle_);
  }

  void run(cudaStream_t stream, const GemmTypes& types, const GemmShape& shape, const void* a, const void* b,
           const void* bias, bool accumulate, void* c) override {
    multiply(stream, {cuda_type(types.operands), cuda_type(types.operands), cuda_type(types.result)}, shape,
             {a, b}, {}, bias, accumulate, c);
  }

  void run_fp8(cudaStream_t stream, DataType result, const GemmShape& shape, const Fp8Matrix& a,
               const Fp8Matrix& b, const void* bias, bool accumulate, void* c) override {
    MPT_CHECK(shape.transpose_a && !shape.transpose_b, "products of 8 bits go along the columns of both");
    multiply(stream, {cuda_type(a.format), cuda_type(b.format), cuda_type(result)}, shape, {a.data, b.data},
             {a.from_fp8, b.from_fp8}, bias, accumulate, c);
  }

  int64_t workspace_bytes() const override {
    const std::lock_guard lock(mutex_);
    return int64_t(workspaces_.size() * kWorkspaceBytes);
  }

 private:
  struct Types {
    cudaDataType_t a, b, result;
    bool are_fp8() const { return a == CUDA_R_8F_E4M3 || a == CUDA_R_8F_E5M2; }
    auto operator<=>(const Types&) const = default;
  };
  struct Pair {
    const void *a = nullptr, *b = nullptr;
  };
  // The largest powers of two that divide the addresses, as far as kernels care.
  struct Alignment {
    uint32_t a = 1, b = 1, c = 1;
    auto operator<=>(const Alignment&) const = default;
  };
  using Key = std::tuple<Types, GemmShape, bool, Alignment>;
  // Experts get another number of rows in every micro-batch.
  static constexpr size_t kMostProducts = 1024;

  static uint32_t alignment_of(const void* data) {
    constexpr uintptr_t kBest = 256;  // what cuBLASLt takes for granted (cublasLt.h)
    const uintptr_t address = reinterpret_cast<uintptr_t>(data) | kBest;
    return uint32_t(address & -address);
  }

  // `scales` of operands of 8 bits.
  void multiply(cudaStream_t stream, const Types& types, const GemmShape& shape, const Pair& operands,
                const Pair& scales, const void* bias, bool accumulate, void* c) {
    if (shape.m == 0 || shape.n == 0) return;
    const std::lock_guard lock(mutex_);
    const Alignment alignment{alignment_of(operands.a), alignment_of(operands.b), alignment_of(c)};
    const Product& product = product_of(types, shape, scales, bias, alignment);
    set_pointers(product, scales, bias);
    const double one = 1.0, factor = accumulate ? 1.0 : 0.0;
    const float one_f = 1.0f, factor_f = accumulate ? 1.0f : 0.0f;
    const bool is_double = types.a == CUDA_R_64F;
    const void* const alpha = is_double ? static_cast<const void*>(&one) : &one_f;
    const void* const beta = is_double ? static_cast<const void*>(&factor) : &factor_f;
    check(cublasLtMatmul(handle_, product.operation, alpha, operands.a, product.a, operands.b, product.b,
                         beta, c, product.c, c, product.c, &product.algorithm, workspace(stream),
                         kWorkspaceBytes, stream),
          "cublasLtMatmul");
  }

  void* workspace(cudaStream_t stream) {
    void*& memory = workspaces_[stream];
    if (memory == nullptr) cuda::check(cudaMalloc(&memory, kWorkspaceBytes), "cudaMalloc of a workspace");
    return memory;
  }

  const Product& product_of(const Types& types, const GemmShape& shape, const Pair& scales, const void* bias,
                            const Alignment& alignment) {
    const Key key{types, shape, bias != nullptr, alignment};
    if (const auto known = products_.find(key); known != products_.end()) return *known->second;
    if (products_.size() >= kMostProducts) products_.clear();
    return *(products_[key] = make(types, shape, scales, bias, alignment));
  }

  // Of one call.
  static void set_pointers(const Product& product, const Pair& scales, const void* bias) {
    const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const void* to) {
      if (to == nullptr) return;
      check(cublasLtMatmulDescSetAttribute(product.operation, attribute, &to, sizeof to),
            "cublasLtMatmulDescSetAttribute");
    };
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.a);
    point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.b);
  }

  std::unique_ptr<Product> make(const Types& types, const GemmShape& s, const Pair& scales, const void* bias,
                                const Alignment& alignment) {
    auto made = std::make_unique<Product>();
    const bool is_double = types.a == CUDA_R_64F;
    check(cublasLtMatmulDescCreate(&made->operation, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   is_double ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulDescSetAttribute(made->operation, attribute, &value, sizeof value),
            "cublasLtMatmulDescSetAttribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    // Hopper's sums of 8-bit products keep fewer bits if allowed to, which training bears in forward but not
    // in gradients (NVIDIA Transformer Engine: split accumulator in the backward products only).
    if (types.are_fp8())
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(types.a == CUDA_R_8F_E4M3 && types.b == CUDA_R_8F_E4M3));
    set_pointers(*made, scales, bias);
    const auto layout = [](cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld) {
      cublasLtMatrixLayout_t made_layout = nullptr;
      check(cublasLtMatrixLayoutCreate(&made_layout, type, uint64_t(rows), uint64_t(columns), ld),
            "cublasLtMatrixLayoutCreate");
      return made_layout;
    };
    made->a = layout(types.a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda);
    made->b = layout(types.b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb);
    made->c = layout(types.result, s.m, s.n, s.ldc);
    made->algorithm = algorithm_of(*made, types, s, alignment, bias != nullptr);
    return made;
  }

  cublasLtMatmulAlgo_t algorithm_of(const Product& made, const Types& types, const GemmShape& s,
                                    const Alignment& alignment, bool has_bias) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.a);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.b);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.c);
    // Products that are split along k are rounded to 16 bits before the bias is added (seen on an H100).
    const bool is_16_bits = types.result == CUDA_R_16BF || types.result == CUDA_R_16F;
    if (has_bias && is_16_bits)
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, made.operation, made.a, made.b, made.c, made.c, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (count == 0 || status == CUBLAS_STATUS_NOT_SUPPORTED) {
      throw RunError(
          fmt::format("cuBLASLt knows no way to multiply [{}, {}] by [{}, {}]{}", s.m, s.k, s.k, s.n,
                      types.are_fp8() ? " in 8 bits on this GPU: plan with --precision bf16" : ""));
    }
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    return found.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;
  std::map<Key, std::unique_ptr<Product>> products_;
  std::map<cudaStream_t, void*> workspaces_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm() { return std::make_unique<CublasGemm>(); }

}  // namespace mpt::runtime::cuda
