// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_pricer.h"

#include "core/rank_grid.h"
#include "planner/cost/operator_collectives.h"

namespace mpt::planner {
namespace {

using models::CollectiveKind;

// Data-parallel traffic of one stage and step.
class Reduction {
 public:
  Reduction(const Layout& layout, const CostSource& source) : layout_(layout), source_(source) {}

  /// All gradients, for any ZeRO stage: over the shard, then over the ranks beyond it.
  double gradients_s(const models::ParameterShare& share) const {
    return reduce_s(share.dense * unit(), dense_group(), models::dense_shard(layout_)) +
           reduce_s(share.expert * unit(), expert_group(), models::expert_shard(layout_));
  }
  /// The same without the traffic that ZeRO 2 and 3 have in every micro-batch.
  double beyond_shard_s(const models::ParameterShare& share) const {
    return beyond_s(share.dense * unit(), dense_group(), models::dense_shard(layout_)) +
           beyond_s(share.expert * unit(), expert_group(), models::expert_shard(layout_));
  }
  double scatter_s(const models::ParameterShare& share) const {
    return gradients_s(share) - beyond_shard_s(share);
  }
  /// `frozen`: includes weights that no step changes.
  double gather_s(const models::ParameterShare& share, bool frozen) const {
    const int64_t unit = element_bytes(layout_.precision);
    return within_s(CollectiveKind::all_gather, share.dense * unit + (frozen ? share.frozen_bytes : 0),
                    dense_group(), models::dense_shard(layout_)) +
           within_s(CollectiveKind::all_gather,
                    share.expert * unit + (frozen ? share.frozen_expert_bytes : 0), expert_group(),
                    models::expert_shard(layout_));
  }
  /// Muon's steps over whole matrices: ranks gather all, or distribute them and get their shares back.
  double whole_matrices_s(const models::ParameterShare& share) const {
    const Traffic& t = layout_.execution->traffic;
    const auto moved_s = [&](int64_t weights, const GroupPlace& group, int64_t shard) {
      if (shard == 1 || layout_.zero < 2) return 0.0;
      const int64_t gathered = layout_.zero >= 3 ? weights * t.muon_gathered_bytes : 0;
      return within_s(CollectiveKind::all_gather, gathered, group, shard) +
             within_s(CollectiveKind::all_to_all, weights / shard * t.muon_exchanged_bytes, group, shard);
    };
    return moved_s(share.dense, dense_group(), models::dense_shard(layout_)) +
           moved_s(share.expert, expert_group(), models::expert_shard(layout_));
  }
  /// Rate of collectives of sharded weights, as a share of the rate of others.
  double sharded_rate() const {
    return source_.sharded_rate(part(dense_group(), models::dense_shard(layout_)));
  }

 private:
  int64_t unit() const {
    if (layout_.training->bf16_gradients) return 2;
    return layout_.execution->states.reduced_bytes > 0 ? layout_.execution->states.reduced_bytes : 4;
  }
  GroupPlace dense_group() const { return data_group(layout_); }
  GroupPlace expert_group() const { return expert_data_group(layout_); }

  // The ranks of a shard are neighbours; `shard` ranks of a whole group have the group's extent.
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
    const auto kind =
        layout_.scatters_gradients() ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
    return within_s(kind, bytes, group, shard) + beyond_s(bytes, group, shard);
  }

