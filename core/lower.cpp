// SPDX-License-Identifier: Apache-2.0
#include "core/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>

#include "base/error.h"
#include "core/action_memory.h"
#include "core/transfer_slots.h"

namespace mpt {
namespace {

// A list whose first few elements need no allocation: a step has millions of drafts with one to three of
// each.
template <class T>
class ShortList {
 public:
  ShortList() = default;
  ShortList(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }
  void push_back(const T& value) {
    if (size_ < kInside) {
      inside_[size_] = value;
    } else {
      if (size_ == kInside) beyond_.assign(inside_.begin(), inside_.end());
      beyond_.push_back(value);
    }
    ++size_;
  }
  size_t size() const { return size_; }
  const T* begin() const { return size_ <= kInside ? inside_.data() : beyond_.data(); }
  const T* end() const { return begin() + size_; }
  const T& front() const { return *begin(); }

 private:
  static constexpr size_t kInside = 3;
  std::array<T, kInside> inside_{};
  size_t size_ = 0;
  std::vector<T> beyond_;
};

// An instruction before ids are given: placed at a nominal start, waiting on drafts by draft number.
struct Draft {
  Instruction instruction;
  int64_t start = 0;
  int64_t end = 0;
  ShortList<Lane> lanes;
  ShortList<int> waits;
};

class Lowering {
 public:
  Lowering(const Layout& layout, const Schedule& schedule, const std::vector<StageFootprint>& footprints,
           const LowerOptions& options)
      : layout_(layout), schedule_(schedule), footprints_(footprints), options_(options) {
    const size_t cells = size_t(schedule.stages()) * size_t(schedule.micro_batches);
    for (auto* table : {&forward_, &input_gradient_, &weight_gradient_, &activation_in_, &gradient_in_}) {
      table->assign(cells, -1);
    }
  }

  StepProgram run() {
    const NominalPlacement placement = place_nominally(schedule_);
    slots_ = transfer_slots(schedule_, placement);
    drafts_.reserve(2 * placement.order.size() + 3 * size_t(schedule_.stages()) + 2);
    for (const auto& [rank, index] : placement.order) {
      add_compute(schedule_.rows[size_t(rank)][size_t(index)], placement.start[size_t(rank)][size_t(index)]);
    }
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
    const bool beside = !options_.single_lane && (layout_.overlap_transfer || !transfer);
    return {rank, beside ? stream : Stream::compute};
  }

  int add(Draft draft) {
    drafts_.push_back(std::move(draft));
    return int(drafts_.size()) - 1;
  }

  void add_compute(const Action& action, int64_t start) {
    const size_t at = cell(action.stage, action.micro_batch);
    Draft draft;
    draft.instruction.kind = InstructionKind(action.kind);
    draft.instruction.stage = action.stage;
    draft.instruction.micro_batch = action.micro_batch;
    draft.start = start;
    draft.end = start + nominal_duration(action.kind);
    draft.lanes = {lane(rank_of(action.stage), Stream::compute)};
    const ActionMemory memory = memory_of(action.kind, footprints_[size_t(action.stage)]);
    draft.instruction.acquire_bytes = memory.acquire_bytes;
    draft.instruction.release_bytes = memory.release_bytes;
    draft.instruction.workspace_bytes = memory.workspace_bytes;
    switch (action.kind) {
      case ActionKind::forward:
        if (action.stage > 0) draft.waits.push_back(input_of(action.stage, -1, at, action.micro_batch));
        forward_[at] = add(std::move(draft));
        add_transfer(InstructionKind::transfer_activation, action.stage, action.stage + 1, action.micro_batch,
                     forward_[at]);
        break;
      case ActionKind::backward:
      case ActionKind::input_gradient:
        draft.waits.push_back(forward_[at]);
        if (action.stage + 1 < schedule_.stages())
          draft.waits.push_back(input_of(action.stage, +1, at, action.micro_batch));
        input_gradient_[at] = add(std::move(draft));
        if (action.kind == ActionKind::backward) weight_gradient_[at] = input_gradient_[at];
        add_transfer(InstructionKind::transfer_gradient, action.stage, action.stage - 1, action.micro_batch,
                     input_gradient_[at]);
        break;
      case ActionKind::weight_gradient:
        draft.waits.push_back(input_gradient_[at]);
        weight_gradient_[at] = add(std::move(draft));
        break;
    }
  }

  // What brings a stage its input: the transfer, or the neighbour's own compute where both are on one rank.
  int input_of(int stage, int direction, size_t at, int micro_batch) const {
    const int transfer = direction < 0 ? activation_in_[at] : gradient_in_[at];
    if (transfer >= 0) return transfer;
    const size_t neighbour = cell(stage + direction, micro_batch);
    return direction < 0 ? forward_[neighbour] : input_gradient_[neighbour];
  }

