// SPDX-License-Identifier: Apache-2.0
#pragma once

// train(): runs a plan and measures it.

#include <atomic>
#include <functional>
#include <optional>

#include "core/plan.h"
#include "reports/run_result.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/sockets/launch.h"
#include "runtime/data/dataset.h"
#include "runtime/device/backend.h"
#include "runtime/train/optimizer_options.h"

namespace mpt::runtime {

/// Called after each step, from one thread.
using OnStep = std::function<void(const reports::StepRecord&)>;

/// What a run reads besides its plan. Data must outlive the run.
struct RunInputs {
  const Dataset* data = nullptr;
  const Dataset* validation = nullptr;    // null: none
  const Checkpoint* resume = nullptr;     // goes on from here
  const TensorSource* weights = nullptr;  // starts with these; null: drawn from the seed
  std::optional<Launch> launch{};         // this process is one of several
  Backend* backend = nullptr;             // what ranks run on; null: cores of this machine
  // Called when a failed run does not end by itself; should end the process. Null: the run is waited for.
  std::function<void(const std::string& what)> end_process{};
};

/// Trains on threads of this process, one per rank, or on its share of them where there are several processes
/// (what was measured is then with the first one). Trains to step `options.steps`, or until `stop` becomes
/// true (checked between steps), and saves what there is if asked to. Throws RunError with rank, step and
/// instruction if a rank fails; every other rank has ended by then.
reports::RunResult train(const Plan& plan, const TrainOptions& options, const RunInputs& inputs,
                         const OnStep& on_step, const std::atomic<bool>& stop, DataType type);
/// In the precision of the plan.
reports::RunResult train(const Plan& plan, const TrainOptions& options, const RunInputs& inputs,
                         const OnStep& on_step, const std::atomic<bool>& stop);

}  // namespace mpt::runtime