  const Layout& layout_;
  const CostSource& source_;
};

// Pieces of a stage communicate one by one, each during the compute of the others. The exception is the piece
// that gathers first or reduces last. `alone`: its share of the traffic.
double piecewise_exposed_s(double communication_s, double compute_s, int64_t pieces, double alone,
                           bool overlap, double lost) {
  if (!overlap || communication_s <= 0.0) return communication_s;
  const double others = double(pieces - 1) / double(pieces);
  return communication_s * alone + exposed_s(communication_s * (1.0 - alone), compute_s * others, lost);
}

// Number of pieces after which a collective can start.
int64_t pieces_in(const StageKind& kind) {
  return std::max<int64_t>(1, kind.layer_count() + (kind.embedding ? 1 : 0) + (kind.head ? 1 : 0));
}

// Shares of a stage's parameters that its lowest and its highest piece have.
struct EndShares {
  EndShares(const models::StagePieces& pieces, const StageKind& kind, int64_t parameters) {
    const auto share = [&](bool has, const models::StagePieces::Piece& piece) {
      return has ? std::min(1.0, double(piece.parameters.total()) / double(std::max<int64_t>(1, parameters)))
                 : 1.0 / double(pieces_in(kind));
    };
    lowest = share(kind.embedding, pieces.embedding());
    highest = share(kind.head, pieces.head());
  }
  double lowest, highest;
};

// Seconds of large products in 16 bits.
double products_s(const CostSource& source, double flop) {
  models::OperatorShape s;
  s.precision = Precision::bf16;
  s.rows = s.columns = s.inner = 4096;
  return flop / models::forward_flop(s) * source.operator_s(s, profiler::Phase::forward);
}

template <class F>
double slowest_s(const DeviceCosts& devices, uint32_t kinds, F&& seconds) {
  double most = 0.0;
  for (size_t d = 0; d < devices.sources.size(); ++d)
    if (kinds >> d & 1) most = std::max(most, seconds(*devices.sources[d]));
  return most;
}

void add_rows(StageKinds& stages, size_t ranks) {
  std::vector<std::vector<uint16_t>> rows(ranks);
  std::vector<size_t> lowest(ranks, 0);
  for (size_t s = 0; s < stages.rank_of_stage.size(); ++s) {
    std::vector<uint16_t>& row = rows[size_t(stages.rank_of_stage[s])];
    if (row.empty()) lowest[size_t(stages.rank_of_stage[s])] = s;
    row.push_back(stages.kind_of_stage[s]);
  }
  for (size_t r = 0; r < ranks; ++r) {
    const auto alike = std::find(stages.rows.begin(), stages.rows.end(), rows[r]);
    const auto index = uint16_t(alike - stages.rows.begin());
    stages.row_of_rank.push_back(index);
    if (alike == stages.rows.end()) {
      stages.rows.push_back(std::move(rows[r]));
      stages.places.push_back({index, 0, 0});
    }
    StageKinds::RowPlace& place = stages.places[index];
    ++place.ranks;
    place.stage = std::max(place.stage, lowest[r]);
  }
  sort_by(stages.places, [](const auto& place) { return place.stage; });
}

}  // namespace

// Seconds in which a rank's shares of weights come from the host's memory, or their gradients go there.
double host_weights_s(const Layout& layout, const models::ParameterShare& share, const CostSource& source) {
  const StateBytes& states = layout.execution->states;
  if (!layout.offload_optimizer || !states.offloads_weights) return 0.0;
  const int64_t each = states.weight_bytes > 0 ? states.weight_bytes : 4;
  return source.host_copy_s((share.dense * each + share.frozen_bytes) / models::dense_shard(layout) +
                            (share.expert * each + share.frozen_expert_bytes) / models::expert_shard(layout));
}

ShardedTraffic sharded_traffic(const Layout& layout, const models::ParameterShare& share,
                               const models::ParameterShare& head, const CostSource& source) {
  const Reduction reduction(layout, source);
  const bool gathers = layout.gathers_by_micro_batch(), again = layout.zero_of_micro_batch() == 3;
  const bool scatters = layout.zero_of_gradients() >= 2, chunks = models::sums_head_by_chunks(layout);
  const double rate = gathers ? reduction.sharded_rate() : 1.0;
  const double copies_s = host_weights_s(layout, share, source);
  ShardedTraffic traffic{copies_s, copies_s, copies_s};
  if (gathers) traffic.forward_s += reduction.gather_s(share, true) / rate;
  if (again) traffic.backward_s += reduction.gather_s(share, true) / rate;
  if (scatters) traffic.scatter_s += reduction.scatter_s(share) / rate;
  // A loss by chunks gathers and reduces the head in each micro-batch, also in a pipeline
  // (findings/torchtitan_chunked_loss_reduces_the_head_in_each_micro_batch.sh). It leaves the head to be
  // sharded after each forward.
  const int64_t beyond = (again ? layout.execution->traffic.head_gathers - 2 : 0) + (chunks ? 1 : 0);
  traffic.backward_s += double(beyond) * reduction.gather_s(head, true) / rate;
  if (chunks && !again) traffic.forward_s += reduction.gather_s(head, true) / rate;
  if (chunks && !scatters) traffic.scatter_s += reduction.scatter_s(head);
  return traffic;
}

