// SPDX-License-Identifier: Apache-2.0

// estimate(): the price of a layout that somebody names.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "core/schedule_catalog.h"
#include "planner/api.h"
#include "planner/cost/calibration.h"

namespace mpt::planner {
namespace {

Json llama_request() {
  return parse_json(R"({
    "model": "llama3-8b", "global_batch": 64, "seq": 4096, "framework": "megatron-core", "cluster": "dgx-h100:1",
    "layout": {"tensor": 2, "pipeline": 2, "data": 2, "chunks": 1, "micro_batch": 1, "zero": 1, "shard": 2,
               "recompute": "none", "precision": "bf16", "schedule": "1f1b", "layers_per_stage": [16, 16]}})",
                    "small");
}

Prediction predict(const Json& request, const Calibration& calibration = shipped_calibration()) {
  return estimate(from_json<PlanRequest>(request, "request"), calibration).plan.prediction;
}

TEST(Estimate, PhysicsPointsTheRightWay) {
  const Prediction base = predict(llama_request());
  Json request = llama_request();
  request["layout"]["recompute"] = "full";
  EXPECT_GT(predict(request).step_time_s, 1.15 * base.step_time_s) << "a third more compute";
  request = llama_request();
  request["cluster"] = "dgx-a100:1";
  EXPECT_GT(predict(request).step_time_s, 1.5 * base.step_time_s);
  request = llama_request();
  for (const auto& [field, value] : {std::pair{"tensor", 1}, {"data", 4}, {"shard", 4}})
    request["layout"][field] = value;
  EXPECT_GT(predict(request).memory[0].peak_bytes, base.memory[0].peak_bytes) << "half the model on each GPU";
}

TEST(Estimate, RefusesMoreWorkThanItsMemoryHolds) {
  Json request = llama_request();
  request["global_batch"] = 4'000'000;
  try {
    predict(request);
    FAIL() << "2 stages of 2,000,000 micro-batches";
  } catch (const UserError& error) {
    ASSERT_EQ(error.problems().size(), 1u);
    EXPECT_EQ(error.problems().front().where, "--global-batch");
    // 1,000,000 micro-batches of one sequence on each of two data ranks.
    EXPECT_NE(error.problems().front().remedy.find("--global-batch 2000000"), std::string::npos);
  }
}

// Blackwell multiplies fp8 with one scale in any order: no transposed copy of a weight is kept.
TEST(Estimate, BlackwellKeepsNoTransposedWeightsInFp8) {
  Json request = llama_request();
  const auto weights = [&](const char* cluster, const char* precision) {
    request["cluster"] = cluster;
    request["layout"]["precision"] = precision;
    return double(predict(request).memory[0].parameter_bytes);
  };
  const double both = weights("dgx-h100:1", "fp8");
  EXPECT_LT(weights("dgx-b200:1", "fp8"), 0.85 * both);
  EXPECT_EQ(weights("dgx-b200:1", "mxfp8"), both) << "scales by row are those of one order";
  EXPECT_EQ(weights("dgx-b200:1", "bf16"), weights("dgx-h100:1", "bf16"));
}

TEST(Estimate, ConstantsOfTheCostModelMayBeOthers) {
  Calibration slower = shipped_calibration();
  slower.sustained *= 0.5;
  EXPECT_GT(predict(llama_request(), slower).step_time_s, 1.2 * predict(llama_request()).step_time_s);
}

Plan interleaved_plan(const char* framework, const char* schedule, int micro_batches) {
  Json request = llama_request();
  request["framework"] = framework;
  request["global_batch"] = micro_batches;
  request["gpus"] = 4;
  request["seq"] = 1024;
  if (std::string(framework) == "torchtitan") request["execution"] = {"elementwise=eager"};
  request["layout"] = {{"tensor", 1},
                       {"pipeline", 4},
                       {"data", 1},
                       {"chunks", 2},
                       {"micro_batch", 1},
                       {"recompute", "none"},
                       {"precision", "bf16"},
                       {"schedule", schedule},
                       {"overlap_gradient_reduce", true},
                       {"overlap_parameter_gather", true},
                       {"overlap_transfer", true},
                       {"layers_per_stage", {4, 4, 4, 4, 4, 4, 4, 4}}};
  return estimate(from_json<PlanRequest>(request, "request")).plan;
}

