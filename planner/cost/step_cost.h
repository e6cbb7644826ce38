// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepCost: the duration of every kind of instruction on every stage of a layout, from a cost source.

#include <array>
#include <vector>

#include "core/plan.h"
#include "core/stage_footprint.h"
#include "planner/cost/cost_source.h"

namespace mpt::planner {

struct StageCost {
  std::array<double, 10> seconds{};     // by InstructionKind
  std::array<double, 10> collective{};  // of that: tensor-parallel collectives inside
  double of(InstructionKind kind) const { return seconds[size_t(kind)]; }
};

struct StepCost {
  std::vector<StageCost> stages;
  double reduce_norm_s = 0.0;

  double of(const Instruction& instruction) const {
    return instruction.kind == InstructionKind::reduce_norm
               ? reduce_norm_s
               : stages[size_t(instruction.stage)].of(instruction.kind);
  }
  std::vector<double> durations(const StepProgram& program) const;
  std::vector<InstructionDuration> table() const;
};

StepCost step_cost(const ModelSpec& model, const Layout& layout,
                   const std::vector<StageFootprint>& footprints, const Workload& workload,
                   const CostSource& source);

}  // namespace mpt::planner
