// SPDX-License-Identifier: Apache-2.0
#include "models/framework.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/footprint.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

TEST(Framework, EveryOneLoadsUnderItsName) {
  EXPECT_GE(framework_names().size(), 8u);
  for (const std::string& name : framework_names()) EXPECT_EQ(load_framework(name, "test").framework, name);
  EXPECT_EQ(load_framework("mpt", "test"), Execution{});
  EXPECT_THROW(load_framework("megatron-cor", "--framework"), UserError);
}

Layout two_stages(const Execution& execution) {
  Layout layout;
  layout.pipeline = 2;
  layout.precision = Precision::bf16;
  layout.layers_per_stage = {16, 16};
  layout.execution = execution;
  return layout;
}

TEST(Framework, StatesHaveTheBytesThatItSays) {
  const ModelSpec model = load_model("llama3-8b");
  const auto states = [&](const Execution& execution) {
    return stage_footprints(model, two_stages(execution), {8, 4096}).front();
  };
  const StageFootprint own = states({});
  Execution other;
  other.weight_bytes = 4;
  other.gradient_bytes = 2;
  other.optimizer_bytes = 8;
  const StageFootprint changed = states(other);
  EXPECT_NEAR(double(changed.parameter_bytes) / double(own.parameter_bytes), 2.0, 1e-6);
  EXPECT_NEAR(double(changed.gradient_bytes) / double(own.gradient_bytes), 0.5, 1e-6);
  EXPECT_NEAR(double(changed.optimizer_bytes) / double(own.optimizer_bytes), 8.0 / 12.0, 1e-6);
}

// Qi et al. 2023 (arXiv:2401.10241), section 2.1: behind the input gradient 32 s b h of a GPT layer's bytes
// wait for the weight gradient.
TEST(Framework, WeightGradientsWaitWithTheirOperandsAlone) {
  const ModelSpec model = load_model("gpt3-175b");
  Execution execution;
  execution.frees_after_input_gradient = true;
  Layout layout;
  layout.pipeline = 3;
  layout.precision = Precision::fp16;
  layout.layers_per_stage = {32, 32, 32};
  layout.execution = execution;
  const auto middle = stage_footprints(model, layout, {8, 2048})[1];
  EXPECT_NEAR(double(middle.saved_for_weight_bytes) / (32.0 * 32.0 * 2048.0 * double(model.hidden)), 1.0,
              1e-6);
}

TEST(Framework, LogitsInFp32CostFourBytesEachMore) {
  const ModelSpec model = load_model("llama3-8b");
  const auto kept = [&](LossKernel loss) {
    Layout layout;
    layout.precision = Precision::bf16;
    layout.layers_per_stage = {32};
    layout.execution.loss = loss;
    return saved_bytes(head_program(model, layout, 4096), Recompute::none);
  };
  EXPECT_EQ(kept(LossKernel::fp32) - kept(LossKernel::own), 4 * 4096 * model.vocab);
  EXPECT_EQ(kept(LossKernel::fused), kept(LossKernel::own));
}

}  // namespace
}  // namespace mpt::models