// The plan has the order of the class that its framework runs, which holds more than groups of ranks would.
TEST(Estimate, InterleavedRowsAreThoseOfTheFrameworksClass) {
  const auto rows = [](const char* schedule, int micro_batches, bool equal_rounds) {
    return schedule_rows(make_schedule(find_schedule(schedule, "test"), 4, 2, micro_batches, equal_rounds));
  };
  for (const char* schedule : {"interleaved", "zb-interleaved"}) {
    for (const int m : {7, 10, 8}) {
      for (const char* framework : {"pytorch", "torchtitan", "automodel"})
        EXPECT_EQ(interleaved_plan(framework, schedule, m).schedule, rows(schedule, m, true))
            << framework << m;
      EXPECT_EQ(interleaved_plan("mpt", schedule, m).schedule, rows(schedule, m, false)) << m;
    }
  }
  const auto activations = [](const char* schedule, int micro_batches, int rank) {
    const Plan plan = interleaved_plan("torchtitan", schedule, micro_batches);
    return double(plan.prediction.memory[size_t(rank)].activation_peak_bytes);
  };
  EXPECT_NEAR(activations("interleaved", 7, 0) / activations("interleaved", 8, 0), 14.0 / 11.0, 0.03);
  EXPECT_LT(activations("zb-interleaved", 8, 0), 0.8 * activations("interleaved", 8, 0))
      << "8 chunks, not 11";
  EXPECT_GT(activations("zb-interleaved", 8, 3), 1.2 * activations("interleaved", 8, 3)) << "8 chunks, not 5";
}

// What MPT does not plan may run all the same.
TEST(Estimate, SaysOfWhatItDoesNotPlanThatItDoesNotPlanIt) {
  const auto notes = [](const char* framework, int micro_batches) {
    std::string text;
    for (const std::string& note : interleaved_plan(framework, "interleaved", micro_batches).notes)
      text += note + "\n";
    return text;
  };
  const std::string megatron = notes("megatron-core", 10);
  EXPECT_NE(megatron.find("MPT plans interleaved for Megatron-LM only with a multiple of the pipeline ranks"),
            std::string::npos)
      << megatron;
  EXPECT_EQ(megatron.find("cannot run"), std::string::npos) << "groups of 5 micro-batches run";
  EXPECT_EQ(notes("megatron-bridge", 10).find("cannot run"), std::string::npos);
  EXPECT_NE(notes("pytorch", 9).find("This layout cannot run: "), std::string::npos) << "ValueError";
}

// Software that mpt-plan does not know by name: its values are in the layout.
TEST(Estimate, ALayoutMayHaveTheValuesOfOtherSoftware) {
  Json request = llama_request();
  request.erase("framework");
  request["layout"]["execution"] = {{"framework", "internevo"}, {"attention", "flash1"}, {"step_ms", 20}};
  request["execution"] = {"step_ms=40"};
  const Execution used = estimate(from_json<PlanRequest>(request, "request")).plan.layout.execution;
  EXPECT_EQ(used.framework, "internevo");
  EXPECT_EQ(used.kernels.attention, AttentionKernel::flash1);
  EXPECT_EQ(used.host.step_ms, 40) << "changes come after the layout's values";
}

TEST(Estimate, RandomChangesArePricedOrRefused) {
  std::mt19937 random(7);
  const Json values[] = {
      nullptr, -1, 0, 1, 2, 3, 8, 96, 1000003, 1e18, 0.5, "text", true, Json::array(), Json::object()};
  int refused = 0, fine = 0;
  for (int i = 0; i < 300; ++i) {
    Json request = llama_request();
    for (int changes = 1 + i % 3; changes > 0; --changes) {
      Json& section = random() % 2 == 0 ? request : request["layout"];
      auto field = section.begin();
      std::advance(field, long(random() % section.size()));
      if (field.key() != "layout") field.value() = values[random() % std::size(values)];
    }
    try {
      const Prediction p = predict(request);
      EXPECT_TRUE(std::isfinite(p.step_time_s) && p.step_time_s > 0.0 && p.memory[0].peak_bytes > 0);
      ++fine;
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(fine, 20);
}

}  // namespace
}  // namespace mpt::planner
