// SPDX-License-Identifier: Apache-2.0
#include "models/footprint.h"

#include <algorithm>
#include <optional>

#include "models/layer_builder.h"
#include "models/layer_program.h"

namespace mpt::models {
namespace {

// One piece of a stage as memory sees it.
struct Piece {
  int64_t kept = 0;      // from forward to backward
  int64_t computed = 0;  // what its forward makes before it drops what is recomputed
  int64_t forward_workspace = 0;
  int64_t backward_workspace = 0;
  int64_t gradient_kept = 0;
  int64_t gradient_in = 0;  // gradient that arrives from the piece above; 0 from a transfer slot or the loss
};

Piece piece_of(const LayerProgram& program, Recompute recompute) {
  Piece piece;
  piece.kept = saved_bytes(program, recompute);
  piece.computed = saved_bytes(program, Recompute::none);
  for (const Operator& op : program.operators) {
    piece.forward_workspace += op.forward_workspace_bytes;
    piece.backward_workspace += op.backward_workspace_bytes;
    piece.gradient_kept += op.gradient_kept_bytes;
  }
  return piece;
}

struct Bytes {
  int64_t parameter, gradient, optimizer;
};

// fp32: weight, gradient, two moments. bf16: weight, fp32 gradient, fp32 master weight and two moments
// (Micikevicius et al. 2018, arXiv:1710.03740; Megatron-LM's convention of 18 bytes a parameter).
Bytes parameter_state(int64_t count, Precision precision) {
  const auto buffer = [&](int64_t unit) { return LayerBuilder::rounded(count * unit); };
  if (precision == Precision::fp32) return {buffer(4), buffer(4), 2 * buffer(4)};
  return {buffer(2), buffer(4), 3 * buffer(4)};
}

struct StagePieces {
  std::vector<Piece> pieces;
  int64_t parameters = 0;

  void add(const LayerProgram& program, Recompute recompute) {
    pieces.push_back(piece_of(program, recompute));
    parameters += models::parameters(program);
  }
};

StagePieces pieces_of(const ModelSpec& model, const Layout& layout, int64_t sequence,
                      const StageContent& content) {
  StagePieces stage;
  if (content.has_embedding) stage.add(embedding_program(model, layout, sequence), Recompute::none);
  // Layers of one kind are equal: describe each kind once.
  std::optional<LayerProgram> dense, experts;
  for (int64_t l = content.first_layer; l < content.first_layer + content.layer_count; ++l) {
    auto& program = layer_has_experts(model, l) ? experts : dense;
    if (!program) program = layer_program(model, l, layout, sequence);
    stage.add(*program, layout.recompute);
  }
  if (content.has_head) {
    const LayerProgram head = head_program(model, layout, sequence);
    stage.add(head, Recompute::none);
    if (content.has_embedding && model.tied_embeddings) {
      for (const Operator& op : head.operators) {
        if (op.name == "head.output") stage.parameters -= op.shape.columns * op.shape.inner;
      }
    }
  }
  return stage;
}

int64_t forward_peak(const std::vector<Piece>& pieces) {
  int64_t held = 0, peak = 0;
  for (const Piece& piece : pieces) {
    peak = std::max(peak, held + piece.computed + piece.forward_workspace);
    held += piece.kept;
  }
  return peak;
}

int64_t backward_peak(const std::vector<Piece>& pieces, int64_t held) {
  int64_t peak = held;
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    const int64_t recomputed = piece->computed - piece->kept;
    peak = std::max(peak, held + recomputed + piece->backward_workspace + piece->gradient_in);
    held -= piece->kept;
  }
  return peak;
}

}  // namespace

StageFootprint stage_footprint(const ModelSpec& model, const Layout& layout, const Workload& workload,
                               const StageContent& content) {
  StagePieces stage = pieces_of(model, layout, workload.sequence, content);
  const int64_t unit = layout.precision == Precision::fp32 ? 4 : 2;
  const int64_t boundary =
      LayerBuilder::rounded(layout.micro_batch * workload.sequence * model.hidden * unit);
  for (size_t p = 0; p + 1 < stage.pieces.size(); ++p) stage.pieces[p].gradient_in = boundary;

  StageFootprint footprint;
  const Bytes state = parameter_state(stage.parameters, layout.precision);
  footprint.parameter_bytes = state.parameter;
  footprint.gradient_bytes = state.gradient;
  footprint.optimizer_bytes = state.optimizer;
  footprint.boundary_bytes = boundary;
  for (const Piece& piece : stage.pieces) {
    footprint.saved_bytes += piece.kept;
    footprint.saved_for_weight_bytes += piece.computed + piece.gradient_kept;
  }
  footprint.saved_for_weight_bytes += content.has_head ? 0 : boundary;  // the copy of the arriving gradient
  footprint.forward_workspace_bytes = forward_peak(stage.pieces) - footprint.saved_bytes;
  footprint.backward_workspace_bytes =
      backward_peak(stage.pieces, footprint.saved_bytes) - footprint.saved_bytes;
  if (model.tied_embeddings && layout.stages() > 1 && (content.has_embedding || content.has_head)) {
    const int64_t rows = (model.vocab + layout.tensor - 1) / layout.tensor;
    footprint.tied_embedding_bytes = rows * model.hidden * (layout.precision == Precision::fp32 ? unit : 4);
  }
  return footprint;
}

std::vector<StageFootprint> stage_footprints(const ModelSpec& model, const Layout& layout,
                                             const Workload& workload) {
  std::vector<StageFootprint> footprints;
  for (const StageContent& content : stage_contents(model, layout)) {
    footprints.push_back(stage_footprint(model, layout, workload, content));
  }
  return footprints;
}

}  // namespace mpt::models
