// SPDX-License-Identifier: Apache-2.0
#pragma once

// A plan's training in words, and notes on its precision, its prices and options that change nothing.

#include <string>
#include <vector>

#include "core/layout.h"
#include "core/plan.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// "LoRA of rank 16 over nf4 weights, adamw8"; empty for full training by AdamW on sequences of one length.
std::string training_words(const Training& training);
/// "bf16, 16-bit gradients": the precision of products, and the precisions of gradients, of their sums over
/// ranks and of the optimizer's states, if these are not fp32.
std::string precision_words(const Layout& layout);
/// The cost of many gradient sums in 16 bits; empty if there is none.
std::vector<std::string> gradient_notes(const Plan& plan);

/// `notes`, and a sentence if the plan's attention has no fast
/// kernel in this project's runtime.
std::vector<std::string> with_kernel_note(std::vector<std::string> notes, const Plan& plan);

/// A sentence for each option that changes nothing for one given layout.
std::vector<std::string> idle_options(const PlanRequest& request, const SearchProblem& problem,
                                      const Layout& layout);
/// For a search that found `best`: options that no layout within the bounds uses, and ZeRO if `best` has
/// nothing to shard.
std::vector<std::string> idle_of_search(const PlanRequest& request, const SearchProblem& problem,
                                        const Layout& best);

}  // namespace mpt::planner
