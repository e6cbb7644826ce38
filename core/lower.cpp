// SPDX-License-Identifier: Apache-2.0
#include "core/lower.h"

#include <array>
#include <numeric>

#include "base/error.h"
#include "core/action_memory.h"

namespace mpt {
namespace {

// An instruction without its final id: it has a nominal start, and waits for drafts by draft number. A step
// has millions, so each has space only for the few lanes and waits that every kind except reduce_norm needs.
struct Draft {
  InstructionKind kind = InstructionKind::forward;
  uint8_t lane_count = 0, wait_count = 0;
  int stage = -1, micro_batch = -1, receive_slot = -1, send_slot = -1;
  int64_t start = 0;
  int64_t end = 0;
  std::array<Lane, 2> lanes{};
  std::array<int, 3> waits{};

  void add_lane(Lane lane) { lanes[lane_count++] = lane; }
  void wait_for(int draft) { waits[wait_count++] = draft; }
};

class Lowering {
 public:
  Lowering(const Layout& layout, const Schedule& schedule, bool tied)
      : layout_(layout), schedule_(schedule), tied_(tied) {
    const size_t cells = size_t(schedule.stages()) * size_t(schedule.micro_batches);
    for (auto* table : {&forward_, &input_gradient_, &weight_gradient_, &activation_in_, &gradient_in_})
      table->assign(cells, -1);
  }

  StepProgram run() {
    const NominalPlacement placement = place_nominally(schedule_);
    slots_ = transfer_slots(schedule_, placement);
    drafts_.reserve(2 * placement.order.size() + 3 * size_t(schedule_.stages()) + 2);
    for (const auto& [rank, index] : placement.order)
      add_compute(schedule_.rows[size_t(rank)][size_t(index)], placement.start[size_t(rank)][size_t(index)]);
    sort_by_nominal_start();
    connect_slots();
    add_step_end();
    return assemble();
  }

 private:
  size_t cell(int stage, int micro_batch) const {
    return size_t(stage) * size_t(schedule_.micro_batches) + size_t(micro_batch);
  }
  int rank_of(int stage) const { return schedule_.rank_of_stage[size_t(stage)]; }
  bool crosses(int stage, int other) const { return rank_of(stage) != rank_of(other); }
  Lane lane(int rank, Stream stream) const {
    const bool transfer = stream != Stream::compute && stream != Stream::reduction;
    return {rank, layout_.overlap_transfer || !transfer ? stream : Stream::compute};
  }

  int add(const Draft& draft) {
    drafts_.push_back(draft);
    return int(drafts_.size()) - 1;
  }

  Draft draft_of(InstructionKind kind, int stage, Stream stream) const {
    Draft draft;
    draft.kind = kind;
    draft.stage = stage;
    draft.add_lane(lane(rank_of(stage), stream));
    return draft;
  }

  void add_compute(const Action& action, int64_t start) {
    const size_t at = cell(action.stage, action.micro_batch);
    Draft draft = draft_of(InstructionKind(action.kind), action.stage, Stream::compute);
    draft.micro_batch = action.micro_batch;
    draft.start = start;
    draft.end = start + nominal_duration(action.kind);
    switch (action.kind) {
      case ActionKind::forward:
        if (action.stage > 0) draft.wait_for(input_of(action.stage, -1, at, action.micro_batch));
        forward_[at] = add(draft);
        add_transfer(InstructionKind::transfer_activation, action.stage, action.stage + 1, action.micro_batch,
                     forward_[at]);
        break;
      case ActionKind::backward:
      case ActionKind::input_gradient:
        draft.wait_for(forward_[at]);
        if (action.stage + 1 < schedule_.stages())
          draft.wait_for(input_of(action.stage, +1, at, action.micro_batch));
        input_gradient_[at] = add(draft);
        if (action.kind == ActionKind::backward) weight_gradient_[at] = input_gradient_[at];
        add_transfer(InstructionKind::transfer_gradient, action.stage, action.stage - 1, action.micro_batch,
                     input_gradient_[at]);
        break;
      case ActionKind::weight_gradient:
        draft.wait_for(input_gradient_[at]);
        weight_gradient_[at] = add(draft);
        break;
    }
  }

  // The instruction that brings a stage its input: a transfer, or the neighbour's compute on the same rank.
  int input_of(int stage, int direction, size_t at, int micro_batch) const {
    const int transfer = direction < 0 ? activation_in_[at] : gradient_in_[at];
    if (transfer >= 0) return transfer;
    const size_t neighbour = cell(stage + direction, micro_batch);
    return direction < 0 ? forward_[neighbour] : input_gradient_[neighbour];
  }

