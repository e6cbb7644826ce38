// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/published_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/quantity.h"
#include "planner/api.h"
#include "tests/support/golden.h"

namespace mpt::planner {
namespace {

Json small_run() {
  return parse_json(R"({
    "id": "small", "set": "other", "family": "made-up", "software": "Megatron-LM",
    "source": {"where": "nobody", "path": "", "version": ""},
    "request": {"model": "llama3-8b", "global_batch": 64, "seq": 4096, "framework": "megatron-core", "cluster": "dgx-h100:1",
                "layout": {"tensor": 2, "pipeline": 2, "data": 2, "chunks": 1, "micro_batch": 1, "zero": 1, "shard": 2,
                           "recompute": "none", "precision": "bf16", "schedule": "1f1b", "layers_per_stage": [16, 16]}},
    "observed": {"seconds": 9.0}})",
                    "small");
}
PublishedRun run_of(const Json& json) { return from_json<PublishedRun>(json, "run"); }

std::string error_of_lines(const std::string& lines) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "published_run_test.jsonl";
  std::ofstream(file) << lines;
  try {
    load_published_runs(file.string());
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PublishedRun, ErrorsNameFileLineAndField) {
  Json wrong = small_run();
  wrong["observed"]["gib"] = -1;
  wrong["request"]["layout"]["tensr"] = 2;
  const std::string good = json_text(small_run()) + "\n", error = error_of_lines(good + json_text(wrong));
  for (const char* words : {"published_run_test.jsonl:2", "/observed/gib", "/request/layout/tensr"})
    EXPECT_NE(error.find(words), std::string::npos) << words << "\n" << error;
  EXPECT_EQ(error_of_lines(good + "\n" + good), "");
  EXPECT_NE(error_of_lines(good + "{\n").find("published_run_test.jsonl:2"), std::string::npos);
}

TEST(PublishedRun, FieldsThatAreOpenGiveARange) {
  Json json = small_run();
  const RunPrediction exact = predict(run_of(json));
  EXPECT_EQ(exact.least_s, exact.step_s);
  EXPECT_EQ(exact.most_s, exact.step_s);
  json["unknown"] = {{"recompute", {"none", "full"}}, {"micro_batch", {1, 2, 3}}};
  const RunPrediction open = predict(run_of(json));
  EXPECT_EQ(open.step_s, exact.step_s) << "of the request's own layout";
  double least = exact.step_s, most = exact.step_s;
  for (const char* recompute : {"none", "full"}) {
    for (const int micro_batch : {1, 2}) {  // three do not divide the batch
      Json other = small_run();
      other["request"]["layout"]["recompute"] = recompute;
      other["request"]["layout"]["micro_batch"] = micro_batch;
      const RunPrediction p = predict(run_of(other));
      ASSERT_TRUE(p.fits);
      least = std::min(least, p.step_s);
      most = std::max(most, p.step_s);
    }
  }
  EXPECT_LT(least, most);
  EXPECT_EQ(open.least_s, least);
  EXPECT_EQ(open.most_s, most);
}

// A layout that runs out of memory was not the one that somebody measured.
TEST(PublishedRun, LayoutsThatDoNotFitAreNoPartOfTheRange) {
  Json json = small_run();
  json["request"]["layout"]["tensor"] = 1;
  json["request"]["layout"]["data"] = 4;
  json["request"]["layout"]["shard"] = 4;
  json["request"]["layout"]["micro_batch"] = 4;
  json["unknown"] = {{"recompute", {"none", "full"}}};
  const RunPrediction open = predict(run_of(json));
  json.erase("unknown");
  EXPECT_FALSE(predict(run_of(json)).fits);
  json["request"]["layout"]["recompute"] = "full";
  const RunPrediction full = predict(run_of(json));
  ASSERT_TRUE(full.fits);
  EXPECT_TRUE(open.fits);
  EXPECT_EQ(open.least_s, full.step_s);
  EXPECT_EQ(open.most_s, full.step_s);
}

TEST(PublishedRun, MoreVirtualStagesAreInterleaved) {
  Json json = small_run();
  json["unknown"] = {{"chunks", {1, 2}}, {"zero", {0, 1}}};
  Json other = small_run();
  other["request"]["layout"]["chunks"] = 2;
  other["request"]["layout"]["schedule"] = "interleaved";
  other["request"]["layout"]["layers_per_stage"] = {8, 8, 8, 8};
  const RunPrediction open = predict(run_of(json)), interleaved = predict(run_of(other));
  EXPECT_LE(open.least_s, interleaved.step_s);
  EXPECT_GE(open.most_s, interleaved.step_s);
}

TEST(PublishedRun, FrameworksOfPublishedRunsHaveTheirOwnValues) {
  Json json = small_run();
  json["request"]["framework"] = "internevo";
  json["request"]["execution"] = {"step_ms=40"};
  const PlanRequest request = request_of(run_of(json));
  EXPECT_EQ(request.framework, "");
  EXPECT_EQ(request.layout->execution.framework, "internevo");
  EXPECT_EQ(request.layout->execution.step_ms, 40);
  EXPECT_EQ(predict(run_of(json)).layout.execution.attention, AttentionKernel::flash1);
}

