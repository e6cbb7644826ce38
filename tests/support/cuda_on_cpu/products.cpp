// SPDX-License-Identifier: Apache-2.0
#include "products.h"

#include <cmath>
#include <vector>

#include "runtime/comm/reduction.h"
#include "runtime/device/fp8.h"

namespace cuda_on_cpu {
namespace {

using mpt::runtime::DataType;
using mpt::runtime::Fp8;

int64_t unit_of(cudaDataType_t type) {
  if (type == CUDA_R_64F) return 8;
  if (type == CUDA_R_32F) return 4;
  return type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 1;
}

DataType type_of_16_bits(cudaDataType_t type) {
  return type == CUDA_R_16BF ? DataType::bfloat16 : DataType::float16;
}

double element(cudaDataType_t type, const void* data, int64_t i) {
  const void* const at = static_cast<const char*>(data) + i * unit_of(type);
  if (type == CUDA_R_64F) return *static_cast<const double*>(at);
  if (type == CUDA_R_32F) return double(*static_cast<const float*>(at));
  if (type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2) {
    const Fp8 format = type == CUDA_R_8F_E4M3 ? Fp8::e4m3 : Fp8::e5m2;
    return double(mpt::runtime::from_fp8(*static_cast<const uint8_t*>(at), format));
  }
  float value = 0;
  mpt::runtime::widen(type_of_16_bits(type), at, 1, &value);
  return double(value);
}

void set(cudaDataType_t type, void* data, int64_t i, double value) {
  void* const at = static_cast<char*>(data) + i * unit_of(type);
  const auto wide = float(value);
  if (type == CUDA_R_64F) {
    *static_cast<double*>(at) = value;
  } else if (type == CUDA_R_32F) {
    *static_cast<float*>(at) = wide;
  } else {
    mpt::runtime::narrow(type_of_16_bits(type), &wide, 1, at);
  }
}

double rounded(cudaDataType_t type, double value) {
  double room = 0.0;
  set(type, &room, 0, value);
  return element(type, &room, 0);
}

// [outer, k] of an operand, in the order of its sums.
std::vector<double> read(const ProductOperand& operand, int64_t outer, int64_t k, bool along_rows) {
  std::vector<double> values(static_cast<size_t>(outer * k));
  const double scale = operand.scale == nullptr ? 1.0 : double(*operand.scale);
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const int64_t at = along_rows ? l + i * operand.ld : i + l * operand.ld;
      values[size_t(i * k + l)] = element(operand.type, operand.data, at) * scale;
    }
  }
  return values;
}

// The approximation by tanh, as cuBLASLt's is.
constexpr double kRoot = 0.7978845608028654, kCubic = 0.044715;
double gelu(double x) { return 0.5 * x * (1.0 + std::tanh(kRoot * (x + kCubic * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(kRoot * (x + kCubic * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kRoot * (1.0 + 3.0 * kCubic * x * x);
}

double finish(const ProductCall& call, int64_t row, int64_t column, double value) {
  if (call.epilogue == CUBLASLT_EPILOGUE_DGELU)
    return value * gelu_slope(element(call.type, call.aux, row + column * call.aux_ld));
  if (call.epilogue == CUBLASLT_EPILOGUE_BIAS || call.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
    value += element(call.type, call.bias, row);
  if (call.epilogue != CUBLASLT_EPILOGUE_GELU_AUX && call.epilogue != CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
    return value;
  set(call.type, call.aux, row + column * call.aux_ld, value);
  return gelu(value);
}

template <class Touch>
void columns_of(const void* data, int64_t unit, int64_t rows, int64_t count, int64_t ld, Touch&& touch) {
  for (int64_t i = 0; i < count; ++i)
    touch(static_cast<const char*>(data) + i * ld * unit, size_t(rows * unit));
}

}  // namespace

void note(const ProductCall& call) {
  const auto operand = [&](const ProductOperand& of, int64_t rows, int64_t columns) {
    if (of.transposed) std::swap(rows, columns);
    columns_of(of.data, unit_of(of.type), rows, columns, of.ld, reads);
    if (of.scale != nullptr) reads(of.scale, sizeof(float));
  };
  operand(call.a, call.m, call.k);
  operand(call.b, call.k, call.n);
  const int64_t unit = unit_of(call.type);
  if (call.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    writes(call.bias, size_t(call.n * unit));
  } else if (call.epilogue == CUBLASLT_EPILOGUE_BIAS || call.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
    reads(call.bias, size_t(call.m * unit));
  }
  if (call.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    columns_of(call.aux, unit, call.m, call.n, call.aux_ld, reads);
  } else if ((call.epilogue & 128) != 0) {
    columns_of(call.aux, unit, call.m, call.n, call.aux_ld, writes);
  }
  if (call.beta != 0.0) columns_of(call.d, unit, call.m, call.n, call.ld, reads);
  columns_of(call.d, unit, call.m, call.n, call.ld, writes);
  if (call.workspace != nullptr) writes(call.workspace, 4096);
}

void multiply(const ProductCall& call) {
  const std::vector<double> left = read(call.a, call.m, call.k, call.a.transposed),
                            right = read(call.b, call.n, call.k, !call.b.transposed);
  for (int64_t j = 0; j < call.n; ++j) {
    for (int64_t i = 0; i < call.m; ++i) {
      double sum = 0.0;
      for (int64_t l = 0; l < call.k; ++l)
        sum += left[size_t(i * call.k + l)] * right[size_t(j * call.k + l)];
      sum *= call.alpha;
      if (call.beta != 0.0) sum += call.beta * element(call.type, call.d, i + j * call.ld);
      if (call.split) sum = rounded(call.type, sum);
      set(call.type, call.d, i + j * call.ld, finish(call, i, j, sum));
    }
    if (call.epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
    double sum = 0.0;
    for (int64_t l = 0; l < call.k; ++l) sum += right[size_t(j * call.k + l)];
    set(call.type, call.bias, j, sum);
  }
}

}  // namespace cuda_on_cpu
