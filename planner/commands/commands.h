// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's commands. Each declares its options on its own subcommand and runs when that is chosen.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/outputs.h"
#include "core/plan.h"
#include "planner/command_line.h"
#include "planner/explain/screen.h"
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
std::function<int()> add_cluster(CLI::App& app);
std::function<int()> add_model(CLI::App& app);
/// mpt-plan --pareto.
void plan_front(const PlanOptions& options);

/// search() with a line in a terminal that tells how far it is; ends at a signal.
std::unique_ptr<ArrangedSearch> watched_search(const SearchProblem& problem, size_t keep,
                                               const std::string& of = "");
/// The plan of its best layout, with what other arrangements of a mixed cluster reach.
Plan make_plan_of(const ArrangedSearch& search);
/// The best plan, or the error that says why there is none. Where its memory is a risk, its ranking holds the
/// fastest that is safe, too.
Plan search_plan(const PlanOptions& options, const PreparedSearch& prepared, size_t keep);
/// What would fit where nothing does, searched for within some seconds; empty where nothing was found.
std::string remedy_of_nothing_fits(const PlanOptions& options, const SearchResult& result,
                                   const SearchProblem& problem);
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
/// The files that the options may name, for check_outputs(); names of the catalog are no files.
std::vector<NamedFile> input_files(const PlanOptions& o);
/// Throws UserError if an output cannot be written, or is the same file as an input or another output.
/// Called before the work, not after it.
void check_outputs(const OutputOptions& o, const std::vector<NamedFile>& inputs);
/// The command line as it was given, for a shell, without the options in `without`. `options`: of the command
/// that ran; `words`: the program and its command.
std::string command_again(const CLI::App& options, const std::string& words,
                          const std::vector<std::string>& without = {});
/// What to type next with a plan that a search found: keep it, export it or run it, ask, draw it.
std::vector<NextCommand> next_commands(const PlanOptions& options, const Plan& plan);
/// Lines that are printed for each file that was asked for.
size_t files_of(const OutputOptions& o);
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
