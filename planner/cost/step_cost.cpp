// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_cost.h"

#include <algorithm>
#include <map>

#include "core/rank_grid.h"
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using profiler::Phase;
using profiler::Piece;

// Collectives of a piece over its tensor-parallel group; `backward` includes those of a recomputed forward.
struct PieceCollectives {
  double forward = 0.0, backward = 0.0;
};

PieceCollectives collectives_of(const models::LayerProgram& program, Piece piece, const Layout& layout,
                                const CostSource& source) {
  PieceCollectives sum;
  const auto seconds = [&](const models::Collective& c) {
    return source.collective_s(c.kind, c.bytes, tensor_group(layout));
  };
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const bool again = piece == Piece::layer && is_recomputed(program, i, layout.recompute);
    for (const models::Collective& c : program.operators[i].forward_collectives) {
      sum.forward += seconds(c);
      if (again) sum.backward += seconds(c);
    }
    for (const models::Collective& c : program.operators[i].backward_collectives) sum.backward += seconds(c);
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
    if (layout_.tensor > 1) at->second.second = collectives_of(program, piece, layout_, source_);
    return at->second;
  }

  const ModelSpec& model_;
  const Layout& layout_;
  int64_t sequence_;
  const CostSource& source_;
  std::map<std::pair<Piece, int>, Priced> priced_;
};

// From stage `s` to the next (direction +1) or the one before: all tensor and data positions send at once,
// and the slowest link that one of them crosses counts.
double transfer_s(const CostSource& source, const Layout& layout, const StageFootprint& footprint, int64_t s,
                  int direction) {
  const int64_t other = std::clamp<int64_t>(s + direction, 0, layout.stages() - 1);
  const auto [low, high] = std::minmax({s % layout.pipeline, other % layout.pipeline});
  const int64_t stride = RankGrid(layout).stride(Axis::pipeline);
  return source.transfer_s(footprint.boundary_bytes, low * stride, (high + 1) * stride - 1);
}

}  // namespace

StepCost step_cost(const ModelSpec& model, const Layout& layout,
                   const std::vector<StageFootprint>& footprints, const Workload& workload,
                   const CostSource& source) {
  StepCost cost;
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
    set(InstructionKind::transfer_activation, transfer_s(source, layout, footprint, int64_t(s), +1));
    set(InstructionKind::transfer_gradient, transfer_s(source, layout, footprint, int64_t(s), -1));
    set(InstructionKind::reduce_gradient, source.collective_s(models::CollectiveKind::all_reduce,
                                                              footprint.gradient_bytes, data_group(layout)));
    // Between the first and the last pipeline rank, in every tensor and data position.
    set(InstructionKind::reduce_tied_embedding,
        source.collective_s(models::CollectiveKind::all_reduce, footprint.tied_embedding_bytes,
                            {2, layout.ranks()}));
    set(InstructionKind::optimizer_step, source.optimizer_s(parameters));
    for (double& seconds : stage.seconds) seconds += source.dispatch_s();
    rank_parameters[s % size_t(layout.pipeline)] += parameters;
  }
  const int64_t largest = *std::max_element(rank_parameters.begin(), rank_parameters.end());
  cost.reduce_norm_s = source.gradient_norm_s(largest) + source.dispatch_s() +
                       source.collective_s(models::CollectiveKind::all_reduce, 16, all_ranks(layout));
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
