// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's commands. Each declares its options on its own subcommand and runs when that is chosen.

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/plan.h"
#include "planner/command_line.h"
#include "planner/search/search.h"

namespace CLI {
class App;
}

namespace mpt::planner {

/// Adds the command to `app` and returns what runs it, which returns the exit code.
std::function<int()> add_estimate(CLI::App& app);
std::function<int()> add_diagnose(CLI::App& app);
std::function<int()> add_import(CLI::App& app);
std::function<int()> add_explain(CLI::App& app);
std::function<int()> add_export(CLI::App& app);
std::function<int()> add_compare(CLI::App& app);
std::function<int()> add_sweep(CLI::App& app);
std::function<int()> add_validate(CLI::App& app);
/// mpt-plan --pareto.
void plan_front(const PlanOptions& options);

/// search() with a line in a terminal that tells how far it is; ends at a signal.
std::unique_ptr<ArrangedSearch> watched_search(const SearchProblem& problem, size_t keep,
                                               const std::string& of = "");
/// The plan of its best layout, with what other arrangements of a mixed cluster reach.
Plan make_plan_of(const ArrangedSearch& search);
/// The best plan, or the error that says why there is none.
Plan search_plan(const PreparedSearch& prepared, size_t keep);
/// The best plan, or why there is none, for a cell of a table.
struct PlanOrReason {
  std::optional<Plan> plan;
  std::string reason;
};
PlanOrReason plan_or_reason(SearchProblem problem);
/// Prices the layout of `given`, or without it the one that the options name, prints it, what would be
/// better, and writes what the options ask for.
void score(const PlanOptions& options, const Plan* given);
/// --measured of estimate and import.
void declare_measured(CLI::App& command, PlanOptions& options);
/// What a step of this layout would take if CUDA graphs launched its kernels; empty where that is not worth
/// saying. `given`: as for prepare().
std::string describe_host(const PlanOptions& options, const Plan* given, const Layout& layout,
                          double step_time_s);
/// The options that limited a plan's search. Throws UserError at /restrictions of `file`.
SpaceOptions space_of(const std::map<std::string, std::string>& restrictions, const std::string& file);
/// A plan of one given layout, whether it fits or not.
Plan plan_of(const SearchProblem& problem, const Candidate& candidate);
/// Throws UserError where a result could not be written: before the work, not after it.
void check_outputs(const OutputOptions& o);
/// Writes what --output, --report and --trace ask for, and prints `text`. `problem`: that the plan answers;
/// with it the trace shows what is inside instructions.
void write_and_print(const OutputOptions& o, const Plan& plan, const std::string& text,
                     const CostOptions& cost = {}, const SearchProblem* problem = nullptr);
/// The same, with the plan in place of `text` where --json asks for it.
void write_outputs(const OutputOptions& o, const Plan& plan, const std::string& text,
                   const CostOptions& cost = {}, const SearchProblem* problem = nullptr);
/// "15T tokens take 84.1 days, ..." where --tokens is given; else empty.
std::string describe_cost(const CostOptions& o, const Plan& plan);
/// What such days leave out, or count in by --goodput.
std::string describe_goodput(const CostOptions& o);

}  // namespace mpt::planner
