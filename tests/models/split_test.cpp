// SPDX-License-Identifier: Apache-2.0

// What a split must leave as it is: the work of all ranks together, and the state of all shards together.

#include <gtest/gtest.h>

#include <vector>

#include "models/footprint.h"
#include "models/layer_program.h"
#include "models/parameter_count.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

constexpr int64_t kSequence = 4096;

// Products and attention; the router works on the same tokens on every tensor rank unless they are split.
double split_flop(const LayerProgram& program) {
  double sum = 0.0;
  for (const Operator& op : program.operators) {
    if (op.name != "mlp.router" && op.name != "mlp.shared_gate") sum += forward_flop(op.shape);
  }
  return sum;
}

struct Split {
  int64_t tensor, context, expert, expert_tensor;
  bool sequence_parallel;
  ContextMethod method;
};

Layout layout_of(const Split& s) {
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = s.tensor;
  layout.context = s.context;
  layout.data = 8;
  layout.expert = s.expert;
  layout.expert_tensor = s.expert_tensor;
  layout.sequence_parallel = s.sequence_parallel;
  layout.context_method = s.method;
  return layout;
}

TEST(Split, RanksTogetherDoTheWorkOfOne) {
  const Split splits[] = {
      {2, 1, 1, 0, false, ContextMethod::ring}, {4, 1, 1, 0, true, ContextMethod::ring},
      {1, 4, 1, 0, false, ContextMethod::ring}, {2, 2, 1, 0, true, ContextMethod::all_to_all},
      {1, 1, 8, 0, false, ContextMethod::ring}, {2, 1, 4, 0, true, ContextMethod::ring},
      {2, 2, 8, 1, true, ContextMethod::ring},
  };
  for (const char* name : {"llama3-8b", "mixtral-8x7b"}) {
    const ModelSpec model = load_model(name);
    const double whole = split_flop(layer_program(model, 0, Layout{}, kSequence));
    for (const Split& s : splits) {
      if (s.expert > 1 && model.moe() == nullptr) continue;
      const double share = split_flop(layer_program(model, 0, layout_of(s), kSequence));
      EXPECT_NEAR(share * double(s.tensor * s.context), whole, 1e-9 * whole)
          << name << " tp" << s.tensor << " cp" << s.context << " ep" << s.expert << " etp"
          << s.expert_tensor;
    }
  }
}

TEST(Split, SequenceParallelKeepsATensorRanksShareOfEverySavedByte) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = layout_of({4, 1, 1, 0, false, ContextMethod::ring});
  const int64_t without = saved_bytes(layer_program(model, 0, layout, kSequence), Recompute::none);
  layout.sequence_parallel = true;
  const int64_t with = saved_bytes(layer_program(model, 0, layout, kSequence), Recompute::none);
  EXPECT_LT(with, without);
  // Korthikanti et al. 2022 (arXiv:2205.05198, equation 4): with it everything kept falls with the degree.
  layout.sequence_parallel = false;
  layout.tensor = 1;
  const int64_t whole = saved_bytes(layer_program(model, 0, layout, kSequence), Recompute::none);
  EXPECT_NEAR(double(with), double(whole) / 4, 0.01 * double(whole));
}

TEST(Split, ZeroSharesOutWhatItsStageSays) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = layout_of({1, 1, 1, 0, false, ContextMethod::ring});
  layout.layers_per_stage = {model.layers.count()};
  const auto bytes = [&](int64_t zero) {
    layout.zero = zero;
    layout.shard = zero == 0 ? 1 : 8;
    return stage_footprints(model, layout, {64, kSequence}).front();
  };
  const StageFootprint all = bytes(0), optimizer = bytes(1), gradients = bytes(2), weights = bytes(3);
  const auto eighth = [](int64_t part, int64_t whole, int64_t beside) {
    EXPECT_GE(part, whole / 8);
    EXPECT_LE(part, whole / 8 + beside + 4096);
  };
  eighth(optimizer.optimizer_bytes, all.optimizer_bytes, 0);
  EXPECT_EQ(optimizer.gradient_bytes, all.gradient_bytes);
  // The piece at work has all its gradients, and its weights: the largest is the head with its norm. Where
  // gathering runs ahead there is room for the next one, too.
  const int64_t largest = (model.vocab + 1) * model.hidden, of_all = all.parameter_bytes;
  const int64_t count = count_parameters(model).total;
  eighth(gradients.gradient_bytes, all.gradient_bytes, largest * (all.gradient_bytes / count));
  EXPECT_EQ(gradients.parameter_bytes, all.parameter_bytes);
  eighth(weights.parameter_bytes, all.parameter_bytes, largest * (of_all / count));
  layout.overlap_parameter_gather = true;
  EXPECT_GT(bytes(3).parameter_bytes, weights.parameter_bytes);
  eighth(bytes(3).parameter_bytes, all.parameter_bytes, 2 * largest * (of_all / count));
  EXPECT_EQ(host_state_bytes(model, layout, {64, kSequence}), std::vector<int64_t>{0});
  layout.offload_optimizer = true;
  EXPECT_EQ(bytes(0).optimizer_bytes, 0);
  // DeepSpeed moves the shares of gradients to the host, too: of the piece at work alone they stay. With ZeRO
  // 2 it does so only where sums have the type of the weights.
  layout.execution.edit().states.offloads_gradients = true;
  EXPECT_EQ(bytes(1).gradient_bytes, all.gradient_bytes);
  EXPECT_EQ(bytes(2).gradient_bytes, gradients.gradient_bytes) << "sums in fp32";
  const auto piece = double(largest) * double(all.gradient_bytes) / double(count);
  EXPECT_NEAR(double(bytes(3).gradient_bytes), piece, 1e-3 * double(all.gradient_bytes));
  layout.execution.edit().states.gradient_bytes = 2;
  EXPECT_NEAR(double(bytes(2).gradient_bytes), piece / 2.0, 1e-3 * double(all.gradient_bytes));
  layout.execution.edit().states.gradient_bytes = 0;
  layout.execution.edit().states.offloads_gradients = false;
  // Two moments and a master weight, in fp32, too.
  for (const Precision precision : {Precision::bf16, Precision::fp32}) {
    layout.precision = precision;
    for (const int64_t zero : {0, 1}) {
      layout.zero = zero;
      layout.shard = zero == 0 ? 1 : 8;
      const auto host = double(host_state_bytes(model, layout, {64, kSequence}).front());
      EXPECT_NEAR(host, 12.0 * double(count) / double(layout.shard), 1e-4 * host) << enum_name(precision);
    }
  }
}

TEST(Split, RecomputedLayersLieBetweenNoneAndAll) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = layout_of({1, 1, 1, 0, false, ContextMethod::ring});
  layout.layers_per_stage = {model.layers.count()};
  const auto saved = [&] { return stage_footprints(model, layout, {64, kSequence}).front().saved_bytes; };
  const int64_t none = saved();
  layout.recompute = Recompute::full;
  const int64_t all = saved();
  for (const int64_t count : {int64_t{0}, int64_t{8}, model.layers.count()}) {
    layout.recomputed_layers = {count};
    EXPECT_EQ(saved(), none - (none - all) / model.layers.count() * count) << count;
  }
}

}  // namespace
}  // namespace mpt::models
