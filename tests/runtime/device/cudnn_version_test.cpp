// SPDX-License-Identifier: Apache-2.0

// A cuDNN whose attention is wrong is left alone, with a note. LD_LIBRARY_PATH leads to the fake one.

#include <gtest/gtest.h>

#include "runtime/device/cuda/cudnn_graph.h"

namespace mpt::runtime::cuda {
namespace {

TEST(CudnnVersion, ThatIsTooOldIsNotUsed) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_cudnn(), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "note: attention without cuDNN 9.6.0: it must be 9.10 or later\n");
}

}  // namespace
}  // namespace mpt::runtime::cuda
