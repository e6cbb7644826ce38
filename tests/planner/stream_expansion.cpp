// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/stream_expansion.h"

#include <algorithm>
#include <utility>

#include "planner/cost/operator_times.h"

namespace mpt::planner {
namespace {

// One piece of a stage, and its part of what the stage's parameters send.
struct Part {
  const PieceTimes* piece = nullptr;
  bool recomputes = false;
  double share = 0.0;
};

struct StageParts {
  std::vector<Part> parts;  // in model order
  StateCost state;
  double lost = 0.0;        // of data-parallel traffic, what compute beside it loses
  double dispatch_s = 0.0;  // of one instruction
};

// Tasks of one instruction, one behind the other but for what runs beside.
class InstructionLine {
 public:
  InstructionLine(StreamProgram& program, InstructionId id, int rank, std::vector<int32_t> waits)
      : program_(program), id_(id), rank_(rank), open_(std::move(waits)) {}

  /// What the next task behind the others waits for.
  const std::vector<int32_t>& open() const { return open_; }
  void wait_for(int32_t task) { open_.push_back(task); }

  /// Starts or ends the instruction: takes its compute stream, however short it is.
  int32_t mark(double seconds) {
    open_ = {add(int(Stream::compute), seconds, 0.0, open_)};
    return open_.front();
  }
  /// Data-parallel traffic, beside what comes next.
  int32_t send(double seconds, double lost, std::span<const int32_t> waits) {
    return add(task_stream(CommunicationKind::sharding), seconds, lost, waits);
  }
  void run(const PieceTimes& piece, InstructionKind pass, bool recomputes) {
    const double operators_s = piece.operators_s(pass, recomputes);
    const double rest_s = seconds_of(piece.rest[size_t(recomputes)], pass);
    // A piece that was timed as a whole may be faster than its operators one by one.
    const double stretch = operators_s > 0.0 ? std::max(0.0, 1.0 + std::min(0.0, rest_s) / operators_s) : 1.0;
    for (const OperatorTime& op : piece.operators) {
      if (pass == InstructionKind::forward) run(stretch * op.forward_s, op.forward, 1.0);
      if (has_input_gradient(pass) && recomputes && op.again > 0.0)
        run(stretch * op.again * op.forward_s, op.forward, op.again);
    }
    const bool weights = has_weight_gradient(pass);
    for (auto op = piece.operators.rbegin(); op != piece.operators.rend(); ++op) {
      if (has_input_gradient(pass))
        run(stretch * op->input_gradient_s, weights ? op->backward : op->split_backward, 1.0);
      if (!weights) continue;
      static const OperatorCollectives none;
      run(stretch * op->weight_gradient_s, has_input_gradient(pass) ? op->weight : none, 1.0);
    }
    compute(rest_s);
  }

 private:
  int32_t add(int stream, double seconds, double lost, std::span<const int32_t> waits) {
    const TaskLane lane{rank_, stream};
    return program_.add({seconds, lost, id_}, std::span(&lane, 1), waits);
  }
  void compute(double seconds) {
    if (seconds > 0.0) open_ = {add(int(Stream::compute), seconds, 0.0, open_)};
  }
  void communicate(const CollectiveCost& c, double share, double lost) {
    const double seconds = share * c.apart_s;
    if (seconds > 0.0) open_ = {add(task_stream(c.kind), seconds, lost, open_)};
  }

