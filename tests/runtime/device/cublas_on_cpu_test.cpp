// SPDX-License-Identifier: Apache-2.0

// What the device asks of cuBLASLt, against the rules of tests/support/cuda_on_cpu/cublasLt.h.

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/stream_device.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace mpt::runtime {
namespace {

using cuda_on_cpu::LaunchedProduct;

constexpr DataType kType = DataType::bfloat16;

class CublasOnCpu : public testing::Test {
 protected:
  CublasOnCpu() { cuda_on_cpu::take_products(); }
  void TearDown() override {
    cuda_on_cpu::set_fastest_algorithm(-1);
    cuda_on_cpu::set_broken_algorithm(-1);
    cuda_on_cpu::set_slow_epilogue(0);
    cuda_on_cpu::refuse_epilogue(0);
    cuda_on_cpu::forget_failure();
    unsetenv("MPT_ATTENTION");
    unsetenv("MPT_GEMM_TIMING");
    unsetenv("MPT_GEMM_EPILOGUES");
  }

  // The epilogues of the products of a linear layer with a bias and of an MLP, in the order of launch.
  static std::vector<uint32_t> epilogues(Device& device, const LinearShape& s, int64_t shift = 0) {
    const int64_t unit = size_of(kType);
    const Buffer x(device, s.rows * s.inner * unit), w(device, s.columns * s.inner * unit),
        bias(device, (s.columns + shift) * unit), up(device, s.rows * s.columns * unit),
        y(device, s.rows * s.columns * unit), room(device, s.rows * s.inner * unit),
        dup(device, s.rows * s.inner * unit), dw(device, s.columns * s.inner * 4),
        dbias(device, s.columns * 4);
    const auto* const shifted = static_cast<char*>(bias.data()) + shift * unit;
    for (const Buffer* buffer : {&x, &w, &bias, &up, &y, &room, &dup, &dw, &dbias})
      device.zero(buffer->data(), buffer->bytes());
    const ActivationShape behind{ActivationKind::gelu_tanh, s.rows, s.columns, false, 0.0};
    const ActivationShape between{ActivationKind::gelu_tanh, s.rows, s.inner, false, 0.0};
    device.run(kType,
               LinearForward{.shape = s, .x = x.data(), .w = w.data(), .bias = shifted, .y = y.data()});
    device.run(kType, LinearActivationForward{.shape = s,
                                              .activation = behind,
                                              .x = x.data(),
                                              .w = w.data(),
                                              .bias = shifted,
                                              .up = up.data(),
                                              .y = y.data()});
    device.run(kType, LinearActivationBackward{.shape = s,
                                               .activation = between,
                                               .dy = y.data(),
                                               .w = w.data(),
                                               .up = x.data(),
                                               .room = room.data(),
                                               .dup = dup.data()});
    device.run(kType, LinearBackwardWeight{
                          .shape = s, .dy = y.data(), .x = x.data(), .dw = dw.data(), .dbias = dbias.data()});
    device.synchronize();
    std::vector<uint32_t> found;
    for (const LaunchedProduct& product : cuda_on_cpu::take_products()) found.push_back(product.epilogue);
    return found;
  }

  // Algorithms of the forwards of a fresh device, launch by launch.
  static std::vector<int> algorithms(Device& device, int times) {
    const LinearShape s{16, 32, 64};
    const Buffer x(device, s.rows * s.inner * 2), w(device, s.columns * s.inner * 2),
        y(device, s.rows * s.columns * 2);
    for (const Buffer* buffer : {&x, &w}) device.zero(buffer->data(), buffer->bytes());
    for (int i = 0; i < times; ++i)
      device.run(kType, LinearForward{.shape = s, .x = x.data(), .w = w.data(), .y = y.data()});
    device.synchronize();
    std::vector<int> found;
    for (const LaunchedProduct& product : cuda_on_cpu::take_products()) found.push_back(product.algorithm);
    return found;
  }

  static constexpr LinearShape kShape{16, 32, 64};
};

TEST_F(CublasOnCpu, EpiloguesAreInTheProducts) {
  const auto device = cuda::make_cuda_device(0);
  EXPECT_EQ(epilogues(*device, kShape),
            (std::vector<uint32_t>{CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                   CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB}));
}

// A bias that is not aligned, and columns that are no whole packs: kernels of their own do the rest.
TEST_F(CublasOnCpu, WhatEpiloguesCannotReadIsDoneBehindThem) {
  const auto device = cuda::make_cuda_device(0);
  const std::vector<uint32_t> found = epilogues(*device, kShape, 1);
  EXPECT_EQ(found, (std::vector<uint32_t>{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT,
                                          CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB}));
  const std::vector<uint32_t> odd = epilogues(*device, {16, 33, 65});
  EXPECT_EQ(odd, (std::vector<uint32_t>{CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS,
                                        CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT}));
}

TEST_F(CublasOnCpu, WithoutAKernelForAnEpilogueTheProductIsPlain) {
  for (const uint32_t refused : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                 CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB}) {
    const auto device = cuda::make_cuda_device(0);
    cuda_on_cpu::refuse_epilogue(refused);
    const std::vector<uint32_t> found = epilogues(*device, kShape);
    EXPECT_EQ(found.size(), 4u);
    EXPECT_EQ(std::find(found.begin(), found.end(), refused), found.end()) << refused;
  }
}

TEST_F(CublasOnCpu, EpiloguesCanBeTurnedOff) {
  setenv("MPT_GEMM_EPILOGUES", "off", 1);
  const auto device = cuda::make_cuda_device(0);
  EXPECT_EQ(epilogues(*device, kShape),
            (std::vector<uint32_t>{CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_DEFAULT,
                                   CUBLASLT_EPILOGUE_DEFAULT}));
}

TEST_F(CublasOnCpu, TheFastestAlgorithmIsKept) {
  cuda_on_cpu::set_fastest_algorithm(3);
  const auto device = cuda::make_cuda_device(0, {.times_products = true});
  const std::vector<int> found = algorithms(*device, 3);
  ASSERT_GT(found.size(), 3u);
  EXPECT_EQ(std::vector<int>(found.end() - 3, found.end()), (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(algorithms(*device, 2), (std::vector<int>{3, 3})) << "it is timed once";
}

// An epilogue that costs more than a kernel of its own is not used again.
TEST_F(CublasOnCpu, ASlowEpilogueIsLeftOut) {
  for (const uint32_t slow :
       {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB}) {
    cuda_on_cpu::set_slow_epilogue(slow);
    const auto device = cuda::make_cuda_device(0, {.times_products = true});
    epilogues(*device, kShape);
    const std::vector<uint32_t> found = epilogues(*device, kShape);
    EXPECT_EQ(found.size(), 4u);
    EXPECT_EQ(std::count(found.begin(), found.end(), slow), 0) << slow;
  }
  // Those that are faster than what they replace stay.
  cuda_on_cpu::set_slow_epilogue(CUBLASLT_EPILOGUE_DEFAULT);
  const auto device = cuda::make_cuda_device(0, {.times_products = true});
  epilogues(*device, kShape);
  const std::vector<uint32_t> found = epilogues(*device, kShape);
  EXPECT_EQ(std::count(found.begin(), found.end(), CUBLASLT_EPILOGUE_DGELU), 1);
  EXPECT_EQ(std::count(found.begin(), found.end(), CUBLASLT_EPILOGUE_BGRADB), 1);
}

// The heuristic's word is no promise: the next one is taken.
TEST_F(CublasOnCpu, AnAlgorithmThatRefusesIsPassedOver) {
  cuda_on_cpu::set_broken_algorithm(0);
  EXPECT_EQ(algorithms(*cuda::make_cuda_device(0), 2), (std::vector<int>{1, 1}));
  cuda_on_cpu::set_fastest_algorithm(0);
  const std::vector<int> timed = algorithms(*cuda::make_cuda_device(0, {.times_products = true}), 1);
  EXPECT_EQ(std::count(timed.begin(), timed.end(), 0), 0);
  EXPECT_FALSE(timed.empty());
}

TEST_F(CublasOnCpu, TimingIsOffUnlessAskedFor) {
  cuda_on_cpu::set_fastest_algorithm(3);
  EXPECT_EQ(algorithms(*cuda::make_cuda_device(0), 2), (std::vector<int>{0, 0}));
  for (const auto& [variable, value] : {std::pair("MPT_GEMM_TIMING", "off"), {"MPT_ATTENTION", "own"}}) {
    setenv(variable, value, 1);
    EXPECT_EQ(algorithms(*cuda::make_cuda_device(0, {.times_products = true}), 2), (std::vector<int>{0, 0}))
        << variable;
    unsetenv(variable);
  }
}

// Experts get another number of rows each time: timing them all would never end.
TEST_F(CublasOnCpu, ManyNumbersOfRowsAreNotTimed) {
  const auto device = cuda::make_cuda_device(0, {.times_products = true});
  const Buffer x(*device, 128 * 64 * 2), w(*device, 32 * 64 * 2), y(*device, 128 * 32 * 2);
  for (const Buffer* buffer : {&x, &w}) device->zero(buffer->data(), buffer->bytes());
  std::vector<size_t> launches;
  for (int64_t rows = 16; rows <= 128; rows += 16) {
    device->run(kType, LinearForward{.shape = {rows, 32, 64}, .x = x.data(), .w = w.data(), .y = y.data()});
    launches.push_back(cuda_on_cpu::take_products().size());
  }
  EXPECT_GT(launches[0], 1u);
  EXPECT_EQ(std::count(launches.begin(), launches.end(), 1u), 6);
  device->synchronize();
}

// Products that are added to a gradient are timed where it is zero, and it is zero behind that; elsewhere
// they would change it.
TEST_F(CublasOnCpu, TimingLeavesGradientsAsTheyAre) {
  const LinearShape s = kShape;
  for (const double before : {0.0, 2.0}) {
    cuda_on_cpu::set_fastest_algorithm(2);
    const auto device = cuda::make_cuda_device(0, {.times_products = true});
    const Buffer x(*device, s.rows * s.inner * 2), dy(*device, s.rows * s.columns * 2),
        dw(*device, s.columns * s.inner * 4), dbias(*device, s.columns * 4);
    const auto fill = [&](DataType type, const Buffer& buffer, double value) {
      const std::vector<double> values(size_t(buffer.bytes() / size_of(type)), value);
      device->upload(type, values.data(), int64_t(values.size()), buffer.data());
    };
    fill(kType, x, 0.5);
    fill(kType, dy, 0.25);
    fill(DataType::float32, dw, before);
    fill(DataType::float32, dbias, before);
    device->run(kType,
                LinearBackwardWeight{
                    .shape = s, .dy = dy.data(), .x = x.data(), .dw = dw.data(), .dbias = dbias.data()});
    std::vector<double> got(size_t(s.columns * s.inner)), sums(size_t(s.columns));
    device->download(DataType::float32, dw.data(), int64_t(got.size()), got.data());
    device->download(DataType::float32, dbias.data(), s.columns, sums.data());
    for (const double value : got) ASSERT_EQ(value, before + double(s.rows) * 0.125);
    for (const double value : sums) ASSERT_EQ(value, before + double(s.rows) * 0.25);
    const auto launched = cuda_on_cpu::take_products();
    EXPECT_EQ(launched.back().algorithm, before == 0.0 ? 2 : 1);
  }
}

// The stand-in itself: each rule that a caller could break.
TEST_F(CublasOnCpu, RefusesWhatCublasRefuses) {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, 8, 8, 8);
  cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, 8, 8, 8);
  cublasLtMatrixLayoutCreate(&d, CUDA_R_16BF, 8, 8, 8);
  const auto ask = [&] {
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(nullptr, operation, a, b, d, d, preference, 1, &result, &count);
  };
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
  };
  alignas(16) static char room[64];
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(room + 2));
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED) << "its alignment";
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(room));
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE) << "no auxiliary matrix";
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(room));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{12});
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE) << "a leading dimension of 12";
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{16});
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayoutDestroy(d);
  cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 8, 8, 8);
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED) << "GELU of a float result";
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(CUBLASLT_EPILOGUE_BGRADB));
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayoutDestroy(a);
  cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, 8, 8, 7);
  EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE) << "columns that overlap";
  for (const cublasLtMatrixLayout_t layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(operation);
  cublasLtMatmulPreferenceDestroy(preference);
}

}  // namespace
}  // namespace mpt::runtime
