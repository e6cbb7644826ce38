// SPDX-License-Identifier: Apache-2.0

// The memory doctor: its rows against estimates of requests that ask for the same.

#include "planner/answer/doctor.h"

#include <gtest/gtest.h>

#include "base/embedded.h"
#include "base/json.h"
#include "core/short_form.h"
#include "frameworks/framework.h"
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

// What the options of rows come to, asked for in a request of its own.
Estimated with_options(PlanRequest r, const Json& rows) {
  std::string layout = layout_name(estimate(r).plan.layout);
  for (const Json& row : rows) {
    const std::string option = row.at("option");
    if (option == "--execution loss=chunked")
      r.execution.emplace_back("loss=chunked");
    else if (option == "--optimizer adamw8")
      r.optimizer = OptimizerKind::adamw8;
    else if (option == "--optimizer adafactor")
      r.optimizer = OptimizerKind::adafactor;
    else if (option == "--recompute full")
      r.bounds.recomputes = {Recompute::full};
    else if (option == "--micro-batch 1")
      r.bounds.micro_batch = {1};
    else if (option == "--zero 1")
      r.bounds.zero = {1};
    else if (option == "--zero 2")
      r.bounds.zero = {2};
    else if (option == "--gradients bf16")
      r.gradients = Precision::bf16;
    else if (option == "--zero 3")
      r.bounds.zero = {3};
    else if (option == "--lora 16")
      r.lora = 16;
    else if (option == "--offload on")
      r.bounds.offload = {Switch::on};
    else if (option == "--cp 2 --dp 4")
      r.bounds.context = {2}, r.bounds.data = {4};
    else if (option == "--cp 4 --dp 2")
      r.bounds.context = {4}, r.bounds.data = {2};
    else
      ADD_FAILURE() << option;
  }
  return estimate(r);
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
  const Estimated other = with_options(r, Json::array({*chunked}));
  EXPECT_EQ(chunked->at("saved_bytes"), reports::peak_bytes(now.plan) - reports::peak_bytes(other.plan));
  EXPECT_GT(chunked->at("saved_bytes"), int64_t{20} << 30) << "20,480 tokens of 152,064 words, several times";
  EXPECT_DOUBLE_EQ(chunked->at("step_time_s"), other.plan.prediction.step_time_s);
  EXPECT_EQ(chunked->at("fits"), other.fits());
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
    const Json together = memory_doctor(r, now).at("together");
    ASSERT_FALSE(together.empty()) << framework;
    int64_t before = reports::peak_bytes(now.plan);
    for (const Json& row : together) {
      EXPECT_EQ(row.at("fits"), &row == &together.back()) << framework << row.dump();
      EXPECT_EQ(row.at("saved_bytes"), before - row.at("peak_bytes").get<int64_t>());
      EXPECT_GT(row.at("saved_bytes"), 0);
      before = row.at("peak_bytes");
    }
    const Estimated asked = with_options(r, together);
    EXPECT_TRUE(asked.fits()) << framework;
    EXPECT_EQ(reports::peak_bytes(asked.plan), before) << framework;
    EXPECT_NE(describe_doctor(now, {{"alone", together}, {"together", together}}).find("It fits with "),
              std::string::npos);
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
  EXPECT_LT(order.find("nothing"), order.find("weights")) << order;
  EXPECT_NE(describe_doctor(now, doctor).find("The least is "), std::string::npos);
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

// A switch that the framework has, and this layout cannot take, says why.
TEST(Doctor, WhatDoesNotGoSaysWhy) {
  const PlanRequest r =
      request_for("qwen3.5-9b", "dgx-h100:1", "transformers-deepspeed", "tp1 pp1 dp8 zero3 mbs1", 64, 32768);
  const Json doctor = memory_doctor(r, estimate(r));
  const Json* const context = row_of(doctor.at("alone"), "--cp 2 --dp 4");
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

TEST(Doctor, FrameworksNameSwitchesOfTheTable) {
  std::vector<std::string> options;
  for (const Json& row : parse_json(std::string(memory_switch_files().front().second), "table"))
    options.push_back(row.at("option"));
  for (const frameworks::Framework& framework : frameworks::known_frameworks()) {
    EXPECT_FALSE(framework.switches.empty()) << framework.name;
    for (const auto& [option, written] : framework.switches)
      EXPECT_TRUE(contains(options, option)) << framework.name << " " << option << ": " << written;
  }
}

}  // namespace
}  // namespace mpt::planner