StageKinds stage_kinds(const DeviceCosts& devices, const Layout& layout, std::span<const int> rank_of_stage) {
  StageKinds stages;
  stages.rank_of_stage.assign(rank_of_stage.begin(), rank_of_stage.end());
  const PieceCosts& pieces = devices.pieces.front();
  const auto contents = stage_contents(pieces.model(), layout);
  for (size_t s = 0; s < contents.size(); ++s) {
    const StageContent& content = contents[s];
    StageKind kind = pieces.kind(content, layout.recomputed_layers.empty()
                                              ? content.layer_count
                                              : std::min(content.layer_count, layout.recomputed_layers[s]));
    kind.devices = devices.kinds_of_rank[size_t(rank_of_stage[s])];
    size_t k = 0;
    while (k < stages.kinds.size() &&
           !(stages.kinds[k] == kind && models::stages_alike(pieces.kinds(), stages.contents[k], content)))
      ++k;
    stages.kind_of_stage.push_back(uint16_t(k));
    if (k < stages.kinds.size()) continue;
    stages.kinds.push_back(kind);
    stages.contents.push_back(content);
  }
  add_rows(stages, size_t(layout.pipeline));
  return stages;
}

StepPricer::StepPricer(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
                       const Layout& layout, Part part, StateCosts* states)
    : devices_(devices),
      pieces_(pieces),
      model_(model),
      layout_(layout),
      part_(part),
      any_(*devices.sources.front()),
      dispatch_s_(any_.dispatch_s()),
      stride_(RankGrid(layout).stride(Axis::pipeline)),
      transfer_bytes_(pieces.boundary_bytes()),
      to_next_rank_s_(size_t(layout.pipeline), -1.0),
      within_rank_s_(to_next_rank_s_),
      states_(states != nullptr ? *states : own_states_) {
  // Tensor ranks that hold the same tensor send a share each, and their receivers gather it.
  if (layout.tensor == 1 || layout.sequence_parallel || !layout.execution->traffic.scatters_transfers) return;
  transfer_gather_s_ = any_.collective_s(CollectiveKind::all_gather, transfer_bytes_, tensor_group(layout));
  transfer_bytes_ /= layout.tensor;
}

// All tensor and data positions send at once, and the slowest link that one of them crosses counts. Most
// neighbours have equal links, so times are cached.
double StepPricer::transfer_s(const StageKinds& stages, size_t from, size_t to) {
  const auto between = std::minmax({stages.rank_of_stage[from], stages.rank_of_stage[to]});
  const auto [low, high] = between;
  const bool other = high > low + 1;
  double& known_s = other         ? last_transfer_s_
                    : low == high ? within_rank_s_[size_t(low)]
                                  : to_next_rank_s_[size_t(low)];
  if (other ? between == last_between_ : known_s >= 0.0) return known_s;
  if (other) last_between_ = between;
  known_s =
      transfer_gather_s_ + any_.transfer_s(transfer_bytes_, low * stride_, (high + 1) * stride_ - 1, stride_);
  return known_s;
}

models::ParameterShare StepPricer::parameters(const StageKind& kind) const {
  return pieces_.parameters(kind.layers, kind.embedding, kind.head);
}

const StateCost& StepPricer::state_cost(size_t device, const StageKind& kind) {
  const models::ParameterShare share = parameters(kind);
  // Callers ask in a fixed order, so the search starts after the last entry that was found.
  for (size_t n = 0; n < states_.size(); ++n) {
    if (++last_state_ >= states_.size()) last_state_ = 0;
    const StateCost& known = states_[last_state_];
    if (known.device == device && known.share == share) return known;
  }
  const CostSource& source = *devices_.sources[device];
  const Reduction reduction(layout_, source);
  StateCost& state = states_.emplace_back();
  last_state_ = states_.size() - 1;
  state.device = device;
  state.share = share;
  models::ParameterShare moved = pieces_.padded(share, layout_, kind.layers, kind.embedding, kind.head), head;
  if (kind.head) head = pieces_.gathered_with_head(layout_, kind.embedding);
  state.traffic = sharded_traffic(layout_, moved, head, source);
  if (part_ == Part::micro_batches) return state;
  if (layout_.gathers_after_step()) state.gather_s = reduction.gather_s(moved, false);
  // The head's gradients are reduced by its micro-batches.
  if (kind.head && models::sums_head_by_chunks(layout_) && layout_.zero_of_gradients() < 2)
    moved.dense -= head.dense;
  state.reduction_s =
      layout_.zero_of_gradients() >= 2 ? reduction.beyond_shard_s(moved) : reduction.gradients_s(moved);
  const int64_t owned = layout_.zero == 0 ? share.total()
                                          : share.dense / models::dense_shard(layout_) +
                                                share.expert / models::expert_shard(layout_);
  const int64_t updated = models::updated_like_adamw(layout_, owned);
  state.optimizer_s =
      layout_.offload_optimizer ? source.offloaded_optimizer_s(updated) : source.optimizer_s(updated);
  if (layout_.training->optimizer == OptimizerKind::muon)
    state.optimizer_s +=
        products_s(source, pieces_.orthogonal_flop(kind.layers) / double(models::dense_shard(layout_))) +
        reduction.whole_matrices_s(pieces_.parameters(kind.layers, false, false));
  return state;
}

