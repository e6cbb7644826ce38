// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's options: a request, and the outputs of its answer.

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

/// Cost of a whole training.
struct CostOptions {
  std::string tokens;
  double price = 0.0, goodput = 1.0;
};

struct PlanOptions {
  PlanRequest request;
  OutputOptions out;
  CostOptions cost;
  std::string program = "mpt-plan", again;  // as typed: the program, and the whole command
  std::string from;                         // a plan to simulate again
  std::string request_file;                 // of --request
  std::vector<std::string> observed;        // runs, in the words of --observed
  std::string measured;                     // a figure of a run, with its unit
  bool print_request = false, operators = false;
  bool check = false;   // a layout that does not fit, or cannot run, is a failure
  bool doctor = false;  // list memory switches instead of a better layout
};

/// Options of the request without bounds; bounds of a search; bounds of one layout. The other options change
/// the values of the file of --request. `searches`: with options for ranking layouts.
void declare_problem(CLI::App& app, PlanRequest& request, bool searches = false);
void declare_bounds(CLI::App& app, PlanRequest& request);
void declare_layout(CLI::App& app, PlanRequest& request);
/// Measured runs; read_runs() puts them into the request. `plan`: the plan that a bare log belongs to.
void declare_observed(CLI::App& app, PlanOptions& options);
void read_runs(PlanOptions& options, const std::string& plan);
void declare_request_file(CLI::App& app, PlanOptions& options);
void declare_outputs(CLI::App& app, OutputOptions& options);
void declare_cost(CLI::App& app, CostOptions& options);
/// All of these options, and those that only a search has.
void declare(CLI::App& app, PlanOptions& options);
/// A plan file, and the files that it was priced with.
void declare_known(CLI::App& app, std::string& plan, std::string& profile, std::string& kernels);
/// Throws UserError if an option that `excludes` names was given together with `option`.
void refuse_beside(const CLI::App& app, const std::string& option, const std::string& why,
                   const std::function<bool(const CLI::Option&)>& excludes);
/// A plan holds its model, cluster and layout. Throws UserError if options for a search of them were given,
/// too.
void check_from(const CLI::App& app, const PlanOptions& options);

}  // namespace mpt::planner
