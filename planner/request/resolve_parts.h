// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of resolve() that are about who runs the plan, and about what is trained.

#include <memory>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// Whether mpt-run is to run it: it alone runs on CPUs.
bool is_for_this_runtime(const ClusterSpec& cluster, const Execution& execution);

/// The framework that is to run plans of `problem`; null where its abilities are not known. On CPU ranks it
/// is without what gains nothing there, unless the bounds ask for it.
std::shared_ptr<const frameworks::Framework> bounding_framework(const SearchProblem& problem);

/// Throws UserError if the framework has not the model's features, its precision or the overlaps, which
/// `overlaps` names.
void check_framework(const SearchProblem& problem, const std::string& overlaps);

/// What the framework of the request does on this cluster. Throws UserError.
Execution execution_of(const PlanRequest& request, const ClusterSpec& cluster,
                       std::vector<std::string>& notes);

/// What selective recompute runs again. Throws UserError for modules that the framework does not have.
SelectiveRecompute selective_of(const PlanRequest& request, const ModelSpec& model,
                                const Execution& execution);

/// As asked, or what the cluster's devices usually train in. Throws UserError for one that they lack.
Precision precision_of(const PlanRequest& request, const ClusterSpec& cluster);

/// What runs beside compute. Throws UserError for an unknown word.
Overlaps overlaps_of(const PlanRequest& request, const ClusterSpec& cluster, const Execution& execution);

/// What is trained and how: as the request's options say, else as its layout does. Throws UserError for
/// options that do not go together. `tokens`: of a sequence, which may be packed of several.
Training training_of(const PlanRequest& request, int64_t tokens);

/// Gradients as the request wants them. The width that the framework has by itself changes nothing; another
/// one that it does not train with is refused, or planned for with --beyond-framework. Reads the problem's
/// model, precision, execution and training.
void set_gradients(const PlanRequest& request, SearchProblem& problem, std::vector<std::string>& notes);

/// Notes on frozen weights and moments that stay wider than the request says.
void note_formats(const SearchProblem& problem, std::vector<std::string>& notes);

/// What deterministic kernels change in the problem's execution. A note says what of them is priced.
void set_deterministic(SearchProblem& problem, std::vector<std::string>& notes);

}  // namespace mpt::planner