// Costs that do not depend on the stage's place in the pipeline.
StepPricer::PricedStage StepPricer::price_on(size_t device, const StageKind& kind, Recompute recompute) {
  const CostSource& source = *devices_.sources[device];
  const PieceCost piece = devices_.pieces[device].stage(kind, recompute);
  const StateCost& state = state_cost(device, kind);
  const int64_t pieces = pieces_in(kind);
  PricedStage stage;
  const auto set = [&](InstructionKind i, double seconds) { stage.cost.seconds[size_t(i)] = seconds; };
  const auto inside = [&](InstructionKind i, const InsideCompute& collectives, double sharding) {
    InsideCompute& all = stage.inside[size_t(i)] = collectives;
    all[CommunicationKind::sharding] += sharding;
  };
  const bool prefetch = layout_.overlap_parameter_gather, early = layout_.overlap_gradient_reduce;
  const double share_lost = source.overlap_share(data_group(layout_));
  const auto [there, gather, scatter] = state.traffic;
  const EndShares ends(pieces_, kind, state.share.total());
  const double in_forward =
      piecewise_exposed_s(there, piece.forward_s, pieces, ends.lowest, prefetch, share_lost);
  const double again =
      piecewise_exposed_s(gather, piece.input_gradient_s, pieces, ends.highest, prefetch, share_lost);
  const double gradient_s = std::max(piece.backward_s, piece.input_gradient_s + piece.weight_gradient_s);
  const double out = piecewise_exposed_s(scatter, gradient_s, pieces, ends.lowest, early, share_lost);
  double in_backward = again + out;
  if (prefetch && early && gather > 0.0 && scatter > 0.0) {
    // Both use the same links, so compute that hides one hides nothing of the other.
    const double alone = (gather * ends.highest + scatter * ends.lowest) / (gather + scatter);
    in_backward = piecewise_exposed_s(gather + scatter, piece.backward_s, pieces, alone, true, share_lost);
  }
  set(InstructionKind::forward, piece.forward_s + in_forward);
  inside(InstructionKind::forward, piece.forward_collective, in_forward);
  set(InstructionKind::backward, piece.backward_s + in_backward);
  inside(InstructionKind::backward, piece.backward_collective, in_backward);
  set(InstructionKind::input_gradient, piece.input_gradient_s + again);
  inside(InstructionKind::input_gradient, piece.input_gradient_collective, again);
  set(InstructionKind::weight_gradient, piece.weight_gradient_s + out);
  inside(InstructionKind::weight_gradient, {}, out);
  if (part_ == Part::whole_step) add_step_end(stage, piece, pieces, ends.lowest, share_lost, state);
  return stage;
}

void StepPricer::add_step_end(PricedStage& stage, const PieceCost& piece, int64_t pieces, double alone,
                              double share_lost, const StateCost& state) const {
  const auto set = [&](InstructionKind i, double seconds) { stage.cost.seconds[size_t(i)] = seconds; };
  // Compute that hides gathers and scatters cannot hide the sum over replicas.
  const double beside = std::max(0.0, piece.backward_s - state.traffic.backward_s - state.traffic.scatter_s);
  set(InstructionKind::reduce_gradient, piecewise_exposed_s(state.reduction_s, beside, pieces, alone,
                                                            layout_.reduces_in_backward(), share_lost));
  set(InstructionKind::optimizer_step, state.optimizer_s);
  if (layout_.gathers_after_step())
    set(InstructionKind::gather_parameters,
        piecewise_exposed_s(state.gather_s, piece.forward_s, pieces, alone, layout_.overlap_parameter_gather,
                            share_lost));
}

