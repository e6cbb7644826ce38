// SPDX-License-Identifier: Apache-2.0
#include "runtime/command_line.h"

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/json.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kByteVocabulary = 256;
constexpr int64_t kMostThreads = 1024;

void check_output(const char* option, const std::string& file) {
  if (file.empty()) return;
  check_writable(file, fmt::format("{} {}", option, file));
}

}  // namespace

void declare(CLI::App& app, RunOptions& o) {
  TrainOptions& t = o.train;
  app.add_option("plan", o.plan, "plan.json, written by mpt-plan")->required();
  app.add_option("--data", o.data, "Text files to train on, as bytes")->required();
  app.add_option("--steps", t.steps, "Optimizer steps")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--lr", t.learning_rate, "Learning rate after warm-up")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--min-lr", t.minimum_learning_rate, "Learning rate at the end of the cosine")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--warmup", t.warmup_steps, "Steps of linear warm-up")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--clip", t.clip, "Largest gradient norm; 0 is no clipping")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--weight-decay", t.weight_decay, "Of matrices")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", t.seed, "Of weights and of the order of the data")->capture_default_str();
  app.add_option("--ranks", o.ranks, "Ranks to run; must be the plan's (default)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option("--device", o.device, "cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--log", o.log, "Write one JSON object per step to this file");
  app.add_option("--trace", o.trace, "Write the median step as a trace for Perfetto to this file");
  app.add_option("--report", o.report, "Write an HTML report to this file");
  app.add_option("--timeout", o.timeout_s, "Seconds after which a rank that others wait for counts as hung")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_flag("--quiet", o.quiet, "Print nothing but errors");
}

void check_plan(const Plan& plan, RunOptions& o) {
  const auto refuse = [](std::string where, std::string found, std::string expected, std::string remedy) {
    throw UserError(Problem{std::move(where), std::move(found), std::move(expected), std::move(remedy)});
  };
  if (o.device == "cuda" || plan.cluster.device.kind == DeviceKind::gpu) {
    refuse(o.device == "cuda" ? "--device cuda" : o.plan + " at /cluster/device", "needs GPUs", "CPU ranks",
           "this build has no GPU support: plan for this-machine:N");
  }
  check_supported(plan.model, plan.layout);
  if (o.ranks != 0 && o.ranks != plan.layout.ranks()) {
    refuse("--ranks", std::to_string(o.ranks), fmt::format("{}, the plan's ranks", plan.layout.ranks()),
           fmt::format("plan again for {} devices", o.ranks));
  }
  if (plan.layout.ranks() > kMostThreads) {
    refuse(o.plan + " at /layout", fmt::format("{} ranks", plan.layout.ranks()),
           fmt::format("at most {} as threads of one machine", kMostThreads), "");
  }
  if (plan.model.vocab < kByteVocabulary) {
    refuse(o.plan + " at /model/vocab", std::to_string(plan.model.vocab),
           "at least 256, since text is read as bytes", "plan a model with a larger vocabulary");
  }
  check_output("--log", o.log);
  check_output("--trace", o.trace);
  check_output("--report", o.report);
  o.train.timeout = std::chrono::milliseconds(int64_t(o.timeout_s * 1000));
}

}  // namespace mpt::runtime
