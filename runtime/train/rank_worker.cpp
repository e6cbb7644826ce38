// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/rank_worker.h"

#include <cmath>

#include "core/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

std::vector<int> to_int(const std::vector<int64_t>& ranks) { return {ranks.begin(), ranks.end()}; }

std::vector<Buffer> slots(Device& device, int count, int64_t bytes) {
  std::vector<Buffer> made;
  for (int i = 0; i < count; ++i) made.emplace_back(device, bytes);
  return made;
}

}  // namespace

RankWorker::RankWorker(const Plan& plan, const StepProgram& program, int rank, ThreadWorld& world,
                       const TrainOptions& options, DataType type)
    : plan_(plan),
      program_(program),
      grid_(plan.layout),
      at_(grid_.coordinates(rank)),
      options_(options),
      type_(type),
      device_(make_cpu_device()) {
  const auto group = [&](const std::vector<int64_t>& members, const std::string& name) {
    return world.communicator(rank, to_int(members), name);
  };
  tensor_group_ = group(grid_.group(rank, Axis::tensor), "tensor");
  const auto pipeline = grid_.group(rank, Axis::pipeline);
  activation_group_ = group(pipeline, "pipeline activations");
  gradient_group_ = group(pipeline, "pipeline gradients");
  const auto stages = stage_contents(plan.model, plan.layout);
  const int first = program.rank_of_stage.front(), last = program.rank_of_stage.back();
  if (first != last && (at_.pipeline == first || at_.pipeline == last)) {
    embedding_group_ = group({pipeline[size_t(first)], pipeline[size_t(last)]}, "tied embedding");
  }
  std::vector<int64_t> everybody;
  for (int64_t r = 0; r < grid_.ranks(); ++r) everybody.push_back(r);
  world_group_ = group(everybody, "gradient norm");

  StageOptions stage_options{plan.model, plan.layout,  plan.workload.sequence,
                             type,       options.seed, 1.0 / double(plan.workload.tokens_per_step())};
  for (int s = 0; s < program.stages; ++s) {
    if (program.rank_of_stage[size_t(s)] != at_.pipeline) continue;
    add_stage(s, stages[size_t(s)], stage_options);
    held(s).data_group = group(grid_.group(rank, Axis::data), fmt::format("data, stage {}", s));
  }
}

void RankWorker::add_stage(int s, const StageContent& content, const StageOptions& options) {
  HeldStage& made = held_.emplace(s, Stage(options, content, *device_, *tensor_group_)).first->second;
  const StageSlots& counts = program_.slots[size_t(s)];
  const int64_t bytes = options.layout.micro_batch * options.sequence * options.model.hidden * size_of(type_);
  made.receive_activation = slots(*device_, counts.receive_activation, bytes);
  made.send_activation = slots(*device_, counts.send_activation, bytes);
  made.receive_gradient = slots(*device_, counts.receive_gradient, bytes);
  made.send_gradient = slots(*device_, counts.send_gradient, bytes);
  const int64_t state_bytes = made.stage.parameter_count() * size_of(type_);
  made.first_moment = Buffer(*device_, state_bytes);
  made.second_moment = Buffer(*device_, state_bytes);
  device_->zero(made.first_moment.data(), state_bytes);
  device_->zero(made.second_moment.data(), state_bytes);
}

void RankWorker::begin_step(int64_t step, const TextCorpus& corpus) {
  step_ = step;
  const int64_t per_rank = plan_.workload.global_batch / plan_.layout.data;
  const int64_t sequence = plan_.workload.sequence;
  if (!holds(0) && !holds(program_.stages - 1)) return;
  tokens_.resize(size_t(per_rank * sequence));
  targets_.resize(size_t(per_rank * sequence));
  for (int64_t i = 0; i < per_rank; ++i) {
    const int64_t number = step * plan_.workload.global_batch + at_.data * per_rank + i;
    corpus.sample(number, tokens_.data() + i * sequence, targets_.data() + i * sequence);
  }
}

void RankWorker::run(InstructionId id) {
  const Instruction& i = program_.instructions[size_t(id)];
  switch (i.kind) {
    case InstructionKind::forward:
      return forward(i);
    case InstructionKind::backward:
    case InstructionKind::input_gradient:
      return backward(i);
    case InstructionKind::weight_gradient:
      return held(i.stage).stage.backward_weight(i.micro_batch);
    case InstructionKind::transfer_activation:
    case InstructionKind::transfer_gradient:
      return transfer(i);
    case InstructionKind::reduce_gradient: {
      HeldStage& h = held(i.stage);
      return h.data_group->all_reduce(h.stage.gradient_data(), h.stage.parameter_count(), type_,
                                      ReduceOperation::sum);
    }
    case InstructionKind::reduce_tied_embedding:
      return reduce_tied_embedding();
    case InstructionKind::reduce_norm:
      return reduce_norm();
    case InstructionKind::optimizer_step:
      return optimizer_step(i.stage);
    case InstructionKind::gather_parameters:
      break;  // only with ZeRO, which check_supported() refuses
  }
}

// A boundary goes through the stage's slot, or straight to a neighbour on the same rank.
void* RankWorker::output_place(const Instruction& i, std::vector<Buffer>& slots, int to) {
  if (i.send_slot >= 0) return slots[size_t(i.send_slot)].data();
  if (to < 0 || to >= program_.stages) return nullptr;
  const int64_t bytes =
      plan_.layout.micro_batch * plan_.workload.sequence * plan_.model.hidden * size_of(type_);
  Buffer& place = handed_over_[{to * 2 + (to < i.stage ? 1 : 0), i.micro_batch}];
  place = Buffer(*device_, bytes);
  return place.data();
}

