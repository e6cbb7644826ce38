// SPDX-License-Identifier: Apache-2.0

// Plans for fewer nodes (--or-nodes) against plans of clusters that have as many, and what checkpoints hold.

#include <gtest/gtest.h>

#include <ctime>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "models/footprint.h"
#include "models/parameter_count.h"
#include "models/zoo.h"
#include "planner/answer/recommend.h"
#include "planner/observe/observed_plan.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

PlanRequest request_on(const std::string& model, const std::string& cluster, int64_t batch,
                       const std::string& framework, std::vector<int64_t> nodes) {
  PlanRequest r;
  r.model.name = model;
  r.cluster.name = cluster;
  r.global_batch = batch;
  r.sequence = 4096;
  r.framework = framework;
  r.threads = 1;
  r.or_nodes = std::move(nodes);
  return r;
}

void expect_as_planned_alone(PlanRequest r, const std::string& kind) {
  const Plan whole = plan(r);
  ASSERT_EQ(whole.fewer_nodes.size(), r.or_nodes.size());
  for (size_t n = 0; n < r.or_nodes.size(); ++n) {
    PlanRequest alone = r;
    alone.or_nodes.clear();
    alone.cluster.name = kind + ":" + std::to_string(r.or_nodes[n]);
    const Plan wanted = plan(alone);
    const FewerNodes& found = whole.fewer_nodes[n];
    EXPECT_EQ(found.nodes, r.or_nodes[n]);
    EXPECT_EQ(found.gpus, wanted.layout.ranks());
    ASSERT_TRUE(found.best) << alone.cluster.name << ": " << found.why;
    EXPECT_EQ(to_json(found.best->layout).dump(), to_json(wanted.layout).dump()) << alone.cluster.name;
    EXPECT_DOUBLE_EQ(found.best->step_time_s, wanted.prediction.step_time_s);
    EXPECT_DOUBLE_EQ(found.best->tokens_per_s, wanted.prediction.tokens_per_s);
    EXPECT_EQ(found.best->peak_bytes, reports::peak_bytes(wanted));
    EXPECT_EQ(found.best->confidence.fits, wanted.prediction.confidence.fits);
    EXPECT_FALSE(found.stopped);
  }
  r.or_nodes.clear();
  EXPECT_EQ(plan(r).layout, whole.layout) << "the whole cluster's plan is the same as without --or-nodes";
}

TEST(FewerNodes, ThePlanIsThatOfAClusterOfSoManyNodes) {
  expect_as_planned_alone(request_on("llama3-8b", "dgx-h100:4", 96, "megatron-core", {3, 2, 1}), "dgx-h100");
  expect_as_planned_alone(request_on("mixtral-8x7b", "dgx-a100:6", 240, "torchtitan", {5, 4}), "dgx-a100");
}

// No layout within these bounds is 90 % likely to fit on one node: the likeliest one, as without --or-nodes.
TEST(FewerNodes, WhereNothingIsLikelyToFitItIsTheLikeliest) {
  PlanRequest r = request_on("llama3-8b", "dgx-h100:2", 96, "torchtitan", {1});
  r.bounds.tensor = r.bounds.pipeline = r.bounds.context = {1};
  r.bounds.zero = r.bounds.micro_batch = {3};
  r.bounds.recomputes = {Recompute::none};
  expect_as_planned_alone(r, "dgx-h100");
  const FewerNodes found = plan(r).fewer_nodes.front();
  ASSERT_TRUE(found.best && found.best->confidence.fits);
  EXPECT_LT(*found.best->confidence.fits, 0.9);
}

TEST(FewerNodes, WhereTheBatchDoesNotDivideItNamesBatchesAndNodesThatDo) {
  PlanRequest r = request_on("llama3-8b", "dgx-h100:8", 128, "torchtitan", {7, 3});
  r.bounds.tensor = r.bounds.pipeline = r.bounds.context = {1};
  const Plan found = plan(r);
  const std::string& of_seven = found.fewer_nodes[0].why;
  EXPECT_FALSE(found.fewer_nodes[0].best);
  EXPECT_NE(of_seven.find("--global-batch 112 or --global-batch 168"), std::string::npos) << of_seven;
  EXPECT_TRUE(of_seven.ends_with(", or 4 nodes")) << of_seven << ": 5 and 6 do not divide 128 either";
  EXPECT_TRUE(found.fewer_nodes[1].why.ends_with(", or 2 nodes")) << found.fewer_nodes[1].why;
  r.or_nodes = {4, 2};
  for (const FewerNodes& f : plan(r).fewer_nodes) EXPECT_TRUE(f.best) << f.why;
  r.or_nodes = {7};
  r.cluster.name = "dgx-h100:7";
  r.or_nodes.clear();
  for (const int64_t batch : {112, 168}) {
    r.global_batch = batch;
    EXPECT_EQ(plan(r).layout.data, 56);
  }
}