  void add_transfer(InstructionKind kind, int from, int to, int micro_batch, int producer) {
    if (to < 0 || to >= schedule_.stages() || !crosses(from, to)) return;
    const bool activation = kind == InstructionKind::transfer_activation;
    Draft draft;
    draft.instruction.kind = kind;
    draft.instruction.stage = from;
    draft.instruction.micro_batch = micro_batch;
    draft.instruction.bytes = footprints_[size_t(activation ? from : to)].boundary_bytes;
    draft.start = draft.end = drafts_[size_t(producer)].end;
    draft.lanes = {lane(rank_of(from), activation ? Stream::activation_out : Stream::gradient_out),
                   lane(rank_of(to), activation ? Stream::activation_in : Stream::gradient_in)};
    draft.waits = {producer};
    (activation ? activation_in_ : gradient_in_)[cell(to, micro_batch)] = add(std::move(draft));
  }

  // Order of the list: nominal start; the order of creation settles ties and respects every wait. Starts are
  // small whole numbers, so they are counted rather than compared.
  void sort_by_nominal_start() {
    int64_t last = 0;
    for (const Draft& d : drafts_) last = std::max(last, d.start);
    std::vector<int> place(size_t(last) + 2, 0);
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
      const Instruction& i = drafts_[size_t(d)].instruction;
      if (i.kind == InstructionKind::transfer_activation) activations[size_t(i.stage)].push_back(d);
      if (i.kind == InstructionKind::transfer_gradient) gradients[size_t(i.stage)].push_back(d);
    }
    for (int s = 0; s < schedule_.stages(); ++s) {
      const auto from = size_t(s);
      if (!activations[from].empty()) {
        connect_send_side(activations[from], slots_[from].send_activation);
        connect_receive_side(activations[from], forward_, s + 1, slots_[from + 1].receive_activation);
      }
      if (!gradients[from].empty()) {
        connect_send_side(gradients[from], slots_[from].send_gradient);
        connect_receive_side(gradients[from], input_gradient_, s - 1, slots_[from - 1].receive_gradient);
      }
    }
  }

  // A slot is filled by the producer and free again once the transfer is done.
  void connect_send_side(const std::vector<int>& transfers, int slots) {
    for (size_t k = 0; k < transfers.size(); ++k) {
      Draft& transfer = drafts_[size_t(transfers[k])];
      Draft& producer = drafts_[size_t(transfer.waits.front())];
      transfer.instruction.send_slot = producer.instruction.send_slot = int(k) % slots;
      if (int(k) >= slots) producer.waits.push_back(transfers[k - size_t(slots)]);
    }
  }

  // A slot is filled by the transfer and free again once the consumer has run.
  void connect_receive_side(const std::vector<int>& transfers, const std::vector<int>& consumers, int stage,
                            int slots) {
    const auto consumer_of = [&](size_t k) {
      return consumers[cell(stage, drafts_[size_t(transfers[k])].instruction.micro_batch)];
    };
    for (size_t k = 0; k < transfers.size(); ++k) {
      drafts_[size_t(transfers[k])].instruction.receive_slot = int(k) % slots;
      drafts_[size_t(consumer_of(k))].instruction.receive_slot = int(k) % slots;
      if (int(k) >= slots) drafts_[size_t(transfers[k])].waits.push_back(consumer_of(k - size_t(slots)));
    }
  }

  // Gradient reduction as soon as a stage has its last gradient, then the norm, then the optimizer.
  void add_step_end() {
    std::vector<int> last(size_t(schedule_.stages()), -1);
    for (const int d : order_) {
      const Instruction& i = drafts_[size_t(d)].instruction;
      if (i.kind == InstructionKind::backward || i.kind == InstructionKind::weight_gradient)
        last[size_t(i.stage)] = d;
    }
    std::vector<int> ready = last;
    if (layout_.reduces_gradients()) {
      std::vector<int> stages(last.size());
      std::iota(stages.begin(), stages.end(), 0);
      std::stable_sort(stages.begin(), stages.end(), [&](int a, int b) {
        return drafts_[size_t(last[size_t(a)])].end < drafts_[size_t(last[size_t(b)])].end;
      });
      for (const int s : stages) ready[size_t(s)] = add_reduction(s, last[size_t(s)]);
    }
    add_tied_embedding(ready);
    const int norm = add_norm(ready);
    for (int s = 0; s < schedule_.stages(); ++s) {
      Draft draft;
      draft.instruction.kind = InstructionKind::optimizer_step;
      draft.instruction.stage = s;
      draft.lanes = {lane(rank_of(s), Stream::compute)};
      draft.waits = {norm};
      order_.push_back(add(std::move(draft)));
      if (layout_.gathers_after_step()) add_gather(s, order_.back());
    }
  }

  void add_gather(int stage, int optimizer_step) {
    Draft draft;
    draft.instruction.kind = InstructionKind::gather_parameters;
    draft.instruction.stage = stage;
    draft.instruction.bytes = footprints_[size_t(stage)].parameter_bytes;
    draft.lanes = {lane(rank_of(stage), Stream::reduction)};
    draft.waits = {optimizer_step};
    order_.push_back(add(std::move(draft)));
  }

