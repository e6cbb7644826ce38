// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "runtime/device/cuda/cublas_product.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

bool is(const char* variable, std::string_view value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && text == value;
}

// MPT_ATTENTION=own requests the same bits in every run, so it also turns timing off.
bool may_time() { return !is("MPT_GEMM_TIMING", "off") && !is("MPT_ATTENTION", "own"); }

uint32_t alignment_of(const void* data) {
  constexpr uintptr_t kBest = 256;  // cuBLASLt's assumption by default (cublasLt.h)
  const uintptr_t address = reinterpret_cast<uintptr_t>(data) | kBest;
  return uint32_t(address & -address);
}

class Event {
 public:
  Event() { cuda::check(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event& operator=(Event&&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }  // NOLINT(google-explicit-constructor): it is one

 private:
  cudaEvent_t event_ = nullptr;
};

class CublasGemm final : public Gemm {
 public:
  CublasGemm(GemmTools tools, bool timed)
      : tools_(std::move(tools)),
        is_timed_(timed && may_time()),
        has_epilogues_(!is("MPT_GEMM_EPILOGUES", "off")) {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
  }
  ~CublasGemm() override {
    products_.clear();
    for (const auto& [stream, memory] : workspaces_) cudaFree(memory);
    cublasLtDestroy(handle_);
  }

  bool run(cudaStream_t stream, const GemmTypes& types, const GemmShape& shape, const void* a, const void* b,
           const Epilogue& epilogue, bool accumulate, void* c) override {
    return multiply({cuda_type(types.operands), cuda_type(types.operands), cuda_type(types.result)}, shape,
                    {stream, a, b, nullptr, nullptr, epilogue, accumulate, c});
  }

  bool run_fp8(cudaStream_t stream, DataType result, const GemmShape& shape, const Fp8Matrix& a,
               const Fp8Matrix& b, const Epilogue& epilogue, bool accumulate, void* c) override {
    MPT_CHECK(shape.transpose_a && !shape.transpose_b, "products of 8 bits go along the columns of both");
    return multiply({cuda_type(a.format), cuda_type(b.format), cuda_type(result)}, shape,
                    {stream, a.data, b.data, a.from_fp8, b.from_fp8, epilogue, accumulate, c});
  }

  int64_t workspace_bytes() const override {
    const std::lock_guard lock(mutex_);
    return int64_t(workspaces_.size() * kWorkspaceBytes);
  }

 private:
  // A bound is needed, because experts get another number of rows in every micro-batch.
  static constexpr size_t kMostProducts = 1024;

  // Epilogues read and write packs of 16 bytes, and columns of their matrix must be whole packs (cublasLt.h,
  // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
  bool suits(const ProductTypes& types, const GemmShape& shape, const Epilogue& epilogue) const {
    if (epilogue.kind == Epilogue::Kind::none) return true;
    const bool aligned = reinterpret_cast<uintptr_t>(epilogue.vector) % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(epilogue.matrix) % 16 == 0;
    if (epilogue.kind == Epilogue::Kind::bias) return aligned;
    const bool in_packs = shape.m % 8 == 0 && shape.n % 8 == 0 && shape.k % 8 == 0;
    return has_epilogues_ && aligned && types.are_16_bits() &&
           (epilogue.kind == Epilogue::Kind::sums ? in_packs : shape.ldc % 8 == 0);
  }

  bool multiply(const ProductTypes& types, const GemmShape& shape, const ProductCall& call) {
    if (shape.m == 0 || shape.n == 0) return true;
    if (!suits(types, shape, call.epilogue)) return false;
    const std::lock_guard lock(mutex_);
    CublasProduct& product = product_of(types, shape, call);
    void* const room = workspace(call.stream);
    if (is_timed_ && !product.was_considered) consider(product, call, room);
    for (; product.chosen < product.algorithms().size(); ++product.chosen)
      if (product.run(call, product.chosen, room)) return true;
    if (call.epilogue.kind != Epilogue::Kind::none) return false;
    fail_run("cuBLASLt knows no way to multiply [{}, {}] by [{}, {}]{}", shape.m, shape.k, shape.k, shape.n,
             types.are_fp8() ? " in 8 bits on this GPU: plan with --precision bf16" : "");
  }

  void* workspace(cudaStream_t stream) {
    void*& memory = workspaces_[stream];
    if (memory == nullptr) cuda::check(cudaMalloc(&memory, kWorkspaceBytes), "cudaMalloc of a workspace");
    return memory;
  }

  static ProductKind kind_of(const ProductTypes& types, const GemmShape& shape, const ProductCall& call) {
    return {types,
            shape,
            call.epilogue.kind,
            call.epilogue.vector != nullptr,
            {alignment_of(call.a), alignment_of(call.b), alignment_of(call.c)}};
  }

  CublasProduct& product_of(const ProductTypes& types, const GemmShape& shape, const ProductCall& call) {
    const ProductKind kind = kind_of(types, shape, call);
    if (const auto known = products_.find(kind); known != products_.end()) return *known->second;
    if (products_.size() >= kMostProducts)
      std::erase_if(products_, [](const auto& known) { return !known.second->was_timed; });
    return *(products_[kind] = std::make_unique<CublasProduct>(handle_, kind, call));
  }

  // A product that is added to c is timed only if c is zero, as gradients are in the first micro-batch:
  // timing overwrites c.
  void consider(CublasProduct& product, const ProductCall& call, void* room) {
    const ProductTypes& types = product.kind().types;
    const GemmShape& shape = product.kind().shape;
    product.was_considered = true;
    if (product.algorithms().size() < 2 || !repeats(product.kind(), call)) return;
    const bool is_wide = types.result == CUDA_R_64F || types.result == CUDA_R_32F;
    if (call.accumulate &&
        !(is_wide && shape.ldc == shape.m && tools_.is_zero(state_of(types), shape.m * shape.n, call.c)))
      return;
    product.was_timed = true;
    compare(product, call, room);
    if (!is_worth_it(product, call, room)) product.chosen = product.algorithms().size();
  }

  // Compares with a product without the epilogue plus a kernel that reads and writes at the rate of an H100's
  // copies.
  bool is_worth_it(const CublasProduct& product, const ProductCall& call, void* room) {
    constexpr double kBytesPerMs = 2.28e9;
    const GemmShape& shape = product.kind().shape;
    const auto c = double(shape.m * shape.n), b = double(shape.k * shape.n);
    double elements = 0.0;
    if (call.epilogue.kind == Epilogue::Kind::gelu) elements = 2.0 * c;
    if (call.epilogue.kind == Epilogue::Kind::gelu_gradient) elements = 3.0 * c;
    if (call.epilogue.kind == Epilogue::Kind::sums) elements = b;
    if (elements == 0.0) return true;
    ProductCall plain = call;
    plain.epilogue =
        call.epilogue.kind == Epilogue::Kind::gelu ? with_bias(call.epilogue.vector) : Epilogue{};
    CublasProduct& other = product_of(product.kind().types, shape, plain);
    if (!other.was_considered) consider(other, plain, room);
    return other.best_ms == kNever_ms ||
           product.best_ms <= other.best_ms + float(2.0 * elements / kBytesPerMs);
  }

  // Whether the product is likely to recur. A weight with many numbers of rows is an expert's, and its
  // products do not.
  bool repeats(ProductKind weight, const ProductCall& call) {
    constexpr int kMostRowCounts = 2;
    (call.accumulate ? weight.shape.k : weight.shape.n) = 0;
    weight.shape.lda = weight.shape.ldb = weight.shape.ldc = 0;
    return ++row_counts_[weight] <= kMostRowCounts;
  }

  static DataType state_of(const ProductTypes& types) {
    return types.result == CUDA_R_64F ? DataType::float64 : DataType::float32;
  }

  // Runs each algorithm on the operands of the call.
  void compare(CublasProduct& product, const ProductCall& call, void* room) {
    for (size_t i = 0; i < product.algorithms().size(); ++i) {
      const float ms = time_ms(product, i, call, room);
      if (ms < product.best_ms) product.chosen = i;
      product.best_ms = std::min(product.best_ms, ms);
    }
    if (!call.accumulate) return;
    const GemmShape& shape = product.kind().shape;
    const int64_t bytes = shape.m * shape.n * size_of(state_of(product.kind().types));
    cuda::check(cudaMemsetAsync(call.c, 0, size_t(bytes), call.stream), "cudaMemsetAsync");
  }

  // The first run loads the kernel, and shows whether it exists.
  float time_ms(const CublasProduct& product, size_t algorithm, const ProductCall& call, void* room) const {
    constexpr int kRuns = 3;
    const Event start, end;
    if (!product.run(call, algorithm, room)) return kNever_ms;
    cuda::check(cudaEventRecord(start, call.stream), "cudaEventRecord");
    for (int i = 0; i < kRuns; ++i) product.run(call, algorithm, room);
    cuda::check(cudaEventRecord(end, call.stream), "cudaEventRecord");
    tools_.wait_for(end);
    float ms = 0.0f;
    cuda::check(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    return ms / kRuns;
  }

  const GemmTools tools_;
  const bool is_timed_, has_epilogues_;
  cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;
  std::map<ProductKind, std::unique_ptr<CublasProduct>> products_;
  std::map<ProductKind, int> row_counts_;  // of each weight, so far
  std::map<cudaStream_t, void*> workspaces_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm(GemmTools tools, bool timed) {
  return std::make_unique<CublasGemm>(std::move(tools), timed);
}

}  // namespace mpt::runtime::cuda
