// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's options: a request, and what to do with its answer.

#include <functional>
#include <string>
#include <vector>

#include "core/plan_request.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mpt::planner {

struct OutputOptions {
  std::string output, report, trace;
  bool json = false, verbose = false;
};

/// What a whole training costs.
struct CostOptions {
  std::string tokens;
  double price = 0.0, goodput = 1.0;
};

struct PlanOptions {
  PlanRequest request;
  OutputOptions out;
  CostOptions cost;
  std::string program = "mpt-plan", again;  // as they were typed: the program, and the whole command
  std::string from;                         // a plan to simulate again
  std::string request_file;                 // of --request
  std::vector<std::string> observed;        // runs, as --observed says them
  std::string measured;                     // a figure of a run, with its unit
  bool print_request = false, operators = false;
  bool check = false;   // a layout that does not fit, or cannot run, is a failure
  bool doctor = false;  // which switches take less memory, in place of a better layout
};

/// Options of the request: all but the bounds of the search; the bounds of a search, or of one layout; and
/// --request, whose file the other options change. `searches`: with what ranks several layouts.
void declare_problem(CLI::App& app, PlanRequest& request, bool searches = false);
void declare_bounds(CLI::App& app, PlanRequest& request);
void declare_layout(CLI::App& app, PlanRequest& request);
/// Sets the option `name` of a request, a bound of its search too, from one word of `--over`. Throws
/// UserError for a name that is none, and for values that the option refuses.
void set_option(PlanRequest& request, const std::string& name, const std::string& word);
/// Runs that were measured; read_runs() puts them into the request. `plan`: of which a log alone is.
void declare_observed(CLI::App& app, PlanOptions& options);
void read_runs(PlanOptions& options, const std::string& plan);
void declare_request_file(CLI::App& app, PlanOptions& options);
void declare_outputs(CLI::App& app, OutputOptions& options);
void declare_cost(CLI::App& app, CostOptions& options);
/// All of them, and what a search alone has.
void declare(CLI::App& app, PlanOptions& options);
/// A plan file, and the files that it was priced with.
void declare_known(CLI::App& app, std::string& plan, std::string& profile, std::string& kernels);
/// Throws UserError if an option that `excludes` names was given beside `option`.
void refuse_beside(const CLI::App& app, const std::string& option, const std::string& why,
                   const std::function<bool(const CLI::Option&)>& excludes);
/// A plan holds its model, cluster and layout: throws UserError if what would search for them stands beside
/// it.
void check_from(const CLI::App& app, const PlanOptions& options);

}  // namespace mpt::planner
