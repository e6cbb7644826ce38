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
/// "bf16, 16-bit gradients": the precision of products, and that of gradients, of their sums over ranks and
/// of the optimizer's states where these are not in fp32.
std::string precision_words(const Layout& layout);
/// What sums of gradients in 16 bits cost, and with `offers` what they would save; nothing where the
/// framework leaves no choice.
std::vector<std::string> gradient_notes(const Plan& plan, bool offers);

/// `notes` and, where the plan's attention has no fast kernel in this project's runtime, a sentence that says
/// so.
std::vector<std::string> with_kernel_note(std::vector<std::string> notes, const Plan& plan);

/// A sentence for each, of one layout that was asked for.
std::vector<std::string> idle_options(const PlanRequest& request, const SearchProblem& problem,
                                      const Layout& layout);
/// Of a search that found `best`: those that no layout within the bounds has a use for, and ZeRO where `best`
/// has nothing to share out.
std::vector<std::string> idle_of_search(const PlanRequest& request, const SearchProblem& problem,
                                        const Layout& best);

}  // namespace mpt::planner
