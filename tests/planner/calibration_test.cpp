// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/calibration.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "planner/api.h"
#include "planner/memory/memory_model.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

const std::filesystem::path kSource = MPT_SOURCE_DIR;
const std::filesystem::path kRecords = kSource / "reports/validation/records";

Json file_as_json() {
  return parse_json(read_file(kSource / "planner/cost/calibration.json"), "calibration.json");
}

std::string error_of_constants(const Json& json) {
  try {
    constants_from_text(json_text(json), "calibration.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool has_two_digits(double value) { return std::stod(fmt::format("{:.1e}", value)) == value; }

TEST(CalibrationFile, EachConstantSaysWhereItIsFrom) {
  const std::set<std::string> units{"share", "ratio", "passes",  "bytes",        "tokens", "s",
                                    "MiB",   "GiB",   "bytes/s", "parameters/s", "FLOP/s"};
  std::set<std::string> names;
  for (const Constant& c : constants()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_TRUE(units.contains(c.unit)) << c.name << ": " << c.unit;
    EXPECT_FALSE(c.meaning.empty() || c.source.empty()) << c.name;
    EXPECT_EQ(c.source.back(), '.') << c.name;
    EXPECT_LE(c.most(), c.unit == "share" ? 1.0 : c.unit == "FLOP/s" ? 1e15 : 1e12) << c.name;
    EXPECT_TRUE(c.origin != ConstantOrigin::fitted || has_two_digits(c.value)) << c.name << ": " << c.value;
    for (const std::string& family : c.fitted_to)
      EXPECT_TRUE(std::filesystem::exists(kRecords / (family + ".jsonl"))) << c.name << ": " << family;
    // What decides a constant is part of what it was fitted to.
    for (const std::string& family : c.decided_by)
      EXPECT_TRUE(std::find(c.fitted_to.begin(), c.fitted_to.end(), family) != c.fitted_to.end())
          << c.name << ": " << family;
  }
}

TEST(CalibrationFile, ValuesAreThoseThatPricesRead) {
  const Json json = file_as_json();
  ASSERT_EQ(json.size(), Calibration::members().size());
  for (size_t i = 0; i < json.size(); ++i) {
    const auto& [name, member] = Calibration::members()[i];
    EXPECT_EQ(json[i]["name"], name);
    EXPECT_EQ(json[i]["value"].get<double>(), shipped_calibration().*member) << name;
  }
}

TEST(CalibrationFile, IsRefusedWhereAConstantIsWrong) {
  EXPECT_EQ(error_of_constants(file_as_json()), "");
  const auto error_of = [](auto&& change) {
    Json json = file_as_json();
    change(json);
    return error_of_constants(json);
  };
  const auto expect_error = [](const std::string& error, const char* words) {
    EXPECT_NE(error.find(words), std::string::npos) << words << "\n" << error;
  };
  expect_error(error_of([](Json& j) { j[0]["value"] = 2.0; }), "/0/value");
  expect_error(error_of([](Json& j) { j[0]["range"] = {1.0}; }), "/0/range");
  expect_error(error_of([](Json& j) { j[0].erase("fitted_to"); }), "/0/fitted_to");
  expect_error(error_of([](Json& j) { j[0].erase("decided_by"); }), "/0/decided_by");
  expect_error(error_of([](Json& j) { j[0].erase("apart"); }), "/0/decided_by");
  expect_error(error_of([](Json& j) { j[0]["origin"] = "guessed"; }), "/0/origin");
  expect_error(error_of([](Json& j) { j.erase(1); }), "/1");
  expect_error(error_of([](Json& j) { j[1]["name"] = "input_gradient"; }), "input_gradient_rate");
  expect_error(error_of([](Json& j) { j.push_back(j[0]); }), "no further constant");
}

TEST(Calibration, AFileChangesWhatItNamesAndNothingElse) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "calibration_test.json";
  const auto load = [&](const char* text) {
    std::ofstream(file) << text;
    return load_calibration(file.string());
  };
  Calibration expected = shipped_calibration();
  expected.sustained = 0.9;
  EXPECT_EQ(to_json(load(R"({"sustained": 0.9})")), to_json(expected));
  for (const char* wrong : {R"({"sustaned": 0.9})", R"({"sustained": 0.5})", R"({"sustained": "x"})", "[1]"})
    EXPECT_THROW(load(wrong), UserError) << wrong;
}

// Step time, peak memory, memory limit, and what NCCL takes beside.
std::array<double, 4> prediction_of(const PlanRequest& request, const Calibration& calibration) {
  const Estimated e = estimate(request, calibration);
  const auto communicators =
      communicator_bytes(e.plan.model, e.plan.cluster, e.plan.layout, 4096, calibration);
  return {e.plan.prediction.step_time_s, double(e.candidate.evaluation.peak_bytes),
          double(e.plan.memory_limit_bytes), double(communicators.front())};
}

PlanRequest offloaded(const std::string& model, const std::string& cluster) {
  PlanRequest r;
  r.model.name = model;
  r.cluster.name = cluster;
  r.global_batch = 8;
  r.bounds.zero = {1};
  r.bounds.offload = {Switch::on};
  return r;
}

// Shapes that the tables of the GPU lack.
PlanRequest on_a_gpu_with_few_shapes() {
  PlanRequest r = offloaded("llama3-8b", "");
  r.sequence = 2048;
  r.cluster.value = profiler::load_cluster("dgx-b200:1", std::nullopt);
  r.cluster.value->device.kernels = "b200-simumax";
  return r;
}

// It has 25 heads, for which there is no fused softmax, and 50,257 words.
PlanRequest of_odd_sizes() {
  PlanRequest r = offloaded("gpt2-1.5b", "dgx-a100:1");
  r.framework = "pytorch";
  r.execution = {"attention=unfused", "vocabulary_multiple=1"};
  return r;
}

// Mamba-2 in near half of its layers.
PlanRequest of_a_hybrid() {
  PlanRequest r = offloaded(
      std::string(MPT_SOURCE_DIR) + "/tests/models/configs/nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json",
      "dgx-h100:4");
  r.framework = "transformers-fsdp";
  r.global_batch = 32;
  r.sequence = 4096;
  r.bounds.zero = {3};
  r.bounds.offload.clear();
  return r;
}

// Experts over 64 GPUs of one NVLink domain.
PlanRequest of_a_rack() {
  PlanRequest r = offloaded("qwen3-30b-a3b", "gb200-nvl72:1");
  r.gpus = 64;
  r.global_batch = 64;
  r.sequence = 4096;
  r.bounds.expert = {64};
  r.bounds.data = {64};
  r.bounds.offload.clear();
  return r;
}

// Of mpt-run: a ring of context ranks has its own tensor-core kernel, and Gemma 2's soft caps its scalar one.
PlanRequest of_the_runtime(const std::string& model, int64_t context) {
  PlanRequest r = offloaded(model, "dgx-h100:1");
  r.framework = "mpt";
  r.sequence = 4096;
  r.bounds.offload.clear();
  r.bounds.context = {context};
  r.bounds.context_methods = {ContextMethod::ring};
  return r;
}

// Software that mpt-plan does not know by name has its values in reports/validation/frameworks/.
PlanRequest request_of_run(Json run) {
  Json& request = run["request"];
  const auto values =
      kSource / "reports/validation/frameworks" / (request["framework"].get<std::string>() + ".json");
  if (std::filesystem::exists(values)) {
    request["layout"]["execution"] = parse_json(read_file(values), values.string());
    request.erase("framework");
  }
  return from_json<PlanRequest>(request, "request");
}

// Layouts of published runs; and of CPU ranks, of optimizers in the host's memory and of what no table has.
std::vector<PlanRequest> various_requests() {
  std::vector<PlanRequest> requests{offloaded("gpt2-124m", "this-machine:2"),
                                    offloaded("llama3-8b", "dgx-h100:1"),
                                    offloaded("llama3-8b", "gh200-quad:1"),
                                    on_a_gpu_with_few_shapes(),
                                    of_odd_sizes(),
                                    of_a_hybrid(),
                                    of_a_rack(),
                                    of_the_runtime("llama3-8b", 2),
                                    of_the_runtime("gemma2-2b", 1)};
  const std::pair<const char*, std::set<std::string>> runs[] = {
      {"alephalpha", {"aa-llama13b-s8192-n128-tp2pp1dp64-mbs1-torch-full"}},
      {"bridge", {"bridge-26.02-gpt-oss-120b-b300-sxm-64-bf16-s4096-gbs1280-tp1pp1cp1vp1ep64"}},
      {"dlperf", {"dlperf-mp-1x32x1-16-3072x32"}},
      {"ds-zero-tutorial", {"ds-zero-gpt2-1.5b-v100-8-zero1"}},
      {"flashattn-train", {"flashattn-gpt3-125m-a100-8-dp8"}},
      {"ling", {"ling-mini-2.0-h800-8-ep8-fp8-s8192"}},
      {"lumi", {"lumi-neox-6.7b-mi250x-8-dp8"}},
      {"megatron", {"mcore-ci-gpt3_7b_tp1_pp4_memory_speed-a100"}},
      {"mlperf", {"mlperf-llama3.1-8b-gb200-8-v5.1-nvfp4", "mlperf-llama3.1-8b-h100-128-v5.1-cisco-tp2"}},
      {"mosaic", {"mosaic-mpt-70b-h100-sxm-80gb-256-s2048-mbs8-gbs2048-amp_bf16-full_shard-ac"}},
      {"nous-torchtitan", {"nous-qwen3-30b-a3b-b200-16-fsdp-ep8-mbs8"}},
      {"primus-gptoss", {"primus-gpt-oss-20b-mi355x-8-dp8-fp8"}},
      {"torchao", {"torchao-llama4-scout-2l-b200-4-fsdp4ep4-mxfp8"}}};
  for (const auto& [family, ids] : runs) {
    size_t found = 0;
    std::istringstream lines(read_file(kRecords / (std::string(family) + ".jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json run = parse_json(line, family);
      if (!ids.contains(run["id"])) continue;
      requests.push_back(request_of_run(run));
      ++found;
    }
    EXPECT_EQ(found, ids.size()) << family;
  }
  return requests;
}

// The end of the range that is farther away.
double moved(const Constant& c) { return c.value - c.least() > c.most() - c.value ? c.least() : c.most(); }

TEST(Calibration, EachConstantMovesAPrediction) {
  const std::vector<PlanRequest> requests = various_requests();
  std::vector<std::array<double, 4>> shipped;
  for (const PlanRequest& request : requests)
    shipped.push_back(prediction_of(request, shipped_calibration()));
  for (size_t c = 0; c < constants().size(); ++c) {
    Calibration other = shipped_calibration();
    other.*Calibration::members()[c].second = moved(constants()[c]);
    bool changes = false;
    for (size_t i = 0; i < requests.size() && !changes; ++i)
      changes = prediction_of(requests[i], other) != shipped[i];
    EXPECT_TRUE(changes) << constants()[c].name << " is used nowhere: delete it, or add a run that it is for";
  }
}

}  // namespace
}  // namespace mpt::planner
