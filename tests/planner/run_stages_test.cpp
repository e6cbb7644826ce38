// SPDX-License-Identifier: Apache-2.0

// Runs whose stages differ in width, or end inside a layer (planner/validate/run_stages.h).

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "tests/planner/run_records.h"

namespace mpt::planner {
namespace {

TEST(RunStages, EqualStagesOneByOneAreThoseOfOneLayout) {
  for (const int gpus : {1, 2}) {
    Json json = two_stages(gpus, gpus);
    for (const auto& [recompute, operators] : {std::pair{"none", 0}, {"full", 313}}) {
      json["layout"]["stages"][0]["recompute_ops"] = operators;
      json["layout"]["stages"][1]["recompute_ops"] = operators == 0 ? 0 : 314;
      json["layout"]["recompute"] = "per";
      const RunPrediction one_by_one = predicted(json);
      json["layout"]["recompute"] = recompute;
      const RunPrediction together = predicted(json);
      EXPECT_NEAR(one_by_one.step_s, together.step_s, 1e-9 * together.step_s) << recompute << gpus;
      EXPECT_NEAR(one_by_one.peak_gib, together.peak_gib, 1e-6) << recompute << gpus;
      EXPECT_EQ(together.layout.tensor, gpus);
    }
  }
}

TEST(RunStages, StagesMayDifferInWidth) {
  // The second stage has two GPUs: it is faster, and the first holds the step up.
  const RunPrediction narrow = predicted(two_stages(1, 1)), wide = predicted(two_stages(1, 2));
  EXPECT_LT(wide.step_s, narrow.step_s);
  EXPECT_NEAR(wide.memory[0].peak_bytes, narrow.memory[0].peak_bytes,
              1e-6 * double(narrow.memory[0].peak_bytes));
  EXPECT_LT(wide.memory[1].peak_bytes, 0.7 * double(narrow.memory[1].peak_bytes));
  // With as much work for each of the three it is faster still.
  const RunPrediction even = predicted(two_stages(1, 2, 209));
  EXPECT_LT(even.step_s, 0.8 * wide.step_s);
  // Two ranks that repeat the stage take a sequence each of a micro-batch of two.
  Json repeated = two_stages(1, 2);
  repeated["layout"]["micro_batch"] = 2;
  repeated["layout"]["stages"][1]["tp"] = {{"1", 314}};
  repeated["layout"]["stages"][1]["dp"] = {{"2", 314}};
  const RunPrediction data = predicted(repeated);
  EXPECT_EQ(data.layout.data, 1);
  EXPECT_GT(data.memory[1].parameter_bytes, 1.9 * double(wide.memory[1].parameter_bytes));
}

// Sources cut between operators: a stage may hold part of a layer. Of thirteen the second, seventh, tenth and
// twelfth are its products, with 3, 1, 4 and 4 twelfths of its weights.
TEST(RunStages, StagesMayEndInsideALayer) {
  const auto first_rank = [&](int operators, int recomputed) {
    return predicted(two_stages(1, 1, operators, recomputed)).memory[0];
  };
  const auto low = first_rank(313, 0).parameter_bytes, high = first_rank(326, 0).parameter_bytes;
  for (const auto& [operators, twelfths] : {std::pair{1, 0}, {2, 3}, {6, 3}, {7, 4}, {10, 8}, {12, 12}})
    EXPECT_NEAR(double(first_rank(313 + operators, 0).parameter_bytes - low),
                twelfths / 12.0 * double(high - low), 1e-6 * double(low))
        << operators;
  // The more operators run again, the less is kept, and the longer the step.
  double kept = double(first_rank(313, 0).activation_peak_bytes);
  double step_s = predicted(two_stages(1, 1, 313, 0)).step_s;
  for (const int again : {50, 96, 150, 300}) {
    const RunPrediction p = predicted(two_stages(1, 1, 313, again));
    EXPECT_LT(double(p.memory[0].activation_peak_bytes), kept) << again;
    EXPECT_GT(p.step_s, step_s) << again;
    kept = double(p.memory[0].activation_peak_bytes);
    step_s = p.step_s;
  }
}

TEST(RunStages, MemoryOfTheFirstNodeIsThatOfItsStages) {
  Json json = two_stages(1, 1, 600);
  json["notes"] = "torch max_allocated of the first node only";
  json["hardware"]["gpus_per_node"] = 2;
  const RunPrediction both = predicted(json);
  json["hardware"]["gpus_per_node"] = 1;
  const RunPrediction first = predicted(json);
  const auto gib = [](const RankMemory& m) { return double(m.peak_bytes) / double(int64_t{1} << 30); };
  EXPECT_NEAR(first.peak_gib, gib(first.memory[0]), 1e-9);
  EXPECT_NEAR(both.peak_gib, std::max(gib(both.memory[0]), gib(both.memory[1])), 1e-9);
  json["layout"]["stages"][0]["ops"] = 27;
  json["layout"]["stages"][1]["ops"] = 600;
  EXPECT_LT(predicted(json).peak_gib, 0.5 * first.peak_gib) << "the second holds more, on another node";
}

TEST(RunStages, StagesThatDoNotDivideAreRefused) {
  for (const auto& [pointer, value] : {std::pair<const char*, Json>{"/layout/stages/1/tp", {{"two", 3}}},
                                       {"/layout/stages/1/tp", {{"7", 300}}},
                                       {"/layout/stages/1/tp", 3},
                                       {"/layout/stages/1/tp", {{"1", -3}}},
                                       {"/layout/stages/1/dp", {{"3", 300}}},
                                       {"/layout/stages/1/dp", {{"2", 300}}},
                                       {"/hardware/gpus", 2},
                                       {"/layout/pp", 3}}) {
    Json json = two_stages(1, 2);
    json[Json::json_pointer(pointer)] = value;
    EXPECT_THROW(predicted(json), UserError) << pointer << " = " << value.dump();
  }
}

// Ranges that run again keep their inputs: half of the operators behind the cores free less than half, and on
// four tensor ranks nothing.
TEST(RunStages, PartOfALayerFreesLessThanItsShare) {
  const auto kept = [](int gpus, int recomputed) {
    return double(predicted(two_stages(gpus, gpus, 313, recomputed)).memory[0].activation_peak_bytes);
  };
  for (const auto& [gpus, least, most] : {std::tuple{1, 0.30, 0.55}, {2, 0.10, 0.35}, {4, -0.2, 0.05}}) {
    const double cores = kept(gpus, 96), half = kept(gpus, 96 + 108), all = kept(gpus, 313);
    EXPECT_GT((cores - half) / (cores - all), least) << gpus;
    EXPECT_LT((cores - half) / (cores - all), most) << gpus;
  }
}

// Aceso's head has its own copy of the embedding on one stage, too.
TEST(RunStages, OneStageOfAcesoHoldsTheEmbeddingTwice) {
  Json json = small_pipeline("Aceso runtime (Megatron-LM 2.x fork)", 1);
  const auto twice = predicted(json).memory[0].parameter_bytes;
  json["framework"] = "Megatron-LM";
  EXPECT_EQ(twice - predicted(json).memory[0].parameter_bytes, 51200 * 6144 * 2);
}

}  // namespace
}  // namespace mpt::planner
