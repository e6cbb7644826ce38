// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_cost.h"

#include <algorithm>
#include <map>

#include "core/rank_grid.h"

namespace mpt::planner {
namespace {

using profiler::Phase;
using profiler::Piece;

// Collectives of a piece over its tensor-parallel group; `backward` includes those of a recomputed forward.
struct PieceCollectives {
  double forward = 0.0, backward = 0.0;
};

PieceCollectives collectives_of(const models::LayerProgram& program, const Layout& layout,
                                const CostSource& source, bool recomputed) {
  PieceCollectives sum;
  const auto seconds = [&](const models::Collective& c) {
    return source.collective_s(c.kind, c.bytes, layout.tensor, 1);
  };
  for (const models::Operator& op : program.operators) {
    for (const models::Collective& c : op.forward_collectives) {
      sum.forward += seconds(c);
      // The last projection is not computed again.
      if (recomputed && op.name != "mlp.down") sum.backward += seconds(c);
    }
    for (const models::Collective& c : op.backward_collectives) sum.backward += seconds(c);
  }
  return sum;
}

class StageSum {
 public:
  StageSum(const ModelSpec& model, const Layout& layout, int64_t sequence, const CostSource& source)
      : model_(model), layout_(layout), sequence_(sequence), source_(source) {}

  void add(Piece piece, int64_t layer, StageCost& cost) {
    const auto& [compute, collectives] = of(piece, layer);
    for (const auto& [kind, phase] : kPhases) {
      const double communication = kind == InstructionKind::forward           ? collectives.forward
                                   : kind == InstructionKind::weight_gradient ? 0.0
                                                                              : collectives.backward;
      cost.seconds[size_t(kind)] += compute[size_t(phase)] + communication;
      cost.collective[size_t(kind)] += communication;
    }
  }

 private:
  using Priced = std::pair<std::array<double, 4>, PieceCollectives>;
  static constexpr std::pair<InstructionKind, Phase> kPhases[] = {
      {InstructionKind::forward, Phase::forward},
      {InstructionKind::backward, Phase::backward},
      {InstructionKind::input_gradient, Phase::input_gradient},
      {InstructionKind::weight_gradient, Phase::weight_gradient}};

  // Layers of one kind cost the same: each is priced once.
  const Priced& of(Piece piece, int64_t layer) {
    const bool windowed = model_.sliding_window && layer % model_.sliding_window_interval == 0;
    const int variant =
        piece != Piece::layer ? 0 : 1 + (layer_has_experts(model_, layer) ? 1 : 0) + (windowed ? 2 : 0);
    const auto [at, fresh] = priced_.try_emplace({piece, variant});
    if (!fresh) return at->second;
    for (const auto& [kind, phase] : kPhases)
      at->second.first[size_t(phase)] = source_.piece_s(piece, phase, layout_, layer);
    const models::LayerProgram program =
        piece == Piece::embedding ? models::embedding_program(model_, layout_, sequence_)
        : piece == Piece::head    ? models::head_program(model_, layout_, sequence_)
                                  : models::layer_program(model_, layer, layout_, sequence_);
    const bool recomputed = piece == Piece::layer && layout_.recompute == Recompute::full;
    if (layout_.tensor > 1) at->second.second = collectives_of(program, layout_, source_, recomputed);
    return at->second;
  }

  const ModelSpec& model_;
  const Layout& layout_;
  int64_t sequence_;
  const CostSource& source_;
  std::map<std::pair<Piece, int>, Priced> priced_;
};

}  // namespace

StepCost step_cost(const ModelSpec& model, const Layout& layout,
                   const std::vector<StageFootprint>& footprints, const Workload& workload,
                   const CostSource& source) {
  StepCost cost;
  const RankGrid grid(layout);
  StageSum sum(model, layout, workload.sequence, source);
  const auto contents = stage_contents(model, layout);
  const int64_t unit = layout.precision == Precision::fp32 ? 4 : 2;
  std::vector<int64_t> rank_parameters(size_t(layout.pipeline), 0);
  for (size_t s = 0; s < contents.size(); ++s) {
    const StageContent& content = contents[s];
    const StageFootprint& footprint = footprints[s];
    StageCost& stage = cost.stages.emplace_back();
    if (content.has_embedding) sum.add(Piece::embedding, 0, stage);
    for (int64_t l = 0; l < content.layer_count; ++l) sum.add(Piece::layer, content.first_layer + l, stage);
    if (content.has_head) sum.add(Piece::head, 0, stage);
    const int64_t parameters = footprint.parameter_bytes / unit;
    const auto set = [&](InstructionKind kind, double seconds) { stage.seconds[size_t(kind)] = seconds; };
    const double transfer = source.transfer_s(footprint.boundary_bytes, grid.stride(Axis::pipeline));
    set(InstructionKind::transfer_activation, transfer);
    set(InstructionKind::transfer_gradient, transfer);
    set(InstructionKind::reduce_gradient,
        source.collective_s(models::CollectiveKind::all_reduce, footprint.gradient_bytes, layout.data,
                            grid.stride(Axis::data)));
    const int64_t span = layout.stages() > 1 ? (layout.pipeline - 1) * grid.stride(Axis::pipeline) : 1;
    set(InstructionKind::reduce_tied_embedding,
        source.collective_s(models::CollectiveKind::all_reduce, footprint.tied_embedding_bytes, 2, span));
    set(InstructionKind::optimizer_step, source.optimizer_s(parameters));
    for (double& seconds : stage.seconds) seconds += source.dispatch_s();
    rank_parameters[s % size_t(layout.pipeline)] += parameters;
  }
  const int64_t largest = *std::max_element(rank_parameters.begin(), rank_parameters.end());
  cost.reduce_norm_s = source.gradient_norm_s(largest) + source.dispatch_s() +
                       source.collective_s(models::CollectiveKind::all_reduce, 16, layout.ranks(), 1);
  return cost;
}

std::vector<double> StepCost::durations(const StepProgram& program) const {
  std::vector<double> durations;
  durations.reserve(program.instructions.size());
  for (const Instruction& i : program.instructions) durations.push_back(of(i));
  return durations;
}

std::vector<InstructionDuration> StepCost::table() const {
  std::vector<InstructionDuration> entries;
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const auto& [kind, name] : EnumNames<InstructionKind>::table()) {
      if (kind != InstructionKind::reduce_norm) entries.push_back({kind, int64_t(s), stages[s].of(kind)});
    }
  }
  entries.push_back({InstructionKind::reduce_norm, -1, reduce_norm_s});
  return entries;
}

}  // namespace mpt::planner