TEST(FewerNodes, WhereNothingFitsItSaysWhatIsNeeded) {
  PlanRequest r = request_on("llama3-405b", "dgx-h100:32", 64, "megatron-core", {1});
  r.gap = "5%";
  const Plan found = plan(r);
  EXPECT_FALSE(found.fewer_nodes[0].best);
  EXPECT_NE(found.fewer_nodes[0].why.find("needs at least"), std::string::npos) << found.fewer_nodes[0].why;
  const std::string text = plan_screen(found);
  EXPECT_NE(text.find("1 node: "), std::string::npos) << text;
  EXPECT_EQ(text.find("of 32 nodes"), std::string::npos) << "no table without rows: " << text;
}

TEST(FewerNodes, TheTimeLimitIsThatOfAllSearches) {
  PlanRequest r =
      request_on("llama3-405b", "dgx-h100:128", 2048, "megatron-core", {127, 126, 125, 120, 96, 64});
  r.time_limit_s = 4.0;
  const std::clock_t start = std::clock();  // of this process: other work on the machine does not count
  const Plan found = plan(r);
  EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, 4.0 + 3.0);
  EXPECT_EQ(found.fewer_nodes.size(), 6u);
  for (const FewerNodes& f : found.fewer_nodes) EXPECT_TRUE(f.best || !f.why.empty()) << f.nodes;
}

// The other half is for the plans on fewer nodes, which a comparison does not make.
TEST(FewerNodes, OnlyAPlanWithThemHasHalfOfTheTime) {
  const PlanRequest r = request_on("llama3-8b", "dgx-h100:2", 64, "megatron-core", {1});
  const auto resolved = resolve(r);
  EXPECT_EQ(resolved->problem.time_limit_s, r.time_limit_s) << "as compare and tune have it";
  EXPECT_EQ(compare({r}).front().plan->layout, plan(*resolved).layout);
  EXPECT_EQ(resolved->problem.time_limit_s, r.time_limit_s / 2.0);
}

struct Held {
  double weights, moments;  // bytes for each parameter
};
Held held(
    const std::string& framework, const std::function<void(PlanRequest&)>& change = [](PlanRequest&) {}) {
  PlanRequest r = request_on("qwen3-0.6b", "dgx-h100:2", 64, framework, {1});
  change(r);
  const Plan found = plan(r);
  const auto count = double(models::count_parameters(found.model).total);
  return {double(found.checkpoint->weight_bytes) / count, double(found.checkpoint->moment_bytes) / count};
}

TEST(FewerNodes, CheckpointsHoldWhatTheirFrameworkWrites) {
  const struct {
    const char* framework;
    double weights, moments;
  } cases[] = {{"mpt", 4, 8},
               {"torchtitan", 4, 8},
               {"pytorch", 4, 0},
               {"megatron-core", 6, 8},
               {"megatron-bridge", 6, 8},
               {"deepspeed", 6, 8},
               {"transformers-fsdp", 4, 8},
               {"transformers-ddp", 4, 8},
               {"transformers-deepspeed", 6, 8},
               {"automodel", 2, 4}};
  for (const auto& [framework, weights, moments] : cases) {
    const Held found = held(framework);
    EXPECT_NEAR(found.weights, weights, 1e-4) << framework;
    EXPECT_NEAR(found.moments, moments, 1e-4) << framework;
  }
}

TEST(FewerNodes, CheckpointsFollowPrecisionOptimizerAndFrozenWeights) {
  const Held fp32 = held("mpt", [](PlanRequest& r) { r.precision = Precision::fp32; });
  EXPECT_NEAR(fp32.weights + fp32.moments, 12, 1e-4);
  const Held sgd = held("megatron-core", [](PlanRequest& r) { r.optimizer = OptimizerKind::sgd; });
  EXPECT_NEAR(sgd.moments, 4, 1e-4);
  const Held lora = held("transformers-fsdp", [](PlanRequest& r) { r.lora = 16; });
  EXPECT_GT(lora.weights, 2.0) << "frozen weights in bf16";
  EXPECT_LT(lora.weights, 2.2);
  EXPECT_LT(lora.moments, 0.2);
}

