// SPDX-License-Identifier: Apache-2.0
#include "models/footprint.h"

#include <limits>

#include "models/layer_builder.h"

namespace mpt::models {
namespace {

using Piece = StagePieces::Piece;

// Five steps of three products over each matrix. The smaller side of the matrix is squared (arXiv:2502.16982,
// section 2.1).
double newton_schulz_flop(const OperatorShape& s, int64_t matrices) {
  constexpr double kSteps = 5.0;
  const auto small = double(std::min(s.columns, s.inner)), large = double(std::max(s.columns, s.inner));
  return double(matrices) * kSteps * (4.0 * small * small * large + 2.0 * small * small * small);
}

// As in runtime/device/fp8.h, for products that run in 8 bits there (LinearShape::narrows()).
int64_t fp8_weight_bytes(const OperatorShape& s) {
  const bool narrows =
      s.precision == Precision::fp8 && s.rows % 16 == 0 && s.columns % 16 == 0 && s.inner % 16 == 0;
  return narrows ? LayerBuilder::rounded(2 * s.columns * s.inner + 4) : 0;
}

// The experts of one layer are one weight per product; each row is one expert.
void add_weights(const Operator& op, std::vector<StagePieces::Weight>& weights) {
  if (op.shape.frozen) return;
  const OperatorShape& s = op.shape;
  int64_t rest = op.parameters;
  const auto add = [&](int64_t rows, int64_t columns) {
    if (rows * columns > 0 && rows * columns <= rest)
      weights.push_back({rows, columns, op.expert_parameters});
    rest -= rows * columns;
  };
  if (s.kind == OperatorKind::embedding) add(s.inner, s.columns);
  if (s.kind == OperatorKind::expert_linear) add(s.batch, s.columns * s.inner);
  if (s.kind == OperatorKind::linear && op.parts.front() == 0) add(s.columns, s.inner);
  for (const int64_t part : op.parts) add(s.kind == OperatorKind::linear ? part : 0, s.inner);
  add(std::max<int64_t>(0, rest), 1);
}

// A frozen weight of fewer bits is there in the type of its product while that runs, in both passes
// (bitsandbytes, autograd/_functions.py, MatMul4Bit: dequantize_4bit).
int64_t widened_bytes(const Operator& op) {
  if (op.shape.kind != OperatorKind::widen) return 0;
  return LayerBuilder::rounded(op.shape.rows * element_bytes(op.shape.precision) *
                               *std::max_element(op.parts.begin(), op.parts.end()));
}

// Autograd frees what an operator saved, and the gradient of its result, when its backward has run. An
// elementwise operator makes gradients of the inputs that it saved, one or two. Gradients of trained weights,
// of `unit` bytes each, stay.
int64_t workspace_by_operator(const LayerProgram& program, int64_t unit) {
  int64_t held = 0, arriving = 0, peak = 0;  // in addition to saved bytes
  for (auto op = program.operators.rbegin(); op != program.operators.rend(); ++op) {
    const int64_t made = op->backward_workspace_bytes > 0 ? op->backward_workspace_bytes
                                                          : std::min(op->saved_bytes, 2 * arriving);
    held += op->shape.frozen ? 0 : op->parameters * unit;
    const auto before = std::next(op);  // a product reads the widened weight
    const int64_t widened = before == program.operators.rend() ? 0 : widened_bytes(*before);
    peak = std::max(peak, held + arriving + made + widened);
    held -= op->saved_bytes;
    if (made > 0) arriving = made;
  }
  return peak;
}

Piece piece_of(const LayerProgram& program) {
  Piece piece;
  for (const auto& [recompute, name] : EnumNames<Recompute>::table())
    piece.kept[size_t(recompute)] = saved_bytes(program, recompute);
  piece.computed = saved_bytes(program, Recompute::none);
  piece.parameters = parameter_share(program);
  piece.forward_workspace = piece.backward_workspace = max_of<int64_t>(program.operators, 0, widened_bytes);
  for (const Operator& op : program.operators) {
    const bool grouped = op.shape.kind == OperatorKind::expert_linear;
    if (is_product(op.shape) && !op.shape.frozen)
      piece.orthogonal_flop += newton_schulz_flop(op.shape, grouped ? op.shape.batch : 1);
    add_weights(op, piece.weights);
    if (op.shape.kind == OperatorKind::linear) piece.fp8_weights += fp8_weight_bytes(op.shape);
    piece.forward_workspace += op.forward_workspace_bytes;
    piece.backward_workspace += op.backward_workspace_bytes;
    piece.gradient_kept += op.gradient_kept_bytes;
    piece.weight_workspace += op.weight_workspace_bytes;
    piece.weight_operands += op.weight_operand_bytes;
  }
  return piece;
}

using Shapes = std::vector<std::array<int64_t, 2>>;
void add_new(Shapes& shapes, const std::array<int64_t, 2>& shape) {
  if (!contains(shapes, shape)) shapes.push_back(shape);
}

}  // namespace

StagePieces::StagePieces(const ModelSpec& model, const Layout& layout, int64_t sequence)
    : StagePieces(PiecePrograms(model, layout, sequence)) {}

StagePieces::StagePieces(PiecePrograms& programs, const StagePieces* alike)
    : model_(programs.model()), kinds_(programs.kinds()) {
  const Layout& layout = programs.layout();
  embedding_ = alike != nullptr ? alike->embedding_ : piece_of(programs.embedding());
  for (auto& kept : embedding_.kept) kept = embedding_.computed;
  if (alike != nullptr && model_.next_token_layers == 0) {
    head_ = alike->head_;
    freed_logits_ = alike->freed_logits_;
    tied_parameters_ = alike->tied_parameters_;
    tied_frozen_bytes_ = alike->tied_frozen_bytes_;
  } else {
    set_head(model_.next_token_layers > 0 ? head_program(model_, layout, programs.sequence())
                                          : programs.last_stage(),
             layout.execution);
  }
  set_next_token(programs);
  if (model_.position == PositionKind::learned && !layout.training->freezes(FrozenPart::embedding))
    position_parameters_ = model_.max_positions * model_.hidden;
  set_layers(programs, alike);
  if (layout.execution->kept.empty_gradients) set_empty_gradients(layout.precision);
  const int64_t tokens = layout.micro_batch * programs.sequence() / layout.context;
  // The stored residuals of all lower blocks are sent, too.
  const int64_t stored = model_.residual_block > 0 ? (model_.layers.count() - 1) / model_.residual_block : 0;
  boundary_bytes_ =
      LayerBuilder::rounded((layout.sequence_parallel ? tokens / layout.tensor : tokens) * model_.hidden *
                            (model_.residual_streams + stored) * element_bytes(layout.precision));
}

void StagePieces::enlarge(MemoryUse use) {
  enlarged_ = use;
  std::vector<Piece*> heads{&head_};
  for (size_t i = 2; i < next_token_.size(); i += 3) heads.push_back(&next_token_[i]);
  const auto enlarge = [&](int64_t& bytes) { bytes = enlarged(bytes, MemoryUse::logits, use); };
  for (Piece* const head : heads) {
    std::for_each(head->kept.begin(), head->kept.end(), enlarge);
    for (int64_t Piece::*bytes : {&Piece::computed, &Piece::forward_workspace, &Piece::backward_workspace,
                                  &Piece::gradient_kept, &Piece::weight_workspace, &Piece::weight_operands})
      enlarge(head->*bytes);
  }
  enlarge(freed_logits_);
}

// Most kinds need no separate program: their layers have the bytes of an earlier kind.
void StagePieces::set_layers(PiecePrograms& programs, const StagePieces* alike) {
  if (alike != nullptr) dense_gradient_shapes_ = alike->dense_gradient_shapes_;
  for (size_t kind = 0; kind < kinds_->size(); ++kind) {
    if (const size_t first = kinds_->first_in_memory(kind); first < kind) {
      layer_of_kind_.push_back(layer_of_kind_[first]);
      continue;
    }
    layer_of_kind_.push_back(layers_.size());
    const bool experts = kinds_->has_experts(kind);
    if (alike != nullptr && !experts) {
      layers_.push_back(alike->layers_[alike->layer_of_kind_[kind]]);
      continue;
    }
    const LayerProgram& layer = programs.layer(kind);
    layers_.push_back(piece_of(layer));
    const Execution& execution = programs.layout().execution;
    if (execution.states.frees_pieces || execution.states.late_gradients)
      layers_.back().backward_workspace = workspace_by_operator(
          layer, execution.states.frees_pieces ? element_bytes(programs.layout().precision) : 0);
    int64_t& input = layers_.back().kept[size_t(Recompute::full)];
    input = std::min(layers_.back().computed, input * execution.kept.full_recompute_inputs);
    if (execution.kept.waits_on_host) {
      layers_.back().backward_workspace += layers_.back().kept[size_t(programs.layout().recompute)];
      layers_.back().kept.fill(0);
    }
    Shapes& shapes = experts ? expert_gradient_shapes_ : dense_gradient_shapes_;
    for (const Operator& op : layer.operators)
      if (is_product(op.shape)) add_new(shapes, {op.shape.columns, op.shape.inner});
  }
}

void StagePieces::set_head(const LayerProgram& program, const Execution& execution) {
  head_ = piece_of(program);
  for (auto& kept : head_.kept) kept = head_.computed;
  const bool frees = execution.kept.frees_logits && execution.kernels.loss == LossKernel::fp32;
  for (const Operator& op : program.operators) {
    const OperatorShape& s = op.shape;
    if (frees && s.kind == OperatorKind::cross_entropy)
      freed_logits_ = LayerBuilder::rounded(s.rows * s.columns * element_bytes(s.precision));
    if (model_.tied_embeddings && op.module == Module::head_output)
      (s.frozen ? tied_frozen_bytes_ : tied_parameters_) = s.frozen ? op.frozen_bytes : s.columns * s.inner;
  }
}

// Layers of next-token modules may have experts. None of these layers is recomputed.
void StagePieces::set_next_token(PiecePrograms& programs) {
  if (model_.next_token_layers == 0) return;
  const Layout& layout = programs.layout();
  const LayerProgram& layer = programs.layer(kinds_->of(model_.layers.count() - 1));
  for (int64_t depth = 0; depth < model_.next_token_layers; ++depth) {
    const LayerProgram input = next_token_input_program(model_, layout, programs.sequence(), depth);
    const Operator& lookup = input.operators.front();
    if (!lookup.shape.frozen) table_parameters_ = lookup.shape.inner * model_.hidden;
    if (!lookup.shape.frozen) copied_table_ += lookup.parameters;
    next_token_.push_back(piece_of(input));
    next_token_.push_back(piece_of(layer));
    next_token_.push_back(piece_of(next_token_head_program(model_, layout, programs.sequence())));
  }
  for (Piece& piece : next_token_) piece.kept.fill(piece.computed);
  if (!layout.execution->allocator.counts_each_buffer) work_at_once();
}

// Frameworks free less memory between these pieces. Five runs of Megatron-LM's CI took 3 to 6 % more than if
// the largest of these pieces works alone, and up to 5 % less than if all of them work at once.
void StagePieces::work_at_once() {
  for (int64_t Piece::*bytes :
       {&Piece::forward_workspace, &Piece::backward_workspace, &Piece::weight_workspace}) {
    int64_t sum = std::exchange(head_.*bytes, 0);
    for (Piece& piece : next_token_) sum += std::exchange(piece.*bytes, 0);
    next_token_.back().*bytes = sum;
  }
}

// One empty gradient of each shape, in the precision of weights; for routed experts, of one expert.
void StagePieces::set_empty_gradients(Precision precision) {
  Shapes shapes = expert_gradient_shapes_;
  for (const auto& shape : dense_gradient_shapes_) add_new(shapes, shape);
  for (const auto& [columns, inner] : shapes)
    empty_gradient_bytes_ += LayerBuilder::rounded(columns * inner * element_bytes(precision));
}

std::vector<StagePieces::Held> StagePieces::pieces_of(const Layout& layout, const StageContent& content,
                                                      size_t s) const {
  std::vector<Held> pieces;
  constexpr size_t kUsual = 6;
  pieces.reserve(kUsual);
  if (content.has_embedding) pieces.push_back({&embedding_, Recompute::none, boundary_bytes_});
  const int64_t full = recomputed_layers(layout, s, content.layer_count);
  for (int64_t i = 0; i < content.layer_count; ++i) {
    // The first layers of a stage recompute, since they would hold their activations for longest.
    const Recompute recompute =
        layout.recompute == Recompute::full && i >= full ? Recompute::none : layout.recompute;
    const Piece* const piece = &layers_[layer_of_kind_[kinds_->of(content.first_layer + i)]];
    if (!pieces.empty() && pieces.back().piece == piece && pieces.back().recompute == recompute)
      ++pieces.back().times;
    else
      pieces.push_back({piece, recompute, boundary_bytes_});
  }
  if (content.has_head) {
    pieces.push_back({&head_, Recompute::none, boundary_bytes_});
    for (const Piece& piece : next_token_) pieces.push_back({&piece, Recompute::none, boundary_bytes_});
  }
  // The first gradient arrives in a transfer slot, unless the framework receives it as an ordinary tensor.
  if (pieces.empty() || (!content.has_head && layout.execution->kept.receives_in_place)) return pieces;
  if (pieces.back().times > 1) {
    --pieces.back().times;
    pieces.push_back({pieces.back().piece, pieces.back().recompute, 0});
  }
  pieces.back().gradient_in = 0;
  return pieces;
}

// Memory changes equally from one equal piece to the next, so its peak is at the first or the last of them.

int64_t StagePieces::forward_peak(const std::vector<Held>& pieces) {
  int64_t held = 0, peak = 0;
  for (const Held& h : pieces) {
    const int64_t left = h.kept() + h.at_work.waits;
    held += h.times * left;
    peak = std::max(peak, held - left + h.piece->computed + h.piece->forward_workspace + h.at_work.forward);
  }
  return peak;
}

// A piece's gradients are whole when its activations are freed. Until then the copy above it is reduced.
int64_t StagePieces::backward_peak(const std::vector<Held>& pieces, int64_t held, bool first) {
  int64_t peak = held, reduced = 0;
  for (auto h = pieces.rbegin(); h != pieces.rend(); ++h) {
    const AtWork& own = h->at_work;
    const int64_t last_below = std::next(h) == pieces.rend() ? 0 : std::next(h)->at_work.backward;
    const int64_t change = (first ? own.late : 0) + own.stays - h->kept();
    const int64_t running =
        std::max(h->made_again() + h->piece->backward_workspace, own.gradients - h->kept()) + h->gradient_in +
        own.backward;
    for (const int64_t i : {int64_t(0), int64_t(1), h->times - 2, h->times - 1}) {
      if (i < 0 || i >= h->times) continue;
      const int64_t below = i + 1 < h->times ? own.backward : last_below;
      const int64_t runs = running + (i > 0 ? own.reduced : reduced) + (h == pieces.rbegin() ? 0 : below);
      peak = std::max(peak, held + i * change + std::max(runs, change + own.gradients + own.reduced + below));
    }
    held += h->times * change;
    reduced = own.reduced;
  }
  return peak;
}

// Like backward_peak(), but each piece keeps the memory that its weight gradient needs.
int64_t StagePieces::input_gradient_peak(const std::vector<Held>& pieces, int64_t held) {
  int64_t peak = held;
  for (auto h = pieces.rbegin(); h != pieces.rend(); ++h) {
    const int64_t computed = h->made_again();
    const int64_t workspace = std::max(h->piece->backward_workspace, h->piece->gradient_kept);
    const int64_t last = held + (h->times - 1) * (computed + h->piece->gradient_kept);
    peak = std::max({peak, held + computed + workspace, last + computed + workspace});
    held = last + computed + h->piece->gradient_kept;
  }
  return peak;
}

ParameterShare StagePieces::parameters(const StageContent& content) const {
  return parameters(kinds_->count(content.first_layer, content.first_layer + content.layer_count),
                    content.has_embedding, content.has_head);
}

ParameterShare StagePieces::parameters(const KindCounts& layers, bool embedding, bool head) const {
  ParameterShare sum;
  const auto add = [&](const Piece& piece, int64_t times) {
    using P = ParameterShare;
    for (int64_t P::*part :
         {&P::dense, &P::expert, &P::frozen_bytes, &P::frozen_expert_bytes, &P::scale_bytes})
      sum.*part += times * piece.parameters.*part;
  };
  for (size_t kind = 0; kind < layers.size(); ++kind) add(layers_[layer_of_kind_[kind]], layers[kind]);
  if (embedding) add(embedding_, 1);
  if (head) add(head_, 1);
  for (const Piece& piece : next_token_) add(piece, head ? 1 : 0);
  sum.dense -= head && embedding ? tied_parameters_ : 0;
  sum.frozen_bytes -= head && embedding ? tied_frozen_bytes_ : 0;
  return sum;
}

double StagePieces::orthogonal_flop(const KindCounts& layers) const {
  double sum = 0.0;
  for (size_t kind = 0; kind < layers.size(); ++kind)
    sum += double(layers[kind]) * layers_[layer_of_kind_[kind]].orthogonal_flop;
  return sum;
}

int64_t StagePieces::least_layer_bytes() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Piece& piece : layers_) least = std::min(least, piece.computed + piece.backward_workspace);
  return least;
}

