// SPDX-License-Identifier: Apache-2.0

// Checkpoints: what one layout saved, another loads, and training goes on as if nothing had happened; a
// damaged one is noticed and passed over.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

using test::PlanRequest;

std::filesystem::path fresh_folder(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("checkpoint_" + name);
  std::filesystem::remove_all(folder);
  return folder;
}

std::string corpus() {
  const std::string file = testing::TempDir() + "/checkpoint_corpus.txt";
  std::string text;
  for (int i = 0; i < 300; ++i) text += "sentence " + std::to_string(i * 37 % 101) + " of the corpus. ";
  write_file_atomically(file, text);
  return file;
}

struct Resumption {
  const Checkpoint* from = nullptr;
  std::filesystem::path save;
  int64_t save_every = 0, keep = 2;
};

std::vector<double> losses(const PlanRequest& request, int64_t steps, const Resumption& resumption) {
  const Plan plan = test::make_plan(request);
  TrainOptions options;
  options.steps = 12;  // the schedule of the learning rate is that of the whole run
  options.warmup_steps = 3;
  options.timeout = std::chrono::seconds(60);
  options.checkpoints = resumption.save.string();
  options.save_every = resumption.save_every;
  options.keep = resumption.keep;
  const Dataset data = test::make_dataset(corpus(), plan, 1);
  std::atomic<bool> stop{false};
  std::vector<double> out;
  RunInputs inputs{&data};
  inputs.resume = resumption.from;
  train(
      plan, options, inputs,
      [&](const reports::StepRecord& r) {
        out.push_back(r.loss);
        if (r.step == steps) stop = true;
      },
      stop);
  return out;
}

std::unique_ptr<Checkpoint> newest(const std::filesystem::path& folder) {
  std::vector<std::string> notes;
  auto checkpoint = open_newest(folder, notes);
  EXPECT_TRUE(checkpoint) << folder;
  return checkpoint;
}

TEST(Checkpoint, TheSameLayoutContinuesToTheBit) {
  for (const ModelSpec& model : {test::little_gpt(), test::little_mixtral()}) {
    PlanRequest request{model};
    request.data = 2;
    request.zero = 2;
    request.pipeline = 2;
    const auto folder = fresh_folder("same");
    const std::vector<double> whole = losses(request, 12, {});
    losses(request, 5, {nullptr, folder});
    const auto checkpoint = newest(folder);
    EXPECT_EQ(checkpoint->info().step, 5);
    EXPECT_EQ(checkpoint->info().samples, 40);
    const std::vector<double> rest = losses(request, 12, {checkpoint.get(), {}});
    EXPECT_EQ(rest, std::vector<double>(whole.begin() + 5, whole.end())) << model.name;
  }
}

// tp2 sp, pp2 with two chunks in a V, dp4 with ZeRO 3: each resumes what another saved.
TEST(Checkpoint, AnyLayoutContinuesWhatAnyOtherSaved) {
  for (const ModelSpec& model : {test::little_gpt(), test::little_qwen(), test::little_mixtral()}) {
    std::vector<PlanRequest> layouts(4, PlanRequest{model});
    layouts[0].tensor = layouts[0].pipeline = 2;
    layouts[0].sequence_parallel = true;
    layouts[1].data = 4;
    layouts[1].zero = 3;
    layouts[2].pipeline = layouts[2].chunks = 2;
    layouts[2].schedule = "zb-v";
    layouts[3].context = layouts[3].data = 2;
    layouts[3].zero = 1;
    if (model.moe) layouts[3].expert = 4;
    const std::vector<double> whole = losses(layouts[0], 12, {});
    for (const PlanRequest& saving : layouts) {
      const auto folder = fresh_folder("any");
      losses(saving, 6, {nullptr, folder});
      const auto checkpoint = newest(folder);
      for (const PlanRequest& resuming : layouts) {
        const std::vector<double> rest = losses(resuming, 12, {checkpoint.get(), {}});
        ASSERT_EQ(rest.size(), 6u);
        for (size_t i = 0; i < rest.size(); ++i)
          EXPECT_NEAR(rest[i], whole[i + 6], 2e-5 * whole[i + 6]) << model.name << " step " << i + 7;
      }
    }
  }
}