  int add_reduction(int stage, int last) {
    Draft draft;
    draft.instruction.kind = InstructionKind::reduce_gradient;
    draft.instruction.stage = stage;
    draft.instruction.bytes = footprints_[size_t(stage)].gradient_bytes;
    draft.start = draft.end = drafts_[size_t(last)].end;
    draft.lanes = {lane(rank_of(stage), Stream::reduction)};
    draft.waits = {last};
    const int d = add(std::move(draft));
    // Behind everything that starts no later, so that the list stays in nominal order.
    const auto at =
        std::upper_bound(order_.begin(), order_.end(), drafts_[size_t(d)].start,
                         [&](int64_t start, int other) { return start < drafts_[size_t(other)].start; });
    order_.insert(at, d);
    return d;
  }

  void add_tied_embedding(std::vector<int>& ready) {
    const int final_stage = schedule_.stages() - 1;
    const int64_t bytes = footprints_.front().tied_embedding_bytes;
    if (bytes == 0 || final_stage == 0) return;
    Draft draft;
    draft.instruction.kind = InstructionKind::reduce_tied_embedding;
    draft.instruction.stage = 0;
    draft.instruction.bytes = bytes;
    draft.lanes = {lane(rank_of(0), Stream::reduction)};
    // In a V both lie on one rank, which adds them up by itself.
    if (crosses(0, final_stage)) draft.lanes.push_back(lane(rank_of(final_stage), Stream::reduction));
    draft.waits = {ready.front(), ready.back()};
    ready.front() = ready.back() = add(std::move(draft));
    order_.push_back(ready.front());
  }

  int add_norm(const std::vector<int>& ready) {
    Draft draft;
    draft.instruction.kind = InstructionKind::reduce_norm;
    draft.instruction.bytes = 16;  // the squared norm and the loss, in double
    for (int r = 0; r < schedule_.ranks; ++r) draft.lanes.push_back(lane(r, Stream::reduction));
    for (const int d : ready) draft.waits.push_back(d);
    order_.push_back(add(std::move(draft)));
    return order_.back();
  }

  StepProgram assemble() const {
    StepProgram program;
    program.ranks = schedule_.ranks;
    program.stages = schedule_.stages();
    program.micro_batches = schedule_.micro_batches;
    program.rank_of_stage = schedule_.rank_of_stage;
    program.slots = slots_;
    program.static_bytes.assign(size_t(schedule_.ranks), 0);
    for (int s = 0; s < schedule_.stages(); ++s) {
      const StageFootprint& footprint = footprints_[size_t(s)];
      program.static_bytes[size_t(rank_of(s))] +=
          footprint.static_bytes() + slots_[size_t(s)].total() * footprint.slot_bytes();
    }
    std::vector<InstructionId> id_of(drafts_.size(), -1);
    program.instructions.reserve(order_.size());
    for (const int d : order_) {
      const Draft& draft = drafts_[size_t(d)];
      Instruction instruction = draft.instruction;
      instruction.first_lane = int32_t(program.lane_table.size());
      instruction.lane_count = int32_t(draft.lanes.size());
      program.lane_table.insert(program.lane_table.end(), draft.lanes.begin(), draft.lanes.end());
      instruction.first_wait = int32_t(program.wait_table.size());
      for (const int wait : draft.waits) program.wait_table.push_back(id_of[size_t(wait)]);
      instruction.wait_count = int32_t(draft.waits.size());
      id_of[size_t(d)] = program.size();
      program.instructions.push_back(instruction);
    }
    return program;
  }

  const Layout& layout_;
  const Schedule& schedule_;
  const std::vector<StageFootprint>& footprints_;
  const LowerOptions& options_;
  std::vector<Draft> drafts_;
  std::vector<int> order_;
  std::vector<int> forward_, input_gradient_, weight_gradient_;  // draft of each stage and micro-batch
  std::vector<int> activation_in_, gradient_in_;                 // by receiving stage
  std::vector<StageSlots> slots_;
};

void check_arguments(const Layout& layout, const Schedule& schedule,
                     const std::vector<StageFootprint>& footprints) {
  if (auto defect = find_defect(schedule))
    throw UserError(Problem{"schedule", *defect, "a schedule that can run", ""});
  if (schedule.ranks != layout.pipeline || schedule.chunks != layout.chunks ||
      footprints.size() != size_t(schedule.stages())) {
    throw UserError(
        Problem{"schedule",
                fmt::format("{} ranks x {} chunks with {} footprints", schedule.ranks, schedule.chunks,
                            footprints.size()),
                fmt::format("{} ranks x {} chunks, as in the layout", layout.pipeline, layout.chunks), ""});
  }
}

}  // namespace

StepProgram lower(const Layout& layout, const Schedule& schedule,
                  const std::vector<StageFootprint>& footprints, const LowerOptions& options) {
  check_arguments(layout, schedule, footprints);
  StepProgram program = Lowering(layout, schedule, footprints, options).run();
  if (auto defect = find_defect(program))
    MPT_CHECK(false, "lowering made a program with a defect: {}", *defect);
  return program;
}

}  // namespace mpt