  void add_transfer(InstructionKind kind, int from, int to, int micro_batch, int producer) {
    if (to < 0 || to >= schedule_.stages() || !crosses(from, to)) return;
    const bool activation = kind == InstructionKind::transfer_activation;
    Draft draft = draft_of(kind, from, activation ? Stream::activation_out : Stream::gradient_out);
    draft.micro_batch = micro_batch;
    draft.start = draft.end = drafts_[size_t(producer)].end;
    draft.add_lane(lane(rank_of(to), activation ? Stream::activation_in : Stream::gradient_in));
    draft.wait_for(producer);
    (activation ? activation_in_ : gradient_in_)[cell(to, micro_batch)] = add(draft);
  }

  // Sorts by nominal start. The order of creation settles ties and respects every wait. Starts are small
  // whole numbers, so the sort counts instead of comparing.
  void sort_by_nominal_start() {
    std::vector<int> place(size_t(max_of<int64_t>(drafts_, 0, &Draft::start)) + 2, 0);
    for (const Draft& d : drafts_) ++place[size_t(d.start) + 1];
    std::partial_sum(place.begin(), place.end(), place.begin());
    order_.resize(drafts_.size());
    for (size_t d = 0; d < drafts_.size(); ++d) order_[size_t(place[size_t(drafts_[d].start)]++)] = int(d);
  }

  // Transfers wait for the slots through which they leave and arrive.
  void connect_slots() {
    const size_t stages = size_t(schedule_.stages());
    std::vector<std::vector<int>> activations(stages), gradients(stages);  // by sending stage, in list order
    for (const int d : order_) {
      const Draft& i = drafts_[size_t(d)];
      if (i.kind == InstructionKind::transfer_activation) activations[size_t(i.stage)].push_back(d);
      if (i.kind == InstructionKind::transfer_gradient) gradients[size_t(i.stage)].push_back(d);
    }
    for (size_t s = 0; s + 1 < stages; ++s) {
      connect_send_side(activations[s], slots_[s].send_activation);
      connect_receive_side(activations[s], forward_, int(s) + 1, slots_[s + 1].receive_activation);
      connect_send_side(gradients[s + 1], slots_[s + 1].send_gradient);
      connect_receive_side(gradients[s + 1], input_gradient_, int(s), slots_[s].receive_gradient);
    }
  }

  // The producer fills a slot, and the end of the transfer frees it.
  void connect_send_side(const std::vector<int>& transfers, int slots) {
    for (size_t k = 0; k < transfers.size(); ++k) {
      Draft& transfer = drafts_[size_t(transfers[k])];
      Draft& producer = drafts_[size_t(transfer.waits[0])];
      transfer.send_slot = producer.send_slot = int(k) % slots;
      if (int(k) >= slots) producer.wait_for(transfers[k - size_t(slots)]);
    }
  }

  // The transfer fills a slot, and the end of the consumer frees it.
  void connect_receive_side(const std::vector<int>& transfers, const std::vector<int>& consumers, int stage,
                            int slots) {
    const auto consumer_of = [&](size_t k) {
      return consumers[cell(stage, drafts_[size_t(transfers[k])].micro_batch)];
    };
    for (size_t k = 0; k < transfers.size(); ++k) {
      drafts_[size_t(transfers[k])].receive_slot = int(k) % slots;
      drafts_[size_t(consumer_of(k))].receive_slot = int(k) % slots;
      if (int(k) >= slots) drafts_[size_t(transfers[k])].wait_for(consumer_of(k - size_t(slots)));
    }
  }

  // Gradient reduction of a stage starts after its last gradient. The norm follows, then the optimizer.
  void add_step_end() {
    std::vector<int> last(size_t(schedule_.stages()), -1);
    for (const int d : order_) {
      const Draft& i = drafts_[size_t(d)];
      if (i.kind == InstructionKind::backward || i.kind == InstructionKind::weight_gradient)
        last[size_t(i.stage)] = d;
    }
    ready_ = last;
    if (layout_.reduces_gradients()) {
      std::vector<int> stages(last.size());
      std::iota(stages.begin(), stages.end(), 0);
      sort_by(stages, [&](int s) { return drafts_[size_t(last[size_t(s)])].end; });
      for (const int s : stages) ready_[size_t(s)] = add_reduction(s, last[size_t(s)]);
    }
    add_tied_embedding();
    Draft reduction;
    reduction.kind = InstructionKind::reduce_norm;
    const int norm = add(reduction);
    order_.push_back(norm);
    for (int s = 0; s < schedule_.stages(); ++s) {
      append(InstructionKind::optimizer_step, s, Stream::compute, norm);
      if (layout_.changes_shares_of_whole_weights())
        append(InstructionKind::gather_parameters, s, Stream::reduction, order_.back());
    }
  }

