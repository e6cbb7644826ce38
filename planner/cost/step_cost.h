// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepCost: the duration of every kind of instruction on every stage of a layout, from a cost source.
// PieceCosts is the part that all pipelines, shardings and recomputes of one split share.

#include <algorithm>
#include <array>
#include <vector>

#include "core/plan.h"
#include "models/footprint.h"
#include "planner/cost/cost_source.h"

namespace mpt::planner {

/// Seconds by CommunicationKind, of the kinds inside compute: tensor, context, expert, sharding.
inline constexpr size_t kInsideKinds = 4;
struct InsideCompute {
  std::array<double, kInsideKinds> seconds{};

  double& operator[](CommunicationKind kind) { return seconds[size_t(kind)]; }
  double total() const { return seconds[0] + seconds[1] + seconds[2] + seconds[3]; }
  void add(const InsideCompute& other, double times) {
    for (size_t k = 0; k < kInsideKinds; ++k) seconds[k] += times * other.seconds[k];
  }
};

/// One piece for one micro-batch under one recompute: compute, and the part of tensor-, context- and
/// expert-parallel collectives that compute does not hide.
struct PieceCost {
  double forward_s = 0.0, backward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
  InsideCompute forward_collective, backward_collective, input_gradient_collective;

  void add(const PieceCost& other, double times);
};

/// The content of a stage, without its place in the pipeline.
struct StageKind {
  /// Number of layers of each kind, and how many of them recompute under full recompute.
  models::KindCounts layers, recomputed;
  bool embedding = false, head = false;
  uint32_t devices = 1;  // kinds of device that hold it, as bits

  int64_t layer_count() const { return layers.sum(); }
  bool operator==(const StageKind&) const = default;
};

class PieceCosts {
 public:
  /// The programs' layout gives tensor, context, expert degrees, micro-batch and precision. Throws the
  /// source's errors. The third argument, which may be null, is of a layout that differs only in the
  /// placement of experts: only layers with experts are priced again. Only the model must outlive it.
  PieceCosts(models::PiecePrograms& programs, const CostSource& source, const PieceCosts* alike = nullptr);

  const ModelSpec& model() const { return model_; }
  const models::LayerKinds& kinds() const { return *kinds_; }
  /// The first `recomputed` layers recompute under full recompute. Depends only on the model.
  StageKind kind(const StageContent& content, int64_t recomputed) const;
  PieceCost stage(const StageKind& kind, Recompute recompute) const;
  /// Forward and backward of one layer, for balancing stages.
  double layer_round_trip_s(int64_t layer, Recompute recompute) const;
  /// The least time of a piece under any schedule: with a whole or a split backward.
  double layer_least_s(size_t kind, Recompute recompute) const {
    return least_s(layers_[kind][size_t(recompute)]);
  }
  double layer_least_s(size_t kind) const { return least_s(layers_[kind]); }
  double embedding_least_s() const { return least_s(embedding_); }
  double head_least_s() const { return least_s(head_); }
  double least_layer_forward_s() const;
  /// The least time of a micro-batch's way through a piece and back, under any schedule and recompute.
  double layer_way_s(size_t kind) const {
    const auto& [none, selective, full] = layers_[kind];
    return std::min({way_s(none), way_s(selective), way_s(full)});
  }
  double embedding_way_s() const { return way_s(embedding_); }
  double head_way_s() const { return way_s(head_); }
  /// The least time of a layer without its experts: no placement of experts is faster.
  double layer_without_experts_s(size_t kind) const { return without_experts_s_[kind]; }
  double embedding_round_trip_s() const { return embedding_.forward_s + embedding_.backward_s; }
  double head_round_trip_s() const { return head_.forward_s + head_.backward_s; }

 private:
  static double least_s(const PieceCost& c) {
    return c.forward_s + std::min(c.backward_s, c.input_gradient_s + c.weight_gradient_s);
  }
  static double way_s(const PieceCost& c) { return c.forward_s + std::min(c.backward_s, c.input_gradient_s); }
  static double least_s(const std::array<PieceCost, 3>& by_recompute) {
    return std::min({least_s(by_recompute[0]), least_s(by_recompute[1]), least_s(by_recompute[2])});
  }

  const ModelSpec& model_;
  std::shared_ptr<const models::LayerKinds> kinds_;
  std::vector<std::array<PieceCost, 3>> layers_;  // by kind and Recompute
  PieceCost embedding_, head_;
  std::vector<double> without_experts_s_;  // by kind
};

/// Seconds of collectives inside a stage's forward, backward, input gradient and weight gradient.
using InsideStage = std::array<InsideCompute, 4>;

struct StageCost {
  std::array<double, kInstructionKinds> seconds{};  // by InstructionKind
  double of(InstructionKind kind) const { return seconds[size_t(kind)]; }
};

/// The end of a step after the gradient norm on one rank, stage by stage in model order: optimizer steps one
/// after the other, and in another lane the gathering of each stage's weights after its step.
struct StepEnd {
  double optimizer_s = 0.0, end_s = 0.0;

  void add(double stage_optimizer_s, double stage_gather_s) {
    optimizer_s += stage_optimizer_s;
    end_s = std::max(end_s, optimizer_s) + stage_gather_s;
  }
};

struct StepCost {
  std::vector<StageCost> stages;
  /// Most stages are equal: the different ones, and the index of each stage.
  std::vector<InsideStage> inside;
  std::vector<uint16_t> inside_of_stage;
  double reduce_norm_s = 0.0;

  double of(InstructionKind kind, int stage) const {
    return kind == InstructionKind::reduce_norm ? reduce_norm_s : stages[size_t(stage)].of(kind);
  }
  double of(const Instruction& instruction) const { return of(instruction.kind, instruction.stage); }
  const InsideCompute& inside_compute(const Instruction& instruction) const {
    return inside[inside_of_stage[size_t(instruction.stage)]][size_t(instruction.kind)];
  }
  std::vector<double> durations(const StepProgram& program) const;
  void durations(const StepProgram& program, std::vector<double>& into) const;
  std::vector<InstructionDuration> table() const;
};

/// Costs by kind of device, and the kinds that hold each pipeline rank, as bits. If a rank's replicas are on
/// several kinds, the slowest counts.
struct DeviceCosts {
  std::span<const PieceCosts> pieces;
  std::vector<const CostSource*> sources;
  std::vector<uint32_t> kinds_of_rank;
};

}  // namespace mpt::planner