// Masters and moments are the same numbers in either memory, and a checkpoint does not know which.
TEST(Checkpoint, AnOffloadedOptimizerContinuesOneThatIsNotToTheBitAndTheReverse) {
  const std::pair<Precision, int64_t> kinds[] = {
      {Precision::fp32, 2}, {Precision::bf16, 3}, {Precision::fp16, 0}};
  for (const auto& [precision, zero] : kinds) {
    PlanRequest inside{test::little_gpt()};
    inside.data = inside.tensor = 2;
    inside.zero = zero;
    inside.precision = precision;
    PlanRequest offloaded = inside;
    offloaded.offload_optimizer = true;
    const std::vector<double> whole = losses(inside, 8, {});
    for (const auto& [saving, resuming] :
         {std::pair{inside, offloaded}, {offloaded, inside}, {offloaded, offloaded}}) {
      const auto folder = fresh_folder("offload");
      losses(saving, 5, {nullptr, folder});
      const std::vector<double> rest = losses(resuming, 8, {newest(folder).get(), {}});
      EXPECT_EQ(rest, std::vector<double>(whole.begin() + 5, whole.end()))
          << enum_name(precision) << ", zero " << zero;
    }
  }
}

TEST(Checkpoint, KeepsTheNewestAndSavesWhereAsked) {
  const auto folder = fresh_folder("keep");
  losses({test::little_gpt()}, 10, {nullptr, folder, 3, 2});
  const auto all = checkpoints_in(folder);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].filename(), checkpoint_name(10));
  EXPECT_EQ(all[1].filename(), checkpoint_name(9));
}

TEST(Checkpoint, ADamagedOneIsPassedOver) {
  const auto folder = fresh_folder("damaged");
  PlanRequest request{test::little_gpt()};
  request.pipeline = 2;
  const auto damage = [&](const std::function<void(const std::filesystem::path&)>& how) {
    std::filesystem::remove_all(folder);
    losses(request, 8, {nullptr, folder, 4, 9});
    how(folder / checkpoint_name(8));
    std::vector<std::string> notes;
    const auto checkpoint = open_newest(folder, notes);
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->info().step, 4);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find(checkpoint_name(8)), std::string::npos);
    EXPECT_THROW(Checkpoint{folder / checkpoint_name(8)}, UserError);
  };
  damage([](const auto& c) { std::filesystem::resize_file(c / "rank-00001.safetensors", 1000); });
  damage([](const auto& c) { std::filesystem::remove(c / "rank-00000.safetensors"); });
  damage([](const auto& c) { std::filesystem::resize_file(c / "checkpoint.json", 200); });
  damage([](const auto& c) {
    std::fstream file(c / "rank-00000.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-10, std::ios::end);
    file.put('?');
  });
}

TEST(Checkpoint, AnotherModelsIsRefused) {
  const auto folder = fresh_folder("model");
  losses({test::little_gpt()}, 2, {nullptr, folder});
  const auto checkpoint = newest(folder);
  ModelSpec wider = test::little_gpt();
  wider.ffn_hidden = 128;
  EXPECT_THROW(losses({wider}, 12, {checkpoint.get(), {}}), RunError);
}

// Rectangles of a range cover exactly its elements, in order.
TEST(Checkpoint, RectanglesCoverARange) {
  Parameter p;
  p.blocks = {{4, 3, 10, 5}, {20, 2, 10, 5}};
  for (int64_t begin = 0; begin < 25; ++begin) {
    for (int64_t count = 1; begin + count <= 25; ++count) {
      std::vector<std::pair<int64_t, int64_t>> got, want;
      for (const ShardBlock& r : rectangles(p, begin, count)) {
        for (int64_t i = 0; i < r.count(); ++i)
          got.emplace_back(r.global_row + i / r.columns, r.global_column + i % r.columns);
      }
      for (int64_t i = begin; i < begin + count; ++i)
        want.emplace_back(i < 15 ? 4 + i / 5 : 20 + (i - 15) / 5, 10 + i % 5);
      EXPECT_EQ(got, want) << begin << " " << count;
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
