// SPDX-License-Identifier: Apache-2.0
#pragma once

// The work of a step: by classes on the critical path, and by operators
// with their speed and collectives.

#include <array>
#include <string>
#include <vector>

#include "planner/cost/operator_times.h"
#include "planner/search/problem.h"
#include "planner/search/search_result.h"

namespace mpt::planner {

enum class WorkClass : uint8_t {
  products,            // dense matrix products
  attention,           // attention cores
  elementwise,         // norms, activations, embeddings, losses: bound by memory
  grouped_products,    // experts' products
  tensor_collectives,  // tensor and context parallelism; the part that compute does not hide
  expert_exchange,     // all-to-all of expert parallelism; the same part
  data_parallel,       // gradients and sharded weights; the same part
  transfers,           // between stages, on the critical path
  optimizer,
  host,  // slow launches, and time of a piece in addition to its operators
};
inline constexpr size_t kWorkClasses = 10;

/// Seconds by WorkClass.
using WorkSeconds = std::array<double, kWorkClasses>;

/// The step time by classes along its critical path; they add up to the step. To first order, if a class is
/// slower by a share of its time, the step is longer by that share of its seconds here.
WorkSeconds critical_work(const SearchProblem& problem, const Candidate& candidate);

/// The share of one instruction's duration in each class; they add up to 1.
class InstructionWork {
 public:
  InstructionWork(const SearchProblem& problem, const Candidate& candidate);

  WorkSeconds shares(InstructionId id) const;

 private:
  // Compute by class, of a stage's forward, backward, input and weight gradient.
  using PassWork = std::array<WorkSeconds, 4>;

  const Candidate& candidate_;
  std::vector<PassWork> stages_;  // by stage
};

/// The pieces of the model, in its order, on the cluster's first kind of device.
std::vector<PieceTimes> operator_times(const SearchProblem& problem, const Layout& layout);

/// A table of each piece's operators. If the layout recomputes only some layers: of a layer that recomputes.
std::string describe_operators(const SearchProblem& problem, const Layout& layout);

/// Bytes of a pipeline rank's collectives and messages in a step, by CommunicationKind, as they are priced.
/// A collective counts by its larger side: the result of a gather, the input of a reduce-scatter. A message
/// counts where it is sent.
using RankTraffic = std::array<int64_t, size_t(CommunicationKind::gradients) + 1>;
std::vector<RankTraffic> traffic_of_ranks(const Plan& plan);
std::string describe_traffic(const Plan& plan);

}  // namespace mpt::planner