TEST(PublishedRun, MemoryIsReadAsItWasMeasured) {
  Execution execution;
  execution.allocator_slack = 0.1;
  execution.allocator_cache = 0.2;
  execution.context_gib = 2.0;
  DeviceSpec device;
  device.memory_bytes = 80 * kGiB;
  std::vector<RankMemory> memory(3);
  memory[0].peak_bytes = 10 * kGiB;
  memory[1].peak_bytes = 20 * kGiB;
  memory[2].peak_bytes = 5 * kGiB;
  Observation observed;
  EXPECT_DOUBLE_EQ(observed_gib(observed, execution, device, memory), 20.0);
  observed.ranks = {0, 2};
  EXPECT_DOUBLE_EQ(observed_gib(observed, execution, device, memory), 10.0);
  observed.how = MemoryMeasure::reserved;
  EXPECT_DOUBLE_EQ(observed_gib(observed, execution, device, memory), 10.0 * 1.1 + 2.0);
  observed.how = MemoryMeasure::device;
  EXPECT_DOUBLE_EQ(observed_gib(observed, execution, device, memory), 10.0 * 1.1 + 2.0 + 2.0);
}

TEST(PublishedRun, PhysicsPointsTheRightWay) {
  const RunPrediction base = predict(run_of(small_run()));
  Json json = small_run();
  json["request"]["layout"]["recompute"] = "full";
  EXPECT_GT(predict(run_of(json)).step_s, 1.15 * base.step_s) << "a third more compute";
  json = small_run();
  json["request"]["cluster"] = "dgx-a100:1";
  EXPECT_GT(predict(run_of(json)).step_s, 1.5 * base.step_s);
  json = small_run();
  for (const auto& [field, value] : {std::pair{"tensor", 1}, {"data", 4}, {"shard", 4}})
    json["request"]["layout"][field] = value;
  EXPECT_GT(predict(run_of(json)).peak_gib, base.peak_gib) << "half the model on each GPU";
}

// Blackwell multiplies fp8 with one scale in any order: no transposed copy of a weight is kept.
TEST(PublishedRun, BlackwellKeepsNoTransposedWeightsInFp8) {
  Json json = small_run();
  const auto weights = [&](const char* cluster, const char* precision) {
    json["request"]["cluster"] = cluster;
    json["request"]["layout"]["precision"] = precision;
    return double(predict(run_of(json)).memory[0].parameter_bytes);
  };
  const double both = weights("dgx-h100:1", "fp8");
  EXPECT_LT(weights("dgx-b200:1", "fp8"), 0.85 * both);
  EXPECT_EQ(weights("dgx-b200:1", "mxfp8"), both) << "scales by row are those of one order";
  EXPECT_EQ(weights("dgx-b200:1", "bf16"), weights("dgx-h100:1", "bf16"));
}

TEST(PublishedRun, ConstantsOfTheCostModelMayBeOthers) {
  Calibration slower = shipped_calibration();
  slower.sustained *= 0.5;
  const PublishedRun run = run_of(small_run());
  EXPECT_GT(predict(run, slower).step_s, 1.2 * predict(run).step_s);
}

TEST(PublishedRun, RandomChangesArePredictedOrRefused) {
  std::mt19937 random(7);
  const Json values[] = {
      nullptr, -1, 0, 1, 2, 3, 8, 96, 1000003, 1e18, 0.5, "text", true, Json::array(), Json::object()};
  int refused = 0, fine = 0;
  for (int i = 0; i < 300; ++i) {
    Json json = small_run();
    json["unknown"] = {{"recompute", {"none", "full"}}, {"micro_batch", {1, 2}}};
    for (int changes = 1 + i % 3; changes > 0; --changes) {
      Json* sections[] = {&json["request"], &json["request"]["layout"], &json["unknown"], &json["observed"]};
      Json& section = *sections[random() % 4];
      if (!section.is_object() || section.empty()) continue;
      auto field = section.begin();
      std::advance(field, long(random() % section.size()));
      if (field.key() != "layout") field.value() = values[random() % std::size(values)];
    }
    try {
      const RunPrediction p = predict(run_of(json));
      EXPECT_TRUE(std::isfinite(p.step_s) && p.step_s > 0.0 && p.peak_gib > 0.0);
      EXPECT_LE(p.least_s, p.most_s);
      ++fine;
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(fine, 20);
}

TEST(PublishedRun, SchemaIsTheOneBesideTheRecords) {
  test::expect_source_file("reports/validation/record.schema.json", published_run_schema_text());
}

std::vector<PublishedRun> all_runs() {
  std::vector<PublishedRun> runs;
  for (const auto& file : std::filesystem::directory_iterator(MPT_SOURCE_DIR "/reports/validation/records")) {
    for (PublishedRun& run : load_published_runs(file.path().string())) runs.push_back(std::move(run));
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return runs;
}

// What mpt-plan estimate --request says of a file that holds the request. With MPT_ALL_RUNS in the
// environment all runs are asked, else 200.
TEST(PublishedRun, PredictionsAreWhatEverybodyGetsForTheRequest) {
  const std::vector<PublishedRun> runs = all_runs();
  ASSERT_GT(runs.size(), 3000u);
  const size_t step = std::getenv("MPT_ALL_RUNS") != nullptr ? 1 : runs.size() / 200;
  for (size_t i = 0; i < runs.size(); i += step) {
    const std::string file = request_to_text(request_of(runs[i]));
    const Estimated e = estimate(from_json<PlanRequest>(parse_json(file, "request"), "request"));
    const RunPrediction p = predict(runs[i]);
    EXPECT_EQ(p.step_s, e.plan.prediction.step_time_s) << runs[i].id;
    EXPECT_EQ(p.memory, e.plan.prediction.memory) << runs[i].id;
    EXPECT_EQ(p.layout, e.plan.layout) << runs[i].id;
  }
}

}  // namespace
}  // namespace mpt::planner
