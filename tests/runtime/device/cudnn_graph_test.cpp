// SPDX-License-Identifier: Apache-2.0

// cuDNN takes the attention graphs for an H200, which is described to it in a file: no GPU is needed, nothing
// runs. Engines are refused without a libcuda.so.1, for which the toolkit's own for linking will do
// (tests/runtime/CMakeLists.txt).

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "runtime/device/cuda/cudnn_attention.h"

namespace mpt::runtime::cuda {
namespace {

std::string h200() {
  std::ifstream file(std::string(MPT_SOURCE_DIR) + "/tests/runtime/device/h200_device.json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What engines refer to.
struct OnH200 {
  explicit OnH200(const CudnnGraph& of)
      : device(*load_cudnn(), CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), graph(of.operation_graph(nullptr)) {
    const std::string text = h200();
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, int64_t(text.size()), text.data());
    device.finalize();
    engines = of.engines(graph, &device);
  }
  CudnnDescriptor device, graph;
  std::vector<CudnnDescriptor> engines;
};

class CudnnGraphs : public ::testing::TestWithParam<std::tuple<DataType, AttentionShape>> {
 protected:
  void SetUp() override {
    if (load_cudnn() == nullptr) GTEST_SKIP() << "libcudnn.so.9 is not here";
    if (::dlopen("libcuda.so.1", RTLD_LAZY) == nullptr)
      GTEST_SKIP() << "no libcuda.so.1, not even the toolkit's own for linking";
  }
};

TEST_P(CudnnGraphs, OfAttentionHaveEnginesOnAnH200) {
  const auto& [type, shape] = GetParam();
  CudnnAttentionForward forward(*load_cudnn(), type, shape);
  EXPECT_FALSE(OnH200(forward.graph).engines.empty());
  CudnnAttentionBackward backward(*load_cudnn(), type, shape);
  EXPECT_FALSE(OnH200(backward.graph).engines.empty());
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnGraphs,
                         ::testing::Combine(::testing::Values(DataType::bfloat16, DataType::float16),
                                            ::testing::Values(AttentionShape{8, 1024, 12, 12, 64},
                                                              AttentionShape{1, 4096, 32, 8, 128},
                                                              AttentionShape{1, 8192, 16, 2, 128},
                                                              AttentionShape{2, 1000, 4, 1, 64})));

// What has no engine is told apart from what has one: heads wider than any kernel's.
TEST_F(CudnnGraphs, OfHugeHeadsHaveNone) {
  CudnnAttentionBackward backward(*load_cudnn(), DataType::bfloat16, {1, 1024, 2, 2, 4096});
  EXPECT_TRUE(OnH200(backward.graph).engines.empty());
}

// The best engine is chosen, compiled for the H200, and fails only where the driver would load it.
TEST_F(CudnnGraphs, AreCompiledUpToTheDriver) {
  const Cudnn& cudnn = *load_cudnn();
  const AttentionShape shape{1, 4096, 32, 8, 128};
  CudnnAttentionForward forward(cudnn, DataType::bfloat16, shape);
  CudnnAttentionBackward backward(cudnn, DataType::bfloat16, shape);
  for (CudnnGraph* const graph : {&forward.graph, &backward.graph}) {
    const OnH200 on(*graph);
    ASSERT_FALSE(on.engines.empty());
    CudnnDescriptor plan(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, on.engines.front());
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, on.device);
    const cudnnStatus_t status = cudnn.finalize(plan.get());
    EXPECT_TRUE(status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER || status == CUDNN_STATUS_SUCCESS)
        << cudnn.error_string(status);
  }
}

}  // namespace
}  // namespace mpt::runtime::cuda
