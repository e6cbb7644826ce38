// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_cost.h"

#include <algorithm>
#include <limits>

#include "core/rank_grid.h"
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using models::Collective;
using models::CollectiveKind;
using profiler::Phase;
using profiler::Piece;

// Data-parallel traffic of one stage and step.
class Reduction {
 public:
  Reduction(const Layout& layout, const CostSource& source) : layout_(layout), source_(source) {}

  /// All gradients, whatever ZeRO stage: over the shard, then over what lies beyond it.
  double gradients_s(const models::ParameterShare& share) const {
    return reduce_s(share.dense * unit(), dense_group(), models::dense_shard(layout_)) +
           reduce_s(share.expert * unit(), expert_group(), models::expert_shard(layout_));
  }
  /// The same without what runs with every micro-batch under ZeRO 2 and 3.
  double beyond_shard_s(const models::ParameterShare& share) const {
    return beyond_s(share.dense * unit(), dense_group(), models::dense_shard(layout_)) +
           beyond_s(share.expert * unit(), expert_group(), models::expert_shard(layout_));
  }
  double scatter_s(const models::ParameterShare& share) const {
    return gradients_s(share) - beyond_shard_s(share);
  }
  double gather_s(const models::ParameterShare& share) const {
    const int64_t unit = element_bytes(layout_.precision);
    return within_s(CollectiveKind::all_gather, share.dense * unit, dense_group(),
                    models::dense_shard(layout_)) +
           within_s(CollectiveKind::all_gather, share.expert * unit, expert_group(),
                    models::expert_shard(layout_));
  }

 private:
  int64_t unit() const { return layout_.execution.reduced_bytes > 0 ? layout_.execution.reduced_bytes : 4; }
  GroupPlace dense_group() const { return data_group(layout_); }
  GroupPlace expert_group() const { return expert_data_group(layout_); }

  // The ranks of a shard are neighbours; `shard` of a whole group have its extent.
  static GroupPlace part(const GroupPlace& group, int64_t shard) {
    return {shard, std::max<int64_t>(shard, group.extent / std::max<int64_t>(1, group.ranks / shard))};
  }
  double within_s(CollectiveKind kind, int64_t bytes, const GroupPlace& group, int64_t shard) const {
    return shard > 1 && bytes > 0 ? source_.collective_s(kind, bytes, part(group, shard)) : 0.0;
  }
  double beyond_s(int64_t bytes, const GroupPlace& group, int64_t shard) const {
    if (group.ranks <= shard || bytes == 0) return 0.0;
    return source_.collective_s(CollectiveKind::all_reduce, bytes / shard,
                                {group.ranks / shard, group.extent});
  }
  double reduce_s(int64_t bytes, const GroupPlace& group, int64_t shard) const {
    return within_s(CollectiveKind::reduce_scatter, bytes, group, shard) + beyond_s(bytes, group, shard);
  }

  const Layout& layout_;
  const CostSource& source_;
};

// A collective of one layer of `layers` can run beside the compute of the others.
double layerwise_exposed_s(double communication_s, double compute_s, int64_t layers, bool overlap,
                           double share) {
  if (!overlap || communication_s <= 0.0) return communication_s;
  const double others = double(layers - 1) / double(layers);
  return communication_s / double(layers) + exposed_s(communication_s * others, compute_s * others, share);
}

GroupPlace place_of(models::CollectiveGroup group, const Layout& layout) {
  switch (group) {
    case models::CollectiveGroup::tensor:
      return tensor_group(layout);
    case models::CollectiveGroup::context:
      return context_group(layout);
    case models::CollectiveGroup::expert:
      return expert_parallel_group(layout);
    case models::CollectiveGroup::expert_tensor:
      return {layout.expert_split(), layout.expert_split()};
  }
  return {};
}

CommunicationKind kind_of(models::CollectiveGroup group) {
  switch (group) {
    case models::CollectiveGroup::context:
      return CommunicationKind::context;
    case models::CollectiveGroup::expert:
      return CommunicationKind::expert;
    default:
      return CommunicationKind::tensor;
  }
}