CheckpointReading read_by(const std::string& framework, const std::vector<int64_t>& data) {
  PlanRequest r = request_on("llama3-8b", "dgx-h100:4", 96, framework, {2});
  r.bounds.tensor = {2};
  r.bounds.context = {1};
  r.bounds.data = data;
  return plan(r).fewer_nodes.front().reads;
}

TEST(FewerNodes, AnotherLayoutReadsACheckpointAsItsFrameworkDoes) {
  // 32 and 16 GPUs: data ranks alone change, or with 8 of them the stages.
  for (const std::vector<int64_t>& data : {std::vector<int64_t>{16, 8}, {8}})
    for (const char* const any : {"mpt", "torchtitan"})
      EXPECT_EQ(read_by(any, data), CheckpointReading::as_it_is) << any;
  EXPECT_EQ(read_by("megatron-core", {8}), CheckpointReading::prepared);
  EXPECT_EQ(read_by("megatron-bridge", {8}), CheckpointReading::prepared);
  EXPECT_EQ(read_by("automodel", {8}), CheckpointReading::not_judged);
  PlanRequest r = request_on("qwen3-0.6b", "dgx-h100:2", 64, "megatron-core", {1});
  r.bounds.tensor = {2};
  r.bounds.pipeline = r.bounds.context = {1};
  r.bounds.zero = {1};
  EXPECT_EQ(plan(r).fewer_nodes.front().reads, CheckpointReading::as_it_is) << "data ranks alone change";
  r.bounds.zero = {0};
  EXPECT_EQ(plan(r).fewer_nodes.front().reads, CheckpointReading::not_judged) << "of ZeRO 1 alone";
  r = request_on("qwen3-0.6b", "dgx-h100:2", 64, "deepspeed", {1});
  r.bounds.zero = {2};
  EXPECT_NE(plan_screen(plan(r)).find("ds_to_universal.py"), std::string::npos);
  r.bounds.zero = {3};
  EXPECT_EQ(plan(r).fewer_nodes.front().reads, CheckpointReading::not_judged)
      << "all groups get the settings of the first";
}

std::string refusal(const std::function<void(PlanRequest&)>& change) {
  PlanRequest r = request_on("qwen3-0.6b", "dgx-h100:4", 64, "torchtitan", {3});
  change(r);
  try {
    plan(r);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(FewerNodes, NumbersThatCannotBeAreRefused) {
  const auto refused = [](std::vector<int64_t> nodes) {
    return refusal([&](PlanRequest& r) { r.or_nodes = nodes; });
  };
  EXPECT_NE(refused({4}).find("--or-nodes: 4; expected fewer than the 4 nodes of the plan"),
            std::string::npos)
      << refused({4});
  EXPECT_NE(refused({4}).find("--or-nodes 3"), std::string::npos);
  EXPECT_NE(refused({3, 2, 3}).find("3 twice"), std::string::npos);
  EXPECT_NE(refused(std::vector<int64_t>(17, 1)).find("1 and 16 others; expected at most 16 numbers"),
            std::string::npos);
  const auto single = refusal([](PlanRequest& r) { r.cluster.name = "dgx-h100:1"; });
  EXPECT_NE(single.find("a cluster of several nodes"), std::string::npos) << single;
  const auto mixed = refusal([](PlanRequest& r) { r.cluster.name = "dgx-a100:2+dgx-h100:2@100Gb/s"; });
  EXPECT_NE(mixed.find("--or-nodes"), std::string::npos) << mixed;
  const auto wrong = refusal([](PlanRequest& r) { r.storage_bandwidth = "20"; });
  EXPECT_NE(wrong.find("--storage-bandwidth"), std::string::npos) << wrong;
  PlanRequest r = request_on("qwen3-0.6b", "dgx-h100:4", 64, "torchtitan", {3});
  r.pareto = true;
  EXPECT_THROW(front(*resolve(r)), UserError);
}

TEST(FewerNodes, TheScreenHasEachNumberAndTheTimeToRead) {
  PlanRequest r = request_on("qwen3-0.6b", "dgx-h100:2", 64, "torchtitan", {1});
  r.storage_bandwidth = "2GB/s";
  const Plan found = plan(r);
  const double bytes = double(found.checkpoint->weight_bytes + found.checkpoint->moment_bytes);
  EXPECT_NEAR(found.checkpoint->read_s, bytes / 2e9, 1e-9 * bytes);
  const std::string text = plan_screen(found);
  for (const char* const part :
       {"FEWER NODES", "of 2 nodes", "On 1 node the checkpoint is read as it is", "2GB/s takes"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  const Plan again = plan_from_text(plan_to_text(found), "test");
  EXPECT_EQ(again, found);
}

}  // namespace
}  // namespace mpt::planner
