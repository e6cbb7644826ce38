// SPDX-License-Identifier: Apache-2.0
#pragma once

// resolve(): turns a request into a problem that can be searched. Every default, policy and check of
// compatibility is here; nothing is printed.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/plan_request.h"
#include "planner/search/arrangement.h"
#include "planner/search/problem.h"
#include "profiler/hardware/profile.h"

namespace mpt::models {
struct ImportedModel;
}

namespace mpt::planner {

struct Calibration;

/// A problem, and all objects that it refers to.
struct Resolved {
  PlanRequest request;  // the original request
  std::optional<profiler::Profile> profile;
  SearchProblem problem;
  ClusterSpec used;  // the nodes in use; the cost source refers to it
  std::unique_ptr<CostSource> cost;
  std::unique_ptr<Pools> pools;
  std::vector<std::string> notes;  // notes on prices and options, a sentence each
};

/// Part of the note on sequences that are longer than the model's positions.
inline constexpr const char* kBeyondPositions = "Beyond those it was made for it needs";

/// Reads the files that the request names and checks that they agree. Throws UserError, which names fields as
/// mpt-plan's options: "--global-batch".
std::unique_ptr<Resolved> resolve(const PlanRequest& request);
/// With other constants of the cost model, for clusters of one kind of GPU.
std::unique_ptr<Resolved> resolve(const PlanRequest& request, const Calibration& calibration);

/// Sets the option `name` of a request, or a bound of its search, from its words as typed: "8k" for seq,
/// "4M-tokens" for global-batch, "1,2" for a list. `one`: a list has one value. Throws UserError for an unknown
/// name, and for values that the option refuses.
void set_option(PlanRequest& request, const std::string& name, const std::string& word, bool one = false);

/// The request to estimate a plan's layout: model, cluster, batch and layout are the plan's. The number of
/// GPUs and the memory limit follow from the cluster.
PlanRequest request_of(const Plan& plan);

/// The request with the contents of model and cluster instead of file names, so that it means the same on
/// another machine.
PlanRequest portable(PlanRequest request, const SearchProblem& problem);

/// One thread per core, at most 8. More gain little, since each has separate prices and programs.
int default_threads();

/// The overlaps of a layout.
Overlaps overlaps_of(const Layout& layout);

}  // namespace mpt::planner