// Costs on the slowest of the stage's devices.
StepPricer::PricedStage StepPricer::price(const StageKind& kind, Recompute recompute) {
  PricedStage slowest;
  if (devices_.sources.size() == 1) slowest = price_on(0, kind, recompute);
  for (size_t d = 0; d < devices_.sources.size() && devices_.sources.size() > 1; ++d) {
    if (!(kind.devices >> d & 1)) continue;
    const PricedStage priced = price_on(d, kind, recompute);
    for (size_t k = 0; k < kInstructionKinds; ++k) {
      if (priced.cost.seconds[k] <= slowest.cost.seconds[k]) continue;
      slowest.cost.seconds[k] = priced.cost.seconds[k];
      if (k < slowest.inside.size()) slowest.inside[k] = priced.inside[k];
    }
  }
  for (size_t k = 0; k < kInstructionKinds; ++k) {
    const bool at_end = k >= size_t(InstructionKind::reduce_gradient);
    if (!at_end || part_ == Part::whole_step) slowest.cost.seconds[k] += dispatch_s_;
  }
  // A framework that gathers in each micro-batch has nothing to gather after a step.
  if (!layout_.gathers_after_step()) slowest.cost.seconds[size_t(InstructionKind::gather_parameters)] = 0.0;
  return slowest;
}

// The norm of the gradients, once in a step: on one rank, then over all.
double StepPricer::norm_s(const StageKinds& stages) {
  double norm = 0.0;
  uint32_t all_kinds = 0;
  for (const std::vector<uint16_t>& row : stages.rows) {
    int64_t parameters = 0;
    for (const uint16_t kind : row) parameters += shares_[kind].total();
    const uint32_t devices = stages.kinds[row.front()].devices;
    all_kinds |= devices;
    const int64_t owned = layout_.zero == 0 ? parameters : parameters / models::dense_shard(layout_);
    norm = std::max(
        norm, slowest_s(devices_, devices, [&](const CostSource& s) { return s.gradient_norm_s(owned); }));
  }
  if (norm_meeting_s_ < 0.0)
    norm_meeting_s_ = slowest_s(devices_, all_kinds, [&](const CostSource& s) {
      return s.collective_s(CollectiveKind::all_reduce, 16, all_ranks(layout_));
    });
  return norm + norm_meeting_s_;
}

// Between the first and the last pipeline rank, in every tensor and data position. In a V both are one rank,
// and it is an addition in place, for which nothing waits long.
double StepPricer::tied_embedding_s(bool apart) const {
  const int64_t rows = models::vocabulary_share(model_, layout_);
  return apart ? any_.collective_s(CollectiveKind::all_reduce, rows * model_.hidden * 4, {2, layout_.ranks()})
               : any_.gradient_norm_s(3 * rows * model_.hidden);
}

void StepPricer::price(const StageKinds& stages, Recompute recompute, StepCost& cost) {
  shares_.clear();
  costs_.clear();
  cost.stages.clear();
  cost.inside.clear();
  for (const StageKind& kind : stages.kinds) {
    const PricedStage priced = price(kind, recompute);
    shares_.push_back(parameters(kind));
    costs_.push_back(priced.cost);
    cost.inside.push_back(priced.inside);
  }
  cost.inside_of_stage = stages.kind_of_stage;
  const size_t count = stages.kind_of_stage.size();
  for (size_t s = 0; s < count; ++s) {
    StageCost& stage = cost.stages.emplace_back(costs_[stages.kind_of_stage[s]]);
    stage.seconds[size_t(InstructionKind::transfer_gradient)] =
        transfer_s(stages, s, s == 0 ? 0 : s - 1) + dispatch_s_;
    stage.seconds[size_t(InstructionKind::transfer_activation)] =
        transfer_s(stages, s, std::min(s + 1, count - 1)) + dispatch_s_;
  }
  if (models::trains_shared_table(model_, layout_) && count > 1) {
    const bool apart = stages.rank_of_stage.front() != stages.rank_of_stage.back();
    cost.stages.front().seconds[size_t(InstructionKind::reduce_tied_embedding)] =
        tied_embedding_s(apart) + dispatch_s_;
  }
  cost.reduce_norm_s = reduce_norm_s(stages);
}

double StepPricer::reduce_norm_s(const StageKinds& stages) {
  return part_ == Part::whole_step ? norm_s(stages) + dispatch_s_ : 0.0;
}

