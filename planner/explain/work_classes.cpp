// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/operators.h"

#include "base/ranges.h"
#include "planner/simulate/rounds.h"

namespace mpt::planner {
namespace {

using models::OperatorKind;

constexpr InstructionKind kComputePasses[] = {InstructionKind::forward, InstructionKind::backward,
                                              InstructionKind::input_gradient,
                                              InstructionKind::weight_gradient};

WorkClass class_of(OperatorKind kind) {
  if (kind == OperatorKind::linear) return WorkClass::products;
  if (kind == OperatorKind::expert_linear) return WorkClass::grouped_products;
  const bool attends =
      kind == OperatorKind::attention || kind == OperatorKind::index || kind == OperatorKind::recurrence;
  return attends ? WorkClass::attention : WorkClass::elementwise;
}

WorkClass class_of(CommunicationKind kind) {
  if (kind == CommunicationKind::expert) return WorkClass::expert_exchange;
  const bool of_tensors = kind == CommunicationKind::tensor || kind == CommunicationKind::context;
  return of_tensors ? WorkClass::tensor_collectives : WorkClass::data_parallel;
}

// The class of instructions that are neither forward nor backward.
WorkClass class_of(InstructionKind kind) {
  if (kind == InstructionKind::optimizer_step) return WorkClass::optimizer;
  const bool transfers =
      kind == InstructionKind::transfer_activation || kind == InstructionKind::transfer_gradient;
  return transfers ? WorkClass::transfers : WorkClass::data_parallel;
}

double& in_class(WorkSeconds& work, WorkClass c) { return work[size_t(c)]; }

WorkSeconds class_work(const PieceTimes& piece, InstructionKind pass, bool recomputes) {
  WorkSeconds work{};
  for (const OperatorTime& op : piece.operators) {
    double& seconds = in_class(work, class_of(op.kind));
    if (pass == InstructionKind::forward) seconds += op.forward_s;
    if (has_input_gradient(pass))
      seconds += op.input_gradient_s + (recomputes ? op.again * op.forward_s : 0.0);
    if (has_weight_gradient(pass)) seconds += op.weight_gradient_s;
  }
  in_class(work, WorkClass::host) += std::max(0.0, seconds_of(piece.rest[size_t(recomputes)], pass));
  return work;
}

// The content of a stage. Stages with equal content do the same work.
struct Contents {
  models::KindCounts kept, recomputed;
  bool embedding = false, head = false;
  bool operator<(const Contents& o) const {
    return std::tie(kept, recomputed, embedding, head) < std::tie(o.kept, o.recomputed, o.embedding, o.head);
  }
};

std::vector<Contents> contents_of(const ModelSpec& model, const Layout& layout) {
  std::vector<Contents> all;
  const models::LayerKinds kinds(model);
  for (const StageContent& content : stage_contents(model, layout)) {
    Contents& stage = all.emplace_back();
    const size_t s = all.size() - 1;
    stage.embedding = content.has_embedding;
    stage.head = content.has_head;
    const int64_t recomputed = layout.recompute == Recompute::none ? 0
                               : layout.recomputed_layers.empty()  ? content.layer_count
                                                                   : layout.recomputed_layers[s];
    const int64_t middle = content.first_layer + std::min(recomputed, content.layer_count);
    stage.recomputed = kinds.count(content.first_layer, middle);
    stage.kept = kinds.count(middle, content.first_layer + content.layer_count);
  }
  return all;
}

WorkSeconds class_work(const ModelPieces& pieces, const Contents& stage, InstructionKind pass) {
  WorkSeconds sum{};
  const auto add = [&](const PieceTimes& piece, bool recomputes, int64_t times) {
    if (times == 0) return;
    const WorkSeconds work = class_work(piece, pass, recomputes);
    for (size_t c = 0; c < kWorkClasses; ++c) sum[c] += double(times) * work[c];
  };
  for (size_t kind = 0; kind < pieces.layers.size(); ++kind) {
    add(pieces.layers[kind], false, stage.kept[kind]);
    add(pieces.layers[kind], true, stage.recomputed[kind]);
  }
  add(pieces.embedding, false, int64_t(stage.embedding));
  add(pieces.head, false, int64_t(stage.head));
  return sum;
}

}  // namespace

InstructionWork::InstructionWork(const SearchProblem& problem, const Candidate& candidate)
    : candidate_(candidate) {
  const Layout& layout = candidate.estimate.layout;
  models::PiecePrograms programs(problem.model, layout, problem.workload.sequence);
  const ModelPieces pieces = piece_times(programs, problem.source(0));
  std::map<Contents, PassWork> known;
  for (const Contents& stage : contents_of(problem.model, layout)) {
    const auto [entry, is_new] = known.try_emplace(stage);
    for (size_t p = 0; is_new && p < std::size(kComputePasses); ++p)
      entry->second[p] = class_work(pieces, stage, kComputePasses[p]);
    stages_.push_back(entry->second);
  }
}

WorkSeconds InstructionWork::shares(InstructionId id) const {
  const Evaluation& e = candidate_.evaluation;
  const Instruction& i = e.program.instructions[size_t(id)];
  WorkSeconds shares{};
  const double whole_s = e.durations_s[size_t(id)];
  if (i.kind > InstructionKind::weight_gradient || whole_s <= 0.0) {
    in_class(shares, class_of(i.kind)) = 1.0;
    return shares;
  }
  const InsideCompute& inside = candidate_.estimate.cost.inside_compute(i);
  for (size_t k = 0; k < kInsideKinds; ++k)
    in_class(shares, class_of(CommunicationKind(k))) += inside.seconds[k] / whole_s;
  const WorkSeconds& compute = stages_[size_t(i.stage)][size_t(i.kind)];
  const double sum_s = sum_of<double>(compute, std::identity());
  const double left_s = std::max(0.0, whole_s - inside.total());
  // A piece that was timed as a whole may be faster than the sum of its operators.
  const double scale = sum_s > left_s ? left_s / sum_s : 1.0;
  for (size_t c = 0; c < kWorkClasses; ++c) shares[c] += scale * compute[c] / whole_s;
  in_class(shares, WorkClass::host) += (left_s - scale * sum_s) / whole_s;
  return shares;
}

WorkSeconds critical_work(const SearchProblem& problem, const Candidate& candidate) {
  const Evaluation& e = candidate.evaluation;
  const InstructionWork work(problem, candidate);
  const auto last = max_by(e.timeline.spans, [](const Span& span) { return span.end_s; });
  WorkSeconds sum{};
  for (const PathPart& part : critical_path(
           e.program, e.timeline, InstructionId(last - e.timeline.spans.begin()), e.more_micro_batches)) {
    const WorkSeconds shares = work.shares(part.id);
    const double seconds = double(part.times) * e.timeline.spans[size_t(part.id)].seconds();
    for (size_t c = 0; c < kWorkClasses; ++c) sum[c] += seconds * shares[c];
  }
  return sum;
}

}  // namespace mpt::planner
