// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reasons for people: why the first layout won, where the second loses, what ruled the others out.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/search/search.h"

namespace mpt::planner {

/// Where the step's time goes on the ranks' average: they add up to the step.
struct Breakdown {
  double compute_s = 0.0;      // forward and backward without collectives, and the optimizer
  double collectives_s = 0.0;  // tensor-, context-, expert-parallel and ZeRO collectives inside them
  InsideCompute inside;        // the same by kind
  double idle_s = 0.0;         // compute lane waits: bubble and exposed transfers
  double transfer_s = 0.0;     // of the idle time: what the step loses if transfers between stages take time
  double step_end_s = 0.0;     // of the idle time: gradient reduction and norm behind the last backward
};
Breakdown breakdown(const SearchProblem& problem, const Candidate& candidate);
/// Of the kinds that the layout has.
std::vector<ExposedCommunication> exposed_communication(const Layout& layout, const Breakdown& breakdown);

/// "The runner-up ..." in seconds and parts: what `other` loses against `best`.
std::string describe_loss(const SearchProblem& problem, const Candidate& best, const Candidate& other);

std::vector<std::string> reasons(const SearchResult& result, const SearchProblem& problem);
std::vector<std::string> rejections(const SearchResult& result, const SearchProblem& problem);

/// The complete plan of the search's first layout.
Plan make_plan(const SearchResult& result, const SearchProblem& problem);

/// The error where nothing fits: what the smallest layout would need. Never returns.
[[noreturn]] void throw_nothing_fits(const SearchResult& result, const SearchProblem& problem);

/// One line of a search's certificate.
std::string describe_certificate(const SearchCertificate& certificate);

/// A line of what an offloaded optimizer takes of the hosts' memory; empty without one.
std::string describe_host_memory(const Plan& plan);

/// What mpt-plan prints: the best layouts, reasons, rejections, certificate and source of the costs.
std::string describe_plan(const Plan& plan);

/// One line: layout, step time, bubble, tokens/s and peak memory of the plan's prediction.
std::string describe_prediction(const Plan& plan);

}  // namespace mpt::planner