  void append(InstructionKind kind, int stage, Stream stream, int wait) {
    Draft draft = draft_of(kind, stage, stream);
    draft.wait_for(wait);
    order_.push_back(add(draft));
  }

  int add_reduction(int stage, int last) {
    Draft draft = draft_of(InstructionKind::reduce_gradient, stage, Stream::reduction);
    draft.start = draft.end = drafts_[size_t(last)].end;
    draft.wait_for(last);
    const int d = add(draft);
    // After all instructions with the same or an earlier start, so that the list stays in nominal order.
    const auto at =
        std::upper_bound(order_.begin(), order_.end(), drafts_[size_t(d)].start,
                         [&](int64_t start, int other) { return start < drafts_[size_t(other)].start; });
    order_.insert(at, d);
    return d;
  }

  void add_tied_embedding() {
    const int final_stage = schedule_.stages() - 1;
    if (!tied_ || final_stage == 0) return;
    Draft draft = draft_of(InstructionKind::reduce_tied_embedding, 0, Stream::reduction);
    // In a V both stages are on one rank, which adds the gradients without a transfer.
    if (crosses(0, final_stage)) draft.add_lane(lane(rank_of(final_stage), Stream::reduction));
    draft.wait_for(ready_.front());
    draft.wait_for(ready_.back());
    ready_.front() = ready_.back() = add(draft);
    order_.push_back(ready_.front());
  }

  StepProgram assemble() const {
    StepProgram program;
    program.ranks = schedule_.ranks;
    program.stages = schedule_.stages();
    program.micro_batches = schedule_.micro_batches;
    program.rank_of_stage = schedule_.rank_of_stage;
    program.slots = slots_;
    std::vector<InstructionId> id_of(drafts_.size(), -1);
    program.instructions.reserve(order_.size());
    for (const int d : order_) {
      const Draft& draft = drafts_[size_t(d)];
      Instruction instruction;
      instruction.kind = draft.kind;
      instruction.stage = draft.stage;
      instruction.micro_batch = draft.micro_batch;
      instruction.receive_slot = draft.receive_slot;
      instruction.send_slot = draft.send_slot;
      instruction.first_lane = int32_t(program.lane_table.size());
      instruction.first_wait = int32_t(program.wait_table.size());
      add_lanes_and_waits(draft, id_of, program);
      instruction.lane_count = int32_t(program.lane_table.size()) - instruction.first_lane;
      instruction.wait_count = int32_t(program.wait_table.size()) - instruction.first_wait;
      id_of[size_t(d)] = program.size();
      program.instructions.push_back(instruction);
    }
    return program;
  }

  // The norm has a lane on every rank, and waits for the last gradient of every stage.
  void add_lanes_and_waits(const Draft& draft, std::span<const InstructionId> id_of,
                           StepProgram& program) const {
    if (draft.kind == InstructionKind::reduce_norm) {
      for (int r = 0; r < schedule_.ranks; ++r) program.lane_table.push_back(lane(r, Stream::reduction));
      for (const int wait : ready_) program.wait_table.push_back(id_of[size_t(wait)]);
      return;
    }
    for (size_t l = 0; l < draft.lane_count; ++l) program.lane_table.push_back(draft.lanes[l]);
    for (size_t w = 0; w < draft.wait_count; ++w) program.wait_table.push_back(id_of[size_t(draft.waits[w])]);
  }