// Collectives of one operator and phase, as far as its own compute does not hide them.
InsideCompute collectives_s(const std::vector<Collective>& collectives, const Layout& layout,
                            double compute_s, const CostSource& source) {
  InsideCompute sum, beside;
  double hidden_by = compute_s;
  for (const Collective& c : collectives) {
    const double seconds = source.collective_s(c.kind, c.bytes, place_of(c.group, layout));
    const bool pipelined = layout.overlap_tensor && c.group == models::CollectiveGroup::tensor;
    // Cut into one piece per rank, all but the first piece run beside the product of the one before.
    if (pipelined && !c.beside) hidden_by = compute_s * double(layout.tensor - 1) / double(layout.tensor);
    (c.beside || pipelined ? beside : sum)[kind_of(c.group)] += seconds;
  }
  const double all_beside = beside.total();
  if (all_beside > 0.0) {
    const double share = layout.overlap_tensor ? source.pipelined_overlap_share() : kOverlapShare;
    sum.add(beside, exposed_s(all_beside, hidden_by, share) / all_beside);
  }
  return sum;
}

// A piece under every recompute, by Recompute. A recomputed operator's collectives happen again, too.
std::array<PieceCost, 3> price_piece(const models::LayerProgram& program, Piece piece, const Layout& layout,
                                     const CostSource& source) {
  const std::array<PieceSeconds, 3> seconds = source.pieces_s(piece, layout, program);
  std::array<PieceCost, 3> costs;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const models::Operator& op = program.operators[i];
    if (op.forward_collectives.empty() && op.backward_collectives.empty()) continue;
    const InsideCompute forward =
        collectives_s(op.forward_collectives, layout, source.operator_s(op.shape, Phase::forward), source);
    const InsideCompute backward = collectives_s(op.backward_collectives, layout,
                                                 source.operator_s(op.shape, Phase::input_gradient), source);
    for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
      PieceCost& cost = costs[size_t(recompute)];
      const bool again = piece == Piece::layer && is_recomputed(program, i, recompute);
      cost.forward_collective.add(forward, 1.0);
      cost.backward_collective.add(backward, 1.0);
      if (again) cost.backward_collective.add(forward, 1.0);
    }
  }
  for (size_t r = 0; r < costs.size(); ++r) {
    PieceCost& cost = costs[r];
    const double forward = cost.forward_collective.total(), backward = cost.backward_collective.total();
    cost.forward_s = seconds[r].forward_s + forward;
    cost.backward_s = seconds[r].backward_s + backward;
    cost.input_gradient_s = seconds[r].input_gradient_s + backward;
    cost.weight_gradient_s = seconds[r].weight_gradient_s;
  }
  return costs;
}

// Between neighbouring stages: all tensor and data positions send at once, and the slowest link that one of
// them crosses counts. Most neighbours lie alike.
class Transfers {
 public:
  Transfers(const CostSource& source, const Layout& layout, int64_t bytes, std::span<const int> rank_of_stage)
      : source_(source),
        stride_(RankGrid(layout).stride(Axis::pipeline)),
        bytes_(bytes),
        rank_of_stage_(rank_of_stage),
        to_next_rank_s_(size_t(layout.pipeline), -1.0) {}

  // Tensor ranks that hold the same send a share each, and their receivers gather it.
  void scatter(const Layout& layout) {
    if (layout.tensor == 1 || layout.sequence_parallel || !layout.execution.scatters_transfers) return;
    gather_s_ = source_.collective_s(CollectiveKind::all_gather, bytes_, tensor_group(layout));
    bytes_ /= layout.tensor;
  }

  // From stage `s` to the next (direction +1) or the one before (-1).
  double seconds(size_t s, int direction) {
    const size_t other = direction < 0 ? (s == 0 ? 0 : s - 1) : std::min(s + 1, rank_of_stage_.size() - 1);
    const auto between = std::minmax({rank_of_stage_[s], rank_of_stage_[other]});
    const bool neighbours = between.second == between.first + 1;
    double& known_s = neighbours ? to_next_rank_s_[size_t(between.first)] : last_s_;
    if (neighbours ? known_s >= 0.0 : between == last_between_) return known_s;
    if (!neighbours) last_between_ = between;
    known_s = gather_s_ + source_.transfer_s(bytes_, between.first * stride_,
                                             (between.second + 1) * stride_ - 1, stride_);
    return known_s;
  }

