// SPDX-License-Identifier: Apache-2.0

// The memory doctor: its rows against estimates of requests that ask for the same.

#include "planner/answer/doctor.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <sstream>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "core/bound_words.h"
#include "core/short_form.h"
#include "frameworks/framework.h"
#include "planner/explain/memory_parts.h"
#include "planner/memory/memory_model.h"
#include "reports/utilisation.h"

namespace mpt::planner {

const EmbeddedFiles& memory_switch_files();  // generated

namespace {

PlanRequest request_for(const std::string& model, const std::string& cluster, const std::string& framework,
                        const std::string& layout, int64_t batch, int64_t sequence) {
  PlanRequest r;
  r.model.name = model;
  r.cluster.name = cluster;
  r.framework = framework;
  r.global_batch = batch;
  r.sequence = sequence;
  r.bounds = parse_short_form(layout, "test").bounds;
  return r;
}

const Json* row_of(const Json& rows, const std::string& option) {
  for (const Json& row : rows)
    if (row.at("option") == option) return &row;
  return nullptr;
}

// What options come to for a plan that was written, as `mpt-plan estimate --plan PLAN OPTIONS` reads them.
// Each option but --execution is given once.
Estimated followed(const Plan& plan, const std::string& options) {
  PlanRequest r = request_of(plan);
  Json asked = Json::object();
  std::string bounds;
  std::set<std::string> seen;
  std::istringstream words(options);
  for (std::string name, value; words >> name >> value;) {
    EXPECT_TRUE(name == "--execution" || seen.insert(name).second) << options;
    if (name == "--execution")
      r.execution.push_back(value);
    else if (name == "--lora")
      asked["lora"] = std::stoll(value);
    else if (name == "--offload-activations")
      asked["offload_activations"] = split_at(value, ',');
    else if (name == "--frozen-weights")
      asked["frozen_weights"] = value;
    else if (name == "--memory" || name == "--framework" || name == "--optimizer" || name == "--gradients")
      asked[name.substr(2)] = value;
    else
      bounds += (bounds.empty() ? "" : ",") + name.substr(2) + "=" + value;
  }
  r = request_with({{"option", options}, {"request", asked}}, r);
  if (!bounds.empty()) r.bounds = parse_bounds(bounds, "test");
  return estimate(r);
}

double likelihood(const Estimated& e) {
  return e.plan.prediction.confidence.fits.value_or(e.fits() ? 1.0 : 0.0);
}

TEST(Doctor, ARowIsTheDifferenceOfTwoEstimates) {
  const PlanRequest r = request_for("qwen2.5-32b", "dgx-h100:1", "transformers-fsdp",
                                    "tp1 pp1 dp8 zero3 mbs1 recompute=full", 8, 20480);
  const Estimated now = estimate(r);
  const Json doctor = memory_doctor(r, now);
  const Json* const chunked = row_of(doctor.at("alone"), "--execution loss=chunked");
  ASSERT_NE(chunked, nullptr);
  EXPECT_EQ(chunked->at("written"), "use_liger_kernel: true");
  EXPECT_EQ(chunked->at("changes"), "nothing");
  const Estimated other = followed(now.plan, chunked->at("option"));
  EXPECT_EQ(chunked->at("saved_bytes"), reports::peak_bytes(now.plan) - reports::peak_bytes(other.plan));
  EXPECT_GT(chunked->at("saved_bytes"), int64_t{20} << 30) << "20,480 tokens of 152,064 words, several times";
  EXPECT_DOUBLE_EQ(chunked->at("step_time_s"), other.plan.prediction.step_time_s);
  EXPECT_EQ(chunked->at("fits"), other.fits());
  EXPECT_EQ(doctor.at("device_bytes"), now.plan.cluster.device.memory_bytes);
  EXPECT_EQ(row_of(doctor.at("alone"), "--recompute full"), nullptr) << "in force";
  EXPECT_EQ(row_of(doctor.at("alone"), "--zero 3"), nullptr) << "in force";
  EXPECT_EQ(row_of(doctor.at("alone"), "--zero 1"), nullptr) << "takes more";
  EXPECT_NE(row_of(doctor.at("alone"), "--offload on"), nullptr) << "fsdp_offload_params";
  for (size_t i = 1; i < doctor.at("alone").size(); ++i)
    EXPECT_GE(doctor["alone"][i - 1].value("saved_bytes", 0.0), doctor["alone"][i].value("saved_bytes", 0.0));
}

TEST(Doctor, SwitchesOnTopOfEachOtherEndWhereTheLayoutFits) {
  const struct {
    const char *framework, *layout;
  } cases[] = {{"transformers-fsdp", "tp1 pp1 dp8 zero3 mbs4"},
               {"transformers-deepspeed", "tp1 pp1 dp8 zero0 mbs1"}};
  for (const auto& [framework, layout] : cases) {
    const PlanRequest r = request_for("llama3-8b", "dgx-h100:1", framework, layout, 64, 8192);
    const Estimated now = estimate(r);
    ASSERT_FALSE(now.fits()) << framework;
    const Json doctor = memory_doctor(r, now);
    const Json& together = doctor.at("together");
    ASSERT_FALSE(together.empty()) << framework;
    int64_t before = reports::peak_bytes(now.plan);
    for (const Json& row : together) {
      EXPECT_EQ(row.at("likelihood") >= 0.9, &row == &together.back()) << framework << row.dump();
      EXPECT_EQ(row.at("saved_bytes"), before - row.at("peak_bytes").get<int64_t>());
      EXPECT_GT(row.at("saved_bytes"), 0);
      before = row.at("peak_bytes");
    }
    const Estimated asked = followed(now.plan, doctor.at("options"));
    EXPECT_TRUE(asked.fits()) << framework;
    EXPECT_EQ(reports::peak_bytes(asked.plan), before) << framework;
    EXPECT_NE(describe_doctor(now, doctor).find("It fits ("), std::string::npos);
  }
}

TEST(Doctor, WhatTrainsTheSameComesFirstAndAllOfItMayNotSuffice) {
  const PlanRequest r =
      request_for("llama3-70b", "rtx4090:1", "transformers-fsdp", "tp1 pp1 dp1 mbs1", 8, 4096);
  const Estimated now = estimate(r);
  const Json doctor = memory_doctor(r, now);
  std::string order;
  for (const Json& row : doctor.at("together")) order += row.at("changes").get<std::string>() + " ";
  EXPECT_FALSE(doctor.at("together").back().at("fits"));
  EXPECT_NE(order.find("weights"), std::string::npos) << order;
  EXPECT_NE(describe_doctor(now, doctor).find("The least does not fit (0%): "), std::string::npos);
}

TEST(Doctor, ALayoutThatFitsNeedsNothing) {
  const PlanRequest r =
      request_for("llama3-8b", "dgx-h100:1", "torchtitan", "tp1 pp1 dp8 zero3 mbs1", 64, 4096);
  const Estimated now = estimate(r);
  ASSERT_TRUE(now.fits());
  const Json doctor = memory_doctor(r, now);
  EXPECT_TRUE(doctor.at("together").empty());
  EXPECT_NE(row_of(doctor.at("alone"), "--recompute full"), nullptr);
}

template <class T>
const T& one_of(const std::vector<T>& values, std::mt19937& random) {
  return values[random() % values.size()];
}

// A job that somebody might run.
PlanRequest random_job(std::mt19937& random) {
  const std::string framework =
      one_of<std::string>({"transformers-ddp", "transformers-fsdp", "transformers-deepspeed", "megatron-core",
                           "megatron-bridge", "torchtitan", "automodel", "deepspeed", "pytorch"},
                          random);
  const std::string model = one_of<std::string>(
      {"llama3-8b", "qwen2.5-7b", "qwen2.5-32b", "llama3-70b", "qwen3-30b-a3b", "gpt-oss-20b"}, random);
  const std::string cluster =
      one_of<std::string>({"dgx-h100:1", "dgx-h100:2", "rtx4090:1x2", "dgx-a100-40gb:1"}, random);
  const std::string layout = one_of<std::string>({"mbs1", "mbs2", "zero1 mbs1", "zero3 mbs1", "tp2 mbs1",
                                                  "tp8+sp mbs1", "tp4 pp2 mbs1", "pp2 zero1 mbs1"},
                                                 random);
  PlanRequest r =
      request_for(model, cluster, framework, layout, 64, one_of<int64_t>({2048, 4096, 16384}, random));
  if (random() % 4 == 0) r.lora = 16;
  if (random() % 4 == 0) r.bounds.recomputes = {Recompute::selective};
  return r;
}

// Followed, the switches together give the figures that are said. No single switch that changes as little is
// better, and none of them can be left out.
TEST(Doctor, WhatItSaysOfManyJobsHolds) {
  std::mt19937 random(67);
  int followed_jobs = 0, safe_jobs = 0;
  for (int job = 0; job < 120; ++job) {
    const PlanRequest r = random_job(random);
    std::optional<Estimated> now;
    try {
      now = estimate(r);
    } catch (const UserError&) {
      continue;
    }
    if (now->refusal) continue;
    const Json doctor = memory_doctor(r, *now);
    int64_t sum = 0;
    for (const Json& part : doctor.at("memory")) {
      EXPECT_GE(part.at("bytes"), 0) << layout_name(now->plan.layout) << part.dump();
      sum += part.at("bytes").get<int64_t>();
    }
    const Plan& plan = now->plan;
    const DeviceSpec& device = plan.cluster.device;
    EXPECT_EQ(sum,
              reports::peak_bytes(plan) + device.memory_bytes - tensor_bytes(device, plan.layout.execution) +
                  communicator_bytes(plan.model, plan.cluster, plan.layout, plan.workload.sequence).front());
    if (doctor.at("together").empty()) continue;
    ++followed_jobs;
    const std::string options = doctor.at("options");
    const Json& last = doctor.at("together").back();
    const Estimated e = followed(plan, options);
    SCOPED_TRACE(r.framework + " " + r.model.name + " " + layout_name(plan.layout) + options);
    EXPECT_FALSE(e.refusal);
    EXPECT_EQ(reports::peak_bytes(e.plan), last.at("peak_bytes"));
    EXPECT_DOUBLE_EQ(e.plan.prediction.step_time_s, last.at("step_time_s"));
    EXPECT_DOUBLE_EQ(likelihood(e), last.at("likelihood"));
    if (likelihood(e) < 0.9) continue;
    ++safe_jobs;
    for (const Json& row : doctor.at("alone"))
      if (!row.contains("refusal") && row.at("changes") == "nothing" && row.at("likelihood") >= 0.9) {
        EXPECT_LE(last.at("step_time_s").get<double>(), 1.01 * row.at("step_time_s").get<double>())
            << row.dump();
      }
  }
  EXPECT_GT(followed_jobs, 20);
  EXPECT_GT(safe_jobs, 10);
}

TEST(Doctor, DataParallelJobsAreToldOfSharding) {
  const PlanRequest r = request_for("llama3-8b", "dgx-h100:1", "transformers-ddp", "mbs1", 64, 4096);
  const Estimated now = estimate(r);
  const Json doctor = memory_doctor(r, now);
  const Json* const sharded = row_of(doctor.at("alone"), "--framework transformers-fsdp --zero 3");
  ASSERT_NE(sharded, nullptr);
  EXPECT_GT(sharded->at("likelihood"), 0.9);
  EXPECT_EQ(doctor.at("together").size(), 1) << "one switch is enough: " << doctor.at("together").dump(1);
}

TEST(Doctor, WhatIsSafeIsSaidAsEstimateSaysIt) {
  PlanRequest r = request_for("llama3-70b", "rtx4090:1x2", "trl", "mbs1", 16, 512);
  r.lora = 16;
  r.frozen_weights = FrozenFormat::nf4;
  const Json doctor = memory_doctor(r, estimate(r));
  const Json* const offload = row_of(doctor.at("alone"), "--offload on");
  ASSERT_NE(offload, nullptr);
  r.bounds.offload = {Switch::on};
  EXPECT_DOUBLE_EQ(offload->at("likelihood"), likelihood(estimate(r)));
  EXPECT_LT(offload->at("likelihood"), 0.9);
}

TEST(Doctor, SequenceParallelismAndMoreRanksAreRows) {
  const PlanRequest r =
      request_for("llama3-70b", "dgx-h100:2", "megatron-bridge", "tp8 pp2 zero1 mbs1", 64, 16384);
  const Json alone = memory_doctor(r, estimate(r)).at("alone");
  const Json* const shared = row_of(alone, "--sp on");
  ASSERT_NE(shared, nullptr) << alone.dump(1);
  EXPECT_GT(shared->at("saved_bytes"), int64_t{60} << 30);
  EXPECT_EQ(shared->at("written"), "model.sequence_parallel=True");
  const PlanRequest plain = request_for("llama3-8b", "dgx-h100:1", "megatron-core", "mbs1", 64, 4096);
  const Json rows = memory_doctor(plain, estimate(plain)).at("alone");
  for (const char* option : {"--tp 2 --dp 4", "--pp 2 --dp 4", "--zero 1"})
    EXPECT_NE(row_of(rows, option), nullptr) << option;
  EXPECT_EQ(row_of(rows, "--sp on"), nullptr) << "one tensor rank";
  EXPECT_EQ(row_of(rows, "--ep 2"), nullptr) << "no experts";
}

TEST(Doctor, ContextRanksNameTheirMethod) {
  const PlanRequest r =
      request_for("qwen2.5-7b", "dgx-h100:1", "transformers-deepspeed", "tp1 pp1 dp8 zero3 mbs1", 64, 32768);
  const Estimated now = estimate(r);
  const Json doctor = memory_doctor(r, now);
  const Json* const context = row_of(doctor.at("alone"), "--cp 2 --dp 4 --cp-method all_to_all");
  ASSERT_NE(context, nullptr);
  const Estimated e = followed(now.plan, context->at("option"));
  EXPECT_FALSE(e.refusal);
  EXPECT_EQ(reports::peak_bytes(e.plan), context->at("peak_bytes"));
}

// The logits of DDP: 12 bytes each in backward (counted), autocast's copy of the head's weight, and 10 bytes
// of each value that the last norm and the head read.
TEST(Doctor, PartsOfThePeak) {
  const PlanRequest r = request_for("llama3-8b", "dgx-h100:1", "transformers-ddp", "mbs1", 64, 4096);
  const Json parts = memory_parts(estimate(r).plan);
  const auto gib = [&](size_t part) { return parts[part].at("bytes").get<double>() / double(1 << 30); };
  EXPECT_EQ(parts[3].at("with"), "gradient buckets, 4 bytes a weight");
  EXPECT_EQ(parts[5].at("part"), "logits and loss");
  EXPECT_NEAR(gib(5), 4096.0 * (14.0 * 128256.0 + 10.0 * 4096.0) / double(1 << 30), 0.2);
  EXPECT_EQ(gib(1), 0.0) << "nothing is gathered";
  const PlanRequest sharded =
      request_for("llama3-8b", "dgx-h100:1", "transformers-fsdp", "zero3 mbs1", 64, 4096);
  EXPECT_GT(memory_parts(estimate(sharded).plan)[1].at("bytes"), 100 << 20) << "gathered";
}

// Weights in 4 bits are on each GPU before FSDP2 shards them: the bar says so where that is the peak.
TEST(Doctor, WholeWeightsOfTheStartAreNamed) {
  const auto parts_of = [](const char* layout) {
    PlanRequest r = request_for("qwen3-32b", "rtx4090:1x2", "trl", layout, 16, 4096);
    r.lora = 32;
    r.frozen_weights = FrozenFormat::nf4;
    return memory_parts(estimate(r).plan);
  };
  const Json start = parts_of("dp2 zero3 mbs1 recompute=full"),
             step = parts_of("dp2 zero3 mbs8 recompute=full");
  EXPECT_TRUE(start[1].contains("with")) << start.dump();
  EXPECT_FALSE(step[1].contains("with")) << step.dump();
}

// A switch that the framework has, and this layout cannot take, says why.
TEST(Doctor, WhatDoesNotGoSaysWhy) {
  const PlanRequest r =
      request_for("qwen3.5-9b", "dgx-h100:1", "transformers-deepspeed", "tp1 pp1 dp8 zero3 mbs1", 64, 32768);
  const Json doctor = memory_doctor(r, estimate(r));
  const Json* const context = row_of(doctor.at("alone"), "--cp 2 --dp 4 --cp-method all_to_all");
  ASSERT_NE(context, nullptr) << doctor.dump(1);
  EXPECT_NE(context->at("refusal").get<std::string>().find("linear"), std::string::npos) << context->dump();
}

TEST(Doctor, FrameworksWithoutContextRanksHaveSwitchesToo) {
  for (const char* framework : {"transformers-ddp", "deepspeed"}) {
    const PlanRequest r = request_for("llama3.2-1b", "dgx-h100:1", framework, "tp1 pp1 dp8 mbs32", 256, 8192);
    const Json doctor = memory_doctor(r, estimate(r));
    const Json* const row = row_of(doctor.at("alone"), "--micro-batch 1");
    ASSERT_NE(row, nullptr) << framework;
    EXPECT_GT(row->at("saved_bytes").get<double>(), 1e9) << framework;
  }
}

// Liger's loss does not start on FSDP2 with adapters, and starts with DDP
// (findings/liger_loss_meets_a_sharded_head_with_adapters_on_fsdp2.sh).
TEST(Doctor, NamesALossThatStartsWithAdapters) {
  for (const auto& [framework, layout, option, other] :
       {std::tuple{"transformers-fsdp", "tp1 pp1 dp8 zero3 mbs1", "--framework trl",
                   "--execution loss=chunked"},
        {"transformers-ddp", "tp1 pp1 dp8 zero0 mbs1", "--execution loss=chunked", "--framework trl"}}) {
    PlanRequest r = request_for("llama3-8b", "dgx-h100:1", framework, layout, 8, 8192);
    r.lora = 16;
    const Estimated now = estimate(r);
    const Json doctor = memory_doctor(r, now);
    const Json* const row = row_of(doctor.at("alone"), option);
    ASSERT_NE(row, nullptr) << framework;
    EXPECT_EQ(row->at("saved_bytes"),
              reports::peak_bytes(now.plan) - reports::peak_bytes(followed(now.plan, option).plan));
    EXPECT_GT(row->at("saved_bytes"), int64_t{8} << 30) << "8,191 tokens of 128,256 words, several times";
    EXPECT_EQ(row_of(doctor.at("alone"), other), nullptr) << framework;
  }
}

TEST(Doctor, FrameworksNameSwitchesOfTheTable) {
  std::vector<std::string> options;
  for (const Json& row : parse_json(std::string(memory_switch_files().front().second), "table"))
    options.push_back(row.at("option"));
  for (const frameworks::Framework& framework : frameworks::known_frameworks()) {
    EXPECT_FALSE(framework.switches.empty()) << framework.name;
    for (const auto& [option, written] : framework.switches)
      EXPECT_TRUE(contains(options, option.substr(option.starts_with("with adapters: ") ? 15 : 0)))
          << framework.name << " " << option << ": " << written;
  }
}

}  // namespace
}  // namespace mpt::planner