void StepPricer::price(const StageKinds& stages, Recompute recompute, KindCosts& costs) {
  shares_.clear();
  costs.kinds.clear();
  for (const StageKind& kind : stages.kinds) {
    shares_.push_back(parameters(kind));
    costs.kinds.push_back(price(kind, recompute).cost);
  }
  costs.out_s.clear();
  costs.home_s.clear();
  for (size_t s = 0; s < stages.places.back().stage; ++s) {
    const bool crosses = stages.rank_of_stage[s] != stages.rank_of_stage[s + 1];
    costs.out_s.push_back(crosses ? transfer_s(stages, s, s + 1) + dispatch_s_ : 0.0);
    costs.home_s.push_back(crosses ? transfer_s(stages, s + 1, s) + dispatch_s_ : 0.0);
  }
  costs.reduce_norm_s = reduce_norm_s(stages);
}

// If several devices hold the stage: the slowest for each value.
StepPricer::KindSharding StepPricer::least_sharding(const StageKind& kind) {
  constexpr double kEndless = std::numeric_limits<double>::max();  // infinity times 0 is no number
  const int64_t pieces = pieces_in(kind);
  KindSharding most;
  for (size_t d = 0; d < devices_.sources.size(); ++d) {
    if (devices_.sources.size() > 1 && !(kind.devices >> d & 1)) continue;
    const StateCost& state = state_cost(d, kind);
    const double share_lost = devices_.sources[d]->overlap_share(data_group(layout_));
    const EndShares ends(pieces_, kind, state.share.total());
    const auto shown = [&](double seconds, double alone, bool overlap) {
      return piecewise_exposed_s(seconds, kEndless, pieces, alone, overlap, share_lost);
    };
    const bool prefetch = layout_.overlap_parameter_gather, early = layout_.overlap_gradient_reduce;
    const double gathers_s = shown(state.traffic.forward_s, ends.lowest, prefetch) +
                             shown(state.traffic.backward_s, ends.highest, prefetch);
    most.gathers_s = std::max(most.gathers_s, gathers_s);
    most.traffic_s = std::max(most.traffic_s, gathers_s + shown(state.traffic.scatter_s, ends.lowest, early));
    most.reduction_s =
        std::max(most.reduction_s, shown(state.reduction_s, ends.lowest, layout_.reduces_in_backward()));
    most.optimizer_s = std::max(most.optimizer_s, state.optimizer_s);
    most.gather_s = std::max(most.gather_s, shown(state.gather_s, ends.lowest, prefetch));
  }
  return most;
}

RestOfStep StepPricer::least_rest(const StageKinds& stages, double best_rate) {
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  double least_reduction_s = kEndless;
  std::vector<KindSharding> kinds;
  shares_.clear();
  for (const StageKind& kind : stages.kinds) {
    kinds.push_back(least_sharding(kind));
    least_reduction_s = std::min(least_reduction_s, kinds.back().reduction_s);
    shares_.push_back(parameters(kind));
  }
  RestOfStep rest;
  rest.gathers_s = rest.traffic_s = kEndless;
  for (const std::vector<uint16_t>& row : stages.rows) {
    double gathers_s = 0.0, traffic_s = 0.0;
    StepEnd end;
    for (const uint16_t k : row) {
      gathers_s += kinds[k].gathers_s;
      traffic_s += kinds[k].traffic_s;
      end.add((kinds[k].optimizer_s + dispatch_s_) / best_rate,
              layout_.gathers_after_step() ? kinds[k].gather_s + dispatch_s_ : 0.0);
    }
    rest.gathers_s = std::min(rest.gathers_s, gathers_s);
    rest.traffic_s = std::min(rest.traffic_s, traffic_s);
    rest.step_end_s = std::max(rest.step_end_s, end.end_s);
  }
  if (layout_.reduces_gradients()) {
    rest.first_reduction_s = kinds[stages.kind_of_stage.front()].reduction_s + dispatch_s_;
    rest.least_reduction_s = least_reduction_s + dispatch_s_;
  }
  rest.reduce_norm_s = reduce_norm_s(stages);
  return rest;
}

StepCost step_cost(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
                   const Layout& layout, std::span<const int> rank_of_stage) {
  StepCost cost;
  StepPricer(devices, pieces, model, layout)
      .price(stage_kinds(devices, layout, rank_of_stage), layout.recompute, cost);
  return cost;
}

}  // namespace mpt::planner