 private:
  const CostSource& source_;
  const int64_t stride_;
  int64_t bytes_;
  double gather_s_ = 0.0;
  std::span<const int> rank_of_stage_;
  std::vector<double> to_next_rank_s_;        // from rank r to r + 1; negative where not asked for yet
  std::pair<int, int> last_between_{-1, -1};  // of others: round the corner, or within a rank
  double last_s_ = 0.0;
};

bool windowed(const ModelSpec& model, int64_t layer) {
  return model.sliding_window && layer % model.sliding_window_interval == 0;
}

}  // namespace

double exposed_s(double communication_s, double beside_s, double share) {
  const double hidden = std::min(communication_s, beside_s);
  return communication_s - hidden + share * hidden;
}

ShardedTraffic sharded_traffic(const Layout& layout, const models::ParameterShare& share,
                               const CostSource& source) {
  const Reduction reduction(layout, source);
  return {layout.zero == 3 ? reduction.gather_s(share) : 0.0,
          layout.zero >= 2 ? reduction.scatter_s(share) : 0.0};
}

void PieceCost::add(const PieceCost& other, double times) {
  forward_s += times * other.forward_s;
  backward_s += times * other.backward_s;
  input_gradient_s += times * other.input_gradient_s;
  weight_gradient_s += times * other.weight_gradient_s;
  forward_collective.add(other.forward_collective, times);
  backward_collective.add(other.backward_collective, times);
}

PieceCosts::PieceCosts(const ModelSpec& model, const Layout& split, int64_t sequence,
                       const CostSource& source)
    : model_(model) {
  const Layout& layout = split;
  embedding_ =
      price_piece(models::embedding_program(model, layout, sequence), Piece::embedding, layout, source)[0];
  head_ = price_piece(models::head_program(model, layout, sequence), Piece::head, layout, source)[0];
  std::array<int32_t, LayerCounts::kKinds> seen{};
  before_.reserve(size_t(model.layers) + 1);
  before_.push_back(seen);
  for (int64_t l = 0; l < model.layers; ++l) {
    const size_t kind = kind_of(l);
    if (seen[kind]++ == 0)
      layers_[kind] =
          price_piece(models::layer_program(model, l, layout, sequence), Piece::layer, layout, source);
    before_.push_back(seen);
  }
}

size_t PieceCosts::kind_of(int64_t layer) const {
  return size_t(layer_has_experts(model_, layer) ? 1 : 0) + size_t(windowed(model_, layer) ? 2 : 0);
}

double PieceCosts::layer_round_trip_s(int64_t layer, Recompute recompute) const {
  const PieceCost& cost = layers_[kind_of(layer)][size_t(recompute)];
  return cost.forward_s + cost.backward_s;
}

double PieceCosts::least_layer_forward_s() const {
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < LayerCounts::kKinds; ++k) {
    if (before_.back()[k] == 0) continue;
    for (const PieceCost& cost : layers_[k]) least = std::min(least, cost.forward_s);
  }
  return least;
}

LayerCounts PieceCosts::count(const Layout& layout, const StageContent& content, size_t s) const {
  LayerCounts counts;
  const auto full = size_t(recomputed_layers(layout, s, content.layer_count));
  const auto first = size_t(content.first_layer), end = first + size_t(content.layer_count);
  const size_t middle = layout.recompute == Recompute::selective ? end : first + full;
  for (size_t k = 0; k < LayerCounts::kKinds; ++k) {
    counts.recomputed[k] = before_[middle][k] - before_[first][k];
    counts.kept[k] = before_[end][k] - before_[middle][k];
  }
  return counts;
}

PieceCost PieceCosts::stage(const LayerCounts& counts, const StageContent& content,
                            Recompute recompute) const {
  PieceCost sum;
  for (size_t k = 0; k < LayerCounts::kKinds; ++k) {
    if (counts.kept[k] > 0) sum.add(layers_[k][size_t(Recompute::none)], double(counts.kept[k]));
    if (counts.recomputed[k] > 0) sum.add(layers_[k][size_t(recompute)], double(counts.recomputed[k]));
  }
  if (content.has_embedding) sum.add(embedding_, 1.0);
  if (content.has_head) sum.add(head_, 1.0);
  return sum;
}

