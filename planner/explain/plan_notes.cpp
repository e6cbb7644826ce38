// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_notes.h"

#include "base/quantity.h"
#include "core/bound_words.h"
#include "frameworks/framework.h"
#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "planner/cost/attention_cost.h"
#include "planner/explain/nothing_divides.h"
#include "planner/search/space.h"

namespace mpt::planner {
namespace {

template <class E>
std::string names_in_words(const std::vector<E>& values) {
  return joined(mapped<std::string>(values, enum_name<E>), ", ");
}

bool is_scalar(const models::LayerProgram& layer, const Plan& plan, const DeviceSpec& device) {
  return any_of(layer.operators, [&](const models::Operator& op) {
    return runtime_kernel(op.shape, plan.layout.execution, device) == RuntimeAttention::scalar;
  });
}

// The parallelism that the axis of a bound needs.
const std::map<std::string, const char*> kNeeds{
#include "generated/NeedsOfBounds.inc"
};

struct Idle {
  bool given, idle;
  const char *option, *why;
};

std::vector<std::string> told(const std::vector<Idle>& rows) {
  return mapped_if<std::string>(
      rows, [](const Idle& row) { return row.given && row.idle; },
      [](const Idle& row) { return fmt::format("{} changes nothing: {}.", row.option, row.why); });
}

// The layout with the largest degrees within the bounds; 2 for a degree without bounds.
Layout widest(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  const auto most = [&](const std::vector<int64_t>& bound) {
    return bound.empty() ? std::min<int64_t>(2, problem.ranks)
                         : *std::max_element(bound.begin(), bound.end());
  };
  Layout layout;
  layout.tensor = most(b.tensor);
  layout.context = most(b.context);
  layout.pipeline = most(b.pipeline);
  layout.data = most(b.data);
  layout.expert = problem.model.moe() != nullptr ? most(b.expert) : 1;
  return layout;
}

std::vector<std::string> idle(const PlanRequest& r, const SearchProblem& problem, const Layout& layout,
                              bool selective) {
  const bool no_experts = problem.model.moe() == nullptr;
  std::vector<std::string> notes =
      told({{r.expert_load > 0.0, no_experts, "--expert-load", "the model has no experts"},
            {r.dispatch.has_value(), no_experts || layout.expert == 1, "--dispatch",
             no_experts ? "the model has no experts" : "there is no expert parallelism"},
            {!r.recompute_modules.empty(), !selective, "--recompute-modules",
             "it says what --recompute selective runs again"},
            {!r.storage_bandwidth.empty(), r.or_nodes.empty(), "--storage-bandwidth",
             "it times the reading of --or-nodes"},
            {!r.memory_margin.empty(), !r.memory.empty(), "--memory-margin", "--memory sets the limit"}});
  for (const BoundWords& bound : bound_words(r.bounds)) {
    const auto needs = kNeeds.find(bound.name);
    const bool off = bound.values.front() == "off" || bound.values.front() == "1";
    if (needs != kNeeds.end() && !off && axis_word(bound.name, layout).empty())
      notes.push_back(fmt::format("{} changes nothing: there is no {}.", bound.option(), needs->second));
  }
  return notes;
}

}  // namespace

std::string training_words(const Training& t) {
  std::vector<std::string> parts;
  if (t.adapts())
    parts.push_back(fmt::format("LoRA of rank {} on {} over {} weights", t.adapter_rank,
                                names_in_words(t.adapter_targets), enum_name(t.frozen_format)));
  if (!t.frozen.empty()) parts.push_back("frozen: " + names_in_words(t.frozen));
  if (t.optimizer != OptimizerKind::adamw) parts.push_back("optimizer " + enum_name(t.optimizer));
  if (t.bf16_gradients) parts.emplace_back("gradients in bf16");
  if (t.deterministic) parts.emplace_back("deterministic kernels");
  if (t.packed_length > 0.0)
    parts.push_back(fmt::format("packed sequences, attention as of {} tokens each",
                                format_count(int64_t(t.packed_length))));
  if (!t.offloaded.empty()) parts.push_back("activations in CPU memory: " + names_in_words(t.offloaded));
  return joined(parts, "; ");
}

std::string precision_words(const Layout& l) {
  std::string words = enum_name(l.precision);
  if (l.precision == Precision::fp32 || l.training->adapts()) return words;
  const StateBytes& states = l.execution->states;
  const int64_t kept = gradient_element_bytes(l);
  const int64_t summed = l.training->bf16_gradients ? 2 : states.reduced_bytes > 0 ? states.reduced_bytes : 4;
  if (kept != 4 || summed != 4) words += kept == 4 ? ", fp32 gradients" : ", 16-bit gradients";
  if (summed != kept) words += summed == 4 ? " summed in fp32" : " summed in 16 bits";
  if (states.optimizer_bytes == 4) words += ", weights and moments in bf16 alone";
  return words;
}

std::vector<std::string> gradient_notes(const Plan& plan) {
  const Layout& l = plan.layout;
  const int64_t count = micro_batches(l, plan.workload);
  // DeepSpeed's sums of 512 equal micro-batches had 0.72 of the gradient's norm; sums of 8 had all of it
  // (run: deepspeed-bf16-sums-default-zero1).
  constexpr int64_t kManySums = 64;
  if (frameworks::find_framework(l.execution->framework) == nullptr || l.precision == Precision::fp32 ||
      l.training->adapts() || gradient_element_bytes(l) != 2 || count < kManySums)
    return {};
  return {
      fmt::format("gradients of {} micro-batches are summed in 16 bits, which loses part of them: "
                  "--gradients fp32, or a larger --micro-batch",
                  count)};
}

std::vector<std::string> with_kernel_note(std::vector<std::string> notes, const Plan& plan) {
  const models::LayerKinds kinds(plan.model);
  int64_t layers = 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto layer = models::layer_program(plan.model, kinds.kind(k), plan.layout, plan.workload.sequence);
    bool scalar = is_scalar(layer, plan, plan.cluster.device);
    for (const DeviceGroup& group : plan.cluster.groups) scalar |= is_scalar(layer, plan, group.device);
    if (scalar) layers += kinds.all()[k];
  }
  if (layers == 0) return notes;
  notes.push_back(fmt::format(
      "mpt-run has no fast GPU kernel for the attention of {} of {} layers. Windows, soft caps, other "
      "factors on scores, values of another size than keys, and fp32 run on its scalar kernel, far below the "
      "rate of tensor cores; the step time counts that. Other frameworks have fast kernels (--framework)",
      layers, plan.model.layers.count()));
  return notes;
}

std::vector<std::string> idle_options(const PlanRequest& request, const SearchProblem& problem,
                                      const Layout& layout) {
  return idle(request, problem, layout, layout.recompute == Recompute::selective);
}

std::vector<std::string> idle_of_search(const PlanRequest& request, const SearchProblem& problem,
                                        const Layout& best) {
  std::vector<std::string> notes =
      idle(request, problem, widest(problem), allowed(problem.bounds.recomputes, Recompute::selective));
  const std::vector<int64_t>& zero = problem.bounds.zero;
  if (zero.empty() || zero.front() == 0 || best.replicas() > 1 || problem.ranks == 1) return notes;
  auto note = fmt::format("--zero {} changes nothing here: one replica shares nothing out.", zero.front());
  SearchProblem shared = problem;
  shared.bounds.data = divisors(problem.ranks);
  shared.bounds.data.erase(shared.bounds.data.begin());
  if (!has_layouts(shared)) note += fmt::format(" With more of them: {}.", nothing_divides(shared).found);
  notes.push_back(std::move(note));
  return notes;
}

}  // namespace mpt::planner
