// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "models/footprint.h"

namespace mpt::planner {
namespace {

// Of a layer's thirteen operators in the sources that list them (Aceso, EuroSys 2024), the attention core's
// four: both products, softmax and dropout. They hold most, so they recompute first, and of them dropout and
// the product behind it: mask and output are three of the five bytes that the core keeps of each score
// (configurations in Dazz993/Mist, benchmark/superscaler/results-ref).
constexpr double kCoreShare = 4.0 / 13.0, kFirstShare = 2.0 / 13.0, kKeptByFirst = 3.0 / 5.0;

// How much of a stage recomputes nothing, its attention cores, or whole layers, by Recompute.
struct Shares {
  std::array<double, 3> of_time{}, of_memory{};
};

// So that as many operators run again as the source says.
Shares shares_of(const RunRecord& run, const RunStage& stage, const Layout& layout) {
  Shares shares;
  if (run.recompute.value_or("") != "per") {
    shares.of_time[size_t(layout.recompute)] = shares.of_memory[size_t(layout.recompute)] = 1.0;
    return shares;
  }
  const double again = double(stage.recomputed_operators) / double(stage.operators);
  const double whole = std::max(0.0, (again - kCoreShare) / (1.0 - kCoreShare));
  const auto with_core = [&](double core) {
    std::array<double, 3> by_recompute{};
    by_recompute[size_t(Recompute::full)] = whole;
    by_recompute[size_t(Recompute::selective)] = std::min(core, 1.0 - whole);
    by_recompute[size_t(Recompute::none)] = 1.0 - whole - std::min(core, 1.0 - whole);
    return by_recompute;
  };
  shares.of_time = with_core(again / kCoreShare);
  shares.of_memory =
      with_core(again < kFirstShare ? kKeptByFirst * again / kFirstShare
                                    : kKeptByFirst + (1.0 - kKeptByFirst) * (again - kFirstShare) /
                                                         (kCoreShare - kFirstShare));
  return shares;
}

Layout as_wide_as(const RunStage& stage, const Layout& layout) {
  Layout wide = layout;
  wide.tensor = stage.tensor;
  wide.data = stage.data;
  const int64_t sequences = layout.micro_batch * layout.data;
  if (sequences % wide.data != 0)
    throw UserError(Problem{"layout/stages", fmt::format("{} data-parallel ranks", wide.data),
                            fmt::format("a divisor of the {} sequences of a micro-batch", sequences), ""});
  wide.micro_batch = sequences / wide.data;
  wide.recomputed_layers.clear();
  return wide;
}

constexpr int64_t kOperatorsOfLayer = 13;

// What the first operators of a layer hold of its weights: of Aceso's thirteen the second, seventh, tenth and
// twelfth are its products (runtime/megatron/model/flex_gpt.py of microsoft/SuperScaler).
double share_of_weights(const ModelSpec& m, int64_t operators) {
  const std::pair<int64_t, int64_t> products[] = {{2, (m.heads + 2 * m.kv_heads) * m.head_dim},
                                                  {7, m.heads * m.head_dim},
                                                  {10, m.ffn_hidden},
                                                  {12, m.ffn_hidden}};
  int64_t held = 0, all = 0;
  for (const auto& [place, width] : products) {
    all += width;
    if (operators >= place) held += width;
  }
  return double(held) / double(all);
}

// How many layers lie below stage `s`: sources cut between operators, not layers. What their operators are
// more than equal layers is the embedding's one and the head's.
double layers_below(const RunRecord& run, size_t s) {
  int64_t all = 0, below = 0;
  for (size_t i = 0; i < run.stages.size(); ++i) {
    all += run.stages[i].operators;
    if (i < s) below += run.stages[i].operators;
  }
  const int64_t of_layer = std::max<int64_t>(1, all / run.model.layers);
  if (s == 0) return 0.0;
  if (s == run.stages.size()) return double(run.model.layers);
  if (all > of_layer * run.model.layers) --below;
  const int64_t rest = below % of_layer;
  const double begun =
      of_layer == kOperatorsOfLayer ? share_of_weights(run.model, rest) : double(rest) / double(of_layer);
  return std::min(double(below / of_layer) + begun, double(run.model.layers));
}

// Stage `s` holds `layers`, and the others the rest.
Layout with_layers(const Layout& layout, size_t s, int64_t layers, int64_t all) {
  Layout changed = layout;
  if (layout.stages() == 1) return changed;
  changed.layers_per_stage = even_stages(all - layers, layout.stages() - 1);
  changed.layers_per_stage.insert(changed.layers_per_stage.begin() + ptrdiff_t(s), layers);
  return changed;
}

struct LayerShare {
  int64_t layers = 0;
  double share = 0.0;
};

// Stages of whole layers that make up one of `layers`, which hold and cost what is proportional to layers.
std::array<LayerShare, 2> whole_layers(double layers, int64_t most) {
  const int64_t low = std::clamp<int64_t>(int64_t(layers), 1, std::max<int64_t>(1, most - 1));
  const double high = most > 1 ? layers - double(low) : 0.0;
  return {{{low, 1.0 - high}, {low + 1, high}}};
}

constexpr int64_t StageFootprint::*kHeld[] = {
    &StageFootprint::parameter_bytes, &StageFootprint::gradient_bytes, &StageFootprint::optimizer_bytes,
    &StageFootprint::saved_bytes, &StageFootprint::saved_for_weight_bytes};

// Adds `share` of what `other` holds, and makes room for what it needs beside.
void add(StageFootprint& sum, const StageFootprint& other, double share) {
  const StageFootprint before = sum;
  sum = other;
  for (int64_t StageFootprint::*held : kHeld) sum.*held = before.*held + int64_t(share * double(other.*held));
  for (int64_t StageFootprint::*room :
       {&StageFootprint::forward_workspace_bytes, &StageFootprint::backward_workspace_bytes,
        &StageFootprint::input_gradient_workspace_bytes, &StageFootprint::weight_gradient_workspace_bytes})
    sum.*room = std::max(before.*room, other.*room);
}

}  // namespace

bool has_unlike_stages(const RunRecord& run, const Layout& layout) {
  if (int64_t(run.stages.size()) != layout.stages()) return false;
  const RunStage& first = run.stages.front();
  return run.recompute.value_or("") == "per" ||
         std::any_of(run.stages.begin(), run.stages.end(),
                     [&](const RunStage& s) { return s.tensor != first.tensor || s.data != first.data; });
}

Estimate estimate_stage_by_stage(const SearchProblem& problem, const RunRecord& run, const Layout& layout) {
  std::vector<Estimate> known;
  const auto estimate_of = [&](const Layout& wanted) -> const Estimate& {
    for (const Estimate& e : known) {
      if (e.layout == wanted) return e;
    }
    if (const auto rejection = check_layout(problem.model, wanted, problem.workload))
      throw UserError(Problem{"layout/stages", rejection->reason, "stages that divide the model", ""});
    return known.emplace_back(estimate(problem, wanted));
  };
  std::vector<StageFootprint> footprints;
  StepCost cost;
  const int64_t layers = problem.model.layers, most = layers - (layout.stages() - 1);
  for (size_t s = 0; s < run.stages.size(); ++s) {
    const Layout wide = as_wide_as(run.stages[s], layout);
    const Shares shares = shares_of(run, run.stages[s], layout);
    StageFootprint footprint;
    StageCost stage;
    InsideStage inside{};
    const auto add_share = [&](const Estimate& e, double share, double of_memory) {
      add(footprint, e.footprints[s], of_memory);
      for (size_t i = 0; i < stage.seconds.size(); ++i)
        stage.seconds[i] += share * e.cost.stages[s].seconds[i];
      for (size_t i = 0; i < inside.size(); ++i)
        inside[i].add(e.cost.inside[e.cost.inside_of_stage[s]][i], share);
      cost.reduce_norm_s = std::max(cost.reduce_norm_s, e.cost.reduce_norm_s);
    };
    for (const LayerShare& part : whole_layers(layers_below(run, s + 1) - layers_below(run, s), most)) {
      Layout whole = with_layers(wide, s, part.layers, layers);
      for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
        whole.recompute = recompute;
        const double share = part.share * shares.of_time[size_t(recompute)];
        const double of_memory = part.share * shares.of_memory[size_t(recompute)];
        if (share != 0.0 || of_memory != 0.0) add_share(estimate_of(whole), share, of_memory);
      }
    }
    // A stage with next to no layer is extrapolated from one and two.
    for (int64_t StageFootprint::*held : kHeld) footprint.*held = std::max<int64_t>(0, footprint.*held);
    for (double& seconds : stage.seconds) seconds = std::max(0.0, seconds);
    footprints.push_back(footprint);
    cost.stages.push_back(stage);
    cost.inside.push_back(inside);
    cost.inside_of_stage.push_back(uint16_t(s));
  }
  return estimate(problem, layout, std::move(footprints), std::move(cost));
}

}  // namespace mpt::planner
