// SPDX-License-Identifier: Apache-2.0
#include "tests/support/loss_curve.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"

namespace mpt::test {

Curve loss_curve(const WantedPlan& request, runtime::Backend* backend, int64_t steps,
                 const std::function<void()>& on_step) {
  const Plan plan = make_plan(request);
  runtime::TrainOptions options;
  options.steps = steps;
  options.warmup_steps = 2;
  options.timeout = std::chrono::seconds(120);
  // Of this process alone: tests run side by side.
  const std::string file = testing::TempDir() + "/corpus-" + std::to_string(getpid()) + ".txt";
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of a text\n";
  write_file_atomically(file, text);
  const runtime::Dataset corpus = make_dataset(file, plan, options.seed);
  const std::atomic<bool> stop{false};
  runtime::RunInputs inputs{&corpus};
  inputs.backend = backend;
  Curve curve;
  const auto result = train(
      plan, options, inputs,
      [&](const reports::StepRecord& r) {
        curve.loss.push_back(r.loss);
        curve.norm.push_back(r.gradient_norm);
        if (on_step) on_step();
      },
      stop);
  curve.peak_bytes = result.peak_bytes.front();
  return curve;
}

}  // namespace mpt::test
