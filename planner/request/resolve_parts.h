// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of resolve() about the framework that runs the plan, and about training.

#include <memory>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// Whether mpt-run runs it; only mpt-run runs on CPUs.
bool is_for_this_runtime(const ClusterSpec& cluster, const Execution& execution);

/// The framework that runs plans of `problem`; null if its abilities are not known. On CPU ranks it lacks
/// abilities that gain nothing there, unless the bounds ask for them.
std::shared_ptr<const frameworks::Framework> bounding_framework(const SearchProblem& problem);

/// Throws UserError if the framework lacks the model's features, its
/// precision or the overlaps in `overlaps`.
void check_framework(const SearchProblem& problem, const std::string& overlaps);

/// The execution of the request's framework on this cluster. Throws UserError.
Execution execution_of(const PlanRequest& request, const ModelSpec& model, const ClusterSpec& cluster,
                       std::vector<std::string>& notes);

/// The modules that selective recompute runs again. Throws UserError for modules that the framework lacks.
SelectiveRecompute selective_of(const PlanRequest& request, const ModelSpec& model, const Execution& run);

/// The requested precision, or the devices' usual one. Throws UserError for one that they lack.
Precision precision_of(const PlanRequest& request, const ClusterSpec& cluster);

/// The overlaps of communication with compute. Throws UserError for an unknown word.
Overlaps overlaps_of(const PlanRequest& request, const ClusterSpec& cluster, const Execution& execution);

/// The training settings: from the request's options, else from its layout. Throws UserError for options that
/// exclude each other. `tokens`: of a sequence, which may be packed from several.
Training training_of(const PlanRequest& request, int64_t tokens);

/// Sets the precision of gradients as requested. The framework's default width changes nothing. A width that
/// it does not train with is refused, or planned for with --beyond-framework. Reads the problem's model,
/// precision, execution and training.
void set_gradients(const PlanRequest& request, SearchProblem& problem, std::vector<std::string>& notes);
/// In 16 bits where a framework casts them for weights of 4 or 8 bits.
void narrow_adapters(SearchProblem& problem);

/// Notes on frozen weights and moments that stay wider than requested.
void note_formats(const SearchProblem& problem, std::vector<std::string>& notes);

/// Applies deterministic kernels to the problem's execution. A note names the part that is priced.
void set_deterministic(SearchProblem& problem, std::vector<std::string>& notes);

}  // namespace mpt::planner
