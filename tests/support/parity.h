// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of parity share: a short training in a layout, and its distance from that of one rank.

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/json.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::test::parity {

using namespace runtime;

// Text with enough structure to learn from and enough of it to shuffle.
inline std::string corpus_file() {
  std::string file = testing::TempDir() + "/parity_corpus.txt";
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "line " + std::to_string(i * 7919 % 1000) + " of a text about pipelines\n";
  write_file_atomically(file, text);
  return file;
}

struct Curve {
  std::vector<double> loss, norm;
  std::vector<double> next_token_loss;  // of models with next-token modules
};

inline Curve run(const WantedPlan& request, DataType type, int64_t steps = 20) {
  const Plan plan = test::make_plan(request);
  TrainOptions options;
  options.steps = steps;
  options.warmup_steps = 5;
  options.timeout = std::chrono::seconds(60);
  const Dataset corpus = test::make_dataset(corpus_file(), plan, options.seed);
  const std::atomic<bool> stop{false};
  Curve curve;
  train(
      plan, options, {&corpus},
      [&](const reports::StepRecord& r) {
        curve.loss.push_back(r.loss);
        curve.norm.push_back(r.gradient_norm);
        if (r.next_token_loss) curve.next_token_loss.push_back(*r.next_token_loss);
      },
      stop, type);
  return curve;
}

inline double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    worst = std::max(worst, std::fabs(a[i] - b[i]) / a[i]);
  return worst;
}
/// Of losses.
inline double worst_difference(const Curve& a, const Curve& b) {
  return std::max(worst_difference(a.loss, b.loss), worst_difference(a.next_token_loss, b.next_token_loss));
}

struct NamedLayout {
  const char* name;
  int64_t tensor, pipeline, data, chunks, micro_batch;
  const char* schedule;
  Recompute recompute;
  bool sequence_parallel = false;
  int64_t zero = 0, shard = 0;
  RankOrder order = RankOrder::pipeline_outermost;
  std::vector<int64_t> layers_per_stage{}, recomputed_layers{};
  int64_t expert = 1, context = 1;
  ContextMethod method = ContextMethod::ring;
  int64_t expert_tensor = 1;
};

constexpr auto kNone = Recompute::none, kSelective = Recompute::selective, kFull = Recompute::full;
constexpr auto kInner = RankOrder::pipeline_outermost, kOuter = RankOrder::data_outermost;
constexpr auto kRing = ContextMethod::ring, kAllToAll = ContextMethod::all_to_all;

inline WantedPlan request_for(const ModelSpec& model, const NamedLayout& l) {
  WantedPlan request{model,    {8, 16},       l.tensor,   l.pipeline, l.data,
                     l.chunks, l.micro_batch, l.schedule, l.recompute};
  request.sequence_parallel = l.sequence_parallel;
  request.zero = l.zero;
  request.shard = l.shard;
  request.order = l.order;
  request.layers_per_stage = l.layers_per_stage;
  request.recomputed_layers = l.recomputed_layers;
  request.expert = l.expert;
  request.context = l.context;
  request.context_method = l.method;
  request.expert_tensor = l.expert_tensor;
  return request;
}

inline void check_follows(const ModelSpec& model, std::span<const NamedLayout> layouts) {
  const Curve reference = run({model}, DataType::float32);
  EXPECT_LT(reference.loss.back(), reference.loss.front() - 0.4) << "the loss falls";
  const Curve exact = run({model}, DataType::float64, 6);
  for (const NamedLayout& layout : layouts) {
    const WantedPlan request = request_for(model, layout);
    const Curve own = run(request, DataType::float64, 6);
    EXPECT_LT(worst_difference(exact, own), 1e-12) << layout.name;
    EXPECT_LT(worst_difference(exact.norm, own.norm), 1e-12) << layout.name << ", norm of the gradients";
    EXPECT_LT(worst_difference(reference, run(request, DataType::float32)), 1e-5) << layout.name;
  }
}

}  // namespace mpt::test::parity
