// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "runtime/comm/sockets/launch.h"
#include "runtime/monitor/machine_load.h"
#include "runtime/train/optimizer_options.h"

namespace CLI {
class App;
}

namespace mpt::runtime {

struct RunOptions {
  std::string plan;
  std::vector<std::string> data;
  std::string data_format = "auto";
  double validation_share = 0.0;
  std::optional<double> minimum_learning_rate;  // nothing: TrainOptions' own, if it is not above --lr
  std::string resume, init;                     // resume: "auto" or a path
  int64_t max_restarts = 0;
  std::optional<Launch> launch;  // one of several processes
  int master_port = 0;           // 0: from the environment
  std::string transport = "auto";
  std::string log, tensorboard, metrics, trace, report, device = "auto";
  int64_t ranks = 0;  // 0: the plan's
  double timeout_s = 300.0;
  bool quiet = false, watch = false;
  bool reads_gpus = false;        // the first process shows or writes their load
  std::string sample, tokenizer;  // a prompt, and a tokenizer.json
  MachineLoad load;               // since the start of the program
  TrainOptions train;
};

void declare(CLI::App& app, RunOptions& options);

/// Checks the program's requirements for this plan: supported features, ranks, data, outputs. Throws
/// UserError. Replaces an automatic device by the chosen one.
void check_plan(const Plan& plan, RunOptions& options);

}  // namespace mpt::runtime
