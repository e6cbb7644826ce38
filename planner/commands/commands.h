// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's commands. Each declares its options on a subcommand and runs if the user chooses it.

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/plan.h"
#include "planner/api.h"
#include "planner/commands/command_line.h"
#include "planner/explain/screen.h"

namespace CLI {
class App;
}

namespace mpt::planner {

/// `run` as a command that returns kExitOk.
template <class Run>
std::function<int()> done_by(Run run) {
  return [run] {
    run();
    return kExitOk;
  };
}

/// Adds the command to `app`. Returns the function that runs it and gives the exit code.
std::function<int()> add_estimate(CLI::App& app, bool doctor = false);
using AddedCommand = std::function<int()>(CLI::App& app);
AddedCommand add_check, add_cluster, add_compare, add_diagnose, add_explain, add_export, add_import,
    add_model, add_page, add_recommend, add_tune;
/// The plan once more for two CPU processes in fp32, with four layers of the model's kinds that are a few
/// hundred wide. Throws UserError if the framework does not train them so.
Plan smoke_plan(const Plan& plan);
/// The command that takes two steps of it, with the files of this export target in `folder`. Throws UserError
/// if they do not start on CPU processes.
std::string smoke_command(const std::string& target, const Plan& plan, const std::string& folder);
/// Throws UserError unless there is one price for all clusters, or one for each of them.
void check_prices(const std::vector<double>& prices, size_t clusters);
/// The text with each `name` replaced by `value`.
std::string with_value(std::string text, std::string_view name, const std::string& value);
/// mpt-plan --pareto.
void plan_front(const PlanOptions& options);

/// A line in a terminal with the progress of a search, rewritten a few times a second; nothing in a pipe.
Watch progress_line();
/// Prints notes on stderr, each of them once in this program.
void print_notes(const std::vector<std::string>& notes);
/// resolve() with its notes printed.
std::unique_ptr<Resolved> resolve_and_tell(const PlanRequest& request);
/// Recommended plans of several requests; a signal ends them.
std::vector<PlanOrReason> compare_watched(const std::vector<PlanRequest>& requests);
/// Prices the layout that options.request names and prints it with a better one. Writes the files that the
/// options ask for. `given`: the layout is from the user's file, not from the options.
/// Returns the exit code: that of a failed check if options.check asks for one.
int score(PlanOptions options, bool given);
/// --requests of estimate, and its related options.
struct LinesOptions {
  std::string file, calibration, without_source;
};
void declare_lines(CLI::App& command, LinesOptions& options);
/// Throws UserError for options that exclude each other.
void check_lines(const CLI::App& command, const LinesOptions& options);
/// Prints an answer for each line of the file. Returns the exit code: that of wrong input if a line has no
/// answer.
int answer_lines(const LinesOptions& options);
/// --check and --measured of estimate and import.
void declare_judged(CLI::App& command, PlanOptions& options);
/// The predicted step time of this layout if CUDA graphs launched its kernels; empty if the gain is too
/// small.
std::string describe_host(const PlanRequest& request, const Plan& plan);
/// The command line as given, for a shell, without the options in `without`. `options`: of the command that
/// ran; `words`: the program and its command.
std::string command_again(const CLI::App& options, const std::string& words,
                          const std::vector<std::string>& without = {});
/// The plan file that printed commands write to: never the file that holds the request.
std::string plan_file(const PlanOptions& options);
/// Next commands for a plan that a search found: keep it, export it or run it, ask, draw it.
std::vector<NextCommand> next_commands(const PlanOptions& options, const Plan& plan);
/// Number of lines that are printed for output files.
size_t files_of(const OutputOptions& o);
/// Writes the files of --output, --report and --trace. `problem`: the problem that the plan answers; with it
/// the report has a layout that needs clearly less memory.
void write_files(const OutputOptions& o, const Plan& plan, const CostOptions& cost = {},
                 const SearchProblem* problem = nullptr);
/// Prints `text` and the names of the files that were written.
void print_answer(const OutputOptions& o, const std::string& text);
/// "15T tokens take 84.1 days, ..." if --tokens is given; else empty.
std::string describe_cost(const CostOptions& o, const Plan& plan);
/// A sentence if a price or goodput was given without a training; else empty.
std::string idle_cost(const CostOptions& o, bool has_price);
/// The losses that such days leave out, or include by --goodput.
std::string describe_goodput(const CostOptions& o);

// A signal ends a search with the best plan found so far, since a search checks stop_requested(). Reading and
// writing files does not check it, so there a signal must end the program at once.
/// Catches signals during its lifetime (base/interruption.h). Its end restores the earlier handlers, unless a
/// signal came. A nested object changes nothing. For the main thread.
class Stoppable {
 public:
  Stoppable();
  ~Stoppable();
  Stoppable& operator=(Stoppable&&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

  static inline bool catching_ = false;  // whether any object does
  bool catches_ = false;
  struct sigaction before_[3] = {};
};

}  // namespace mpt::planner