  const Layout& layout_;
  const Schedule& schedule_;
  const bool tied_;
  std::vector<Draft> drafts_;
  std::vector<int> order_;
  std::vector<int> forward_, input_gradient_, weight_gradient_;  // draft of each stage and micro-batch
  std::vector<int> activation_in_, gradient_in_;                 // by receiving stage
  std::vector<int> ready_;                                       // instructions that the norm waits for
  std::vector<StageSlots> slots_;
};

void check_arguments(const Layout& layout, const Schedule& schedule,
                     const std::vector<StageFootprint>& footprints) {
  if (auto defect = find_defect(schedule)) refuse_input("schedule", *defect, "a schedule that can run");
  if (schedule.ranks != layout.pipeline || schedule.chunks != layout.chunks ||
      footprints.size() != size_t(schedule.stages()))
    refuse_input("schedule",
                 fmt::format("{} ranks x {} chunks with {} footprints", schedule.ranks, schedule.chunks,
                             footprints.size()),
                 fmt::format("{} ranks x {} chunks, as in the layout", layout.pipeline, layout.chunks));
}

void set_bytes_of(const std::vector<StageFootprint>& footprints, FirstGradients& gradients, Instruction& i) {
  switch (i.kind) {
    case InstructionKind::forward:
    case InstructionKind::backward:
    case InstructionKind::input_gradient:
    case InstructionKind::weight_gradient: {
      const bool first = gradients.are_made(ActionKind(i.kind), i.stage);
      const ActionMemory memory = memory_of(ActionKind(i.kind), footprints[size_t(i.stage)], first);
      i.acquire_bytes = memory.acquire_bytes;
      i.release_bytes = memory.release_bytes;
      i.workspace_bytes = memory.workspace_bytes;
      break;
    }
    case InstructionKind::transfer_activation:
      i.bytes = footprints[size_t(i.stage)].boundary_bytes;
      break;
    case InstructionKind::transfer_gradient:
      i.bytes = footprints[size_t(i.stage - 1)].boundary_bytes;
      break;
    case InstructionKind::reduce_gradient:
      i.bytes = footprints[size_t(i.stage)].gradient_bytes;
      break;
    case InstructionKind::reduce_tied_embedding:
      i.bytes = footprints.front().tied_embedding_bytes;
      break;
    case InstructionKind::reduce_norm:
      i.bytes = 16;  // the squared norm and the loss, in double
      break;
    case InstructionKind::optimizer_step:
      break;
    case InstructionKind::gather_parameters:
      i.bytes = footprints[size_t(i.stage)].parameter_bytes;
      break;
  }
}

// A micro-batch that a stage sends, and the time. `used_up`: when the neighbour is done with each
// micro-batch.
struct Sent {
  int micro_batch;
  int64_t at;
};

int receive_slots(const std::vector<Sent>& sent, const std::vector<int64_t>& used_up) {
  int needed = 1;
  size_t consumed = 0;  // of those sent, nominally used up before the next arrives
  for (size_t k = 0; k < sent.size(); ++k) {
    while (consumed < k && used_up[size_t(sent[consumed].micro_batch)] <= sent[k].at) ++consumed;
    needed = std::max(needed, int(k - consumed) + 1);
  }
  return std::min(needed + 1, int(sent.size()));
}

}  // namespace

void set_bytes(const std::vector<StageFootprint>& footprints, StepProgram& program) {
  FirstGradients gradients;
  for (Instruction& i : program.instructions) set_bytes_of(footprints, gradients, i);
  program.static_bytes.assign(size_t(program.ranks), 0);
  for (size_t s = 0; s < footprints.size(); ++s)
    program.static_bytes[size_t(program.rank_of_stage[s])] +=
        footprints[s].static_bytes() + program.slots[s].total() * footprints[s].slot_bytes();
}

StepProgram lower(const Layout& layout, const Schedule& schedule,
                  const std::vector<StageFootprint>& footprints) {
  check_arguments(layout, schedule, footprints);
  StepProgram program = Lowering(layout, schedule, footprints.front().tied_embedding_bytes > 0).run();
  set_bytes(footprints, program);
  if (auto defect = find_defect(program)) MPT_CHECK(false, "a lowered program has a defect: {}", *defect);
  return program;
}

std::vector<StageSlots> transfer_slots(const Schedule& schedule, const NominalPlacement& placement) {
  const auto stages = size_t(schedule.stages());
  std::vector<std::vector<Sent>> forward(stages), home(stages);
  std::vector<std::vector<int64_t>> forward_end(stages, std::vector<int64_t>(size_t(schedule.micro_batches)));
  std::vector<std::vector<int64_t>> home_end = forward_end;
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    for (size_t i = 0; i < schedule.rows[r].size(); ++i) {
      const Action& action = schedule.rows[r][i];
      if (action.kind == ActionKind::weight_gradient) continue;
      const int64_t end = placement.start[r][i] + nominal_duration(action.kind);
      const bool onward = action.kind == ActionKind::forward;
      (onward ? forward : home)[size_t(action.stage)].push_back({action.micro_batch, end});
      (onward ? forward_end : home_end)[size_t(action.stage)][size_t(action.micro_batch)] = end;
    }
  std::vector<StageSlots> slots(stages);
  for (size_t s = 0; s + 1 < stages; ++s) {
    if (schedule.rank_of_stage[s] == schedule.rank_of_stage[s + 1]) continue;
    slots[s].send_activation = slots[s + 1].send_gradient = std::min(2, schedule.micro_batches);
    slots[s + 1].receive_activation = receive_slots(forward[s], forward_end[s + 1]);
    slots[s].receive_gradient = receive_slots(home[s + 1], home_end[s]);
  }
  return slots;
}

std::vector<StageSlots> transfer_slots(const Schedule& schedule) {
  return transfer_slots(schedule, place_nominally(schedule));
}

}  // namespace mpt
