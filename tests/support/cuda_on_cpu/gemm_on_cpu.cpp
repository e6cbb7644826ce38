// SPDX-License-Identifier: Apache-2.0

// Matrix products as BLAS defines them, in plain loops: stands for cuBLASLt.

#include "base/error.h"
#include "runtime/comm/reduction.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/launch.h"

#include <vector>

namespace mpt::runtime::cuda {
namespace {

double element(DataType type, const void* data, int64_t i) {
  if (type == DataType::float64) return static_cast<const double*>(data)[i];
  if (type == DataType::float32) return static_cast<const float*>(data)[i];
  float value = 0;
  widen(type, static_cast<const uint16_t*>(data) + i, 1, &value);
  return value;
}

void set(DataType type, void* data, int64_t i, double value) {
  if (type == DataType::float64) {
    static_cast<double*>(data)[i] = value;
  } else if (type == DataType::float32) {
    static_cast<float*>(data)[i] = float(value);
  } else {
    const auto wide = float(value);
    narrow(type, &wide, 1, static_cast<uint16_t*>(data) + i);
  }
}

double element(const Fp8Matrix& matrix, int64_t i) {
  return double(from_fp8(matrix.data[i], matrix.format)) * double(*matrix.from_fp8);
}

class LoopGemm final : public Gemm {
 public:
  void run(cudaStream_t stream, const GemmTypes& types, const GemmShape& s, const void* a, const void* b,
           const void* bias, bool accumulate, void* c) override {
    const auto operand = [types](const void* data) {
      return [types, data](int64_t i) { return element(types.operands, data, i); };
    };
    const int64_t unit = size_of(types.operands);
    submit(stream, types.result, s, operand(a), operand(b), bias, accumulate, c, {a, b, unit});
  }
  void run_fp8(cudaStream_t stream, DataType result, const GemmShape& s, const Fp8Matrix& a,
               const Fp8Matrix& b, const void* bias, bool accumulate, void* c) override {
    MPT_CHECK(s.transpose_a && !s.transpose_b && s.m % 16 == 0 && s.n % 16 == 0 && s.k % 16 == 0,
              "what cuBLASLt asks of products of 8 bits");
    const auto operand = [](const Fp8Matrix& matrix) {
      return [matrix](int64_t i) { return element(matrix, i); };
    };
    submit(stream, result, s, operand(a), operand(b), bias, accumulate, c, {a.data, b.data, 1});
  }
  int64_t workspace_bytes() const override { return 0; }

 private:
  struct Operands {
    const void *a, *b;
    int64_t unit;
  };

  template <class A, class B>
  static void submit(cudaStream_t stream, DataType result, const GemmShape& s, const A& a, const B& b,
                     const void* bias, bool accumulate, void* c, const Operands& operands) {
    for (const void* pointer : {operands.a, operands.b, bias, static_cast<const void*>(c)})
      MPT_CHECK(cuda_on_cpu::kernel_may_have(stream, pointer), "a product of host memory");
    MPT_CHECK(reinterpret_cast<uintptr_t>(bias) % 16 == 0, "an epilogue's bias in packs of 16 bytes");
    const auto kernel =
        fmt::format("product {} {} {} {}", int(result), operands.unit, s.transpose_a, s.transpose_b);
    check(cuda_on_cpu::load(stream, kernel), "loading a product's kernel");
    check(cuda_on_cpu::submit(
              stream,
              [=] {
                note(result, s, bias, accumulate, c, operands);
                multiply(result, s, a, b, bias, accumulate, c);
                return cudaSuccess;
              },
              "a product"),
          "a product");
  }

  static void note(DataType result, const GemmShape& s, const void* bias, bool accumulate, void* c,
                   const Operands& operands) {
    const auto columns = [](const void* data, int64_t unit, int64_t rows, int64_t count, int64_t stride,
                            auto&& touch) {
      for (int64_t i = 0; i < count; ++i)
        touch(static_cast<const char*>(data) + i * stride * unit, size_t(rows * unit));
    };
    const int64_t unit = operands.unit, wide = size_of(result);
    columns(operands.a, unit, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda,
            cuda_on_cpu::reads);
    columns(operands.b, unit, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb,
            cuda_on_cpu::reads);
    if (bias != nullptr) cuda_on_cpu::reads(bias, size_t(s.m * wide));
    if (accumulate) columns(c, wide, s.m, s.n, s.ldc, cuda_on_cpu::reads);
    columns(c, wide, s.m, s.n, s.ldc, cuda_on_cpu::writes);
  }

  template <class A, class B>
  static void multiply(DataType result, const GemmShape& s, const A& a, const B& b, const void* bias,
                       bool accumulate, void* c) {
    std::vector<double> left(size_t(s.m * s.k)), right(size_t(s.k * s.n));
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t l = 0; l < s.k; ++l)
        left[size_t(i * s.k + l)] = a(s.transpose_a ? l + i * s.lda : i + l * s.lda);
    }
    for (int64_t j = 0; j < s.n; ++j) {
      for (int64_t l = 0; l < s.k; ++l)
        right[size_t(j * s.k + l)] = b(s.transpose_b ? j + l * s.ldb : l + j * s.ldb);
    }
    for (int64_t j = 0; j < s.n; ++j) {
      for (int64_t i = 0; i < s.m; ++i) {
        double sum = accumulate ? element(result, c, i + j * s.ldc) : 0.0;
        for (int64_t l = 0; l < s.k; ++l) sum += left[size_t(i * s.k + l)] * right[size_t(j * s.k + l)];
        set(result, c, i + j * s.ldc, bias == nullptr ? sum : sum + element(result, bias, i));
      }
    }
  }
};

}  // namespace

std::unique_ptr<Gemm> make_gemm() { return std::make_unique<LoopGemm>(); }

}  // namespace mpt::runtime::cuda