namespace {

struct PricedStage {
  StageCost cost;
  InsideStage inside{};
};

// What does not depend on the stage's place in the pipeline.
PricedStage stage_cost(const PieceCost& piece, const models::ParameterShare& share, int64_t layers,
                       const Layout& layout, const CostSource& source) {
  PricedStage stage;
  const auto set = [&](InstructionKind kind, double seconds) { stage.cost.seconds[size_t(kind)] = seconds; };
  const auto inside = [&](InstructionKind kind, const InsideCompute& collectives, double sharding) {
    InsideCompute& all = stage.inside[size_t(kind)] = collectives;
    all[CommunicationKind::sharding] += sharding;
  };
  const Reduction reduction(layout, source);
  const auto [gather, scatter] = sharded_traffic(layout, share, source);
  const bool prefetch = layout.overlap_parameter_gather, early = layout.overlap_gradient_reduce;
  const double share_lost = source.overlap_share(data_group(layout));
  const double in_forward = layerwise_exposed_s(gather, piece.forward_s, layers, prefetch, share_lost);
  const double again = layerwise_exposed_s(gather, piece.input_gradient_s, layers, prefetch, share_lost);
  const double gradient_s = std::max(piece.backward_s, piece.input_gradient_s + piece.weight_gradient_s);
  const double out = layerwise_exposed_s(scatter, gradient_s, layers, early, share_lost);
  set(InstructionKind::forward, piece.forward_s + in_forward);
  inside(InstructionKind::forward, piece.forward_collective, in_forward);
  set(InstructionKind::backward, piece.backward_s + again + out);
  inside(InstructionKind::backward, piece.backward_collective, again + out);
  set(InstructionKind::input_gradient, piece.input_gradient_s + again);
  inside(InstructionKind::input_gradient, piece.backward_collective, again);
  set(InstructionKind::weight_gradient, piece.weight_gradient_s + out);
  inside(InstructionKind::weight_gradient, {}, out);
  const double reduce = layout.zero >= 2 ? reduction.beyond_shard_s(share) : reduction.gradients_s(share);
  set(InstructionKind::reduce_gradient,
      layout.zero >= 2 ? reduce : layerwise_exposed_s(reduce, piece.backward_s, layers, early, share_lost));
  const int64_t owned = layout.zero == 0 ? share.total()
                                         : share.dense / models::dense_shard(layout) +
                                               share.expert / models::expert_shard(layout);
  set(InstructionKind::optimizer_step,
      layout.offload_optimizer ? source.offloaded_optimizer_s(owned) : source.optimizer_s(owned));
  if (layout.gathers_after_step()) {
    set(InstructionKind::gather_parameters,
        layerwise_exposed_s(reduction.gather_s(share), piece.forward_s, layers, prefetch, share_lost));
  }
  return stage;
}

void take_slower(PricedStage& slowest, const PricedStage& other) {
  for (size_t k = 0; k < kInstructionKinds; ++k) {
    if (other.cost.seconds[k] <= slowest.cost.seconds[k]) continue;
    slowest.cost.seconds[k] = other.cost.seconds[k];
    if (k < slowest.inside.size()) slowest.inside[k] = other.inside[k];
  }
}

template <class F>
double slowest_s(const DeviceCosts& devices, uint32_t kinds, F&& seconds) {
  double most = 0.0;
  for (size_t d = 0; d < devices.sources.size(); ++d) {
    if (kinds >> d & 1) most = std::max(most, seconds(*devices.sources[d]));
  }
  return most;
}

// What happens once in a step on one rank, or on all: the norm of the gradients.
double norm_s(const DeviceCosts& devices, const Layout& layout, const std::vector<int64_t>& rank_parameters) {
  double norm = 0.0;
  uint32_t all_kinds = 0;
  for (size_t r = 0; r < rank_parameters.size(); ++r) {
    const int64_t owned =
        layout.zero == 0 ? rank_parameters[r] : rank_parameters[r] / models::dense_shard(layout);
    norm = std::max(norm, slowest_s(devices, devices.kinds_of_rank[r],
                                    [&](const CostSource& s) { return s.gradient_norm_s(owned); }));
    all_kinds |= devices.kinds_of_rank[r];
  }
  return norm + slowest_s(devices, all_kinds, [&](const CostSource& s) {
           return s.collective_s(CollectiveKind::all_reduce, 16, all_ranks(layout));
         });
}

// Between the first and the last pipeline rank, in every tensor and data position; in a V, where both are
// one, it is an addition in place that nothing waits for long.
double tied_embedding_s(const CostSource& source, const ModelSpec& model, const Layout& layout, bool apart) {
  const int64_t rows = (model.vocab + layout.tensor - 1) / layout.tensor;
  return apart ? source.collective_s(CollectiveKind::all_reduce, rows * model.hidden * 4, {2, layout.ranks()})
               : source.gradient_norm_s(3 * rows * model.hidden);
}

}  // namespace

