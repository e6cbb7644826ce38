// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's options, and the search problem that they describe.

#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/search/arrangement.h"
#include "planner/search/problem.h"
#include "profiler/hardware/profile.h"

namespace CLI {
class App;
}

namespace mpt::planner {

/// Degrees and switches of layouts, as words.
struct SpaceOptions {
  std::vector<std::string> tensor, context, pipeline, data, expert, expert_tensor, chunks, micro_batch, zero;
  std::vector<std::string> schedules, recomputes, context_methods, orders, sequence_parallel, offload;
};
/// Throws UserError that names the option.
SpaceBounds bounds_of(const SpaceOptions& o);

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
  std::string model, profile, kernels, memory, memory_margin, precision, framework, from;
  std::string cluster;
  std::string program = "mpt-plan", again;  // as they were typed: the program, and the whole command
  int64_t global_batch = 0, sequence = 0, ranks = 0, top = 5;
  int threads = 0;                             // 0: one per core, at most 8
  double expert_load = 0.0;                    // 0: as the plan or the framework has it
  std::string dispatch;                        // the same: empty
  std::vector<std::string> execution;          // name=value, of Execution's fields
  std::vector<std::string> recompute_modules;  // the same: none
  double time_limit_s = 120.0;
  bool pareto = false, operators = false, streams = false, beyond_framework = false;
  std::vector<std::string> overlaps;
  std::string measured;  // a figure of a run, with its unit
  SpaceOptions space;
  OutputOptions out;
  CostOptions cost;
};

/// Options of what is trained, where, and within which limits; of layouts; and of results.
void declare_problem(CLI::App& app, PlanOptions& options);
void declare_space(CLI::App& app, SpaceOptions& options, bool several);
void declare_outputs(CLI::App& app, OutputOptions& options);
void declare_cost(CLI::App& app, CostOptions& options);
/// All of them, and what a search alone has.
void declare(CLI::App& app, PlanOptions& options);
/// A plan holds its model, cluster and layout: throws UserError if what would search for them stands beside
/// it.
void check_from(const CLI::App& app, const PlanOptions& options);

/// What --overlap may name, for people.
std::string overlap_names();

/// One per core, at most 8: more gain little, since each has its own prices and programs.
int default_threads();

/// What ran beside compute in a layout.
Overlaps overlaps_of(const Layout& layout);

/// Everything that a search needs to stay alive.
struct PreparedSearch {
  std::optional<profiler::Profile> profile;
  SearchProblem problem;
  ClusterSpec used;  // the nodes in use; the cost source refers to it
  std::unique_ptr<CostSource> cost;
  std::unique_ptr<Pools> pools;
  // Where a GPU is priced by its peak rates, for want of measured kernels; prepare() has told it on stderr.
  std::optional<std::string> price_note;
};
/// Reads the files that the options name and checks them against each other. What they leave out of model,
/// cluster, batch, sequence, precision and overlaps comes from `base` where there is one. Throws UserError.
std::unique_ptr<PreparedSearch> prepare(const PlanOptions& options, const Plan* base = nullptr);

}  // namespace mpt::planner
