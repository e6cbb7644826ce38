// SPDX-License-Identifier: Apache-2.0
#pragma once

// train(): runs a plan on threads of this process, one per rank, and measures it.

#include <atomic>
#include <functional>

#include "core/plan.h"
#include "reports/run_result.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/text_corpus.h"
#include "runtime/train/optimizer_options.h"

namespace mpt::runtime {

/// Called after each step, from one thread.
using OnStep = std::function<void(const reports::StepRecord&)>;

/// Trains `options.steps` steps, or until `stop` becomes true (checked between steps). Throws RunError with
/// rank, step and instruction if a rank fails; every other rank has ended by then.
reports::RunResult train(const Plan& plan, const TrainOptions& options, const TextCorpus& corpus,
                         const OnStep& on_step, const std::atomic<bool>& stop,
                         DataType type = DataType::float32);

}  // namespace mpt::runtime