  // What gathers inputs comes before the operator, what sends results behind it, and the rest beside.
  void run(double compute_s, const OperatorCollectives& collectives, double share) {
    const auto gathers = [](const CollectiveCost& c) {
      return c.collective.kind == models::CollectiveKind::all_gather;
    };
    const auto [beside_share, lost] = collectives.beside;
    double beside_s = 0.0;
    for (const CollectiveCost& c : collectives.costs) {
      beside_s += c.seconds - c.apart_s - c.away_s;
      if (gathers(c)) communicate(c, share, lost);
    }
    if (beside_s > 0.0) {
      compute((1.0 - beside_share) * compute_s);
      run_beside(beside_share * compute_s, collectives, share);
    } else {
      compute(compute_s);
    }
    for (const CollectiveCost& c : collectives.costs) {
      if (!gathers(c)) communicate(c, share, lost);
    }
  }
  void run_beside(double compute_s, const OperatorCollectives& collectives, double share) {
    const std::vector<int32_t> before = open_;
    std::vector<int32_t> last = before;
    for (const CollectiveCost& c : collectives.costs) {
      const double seconds = share * (c.seconds - c.apart_s - c.away_s);
      if (seconds > 0.0) last = {add(task_stream(c.kind), seconds, collectives.beside.lost, last)};
    }
    open_ = {add(int(Stream::compute), compute_s, 0.0, before)};
    open_.insert(open_.end(), last.begin(), last.end());
  }
  StreamProgram& program_;
  const InstructionId id_;
  const int rank_;
  std::vector<int32_t> open_;
};

class Expansion {
 public:
  Expansion(const SearchProblem& problem, const Layout& layout, const StepProgram& steps)
      : layout_(layout),
        steps_(steps),
        split_(problem, layout),
        devices_(devices_of(problem, split_, layout)),
        kinds_(stage_kinds(devices_, layout, steps.rank_of_stage)),
        pricer_(devices_, split_.pieces, problem.model, layout),
        buckets_(size_t(steps.stages)),
        ahead_(size_t(steps.stages)) {
    pricer_.price(kinds_, layout.recompute, cost_);
    models::PiecePrograms programs(problem.model, layout, problem.workload.sequence);
    for (const CostSource* source : devices_.sources) pieces_.push_back(piece_times(programs, *source));
    const auto contents = stage_contents(problem.model, layout);
    for (size_t s = 0; s < contents.size(); ++s) stages_.push_back(parts_of(contents[s], s));
    for (const Instruction& i : steps.instructions) {
      if (i.kind == InstructionKind::reduce_gradient && layout_.reduces_in_backward())
        last_of_stages_.push_back(steps.waits(InstructionId(&i - steps.instructions.data())).front());
    }
    std::sort(last_of_stages_.begin(), last_of_stages_.end());
  }

  /// First and last task of each instruction.
  std::vector<std::pair<int32_t, int32_t>> expand(StreamProgram& program) && {
    program_.ranks = steps_.ranks;
    ends_.resize(steps_.instructions.size());
    if (gathers_ahead()) gather_ahead();
    for (InstructionId id = 0; id < steps_.size(); ++id) {
      const Instruction& i = steps_.instructions[size_t(id)];
      if (i.kind <= InstructionKind::weight_gradient) {
        take_apart(id, i);
      } else {
        keep_whole(id, i);
      }
    }
    program = std::move(program_);
    return std::move(ends_);
  }

 private:
  bool gathers_ahead() const { return layout_.gathers_after_step() && layout_.overlap_parameter_gather; }

  StageParts parts_of(const StageContent& content, size_t s) {
    const StageKind& kind = kinds_.kinds[kinds_.kind_of_stage[s]];
    const size_t device = slowest_device(kind);
    StageParts stage{{},
                     pricer_.state_cost(device, kind),
                     devices_.sources[device]->overlap_share(data_group(layout_)),
                     devices_.sources.front()->dispatch_s()};
    const ModelPieces& pieces = pieces_[device];
    const int64_t recomputed =
        layout_.recomputed_layers.empty() ? content.layer_count : layout_.recomputed_layers[s];
    const models::LayerKinds& layer_kinds = devices_.pieces[device].kinds();
    if (content.has_embedding) stage.parts.push_back({&pieces.embedding});
    for (int64_t l = 0; l < content.layer_count; ++l)
      stage.parts.push_back({&pieces.layers[layer_kinds.of(content.first_layer + l)],
                             layout_.recompute != Recompute::none && l < recomputed});
    if (content.has_head) stage.parts.push_back({&pieces.head});
    int64_t parameters = 0;
    for (const Part& part : stage.parts) parameters += part.piece->parameters.total();
    for (Part& part : stage.parts)
      part.share = double(part.piece->parameters.total()) / double(std::max<int64_t>(1, parameters));
    return stage;
  }

  size_t slowest_device(const StageKind& kind) const {
    size_t slowest = 0;
    double most_s = -1.0;
    for (size_t d = 0; d < devices_.sources.size(); ++d) {
      if (!(kind.devices >> d & 1)) continue;
      const PieceCost cost = devices_.pieces[d].stage(kind, layout_.recompute);
      if (cost.forward_s + cost.backward_s > most_s) slowest = d;
      most_s = std::max(most_s, cost.forward_s + cost.backward_s);
    }
    return slowest;
  }

  std::vector<int32_t> ends_of(std::span<const InstructionId> waits) const {
    std::vector<int32_t> ends;
    for (const InstructionId wait : waits) ends.push_back(ends_[size_t(wait)].second);
    return ends;
  }

  // Weights that the optimizers of the step before have changed arrive beside this one's first forwards.
  void gather_ahead() {
    std::vector<InstructionId> first(stages_.size(), -1);
    for (InstructionId id = 0; id < steps_.size(); ++id) {
      const Instruction& i = steps_.instructions[size_t(id)];
      if (i.kind == InstructionKind::forward && first[size_t(i.stage)] < 0) first[size_t(i.stage)] = id;
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      const StageParts& stage = stages_[s];
      InstructionLine line(program_, first[s], steps_.rank_of_stage[s], {});
      for (const Part& part : stage.parts)
        ahead_[s].push_back(line.send(part.share * stage.state.gather_s, stage.lost, {}));
    }
  }

