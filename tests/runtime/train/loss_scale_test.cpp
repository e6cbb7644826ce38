// SPDX-License-Identifier: Apache-2.0

// In fp16 gradients are scaled so that they do not vanish. Nothing that is reported or kept may show the
// scale.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

struct ScaledRun {
  Precision precision = Precision::fp16;
  int64_t steps = 1;
  double first_loss_scale = 65536.0, clip = 0.0;
  std::string checkpoints{};
};

// Every batch is the same, and so is the learning rate.
std::vector<reports::StepRecord> records(const ScaledRun& run) {
  test::WantedPlan request{test::little_gpt()};
  request.precision = run.precision;
  const Plan plan = test::make_plan(request);
  const std::string file = testing::TempDir() + "/loss_scale_corpus.txt";
  write_file_atomically(file, std::string(4000, 'x'));
  TrainOptions options;
  options.steps = run.steps;
  options.warmup_steps = 0;
  options.minimum_learning_rate = options.learning_rate;
  options.first_loss_scale = run.first_loss_scale;
  options.clip = run.clip;
  options.checkpoints = run.checkpoints;
  const Dataset corpus = test::make_dataset(file, plan, 1);
  const std::atomic<bool> stop{false};
  return train(plan, options, {&corpus}, nullptr, stop).steps;
}

// Of the moments of one weight after one step.
std::vector<double> second_moments(ScaledRun run) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "loss_scale";
  std::filesystem::remove_all(folder);
  run.checkpoints = folder.string();
  records(run);
  const Checkpoint checkpoint(folder / checkpoint_name(1));
  const ShardBlock block{0, 64, 0, 32};
  std::vector<double> values(size_t(block.count()));
  checkpoint.read(TensorKind::second_moment, "layers.1.mlp.up.weight", block, values.data());
  return values;
}

double mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / double(values.size());
}

TEST(LossScale, TheGradientNormIsWithoutIt) {
  const double exact = records({Precision::fp32})[0].gradient_norm;
  for (const double scale : {256.0, 65536.0})
    EXPECT_NEAR(records({Precision::fp16, 1, scale})[0].gradient_norm, exact, 0.01 * exact) << scale;
}

TEST(LossScale, ClippedGradientsReachTheOptimizerWithoutIt) {
  const double norm = records({Precision::fp32})[0].gradient_norm;
  for (const double clip : {0.0, norm / 2.0}) {
    const double exact = mean(second_moments({Precision::fp32, 1, 1.0, clip}));
    const double scaled = mean(second_moments({Precision::fp16, 1, 65536.0, clip}));
    EXPECT_GT(exact, 0.0);
    EXPECT_NEAR(scaled, exact, 0.02 * exact) << clip;
  }
}

// A step that was skipped leaves no trace: neither in weights and moments, nor in their bias correction.
TEST(LossScale, AfterASkippedStepARunGoesOnAsOneThatNeverHadIt) {
  double overflowing = 65536.0;
  while (!records({Precision::fp16, 1, overflowing})[0].skipped) {
    overflowing *= 2.0;
    ASSERT_LT(overflowing, 1e30);
  }
  const auto skipping = records({Precision::fp16, 5, overflowing});
  const auto plain = records({Precision::fp16, 4, overflowing / 2.0});
  ASSERT_FALSE(skipping[1].skipped);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(skipping[i + 1].loss, plain[i].loss) << i;
  EXPECT_LT(plain.back().loss, plain.front().loss);
}

}  // namespace
}  // namespace mpt::runtime