StepCost step_cost(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
                   const Layout& layout, std::span<const int> rank_of_stage) {
  StepCost cost;
  const auto contents = stage_contents(model, layout);
  const CostSource& any = *devices.sources.front();
  const double dispatch = any.dispatch_s();
  Transfers transfers(any, layout, pieces.boundary_bytes(), rank_of_stage);
  transfers.scatter(layout);
  const bool tied = model.tied_embeddings && rank_of_stage.size() > 1;
  std::vector<int64_t> rank_parameters(size_t(layout.pipeline), 0);
  cost.stages.reserve(contents.size());
  cost.inside_of_stage.reserve(contents.size());
  PricedStage shared;
  models::ParameterShare share;
  LayerCounts before;
  uint32_t kinds_before = 0;
  for (size_t s = 0; s < contents.size(); ++s) {
    const StageContent& content = contents[s];
    const LayerCounts counts = devices.pieces.front().count(layout, content, s);
    const uint32_t kinds = devices.kinds_of_rank[size_t(rank_of_stage[s])];
    // Neighbours in the middle of the pipeline are alike.
    const bool alike = s > 1 && s + 1 < contents.size() && counts == before && kinds == kinds_before;
    if (!alike) {
      share = pieces.parameters(content);
      const int64_t layers =
          content.layer_count + (content.has_embedding ? 1 : 0) + (content.has_head ? 1 : 0);
      shared = {};
      for (size_t d = 0; d < devices.sources.size(); ++d) {
        if (kinds >> d & 1)
          take_slower(shared, stage_cost(devices.pieces[d].stage(counts, content, layout.recompute), share,
                                         std::max<int64_t>(1, layers), layout, *devices.sources[d]));
      }
      for (double& seconds : shared.cost.seconds) seconds += dispatch;
      cost.inside.push_back(shared.inside);
    }
    cost.inside_of_stage.push_back(uint16_t(cost.inside.size() - 1));
    before = counts;
    kinds_before = kinds;
    StageCost& stage = cost.stages.emplace_back(shared.cost);
    const auto set = [&](InstructionKind kind, double seconds) {
      stage.seconds[size_t(kind)] = seconds + dispatch;
    };
    set(InstructionKind::transfer_gradient, transfers.seconds(s, -1));
    set(InstructionKind::transfer_activation, transfers.seconds(s, +1));
    if (tied && s == 0) {
      const bool apart = rank_of_stage.front() != rank_of_stage.back();
      set(InstructionKind::reduce_tied_embedding, tied_embedding_s(any, model, layout, apart));
    }
    rank_parameters[size_t(rank_of_stage[s])] += share.total();
  }
  cost.reduce_norm_s = norm_s(devices, layout, rank_parameters) + dispatch;
  return cost;
}

void StepCost::durations(const StepProgram& program, std::vector<double>& into) const {
  into.clear();
  into.reserve(program.instructions.size());
  for (const Instruction& i : program.instructions) into.push_back(of(i));
}

std::vector<double> StepCost::durations(const StepProgram& program) const {
  std::vector<double> durations;
  this->durations(program, durations);
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
