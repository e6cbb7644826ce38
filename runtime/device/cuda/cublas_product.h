// SPDX-License-Identifier: Apache-2.0
#pragma once

// CublasProduct: cuBLASLt's descriptors for products of one kind, and the algorithms for it.

#include <cublasLt.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/device/cuda/gemm.h"

namespace mpt::runtime::cuda {

// NVIDIA's own recommendation for Hopper; older GPUs need less.
constexpr size_t kWorkspaceBytes = 32 << 20;

constexpr float kNever_ms = std::numeric_limits<float>::max();

void check(cublasStatus_t status, const char* call);
cudaDataType_t cuda_type(DataType type);
cudaDataType_t cuda_type(Fp8 format);

struct ProductTypes {
  cudaDataType_t a, b, result;
  bool are_fp8() const { return a == CUDA_R_8F_E4M3 || a == CUDA_R_8F_E5M2; }
  bool are_16_bits() const { return a == CUDA_R_16BF || a == CUDA_R_16F; }
  auto operator<=>(const ProductTypes&) const = default;
};

/// The largest powers of two that divide the addresses, up to the largest one that matters to kernels.
struct ProductAlignment {
  uint32_t a = 1, b = 1, c = 1;
  auto operator<=>(const ProductAlignment&) const = default;
};

/// Shared by all calls of one kind.
struct ProductKind {
  ProductTypes types{};
  GemmShape shape;
  Epilogue::Kind epilogue = Epilogue::Kind::none;
  bool has_vector = false;
  ProductAlignment alignment;
  auto operator<=>(const ProductKind&) const = default;
};

/// One call.
struct ProductCall {
  cudaStream_t stream = nullptr;
  const void *a = nullptr, *b = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;
  Epilogue epilogue;
  bool accumulate = false;
  void* c = nullptr;
};

class CublasProduct {
 public:
  /// All calls of this kind have addresses aligned like those of `call`.
  CublasProduct(cublasLtHandle_t handle, const ProductKind& kind, const ProductCall& call);
  CublasProduct(const CublasProduct&) = delete;
  ~CublasProduct();

  const ProductKind& kind() const { return kind_; }
  /// The heuristic's algorithms, best first; empty: there is none.
  const std::vector<cublasLtMatmulAlgo_t>& algorithms() const { return algorithms_; }
  /// Returns false if the algorithm cannot run it.
  bool run(const ProductCall& call, size_t algorithm, void* workspace) const;

  size_t chosen = 0;  // of algorithms()
  bool was_considered = false, was_timed = false;
  float best_ms = kNever_ms;  // of a run, if it was timed

 private:
  void describe(const ProductCall& call);
  void set_pointers(const ProductCall& call) const;
  void find_algorithms();

  cublasLtHandle_t handle_;
  const ProductKind kind_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace mpt::runtime::cuda
