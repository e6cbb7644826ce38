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
    submit(stream, types.result, s, operand(a), operand(b), bias, accumulate, c);
  }
  void run_fp8(cudaStream_t stream, DataType result, const GemmShape& s, const Fp8Matrix& a,
               const Fp8Matrix& b, const void* bias, bool accumulate, void* c) override {
    MPT_CHECK(s.transpose_a && !s.transpose_b && s.m % 16 == 0 && s.n % 16 == 0 && s.k % 16 == 0,
              "what cuBLASLt asks of products of 8 bits");
    const auto operand = [](const Fp8Matrix& matrix) {
      return [matrix](int64_t i) { return element(matrix, i); };
    };
    submit(stream, result, s, operand(a), operand(b), bias, accumulate, c);
  }
  int64_t workspace_bytes() const override { return 0; }

 private:
  template <class A, class B>
  static void submit(cudaStream_t stream, DataType result, const GemmShape& s, const A& a, const B& b,
                     const void* bias, bool accumulate, void* c) {
    check(cuda_on_cpu::submit(stream,
                              [=] {
                                multiply(result, s, a, b, bias, accumulate, c);
                                return cudaSuccess;
                              }),
          "a product");
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
