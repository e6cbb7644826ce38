// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "models/footprint.h"

namespace mpt::planner {
namespace {

// The operators of a layer in the sources that list them one by one (Aceso, EuroSys 2024;
// runtime/megatron/model/flex_gpt.py of microsoft/SuperScaler): the second, seventh, tenth and twelfth are
// its products, the third to sixth its attention core: product, softmax, dropout, product.
constexpr int64_t kOperatorsOfLayer = 13, kCore = 4;

// A pipeline's operators, without the embedding's one and the head's.
class LayerOperators {
 public:
  explicit LayerOperators(const RunRecord& run) : run_(run) {
    int64_t all = 0;
    for (const RunStage& stage : run.stages) all += stage.operators;
    of_layer_ = std::max<int64_t>(1, all / run.model.layers);
    const bool ends = all > of_layer_ * run.model.layers;
    below_.push_back(0);
    for (const RunStage& stage : run.stages) below_.push_back(below_.back() + stage.operators);
    for (size_t s = 1; s < below_.size(); ++s)
      below_[s] = std::min(below_[s] - int64_t(ends), of_layer_ * run.model.layers);
    below_.back() = of_layer_ * run.model.layers;
  }

  /// In stage `s`: sources cut between operators, so that it may hold part of a layer's weights.
  double layers(size_t s) const { return layers_below(s + 1) - layers_below(s); }
  double core_operators(size_t s) const { return core_below(s + 1) - core_below(s); }

 private:
  double layers_below(size_t s) const {
    const int64_t rest = below_[s] % of_layer_;
    const double begun = of_layer_ == kOperatorsOfLayer ? share_of_weights(run_.model, rest)
                                                        : double(rest) / double(of_layer_);
    return double(below_[s] / of_layer_) + begun;
  }
  double core_below(size_t s) const {
    if (of_layer_ != kOperatorsOfLayer) return double(below_[s]) * double(kCore) / double(kOperatorsOfLayer);
    const int64_t rest = below_[s] % of_layer_;
    return double(below_[s] / of_layer_ * kCore + std::clamp<int64_t>(rest - 2, 0, kCore));
  }
  // What the first `operators` of a layer hold of its weights.
  static double share_of_weights(const ModelSpec& m, int64_t operators) {
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

  const RunRecord& run_;
  int64_t of_layer_ = 1;
  std::vector<int64_t> below_;  // by stage
};

// How much of a stage recomputes nothing, its attention cores, or whole layers, by Recompute.
struct Shares {
  std::array<double, 3> of_time{}, of_memory{};
};

// Dropout of the core and the product behind it run again first: its mask and output are three of the five
// bytes that a core keeps of each score (configurations in Dazz993/Mist, benchmark/superscaler/results-ref).
constexpr double kFirst = 0.5, kKeptByFirst = 0.6;

// What whole layers' recompute would free, of what they hold without their cores, where a share of the
// operators behind the core runs again, for 1, 2 and 4 tensor ranks. Not in proportion: a range that runs
// again keeps all its inputs, among them whole (not split) outputs of the products before dropout, and the
// largest, what the MLP's second product multiplies, goes last (runtime/megatron/model/flex_model.py of
// microsoft/SuperScaler). Means over 213 stages of those configurations, of what their ranges
// keep; where that is more than without them (four ranks), nothing is freed.
struct Freed {
  double share;
  std::array<double, 3> of_memory;
};
constexpr Freed kFreed[] = {{0.0, {0.0, 0.0, 0.0}},    {0.15, {0.15, 0.13, 0.0}},  {0.35, {0.42, 0.25, 0.0}},
                            {0.55, {0.46, 0.25, 0.0}}, {0.75, {0.68, 0.40, 0.20}}, {0.9, {0.88, 0.65, 0.50}},
                            {1.0, {1.0, 1.0, 1.0}}};

double freed_memory(double share, int64_t tensor) {
  const size_t column = tensor >= 4 ? 2 : tensor >= 2 ? 1 : 0;
  for (size_t i = 1; i < std::size(kFreed); ++i) {
    const Freed &low = kFreed[i - 1], &high = kFreed[i];
    if (share > high.share) continue;
    const double x = (share - low.share) / (high.share - low.share);
    return low.of_memory[column] + x * (high.of_memory[column] - low.of_memory[column]);
  }
  return 1.0;
}

// So that as many operators run again as the source says.
Shares shares_of(const RunRecord& run, const RunStage& stage, double core_operators, const Layout& layout) {
  Shares shares;
  if (run.recompute.value_or("") != "per") {
    shares.of_time[size_t(layout.recompute)] = shares.of_memory[size_t(layout.recompute)] = 1.0;
    return shares;
  }
  const auto again = double(stage.recomputed_operators);
  const double rest = std::max(1.0, double(stage.operators) - core_operators);
  const double whole = std::clamp((again - core_operators) / rest, 0.0, 1.0);
  const double core = core_operators > 0.0 ? std::min(1.0, again / core_operators) : 1.0;
  const auto with_core = [](double share, double layers) {
    std::array<double, 3> by_recompute{};
    by_recompute[size_t(Recompute::full)] = layers;
    by_recompute[size_t(Recompute::selective)] = std::min(share, 1.0 - layers);
    by_recompute[size_t(Recompute::none)] = std::max(0.0, 1.0 - layers - share);
    return by_recompute;
  };
  shares.of_time = with_core(core, whole);
  shares.of_memory =
      with_core(core < kFirst ? kKeptByFirst * core / kFirst
                              : kKeptByFirst + (1.0 - kKeptByFirst) * (core - kFirst) / (1.0 - kFirst),
                freed_memory(whole, stage.tensor));
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
  const LayerOperators operators(run);
  std::vector<StageFootprint> footprints;
  StepCost cost;
  const int64_t layers = problem.model.layers, most = layers - (layout.stages() - 1);
  for (size_t s = 0; s < run.stages.size(); ++s) {
    const Layout wide = as_wide_as(run.stages[s], layout);
    const Shares shares = shares_of(run, run.stages[s], operators.core_operators(s), layout);
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
    for (const LayerShare& part : whole_layers(operators.layers(s), most)) {
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