// For frameworks that free memory in between, the backward's workspace is the limit of both halves.
void StagePieces::set_split_workspaces(const Layout& layout, const std::vector<Held>& pieces,
                                       const StageContent& content, StageFootprint& f) const {
  if (layout.execution->kept.frees_after_input_gradient) {
    f.input_gradient_workspace_bytes = f.weight_gradient_workspace_bytes = f.backward_workspace_bytes;
    return;
  }
  const int64_t copy = content.has_head ? 0 : boundary_bytes_;  // of the arriving gradient
  f.input_gradient_workspace_bytes =
      input_gradient_peak(pieces, f.saved_bytes + copy) - std::max(f.saved_bytes, f.saved_for_weight_bytes);
  int64_t& most = f.weight_gradient_workspace_bytes;
  for (const Held& h : pieces) most = std::max(most, h.piece->weight_workspace);
}

StageFootprint StagePieces::footprint(const Layout& layout, const StageContent& content, size_t s) const {
  std::vector<Held> pieces = pieces_of(layout, content, s);
  const StateCounts counts = state_counts(layout, content, pieces);
  StageFootprint footprint;
  add_state(layout, counts, footprint);
  for (const Held& h : pieces) footprint.late_gradient_bytes += h.times * h.at_work.late;
  footprint.late_gradient_bytes = std::min(footprint.late_gradient_bytes, footprint.gradient_bytes);
  footprint.boundary_bytes = boundary_bytes_;
  // With ZeRO 3 weights are gathered and narrowed again for each use, so no fp8 copies stay.
  const bool keeps_fp8_weights = layout.zero < 3 && layout.execution->kernels.narrows_apart;
  const Kept& kept = layout.execution->kept;
  for (const Held& h : pieces) {
    if (keeps_fp8_weights) footprint.parameter_bytes += h.times * h.piece->fp8_weights;
    footprint.saved_bytes += h.times * h.kept();
    footprint.saved_for_weight_bytes +=
        h.times * (kept.frees_after_input_gradient ? h.piece->weight_operands
                                                   : h.piece->computed + h.piece->gradient_kept);
  }
  const bool keeps_output = kept.keeps_stage_outputs && layout.stages() > 1;
  const int64_t logits = kept.returns_loss ? 0 : freed_logits_;
  if (keeps_output) footprint.saved_bytes += content.has_head ? logits : boundary_bytes_;
  if (!kept.frees_after_input_gradient)  // the copy of the arriving gradient
    footprint.saved_for_weight_bytes += content.has_head ? 0 : boundary_bytes_;
  // It stays allocated, and one action runs at a time, so a rank has it once.
  const bool in_place = footprint.receives_in_place = kept.receives_in_place && layout.stages() > 1;
  // Boundary tensors that are received ahead or still being sent.
  const int ends = int(!content.has_embedding) + int(!content.has_head);
  const int64_t stays = empty_gradient_bytes_ + (in_place && !keeps_output ? ends * boundary_bytes_ : 0);
  footprint.forward_workspace_bytes =
      std::max<int64_t>(0, forward_peak(pieces) - footprint.saved_bytes) + stays;
  const auto beyond_saved = [&](bool first) {
    return backward_peak(pieces, footprint.saved_bytes, first) - footprint.saved_bytes + stays;
  };
  footprint.backward_workspace_bytes = beyond_saved(false);
  if (footprint.late_gradient_bytes > 0) footprint.first_backward_workspace_bytes = beyond_saved(true);
  // All layers of a stage recompute their streams at once (CheckpointWithoutOutputManager of Megatron-LM).
  if (layout.selective.streams)
    footprint.backward_workspace_bytes += 2 * boundary_bytes_ * content.layer_count;
  set_split_workspaces(layout, pieces, content, footprint);
  // Another micro-batch's forward runs at the same time, layer by layer, with one more layer in memory.
  if (any_of(pieces, [&](const Held& h) { return is_layer(h) && layout.overlaps_exchange(h.recompute); })) {
    int64_t layer = 0;
    for (const Held& h : pieces)
      if (is_layer(h)) layer = std::max(layer, h.piece->computed + h.piece->forward_workspace);
    footprint.backward_workspace_bytes += layer;
    footprint.input_gradient_workspace_bytes += layer;
  }
  add_start(layout, counts, footprint);
  // Its gradients are fp32 in every precision.
  if (trains_shared_table(model_, layout) && layout.stages() > 1 && ends < 2)
    footprint.tied_embedding_bytes = vocabulary_share(model_, layout) * model_.hidden * 4;
  return footprint;
}

bool stages_alike(const LayerKinds& kinds, const StageContent& a, const StageContent& b) {
  return a.layer_count == b.layer_count && a.has_embedding == b.has_embedding && a.has_head == b.has_head &&
         kinds.alike(a.first_layer, b.first_layer, a.layer_count);
}

std::vector<StageFootprint> stage_footprints(const ModelSpec& model, const Layout& layout,
                                             const Workload& workload) {
  return stage_footprints(StagePieces(model, layout, workload.sequence), model, layout);
}

std::vector<StageFootprint> stage_footprints(const StagePieces& pieces, const ModelSpec& model,
                                             const Layout& layout) {
  const auto contents = stage_contents(model, layout);
  std::vector<StageFootprint> footprints;
  footprints.reserve(contents.size());
  for (size_t s = 0; s < contents.size(); ++s) {
    const bool alike = s > 0 && stages_alike(pieces.kinds(), contents[s - 1], contents[s]) &&
                       recomputed_layers(layout, s, contents[s].layer_count) ==
                           recomputed_layers(layout, s - 1, contents[s - 1].layer_count);
    footprints.push_back(alike ? footprints.back() : pieces.footprint(layout, contents[s], s));
  }
  return footprints;
}

}  // namespace mpt::models
