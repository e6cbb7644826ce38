// SPDX-License-Identifier: Apache-2.0
#pragma once

// The step time by class of work: prices of one class are off together, those of different classes each in
// its own way.

#include <array>

#include "base/fields.h"
#include "planner/search/search.h"

namespace mpt::planner {

enum class WorkClass : uint8_t {
  products,            // dense matrix products
  attention,           // attention cores
  elementwise,         // norms, activations, embeddings, losses: bound by memory
  grouped_products,    // experts' products
  tensor_collectives,  // tensor and context parallelism, as far as compute does not hide them
  expert_exchange,     // all-to-all of expert parallelism, likewise
  data_parallel,       // gradients and sharded weights, likewise
  transfers,           // between stages, on the critical path
  optimizer,
  host,  // that launches too slowly, and what a piece takes beside its operators
};
inline constexpr size_t kWorkClasses = 10;

/// Seconds by WorkClass.
using WorkSeconds = std::array<double, kWorkClasses>;

/// How the step time divides into classes along its critical path: they add up to the step. To first order a
/// class that is slower by a share of its time lengthens the step by that share of its seconds here.
WorkSeconds critical_work(const SearchProblem& problem, const Candidate& candidate);

/// The part of one instruction's duration that each class has; they add up to 1.
class InstructionWork {
 public:
  InstructionWork(const SearchProblem& problem, const Candidate& candidate);

  WorkSeconds shares(InstructionId id) const;

 private:
  // Compute by class of a stage's forward, backward, input and weight gradient.
  using PassWork = std::array<WorkSeconds, 4>;

  const Candidate& candidate_;
  std::vector<PassWork> stages_;  // by stage
};

}  // namespace mpt::planner
