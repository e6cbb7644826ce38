// SPDX-License-Identifier: Apache-2.0
#include "planner/request/resolve_parts.h"

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"

namespace mpt::planner {

bool is_for_this_runtime(const ClusterSpec& cluster, const Execution& execution) {
  return cluster.device.kind == DeviceKind::cpu || execution.framework == Execution{}.framework;
}

std::shared_ptr<const frameworks::Framework> bounding_framework(const SearchProblem& problem) {
  const bool own = is_for_this_runtime(problem.cluster, problem.execution);
  const auto* known = frameworks::find_framework(own ? Execution{}.framework : problem.execution.framework);
  if (known == nullptr) return nullptr;
  auto framework = std::make_shared<frameworks::Framework>(*known);
  frameworks::Abilities& a = framework->abilities;
  const SearchBounds& asked = problem.bounds;
  // Combinations that change the objective are allowed only if the bounds ask for them.
  using frameworks::Trait;
  std::erase_if(a.combinations, [&](const frameworks::CombinationRule& rule) {
    const bool by_context = contains(rule.with, Trait::ring) || contains(rule.with, Trait::all_to_all);
    const bool by_size = contains(rule.with, Trait::larger_micro_batch);
    return rule.outcome == frameworks::Outcome::other_objective &&
           ((by_context && !asked.context.empty()) || (by_size && !asked.micro_batch.empty()));
  });
  if (problem.cluster.device.kind != DeviceKind::cpu) return framework;
  // State that is offloaded from a CPU rank stays in the same machine's memory.
  if (asked.offload.empty()) a.zero_with_offload.clear();
  // Profiles have no timings of split sequences. They are searched only if the bounds ask for them.
  if (asked.sequence_parallel.empty() && asked.expert.empty())
    a.sequence_parallel = frameworks::SequenceParallelRule::none;
  if (asked.context.empty()) a.context_methods.clear();
  return framework;
}

namespace {

void check_always_overlaps(const SearchProblem& problem, const frameworks::Framework& framework,
                           const std::string& overlaps) {
  using frameworks::AlwaysBeside;
  const std::map<AlwaysBeside, std::pair<bool, const char*>> asked{
      {AlwaysBeside::gradient_reduce, {problem.overlaps.gradient_reduce, "gradient-reduce"}},
      {AlwaysBeside::parameter_gather, {problem.overlaps.parameter_gather, "parameter-gather"}},
      {AlwaysBeside::transfer, {problem.overlaps.transfer, "transfer"}}};
  std::vector<std::string> always, missing;
  for (const AlwaysBeside what : framework.abilities.always_overlaps) {
    always.emplace_back(asked.at(what).second);
    if (!asked.at(what).first) missing.push_back(always.back());
  }
  if (missing.empty()) return;
  refuse_input(overlaps, fmt::format("lacks {}", joined(missing, ", ")),
               fmt::format("{}: {} cannot switch them off", joined(always, ", "), framework.title),
               fmt::format("--overlap {}", joined(always, ",")));
}

[[noreturn]] void refuse_training(const SearchProblem& problem, const std::string& reason) {
  const auto others = frameworks::frameworks_that_train(problem.model, problem.training, problem.precision);
  refuse_input("--framework", reason,
               others.empty() ? "a way to train that one of the frameworks has for this model"
                              : fmt::format("one that does: {}", joined(others, ", ")),
               others.empty() ? "train in another way, or search with --beyond-framework"
                              : "name another --framework, or search with --beyond-framework");
}

}  // namespace

void check_framework(const SearchProblem& problem, const std::string& overlaps) {
  if (!problem.framework) return;
  const frameworks::Framework& framework = *problem.framework;
  if (const auto r = frameworks::supports_model(framework, problem.model, problem.precision)) {
    const auto others = frameworks::frameworks_that_train(problem.model, problem.training, problem.precision);
    refuse_input(
        r->constraint == "precision" ? "--precision" : "--model", r->reason,
        "a model and a precision that the framework trains",
        others.empty()
            ? "search with --beyond-framework"
            : fmt::format(
                  "name a framework that trains it, --framework {}, or search with --beyond-framework",
                  joined(others, " or ")));
  }
  if (const auto r = frameworks::supports_training(framework, problem.training))
    refuse_training(problem, r->reason);
  check_always_overlaps(problem, framework, overlaps);
  const auto refuse = [&](const char* what, const char* waits_for) {
    refuse_input(overlaps, fmt::format("{} with {}", what, framework.title),
                 fmt::format("none of it: its ranks wait for {}", waits_for),
                 "name another --framework, or other overlaps in --overlap");
  };
  if (problem.overlaps.tensor && !framework.abilities.overlap_tensor)
    refuse("tensor", "what tensor parallelism sends");
  if (problem.overlaps.exchange && !framework.abilities.overlap_exchange) refuse("exchange", "their tokens");
}

}  // namespace mpt::planner
