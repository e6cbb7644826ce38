// SPDX-License-Identifier: Apache-2.0

// Next-token modules in Hugging Face's form. tests/frameworks/weights_test.py compares all else with
// transformers.

#include "runtime/checkpoint/hugging_face.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

std::filesystem::path new_folder(const std::string& name) {
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("hugging_face_" + name);
  std::filesystem::remove_all(folder);
  return folder;
}

// The losses of the first step, which start from `weights`. Saves in `folder`, if it is named.
reports::StepRecord first_step(const ModelSpec& model, const TensorSource* weights,
                               const std::filesystem::path& folder = {}) {
  const Plan plan = test::make_plan({model, {4, 8}, 2, 1});
  const std::string file = testing::TempDir() + "/hugging_face_corpus.txt";
  std::string text;
  for (int i = 0; i < 200; ++i) text += "sentence " + std::to_string(i * 37 % 101) + " of the corpus. ";
  write_file_atomically(file, text);
  const Dataset data = test::make_dataset(file, plan, 1);
  TrainOptions options;
  options.steps = 1;
  options.checkpoints = folder.string();
  RunInputs inputs{&data};
  inputs.weights = weights;
  const std::atomic<bool> stop{false};
  reports::StepRecord first;
  train(
      plan, options, inputs, [&](const reports::StepRecord& r) { first = r; }, stop);
  return first;
}

std::unique_ptr<Checkpoint> trained(const ModelSpec& model, const std::string& name) {
  const auto folder = new_folder(name + "_checkpoint");
  first_step(model, nullptr, folder);
  std::vector<std::string> notes;
  return open_newest(folder, notes);
}

TEST(HuggingFaceModules, ThoseOfQwenComeBack) {
  ModelSpec model = test::little_next();
  model.next_token_layers = 1;
  const auto checkpoint = trained(model, "qwen");
  const auto folder = new_folder("qwen");
  export_hugging_face(*checkpoint, model, folder, {});
  EXPECT_EQ(load_json(folder / "config.json", 1 << 20).value("mtp_num_hidden_layers", 0), 1);
  const HuggingFaceWeights weights(folder, model);
  EXPECT_FALSE(weights.lacks_modules());
  const reports::StepRecord ours = first_step(model, checkpoint.get()), theirs = first_step(model, &weights);
  EXPECT_NEAR(ours.loss, theirs.loss, 1e-6);
  EXPECT_NEAR(ours.next_token_loss.value(), theirs.next_token_loss.value(), 1e-6);
  EXPECT_GT(std::fabs(ours.loss - ours.next_token_loss.value()), 1e-4) << "they are two losses";
}

TEST(HuggingFaceModules, StartFromTheSeedWhereAFolderHasNone) {
  const ModelSpec model = test::little_predicting();
  const auto checkpoint = trained(model, "plain");
  ModelSpec without = model;
  without.next_token_layers = 0;
  const auto folder = new_folder("plain");
  export_hugging_face(*checkpoint, without, folder, {});
  const HuggingFaceWeights weights(folder, model);
  EXPECT_TRUE(weights.lacks_modules());
  EXPECT_TRUE(weights.lacks("next_token.0.projection.weight"));
  EXPECT_FALSE(weights.lacks("head.weight"));
  const reports::StepRecord of_folder = first_step(model, &weights);
  EXPECT_NEAR(of_folder.loss, first_step(model, checkpoint.get()).loss, 1e-6);
  EXPECT_NEAR(of_folder.next_token_loss.value(), std::log(double(model.vocab)), 1.0) << "not trained yet";
}

}  // namespace
}  // namespace mpt::runtime
