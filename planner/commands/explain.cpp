// SPDX-License-Identifier: Apache-2.0

// mpt-plan explain: a plan's reasons again, and why some other kind of layout is not the plan.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/error.h"
#include "planner/commands/commands.h"
#include "planner/explain/explain.h"
#include "planner/explain/why_not.h"

namespace mpt::planner {
namespace {

struct ExplainOptions {
  std::string plan, profile, why_not;
  CostOptions cost;
};

// "tp=8,pp=4": the words of the command line's layout options.
SpaceOptions parse_kind(const std::string& text) {
  SpaceOptions o;
  const std::pair<const char*, std::vector<std::string>*> keys[] = {
      {"tp", &o.tensor},           {"sp", &o.sequence_parallel},
      {"cp", &o.context},          {"cp-method", &o.context_methods},
      {"pp", &o.pipeline},         {"chunks", &o.chunks},
      {"schedule", &o.schedules},  {"dp", &o.data},
      {"zero", &o.zero},           {"offload", &o.offload},
      {"order", &o.orders},        {"ep", &o.expert},
      {"etp", &o.expert_tensor},   {"micro-batch", &o.micro_batch},
      {"recompute", &o.recomputes}};
  std::vector<std::string> known;
  for (const auto& [key, words] : keys) known.emplace_back(key);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const auto found = std::find(known.begin(), known.end(), key);
    if (equals == std::string::npos || equals + 1 == word.size() || found == known.end()) {
      throw UserError(Problem{
          "--why-not", fmt::format("\"{}\"{}", word.substr(0, 40), did_you_mean(key, known)),
          fmt::format("key=value with a key of {}", fmt::join(known, ", ")), "for example tp=8,pp=4"});
    }
    keys[size_t(found - known.begin())].second->push_back(word.substr(equals + 1));
  }
  return o;
}

// The problem that the plan answers, priced as it was.
PreparedSearch problem_of(const Plan& plan, const ExplainOptions& o) {
  PreparedSearch p;
  SearchProblem& problem = p.problem;
  problem.model = plan.model;
  problem.cluster = plan.cluster;
  problem.workload = plan.workload;
  problem.ranks = plan.layout.ranks();
  problem.memory_limit_bytes = plan.memory_limit_bytes;
  problem.precision = plan.layout.precision;
  problem.execution = plan.layout.execution;
  problem.features = features_of(plan.cluster, plan.layout.execution, problem.bounds);
  problem.overlaps = overlaps_of(plan.layout);
  problem.threads = default_threads();
  if (!o.profile.empty()) p.profile = profiler::load_profile(o.profile);
  if (plan.cost.source == "own kernels") {
    throw UserError(Problem{o.plan, "made with --kernels", "a plan whose prices the catalog has",
                            "ask mpt-plan estimate --kernels for the other layout"});
  }
  if (plan.cost.source == "profile" &&
      (!p.profile || profiler::profile_digest(*p.profile) != plan.cost.digest)) {
    throw UserError(
        Problem{"--profile", o.profile.empty() ? "missing" : "another profile",
                fmt::format("the profile that {} was made with (digest {})", o.plan, plan.cost.digest),
                "its timings are needed to price other layouts"});
  }
  return p;
}

Candidate chosen(const SearchProblem& problem, const Plan& plan) {
  Candidate c{estimate(problem, plan.layout), {}};
  c.evaluation = evaluate_regardless(problem, c.estimate);
  return c;
}

void run(const ExplainOptions& o) {
  const Plan plan = load_plan(o.plan);
  if (o.why_not.empty()) {
    fmt::print("{}{}", describe_plan(plan), describe_cost(o.cost, plan));
    return;
  }
  PreparedSearch p = problem_of(plan, o);
  const SearchProblem& problem = p.problem;
  p.cost = p.profile ? make_profile_cost(*p.profile, problem.model, problem.workload, problem.precision,
                                         problem.cluster)
                     : make_device_cost(problem.cluster, problem.execution);
  p.problem.cost = p.cost.get();
  p.pools = std::make_unique<Pools>(problem.cluster, problem.execution, problem.memory_limit_bytes);
  p.pools->set(p.problem);
  const Candidate best = chosen(problem, plan);
  p.problem.bounds = bounds_of(parse_kind(o.why_not));
  fmt::print("The plan is {}\nWhy not {}?\n{}", describe_prediction(plan), o.why_not, why_not(problem, best));
}

}  // namespace

std::function<int()> add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Why a plan is what it is, and why not another layout");
  auto o = std::make_shared<ExplainOptions>();
  command->add_option("plan", o->plan, "plan.json")->required();
  command->add_option("--why-not", o->why_not, "Another kind of layout, such as tp=8,pp=4 or schedule=gpipe");
  command->add_option("--profile", o->profile, "The profile that the plan was made with, if it was");
  declare_cost(*command, o->cost);
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
