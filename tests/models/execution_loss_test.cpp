// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/layout.h"
#include "frameworks/framework.h"
#include "models/footprint.h"
#include "models/zoo.h"
#include "tests/models/two_stages.h"

namespace mpt::models {
namespace {

using frameworks::load_framework;

// Megatron-LM's cross entropy casts once and computes in place
// (megatron/core/tensor_parallel/cross_entropy.py): 2 and 4 bytes per logit. With two copies there are 4 more
// on the way there and back.
TEST(ExecutionLoss, LogitsAreCastAsOftenAsItSays) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.edit().kernels.loss = LossKernel::fp32;
  const auto loss = [&](int64_t copies) {
    layout.execution.edit().kept.logit_copies = copies;
    return head_program(model, layout, 4096).operators.back();
  };
  const int64_t logits = 4096 * model.vocab;
  EXPECT_EQ(loss(1).saved_bytes, 6 * logits);
  EXPECT_EQ(loss(1).backward_workspace_bytes, 0);
  EXPECT_EQ(loss(2).forward_workspace_bytes - loss(1).forward_workspace_bytes, 4 * logits);
  EXPECT_EQ(loss(2).backward_workspace_bytes, 4 * logits);
}

// torch 2.15.0's loss_parallel() holds one fp32 copy more than the loss of one rank; compiled,
// log-probabilities in fp32.
TEST(ExecutionLoss, ALossOverTensorRanksHoldsMoreCopies) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.edit().kernels.loss = LossKernel::fp32;
  layout.execution.edit().kept.logit_copies = 3;
  const auto more = [&](int64_t tensor, int64_t Operator::*bytes) {
    layout.tensor = tensor;
    layout.execution.edit().kept.split_logit_copies = 0;
    const int64_t before = head_program(model, layout, 4096).operators.back().*bytes;
    layout.execution.edit().kept.split_logit_copies = 1;
    return head_program(model, layout, 4096).operators.back().*bytes - before;
  };
  const int64_t logits = 4096 * model.vocab;
  EXPECT_EQ(more(8, &Operator::forward_workspace_bytes), 4 * logits / 8);
  EXPECT_EQ(more(2, &Operator::forward_workspace_bytes), 4 * logits / 2);
  EXPECT_EQ(more(1, &Operator::forward_workspace_bytes), 0);
  layout.execution.edit().kernels.loss = LossKernel::fused;
  layout.execution.edit().kernels.elementwise = ElementwiseKernels::compiled;
  EXPECT_EQ(more(8, &Operator::backward_workspace_bytes), 2 * logits / 8);
}

// torch.distributed.all_gather: one buffer for all ranks' logits, and the pieces of the others.
TEST(ExecutionLoss, GatheredLogitsArriveBesideThemselves) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = 4;
  layout.execution.edit().kernels.loss = LossKernel::fp32;
  const auto loss = [&](bool gathers) {
    layout.execution.edit().kernels.gathers_logits = gathers;
    return head_program(model, layout, 4096).operators.back();
  };
  const int64_t logits = 4096 * model.vocab;
  EXPECT_EQ(loss(true).saved_bytes, 6 * logits);
  EXPECT_EQ(loss(false).saved_bytes, 6 * logits / 4);
  EXPECT_EQ(loss(true).forward_workspace_bytes - loss(false).forward_workspace_bytes,
            2 * logits + 2 * logits * 3 / 4);
}

TEST(ExecutionLoss, LogitsInFp32CostFourBytesEachMore) {
  const ModelSpec model = load_model("llama3-8b");
  const auto kept = [&](LossKernel loss) {
    Layout layout;
    layout.precision = Precision::bf16;
    layout.layers_per_stage = {32};
    layout.execution.edit().kernels.loss = loss;
    return saved_bytes(head_program(model, layout, 4096), Recompute::none);
  };
  EXPECT_EQ(kept(LossKernel::fp32) - kept(LossKernel::own), 4 * 4096 * model.vocab);
  EXPECT_EQ(kept(LossKernel::fused), kept(LossKernel::own));
  EXPECT_EQ(kept(LossKernel::own) - kept(LossKernel::chunked), 2 * 4096 * model.vocab) << "no logits";
}

// mpt.verify with torchtitan 0.3.0 and 4 layers of Llama 3 8B: 10 bytes for each weight of the head beside
// the gathered one, whatever the number of shards, a chunk's logits, and gradients of its input. In a
// pipeline the share that the last micro-batch reduced is still there, and so is that of the last norm's sum.
TEST(ExecutionLoss, ALossByChunksHoldsTheHeadsGradientWhole) {
  const ModelSpec model = load_model("llama3-8b");
  const int64_t head = model.vocab * model.hidden + model.hidden;
  const auto forward_peak = [&](Layout layout, LossKernel loss) {
    layout.execution.edit().kernels.loss = loss;
    const StageFootprint last = stage_footprints(model, layout, {64, 4096}).back();
    return last.forward_workspace_bytes + last.gradient_bytes;
  };
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution = load_framework("torchtitan", "test");
  layout.data = layout.shard = 8;
  layout.zero = 3;
  layout.layers_per_stage = {32};
  // Sums, their copy, a chunk's gradient, and the gathered weights.
  const int64_t shares = stage_footprints(model, layout, {64, 4096}).back().gradient_bytes;
  const int64_t chunk = 2 * 512 * model.vocab + 2 * 4 * 4096 * model.hidden;
  EXPECT_NEAR(double(forward_peak(layout, LossKernel::chunked) - shares - chunk) / double(head), 12.0, 0.01);
  Layout stages = two_stages(load_framework("torchtitan", "test"));
  stages.data = stages.shard = 4;
  stages.zero = 2;
  stages.execution.edit().kernels.loss = LossKernel::fused;
  const int64_t whole = stage_footprints(model, stages, {64, 4096}).back().gradient_bytes;
  EXPECT_NEAR(double(forward_peak(stages, LossKernel::chunked) - whole - chunk) / double(head), 12.0, 0.01);
  EXPECT_LT(forward_peak(stages, LossKernel::fused) - whole, 4 * head);
}

// torchtitan's chunks are eighths of a sequence, whose logits may outweigh the head's gradient.
TEST(ExecutionLoss, ChunksOfLongMicroBatchesHoldTheirLogits) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.micro_batch = 8;
  layout.layers_per_stage = {32};
  layout.execution = load_framework("torchtitan", "test");
  const auto workspace = [&](ElementwiseKernels kernels) {
    layout.execution.edit().kernels.elementwise = kernels;
    return head_program(model, layout, 4096).operators.back().forward_workspace_bytes;
  };
  const int64_t logits = 4096 * model.vocab, rest = 3 * 4 * 8 * 4096 + 4 * 8 * 4096 * model.hidden;
  EXPECT_EQ(workspace(ElementwiseKernels::eager), 14 * logits + rest);
  EXPECT_EQ(workspace(ElementwiseKernels::compiled), 4 * logits + rest);
}

}  // namespace
}  // namespace mpt::models
