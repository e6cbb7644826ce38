// SPDX-License-Identifier: Apache-2.0

// A plan's program with sleeping in place of computing, and what may be wrong with a machine: for tests of
// mpt-plan diagnose.

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json.h"
#include "runtime/monitor/step_monitor.h"
#include "tests/support/emulation.h"

namespace mpt {
namespace {

struct Options {
  std::string plan, log, slow_rank, slow_link;
  int64_t steps = 3;
  double time_scale = 1.0, slow_data_s = 0.0;
};

runtime::EmulatedFaults faults_of(const Options& o) {
  runtime::EmulatedFaults faults;
  faults.data_wait_s = o.slow_data_s;
  const auto factor = [](const std::string& text) { return std::stod(text.substr(text.find(':') + 1)); };
  if (!o.slow_rank.empty()) {
    faults.slow_rank = std::stoi(o.slow_rank);
    faults.slow_rank_factor = factor(o.slow_rank);
  }
  if (!o.slow_link.empty()) {
    faults.slow_link = enum_value<CommunicationKind>(o.slow_link.substr(0, o.slow_link.find(':'))).value();
    faults.slow_link_factor = factor(o.slow_link);
  }
  return faults;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app{"Waits for a plan's times in place of computing.", "emulate_plan"};
  app.add_option("plan", o.plan)->required();
  app.add_option("--steps", o.steps);
  app.add_option("--time-scale", o.time_scale, "10: wait ten times as long, for more exact times");
  app.add_option("--slow-rank", o.slow_rank, "RANK:FACTOR, such as 3:1.5: this rank computes longer");
  app.add_option("--slow-link", o.slow_link, "KIND:FACTOR, such as transfer:4: this traffic takes longer");
  app.add_option("--slow-data", o.slow_data_s, "Seconds that each step waits for its data");
  app.add_option("--log", o.log);
  CLI11_PARSE(app, argc, argv);
  const Plan plan = load_plan(o.plan);
  const std::atomic<bool> stop{false};
  runtime::StepMonitor monitor(plan, {.steps = o.steps, .log = o.log, .quiet = true});
  runtime::emulate(
      plan, o.steps, o.time_scale, std::chrono::minutes(5), faults_of(o),
      [&](const reports::StepRecord& record) { monitor.on_step(record); }, stop);
  return kExitOk;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("emulate_plan", [&] { return mpt::run(argc, argv); });
}
