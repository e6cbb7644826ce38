// SPDX-License-Identifier: Apache-2.0
#pragma once

// What work a step is made of: by classes on the critical path, and operators with their speed and
// collectives.

#include <array>
#include <string>
#include <vector>

#include "base/fields.h"
#include "planner/cost/operator_times.h"
#include "planner/search/problem.h"
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

/// Those that the model has, in its order, on the cluster's first kind of device.
std::vector<PieceTimes> operator_times(const SearchProblem& problem, const Layout& layout);

/// A table of each piece's operators. Where the layout recomputes only some layers: of one that does.
std::string describe_operators(const SearchProblem& problem, const Layout& layout);

}  // namespace mpt::planner
