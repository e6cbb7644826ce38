// SPDX-License-Identifier: Apache-2.0
#pragma once

// resolve(): from what was asked to a problem that can be searched. Every default, policy and check of
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

/// A problem, and all that it needs to stay alive.
struct Resolved {
  PlanRequest request;  // as it was asked
  std::optional<profiler::Profile> profile;
  SearchProblem problem;
  ClusterSpec used;  // the nodes in use; the cost source refers to it
  std::unique_ptr<CostSource> cost;
  std::unique_ptr<Pools> pools;
  std::vector<std::string> notes;  // what to know of prices and options, a sentence each
};

/// Reads the files that the request names and checks them against each other. Throws UserError, which names
/// fields as mpt-plan's options: "--global-batch".
std::unique_ptr<Resolved> resolve(const PlanRequest& request);
/// With other constants of the cost model than its own, for clusters of one kind of GPU.
std::unique_ptr<Resolved> resolve(const PlanRequest& request, const Calibration& calibration);

/// What a model's file holds beside the language model, a sentence each.
std::vector<std::string> model_notes(const models::ImportedModel& read, const std::string& name);

/// The request to estimate a plan's layout: model, cluster, batch and layout are the plan's own. The number
/// of GPUs and the memory limit are left to the cluster.
PlanRequest request_of(const Plan& plan);

/// The request with its model and cluster themselves in place of names of files: it means the same on
/// another machine.
PlanRequest portable(PlanRequest request, const SearchProblem& problem);

/// One thread per core, at most 8: more gain little, since each has its own prices and programs.
int default_threads();

/// What ran beside compute in a layout.
Overlaps overlaps_of(const Layout& layout);

}  // namespace mpt::planner
