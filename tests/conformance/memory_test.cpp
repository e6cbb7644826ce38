// SPDX-License-Identifier: Apache-2.0

// Conformance test 3: the device's high-water mark of a real run equals the prediction, byte for byte.

#include <gtest/gtest.h>

#include "core/json.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

using test::PlanRequest;

std::vector<PlanRequest> requests(const ModelSpec& model) {
  std::vector<PlanRequest> all;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const int64_t tensor : {1, 2, 4}) {
      for (const int64_t micro_batch : {1, 2}) {
        all.push_back({model, {8, 16}, tensor, 1, 1, 1, micro_batch, "1f1b", recompute});
        all.push_back({model, {8, 16}, tensor, 2, 1, 1, micro_batch, "1f1b", recompute});
        all.push_back({model, {8, 16}, tensor, 2, 1, 1, micro_batch, "gpipe", recompute});
        all.push_back({model, {8, 16}, tensor, 2, 1, 2, micro_batch, "interleaved", recompute});
      }
    }
    all.push_back({model, {8, 16}, 1, 4, 1, 1, 1, "1f1b", recompute});
    all.push_back({model, {8, 16}, 1, 2, 2, 1, 1, "1f1b", recompute});
    for (const int64_t tensor : {2, 4}) {
      all.push_back({model, {8, 16}, tensor, 1, 1, 1, 2, "1f1b", recompute, true});
      all.push_back({model, {8, 16}, tensor, 2, 1, 1, 1, "1f1b", recompute, true});
    }
    for (const int64_t zero : {1, 2, 3}) {
      all.push_back({model, {8, 16}, 1, 1, 2, 1, 1, "1f1b", recompute, false, zero});
      all.push_back({model, {8, 16}, 1, 1, 4, 1, 1, "1f1b", recompute, false, zero, 2});
      all.push_back({model, {8, 16}, 1, 2, 2, 1, 1, "1f1b", recompute, false, zero});
      all.push_back({model, {8, 16}, 2, 2, 2, 1, 1, "1f1b", recompute, true, zero});
    }
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      all.push_back({model, {8, 16}, 1, 2, 1, 1, 1, "1f1b", recompute, false, 0, 0, precision});
      all.push_back({model, {8, 16}, 2, 1, 2, 1, 1, "1f1b", recompute, true, 1, 0, precision});
      all.push_back({model, {8, 16}, 2, 1, 2, 1, 1, "1f1b", recompute, true, 3, 0, precision});
    }
  }
  return all;
}

void check(const PlanRequest& request) {
  const Plan plan = test::make_plan(request);
  const std::string file = testing::TempDir() + "/memory_corpus.txt";
  write_file_atomically(file, std::string(3000, 'm'));
  TrainOptions options;
  options.steps = 2;
  const Dataset corpus = test::make_dataset(file, plan, 1);
  const std::atomic<bool> stop{false};
  const auto result = train(plan, options, {&corpus}, nullptr, stop);
  EXPECT_EQ(result.peak_bytes, peak_bytes(program_of(plan)))
      << request.model.name << " " << layout_name(plan.layout) << " " << enum_name(request.recompute);
}

TEST(MemoryConformance, MeasuredPeakEqualsThePredictedOneOfGptStages) {
  for (const PlanRequest& request : requests(test::little_gpt())) check(request);
}

TEST(MemoryConformance, MeasuredPeakEqualsThePredictedOneOfLlamaStages) {
  for (const PlanRequest& request : requests(test::little_llama())) check(request);
}

// A stage with one layer has its peak elsewhere than one with several.
TEST(MemoryConformance, HoldsForThinStagesAndOddSizes) {
  ModelSpec model = test::little_gpt(2);
  model.vocab = 259;
  model.ffn_hidden = 52;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    check({model, {6, 13}, 1, 2, 1, 1, 1, "1f1b", recompute});
    check({model, {6, 13}, 4, 2, 1, 1, 3, "gpipe", recompute});
  }
}

}  // namespace
}  // namespace mpt::runtime