  void take_apart(InstructionId id, const Instruction& i) {
    const auto s = size_t(i.stage);
    const StageParts& stage = stages_[s];
    const bool forward = i.kind == InstructionKind::forward;
    const ShardedTraffic& traffic = stage.state.traffic;
    const double gather_s = forward ? traffic.forward_s : traffic.backward_s;
    const bool gathers = gather_s > 0.0 && i.kind != InstructionKind::weight_gradient;
    const bool scatters = traffic.scatter_s > 0.0 && has_weight_gradient(i.kind);
    const bool reduces = std::binary_search(last_of_stages_.begin(), last_of_stages_.end(), id);
    const std::vector<int32_t> ahead =
        forward ? std::exchange(ahead_[s], {}) : std::vector<int32_t>{};  // of the first forward alone
    InstructionLine line(program_, id, steps_.rank_of_stage[s], ends_of(steps_.waits(id)));
    ends_[size_t(id)].first = line.mark(stage.dispatch_s);
    // Traffic of one piece's share, behind what has been done so far.
    const auto send = [&](const Part& part, double stage_s) {
      return line.send(part.share * stage_s, stage.lost, line.open());
    };
    std::vector<int32_t> sent;
    int32_t gathered = -1;
    const size_t count = stage.parts.size();
    for (size_t k = 0; k < count; ++k) {
      const auto part_at = [&](size_t at) -> const Part& {
        return stage.parts[forward ? at : count - 1 - at];
      };
      const Part& part = part_at(k);
      const auto gather = [&](const Part& of) { return send(of, gather_s); };
      if (gathers) {
        const bool early = layout_.overlap_parameter_gather;
        const int32_t own = early && k > 0 ? gathered : gather(part);
        if (early && k + 1 < count) gathered = gather(part_at(k + 1));
        line.wait_for(own);
      }
      if (!ahead.empty()) line.wait_for(ahead[k]);
      line.run(*part.piece, i.kind, part.recomputes);
      if (scatters) sent.push_back(send(part, traffic.scatter_s));
      if (scatters && !layout_.overlap_gradient_reduce) line.wait_for(sent.back());
      if (reduces) buckets_[s].push_back(send(part, stage.state.reduction_s));
    }
    for (const int32_t task : sent) line.wait_for(task);
    ends_[size_t(id)].second = line.mark(0.0);
  }

  void keep_whole(InstructionId id, const Instruction& i) {
    std::vector<int32_t> waits = ends_of(steps_.waits(id));
    double seconds = cost_.of(i);
    if (i.kind == InstructionKind::reduce_gradient && layout_.reduces_in_backward()) {
      seconds = stages_[size_t(i.stage)].dispatch_s;
      const std::vector<int32_t>& buckets = buckets_[size_t(i.stage)];
      waits.insert(waits.end(), buckets.begin(), buckets.end());
    }
    if (i.kind == InstructionKind::gather_parameters && gathers_ahead())
      seconds = stages_[size_t(i.stage)].dispatch_s;
    std::vector<TaskLane> lanes;
    for (const Lane& lane : steps_.lanes(id)) lanes.push_back({lane.rank, int(lane.stream)});
    StreamTask task{seconds, 0.0, id};
    const int32_t only = program_.add(task, lanes, waits);
    ends_[size_t(id)] = {only, only};
  }

  const Layout& layout_;
  const StepProgram& steps_;
  const SplitModel split_;
  const DeviceCosts devices_;
  const StageKinds kinds_;
  StepPricer pricer_;
  StepCost cost_;
  std::vector<ModelPieces> pieces_;  // by device
  std::vector<StageParts> stages_;
  std::vector<InstructionId> last_of_stages_;  // with which the last gradients of their stages are there
  std::vector<std::vector<int32_t>> buckets_, ahead_;  // by stage
  std::vector<std::pair<int32_t, int32_t>> ends_;      // first and last task of an instruction
  StreamProgram program_;
};

}  // namespace

StreamStep simulate_streams(const SearchProblem& problem, const Layout& layout, const StepProgram& program) {
  StreamStep step;
  const auto ends = Expansion(problem, layout, program).expand(step.program);
  step.spans = simulate(step.program, contention_of(problem, layout));
  for (const auto& [first, last] : ends)
    step.timeline.spans.push_back({step.spans[size_t(first)].start_s, step.spans[size_t(last)].end_s});
  return step;
}

}  // namespace mpt::planner
