// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/predict_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "frameworks/framework.h"
#include "planner/explain/streams.h"
#include "planner/memory/memory_model.h"
#include "planner/search/evaluate.h"
#include "planner/validate/run_layout.h"
#include "planner/validate/run_memory.h"
#include "planner/validate/run_stages.h"

namespace mpt::planner {
namespace {

// Megatron-LM interleaves only where the micro-batches divide by the pipeline; others run in order.
void fix_schedule(const SearchProblem& problem, Layout& l) {
  const int64_t count = micro_batches(l, problem.workload);
  if (l.schedule == "interleaved" && count % l.pipeline != 0) {
    l.schedule = "1f1b";
    l.chunks = 1;
    l.layers_per_stage = even_stages(problem.model.layers, l.pipeline);
    if (!l.recomputed_layers.empty())
      l.recomputed_layers.assign(size_t(l.pipeline), l.recomputed_layers.front());
  }
}

// Where recompute was not published: as few layers of each stage as fit, as Megatron-LM's block method counts
// them (recompute_num_layers in megatron/core/transformer/transformer_config.py). Others choose tensors in
// place of layers, for about the same time in the same memory.
void recompute_no_more_than_needed(const SearchProblem& problem, Layout& layout) {
  const models::StagePieces pieces(problem.model, layout, problem.workload.sequence);
  const Schedule schedule = named_schedule(layout, micro_batches(layout, problem.workload));
  const auto with = [&](int64_t layers) {
    Layout some = layout;
    for (const int64_t n : layout.layers_per_stage) some.recomputed_layers.push_back(std::min(n, layers));
    return some;
  };
  const auto fits = [&](const Layout& some) {
    const auto footprints = models::stage_footprints(pieces, problem.model, some);
    return !check_memory(rank_memory(schedule, footprints), limits_of_ranks(problem, some));
  };
  const int64_t all = *std::max_element(layout.layers_per_stage.begin(), layout.layers_per_stage.end());
  int64_t low = 1, high = all;
  if (!fits(layout)) return;
  if (fits(with(0))) {
    layout.recompute = Recompute::none;
    return;
  }
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(with(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (high < all) layout = with(high);
}

// What runs otherwise than the model says.
void fit_model_to_run(const RunRecord& run, const Layout& published, ModelSpec& model) {
  // Fewer keys and values than tensor ranks are held several times.
  if (published.tensor > model.kv_heads && published.tensor % model.kv_heads == 0 &&
      model.heads % published.tensor == 0)
    model.kv_heads = published.tensor;
  // Aceso's head has a copy of the embedding, on one stage too (runtime/megatron/model/flex_ops.py of
  // microsoft/SuperScaler, OpPostProcess).
  if (mentions(run.framework, "Aceso") && published.pipeline == 1) model.tied_embeddings = false;
}

// A batch that its ranks do not divide: the nearest that they do. Returns the published one as a multiple of
// it.
double fit_batch_to_ranks(const RunRecord& run, const Layout& published, int64_t& global_batch,
                          std::vector<std::string>& filled) {
  const int64_t unit = published.data * published.micro_batch;
  if (!run.micro_batch || run.global_batch % unit == 0) return 1.0;
  global_batch = std::max<int64_t>(1, (run.global_batch + unit / 2) / unit) * unit;
  filled.push_back(fmt::format("layout.global_batch = {}", global_batch));
  return double(run.global_batch) / double(global_batch);
}

Candidate evaluated(const RunRecord& run, const SearchProblem& problem, const Layout& layout, bool streams) {
  const bool unlike_stages = has_unlike_stages(run, layout);
  Candidate candidate{
      unlike_stages ? estimate_stage_by_stage(problem, run, layout) : estimate(problem, layout), {}};
  offload_modules(run, problem, candidate.estimate);
  candidate.evaluation = evaluate_regardless(problem, candidate.estimate);
  if (streams && !unlike_stages)
    candidate.evaluation.step_time_s =
        step_time_s(simulate_streams(problem, layout, candidate.evaluation.program).timeline);
  return candidate;
}

// The fastest that fits; where none does, the leanest.
bool is_better(bool fits, double step_s, double peak, const RunPrediction& best) {
  if (fits) return !best.fits || step_s < best.step_s;
  return !best.fits && peak < best.peak_gib;
}

// The values that stand in for fields that were not published.
void name_chosen(const std::vector<std::string>& open, const Layout& layout,
                 std::vector<std::string>& filled) {
  for (const std::string& field : open) {
    filled.push_back(fmt::format("layout.{} = {}", field,
                                 field == "vpp"           ? std::to_string(layout.chunks)
                                 : field == "micro_batch" ? std::to_string(layout.micro_batch)
                                 : field == "zero_stage"  ? std::to_string(layout.zero)
                                                          : enum_name(layout.recompute)));
  }
}

}  // namespace

RunPrediction predict_run(const RunRecord& run, const Calibration& calibration, bool streams) {
  SearchProblem problem;
  std::vector<std::string> filled;
  problem.model = run.model;
  validate_model(problem.model, "model");
  problem.cluster = cluster_of(run, filled);
  problem.workload = {run.global_batch, run.sequence};
  problem.ranks = run.gpus;
  RunPrediction best;
  best.filled = run.filled;
  best.filled.insert(best.filled.end(), filled.begin(), filled.end());
  std::vector<std::string> open;
  Layout published = published_layout(run, best.filled);
  best.execution = published.execution;
  frameworks::set_device(published.execution, problem.cluster.device);
  fit_model_to_run(run, published, problem.model);
  const double batches = fit_batch_to_ranks(run, published, problem.workload.global_batch, best.filled);
  problem.precision = published.precision;
  std::unique_ptr<CostSource> cost = make_kernel_cost(problem.cluster, published.execution, calibration);
  if (!cost) cost = make_roofline_cost(problem.cluster);
  problem.cost = cost.get();
  problem.execution = published.execution;
  problem.memory_limit_bytes = best.limit_bytes = tensor_bytes(problem.cluster.device, published.execution);
  std::string reason;
  bool any = false;
  std::optional<Candidate> chosen;
  int64_t in_host = 0;  // layers
  for (Layout layout : possible_layouts(run, published, open)) {
    if (auto rejection = check_layout(problem.model, layout, problem.workload)) {
      reason = rejection->reason;
      continue;
    }
    fix_schedule(problem, layout);
    if ((!run.recompute || run.recomputes_some_layers) && layout.recompute == Recompute::full)
      recompute_no_more_than_needed(problem, layout);
    Candidate candidate = evaluated(run, problem, layout, streams);
    const int64_t offloaded = offload_activations(run, problem, candidate.estimate, candidate.evaluation);
    const Evaluation& evaluation = candidate.evaluation;
    const bool fits = !evaluation.rejection;
    const auto peak = double(evaluation.peak_bytes);
    best.possible.push_back({layout, evaluation.step_time_s, evaluation.peak_bytes, fits});
    if (any && best.fits && layout.zero > best.layout.zero) continue;
    if (any && !is_better(fits, evaluation.step_time_s, peak, best)) continue;
    any = true;
    best.layout = layout;
    best.step_s = evaluation.step_time_s;
    best.peak_gib = peak;
    best.fits = fits;
    best.memory = evaluation.memory;
    in_host = offloaded;
    chosen = std::move(candidate);
  }
  if (!any) throw UserError(Problem{"layout", reason, "a layout that divides the model and the batch", ""});
  best.breakdown = breakdown(problem, *chosen);
  const std::vector<RankMemory> simulated = best.memory;
  fill_pending_work(run, chosen->estimate, micro_batches(best.layout, problem.workload), best.memory);
  best.pending_work = best.memory != simulated;
  name_chosen(open, best.layout, best.filled);
  if (in_host > 0)
    best.filled.push_back(fmt::format("activations of {} layers in the host's memory", in_host));
  best.step_s *= batches;
  best.model = problem.model;
  best.cluster = problem.cluster;
  best.workload = problem.workload;
  best.batches = batches;
  best.in_host = in_host;
  best.unlike_stages = has_unlike_stages(run, best.layout);
  best.peak_gib = peak_gib(run, best.layout.execution, problem.cluster.device, best.memory);
  return best;
}

}  // namespace mpt::planner
