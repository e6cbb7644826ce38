// SPDX-License-Identifier: Apache-2.0
#pragma once

// train(): runs a plan and measures it.

#include <atomic>
#include <functional>
#include <optional>

#include "core/plan.h"
#include "reports/run_result.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/sockets/launch.h"
#include "runtime/data/dataset.h"
#include "runtime/device/backend.h"
#include "runtime/train/optimizer_options.h"

namespace mpt::runtime {

/// Called after each step, from one thread.
using OnStep = std::function<void(const reports::StepRecord&)>;

/// The inputs of a run apart from its plan. Data must outlive the run.
struct RunInputs {
  const Dataset* data = nullptr;
  const Dataset* validation = nullptr;    // null: none
  const Checkpoint* resume = nullptr;     // continues from this
  const TensorSource* weights = nullptr;  // start weights; null: drawn from the seed
  std::optional<Launch> launch{};         // this process is one of several
  Backend* backend = nullptr;             // hardware of the ranks; null: cores of this machine
  // Called if a failed run does not end by itself; should end the process. Null: the run is awaited.
  std::function<void(const std::string& what)> end_process{};
  std::string transport = "auto";  // of CPU ranks in several processes: auto, mpi or sockets
  std::function<void(const std::string& line)> tell{};  // of the transport chosen; null: not
  OnSaved on_saved = [](const auto&, int64_t) {};
  // Adds the load of the GPU at this bus; each rank calls it once a step. Null: not read.
  std::function<void(const std::string& bus_id, reports::RankRecord&)> read_gpu{};
};

/// Trains on threads of this process, one per rank, or on this process's share of the ranks if there are
/// several processes (the measurements are then in the first one). Trains to step `options.steps`, or until
/// `stop` becomes true (checked between steps), and saves a checkpoint if requested. Throws RunError with
/// rank, step and instruction if a rank fails; all other ranks have ended by then. Without `type` the
/// precision is the plan's.
reports::RunResult train(const Plan& plan, const TrainOptions& options, const RunInputs& inputs,
                         const OnStep& on_step, const std::atomic<bool>& stop,
                         std::optional<DataType> type = {});

}  // namespace mpt::runtime