const void* RankWorker::input_place(const Instruction& i, std::vector<Buffer>& slots) {
  if (i.receive_slot >= 0) return slots[size_t(i.receive_slot)].data();
  const auto found =
      handed_over_.find({i.stage * 2 + (i.kind == InstructionKind::forward ? 0 : 1), i.micro_batch});
  return found == handed_over_.end() ? nullptr : found->second.data();
}

void RankWorker::forward(const Instruction& i) {
  HeldStage& h = held(i.stage);
  const int64_t offset = i.micro_batch * plan_.layout.micro_batch * plan_.workload.sequence;
  const bool first = i.stage == 0, last = i.stage + 1 == program_.stages;
  const void* input = input_place(i, h.receive_activation);
  void* output = output_place(i, h.send_activation, i.stage + 1);
  h.stage.forward(i.micro_batch, first ? tokens_.data() + offset : nullptr,
                  last ? targets_.data() + offset : nullptr, input, output);
  handed_over_.erase({i.stage * 2, i.micro_batch});
}

void RankWorker::backward(const Instruction& i) {
  HeldStage& h = held(i.stage);
  const void* arriving = input_place(i, h.receive_gradient);
  void* leaving = output_place(i, h.send_gradient, i.stage - 1);
  if (i.kind == InstructionKind::backward) {
    h.stage.backward(i.micro_batch, arriving, leaving);
  } else {
    h.stage.backward_input(i.micro_batch, arriving, leaving);
  }
  handed_over_.erase({i.stage * 2 + 1, i.micro_batch});
}

void RankWorker::transfer(const Instruction& i) {
  const bool activation = i.kind == InstructionKind::transfer_activation;
  const int to_stage = i.stage + (activation ? 1 : -1);
  const int from = program_.rank_of_stage[size_t(i.stage)], to = program_.rank_of_stage[size_t(to_stage)];
  Communicator& group = activation ? *activation_group_ : *gradient_group_;
  if (at_.pipeline == from) {
    const HeldStage& h = held(i.stage);
    const Buffer& slot = (activation ? h.send_activation : h.send_gradient)[size_t(i.send_slot)];
    return group.send(slot.data(), slot.bytes(), to);
  }
  const HeldStage& h = held(to_stage);
  const Buffer& slot = (activation ? h.receive_activation : h.receive_gradient)[size_t(i.receive_slot)];
  group.receive(slot.data(), slot.bytes(), from);
}

void RankWorker::reduce_tied_embedding() {
  const auto gradient_of = [&](int s, int64_t& count) -> char* {
    HeldStage& h = held(s);
    const Parameter* table = h.stage.tied_embedding();
    MPT_CHECK(table != nullptr, "no tied embedding on pipeline rank {}", at_.pipeline);
    count = table->count;
    return static_cast<char*>(h.stage.gradient_data()) + table->offset * size_of(type_);
  };
  int64_t count = 0;
  const int last = program_.stages - 1;
  if (!embedding_group_) {
    // Both ends of the pipeline are here: each copy of the weight gets the sum of both gradients.
    char* const first_gradient = gradient_of(0, count);
    char* const last_gradient = gradient_of(last, count);
    device_->residual_add(type_, count, first_gradient, last_gradient, first_gradient);
    device_->copy(last_gradient, first_gradient, count * size_of(type_));
    return;
  }
  char* const gradient = gradient_of(holds(0) ? 0 : last, count);
  embedding_group_->all_reduce(gradient, count, type_, ReduceOperation::sum);
}

double RankWorker::squared_norm() {
  double sum = 0.0;
  for (auto& [s, h] : held_) {
    const char* gradient = static_cast<const char*>(h.stage.gradient_data());
    for (const Parameter& p : h.stage.parameters()) {
      if (p.counts_in_norm)
        sum += device_->sum_of_squares(type_, p.count, gradient + p.offset * size_of(type_));
    }
  }
  return sum;
}

// One reduction over all ranks: the squared norm of the first replica's gradients (they are equal by now) and
// every replica's loss.
void RankWorker::reduce_norm() {
  double sums[2] = {at_.data == 0 ? squared_norm() : 0.0, 0.0};
  if (at_.tensor == 0) {
    for (auto& [s, h] : held_) sums[1] += h.stage.loss_sum();
  }
  for (auto& [s, h] : held_) h.stage.reset_loss();
  world_group_->all_reduce(sums, 2, DataType::float64, ReduceOperation::sum);
  gradient_norm_ = std::sqrt(sums[0]);
  loss_ = sums[1] / double(plan_.workload.tokens_per_step());
}

void RankWorker::optimizer_step(int s) {
  HeldStage& h = held(s);
  AdamW adamw{learning_rate_at(options_, step_),
              options_.beta1,
              options_.beta2,
              options_.epsilon,
              0.0,
              step_ + 1,
              1.0};
  if (options_.clip > 0.0 && gradient_norm_ > options_.clip)
    adamw.gradient_scale = options_.clip / gradient_norm_;
  const auto at = [&](const void* base, int64_t offset) {
    return const_cast<char*>(static_cast<const char*>(base)) + offset * size_of(type_);
  };
  for (const Parameter& p : h.stage.parameters()) {
    adamw.weight_decay = p.weight_decay ? options_.weight_decay : 0.0;
    device_->adamw(type_, p.count, adamw, at(h.stage.gradient_data(), p.offset),
                   at(h.stage.parameter_data(), p.offset), at(h.first_moment.data(), p.offset),
                   at(h.second_moment.data(), p.offset));
  }
  h.stage.zero_gradients();
}

}  // namespace mpt::runtime
