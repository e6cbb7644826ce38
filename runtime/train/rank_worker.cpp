// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/rank_worker.h"

#include "base/error.h"
#include "core/gpu_memory.h"
#include "models/footprint.h"
#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

const char* pipeline_name(models::CallingThread thread) {
  return thread == models::CallingThread::compute       ? "pipeline"
         : thread == models::CallingThread::activations ? "pipeline activations"
                                                        : "pipeline gradients";
}

std::vector<int> to_int(const std::vector<int64_t>& ranks) { return {ranks.begin(), ranks.end()}; }

std::vector<Buffer> slots(Device& device, int count, int64_t bytes) {
  std::vector<Buffer> made;
  for (int i = 0; i < count; ++i) made.emplace_back(device, bytes);
  return made;
}

}  // namespace

RankWorker::RankWorker(const Plan& plan, const StepProgram& program, const RankPlace& place,
                       const TrainOptions& options, DataType type)
    : plan_(plan),
      program_(program),
      in_flight_(in_flight_of_stages(program)),
      grid_(plan.layout),
      at_(grid_.coordinates(place.rank)),
      options_(options),
      type_(type),
      device_(place.device),
      stop_(place.stop) {
  if (type == DataType::float16) state_.loss_scale = options.first_loss_scale;
  const bool replicated = plan.layout.replicas() > 1;
  if (replicated && (plan.layout.overlap_gradient_reduce || plan.layout.overlap_parameter_gather))
    side_ = std::make_unique<SideStream>(place.device, place.on_failure);
  if (plan.layout.context > 1 && plan.layout.context_method == ContextMethod::ring)
    ring_ = std::make_unique<SideStream>(place.device, place.on_failure);
  if (plan.layout.overlap_tensor && plan.layout.tensor > 1)
    products_ = std::make_unique<SideStream>(place.device, place.on_failure);
  if (plan.layout.offload_optimizer) {
    host_ = make_cpu_device();
    for (int t = 0; t < place.host_threads; ++t)
      update_.push_back(std::make_unique<SideStream>(place.device, place.on_failure));
  }
  make_groups(place);
  // Comes after the groups, because NCCL's memory is then allocated.
  device_.reserve(pool_bytes(mpt::peak_bytes(program)[size_t(at_.pipeline)]));
  const auto stages = stage_contents(plan.model, plan.layout);
  for (int s = 0; s < program.stages; ++s)
    if (program.rank_of_stage[size_t(s)] == at_.pipeline) add_stage(s, stages[size_t(s)], place);
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if ((i.kind == InstructionKind::backward || i.kind == InstructionKind::weight_gradient) && holds(i.stage))
      held(i.stage).last_gradients = id;
  }
}

// Groups of the same ranks that the same thread calls share one communicator, and on GPUs one handle of NCCL.
// Its first operation of a kind requests memory from the driver, which may wait for all work of the GPU. Now
// there is none, and all ranks reach this point in the same order.
std::shared_ptr<Communicator> RankWorker::communicator(const RankPlace& place, const models::RankGroup& group,
                                                       const char* name, FirstCall first) {
  std::shared_ptr<Communicator>& shared = communicators_[group];
  if (!shared)
    shared = place.data.communicator(place.rank, to_int(models::members(grid_, at_, group.ranks)), name);
  if (!device_.waits_to_load_kernels() || shared->size() == 1) return shared;
  const int rank = shared->rank(), ranks = shared->size();
  const Buffer sent(device_, ranks * kAllocationUnit), received(device_, ranks * kAllocationUnit);
  device_.zero(sent.data(), sent.bytes());
  const std::vector<int64_t> each(size_t(ranks), kAllocationUnit);
  switch (first) {
    case FirstCall::sum:
      shared->all_reduce(sent.data(), 1, DataType::float32, ReduceOperation::sum);
      break;
    case FirstCall::ring:
      shared->send_receive(sent.data(), (rank + 1) % ranks, received.data(), (rank + ranks - 1) % ranks,
                           kAllocationUnit);
      break;
    case FirstCall::all_to_all:
      shared->all_to_all(sent.data(), each, received.data(), each);
      break;
    case FirstCall::transfer:
      rank == 0 ? shared->send(sent.data(), kAllocationUnit, 1)
                : shared->receive(received.data(), kAllocationUnit, 0);
  }
  device_.synchronize();
  return shared;
}

// Work in side streams is not awaited here, and may not be complete when times are collected. Gradients are:
// the optimizer's step waited for them.
std::unique_ptr<Communicator> RankWorker::metered(std::shared_ptr<Communicator> group, CallTime& time) {
  auto marks =
      &time == &times_->beside || group->size() == 1 ? nullptr : device_.make_marks(MarkMeter::kMarked);
  if (!marks) return timed(std::move(group), time);
  meters_.push_back(std::make_shared<MarkMeter>(std::move(marks), time));
  return timed(std::move(group), meters_.back());
}

void RankWorker::make_groups(const RankPlace& place) {
  CallTimes& t = *times_;
  // A call in the side stream takes no time of the compute lane; waiting for its end does.
  CallTime& sharding = side_ ? t.beside : t.sharding;
  CallTime& gradients = reduces_early() ? t.gradients_beside : t.gradients;
  struct Named {
    const char* name;
    CallTime* time;
    FirstCall first = FirstCall::sum;
  };
  const std::array<Named, models::kGroupUses> uses{
      {{"gradient shards", &gradients},
       {"gradients", &gradients},
       {"sharded state", &sharding},
       {"gradient shards of experts", &gradients},
       {"gradients of experts", &gradients},
       {"sharded state of experts", &sharding},
       {"tensor", &t.tensor},
       {"tensor, beside", &t.beside},
       {"tensor, end of step", &t.gradients},
       {"context", ring_ ? &t.beside : &t.context, ring_ ? FirstCall::ring : FirstCall::all_to_all},
       {"experts", &t.expert, FirstCall::all_to_all}}};
  const auto groups = models::stage_groups(plan_.layout, at_);
  for (size_t use = 0; use < uses.size(); ++use) {
    const auto& [name, time, first] = uses[use];
    groups_[use] = metered(communicator(place, groups[use], name, first), *time);
  }
  const bool shares_table = models::trains_shared_table(plan_.model, plan_.layout);
  for (const auto& group : models::pipeline_groups(plan_.layout, program_.rank_of_stage, shares_table)) {
    const int64_t from = group.ranks.first, to = from + group.ranks.step;
    if (at_.pipeline != from && at_.pipeline != to) continue;
    const bool ends = group == models::pipeline_ends(program_.rank_of_stage);
    pipeline_groups_[group] =
        ends ? metered(communicator(place, group, "tied embedding", FirstCall::sum), t.gradients)
             : metered(communicator(place, group, pipeline_name(group.thread), FirstCall::transfer),
                       t.transfer);
  }
  const auto everybody = ranks_from(0, int(grid_.ranks()));
  world_group_ = timed(place.control.communicator(place.rank, everybody, "gradient norm"), t.gradients);
  if (plan_.model.moe() == nullptr) return;
  for (const models::GroupUse use :
       {models::GroupUse::tensor, models::GroupUse::context, models::GroupUse::experts}) {
    const auto& [name, time, first] = uses[size_t(use)];
    const auto ranks = to_int(models::members(grid_, at_, groups[size_t(use)].ranks));
    lists_[size_t(use)] =
        timed(place.control.communicator(place.rank, ranks, fmt::format("{}, lists", name)), *time);
  }
}

reports::RankRecord RankWorker::take_record() {
  for (const auto& meter : meters_) meter->collect();
  reports::RankRecord record;
  record.rank = rank();
  record.tensor_s = times_->tensor.exchange(0.0);
  record.context_s = times_->context.exchange(0.0);
  record.expert_s = times_->expert.exchange(0.0);
  record.sharding_s = times_->sharding.exchange(0.0);
  record.transfer_s = times_->transfer.exchange(0.0);
  const double end_s = times_->gradients.exchange(0.0);
  record.gradients_s = end_s + times_->gradients_waited.exchange(0.0);
  record.gradient_exchange_s = end_s + times_->gradients_beside.exchange(0.0);
  record.memory_bytes = device_.in_use_bytes();
  record.peak_bytes = device_.peak_bytes();
  std::vector<StageLoads> loads;
  for (auto& [s, held] : held_) loads.push_back({held.stage->take_expert_loads(), in_flight_[size_t(s)]});
  record.expert_load = expert_load(loads, plan_.layout.recompute == Recompute::full);
  return record;
}

void RankWorker::add_stage(int s, const StageContent& content, const RankPlace& place) {
  using enum models::GroupUse;
  HeldStage& made = held_[s];
  const Layout& layout = plan_.layout;
  const bool spread = layout.expert > 1;
  const auto lists = [&](models::GroupUse use) { return lists_[size_t(use)].get(); };
  const ReplicaGroups replicas{group(gradient_shards), group(gradients)};
  const ReplicaGroups expert_replicas =
      spread ? ReplicaGroups{group(expert_gradient_shards), group(expert_gradients)} : replicas;
  const auto seed = place.draws_weights ? std::optional(uint64_t(options_.seed)) : std::nullopt;
  const StageOptions options{
      plan_.model, layout, plan_.workload.sequence, type_, seed, options_.next_token_weight, stop_};
  const StageGroups stage_groups{
      {group(tensor),
       group(context),
       group(experts),
       {ring_.get(), &times_->context},
       products_ ? group(tensor_beside) : nullptr,
       {products_.get(), &times_->tensor},
       {lists(tensor), lists(context), spread ? lists(experts) : nullptr}},
      {layout.zero, group(sharded_state), group(spread ? expert_sharded_state : sharded_state), side_.get(),
       &times_->sharding, layout.overlap_parameter_gather, layout.overlap_gradient_reduce, host_.get()}};
  made.stage = std::make_unique<Stage>(options, size_t(s), content, device_, stage_groups);
  HostCores cores{host_.get(), {}};
  for (const auto& thread : update_) cores.threads.push_back(thread.get());
  made.optimizer = std::make_unique<Optimizer>(made.stage->parameters(), device_, replicas, expert_replicas,
                                               *group(tensor_end), cores);
  const StageSlots& counts = program_.slots[size_t(s)];
  const int64_t bytes = made.stage->boundary_bytes();
  made.receive_activation = slots(device_, counts.receive_activation, bytes);
  made.send_activation = slots(device_, counts.send_activation, bytes);
  made.receive_gradient = slots(device_, counts.receive_gradient, bytes);
  made.send_gradient = slots(device_, counts.send_gradient, bytes);
}

void RankWorker::begin(bool evaluating, const Dataset& data, int64_t first_sample) {
  evaluating_ = evaluating;
  const bool first = !std::exchange(has_begun_[evaluating ? 1 : 0], true);
  const bool in_turn = device_.waits_to_load_kernels() && (first || plan_.model.moe() != nullptr);
  handing_ = in_turn ? Handing::in_turn : Handing::at_once;
  for (SideStream* side : {side_.get(), ring_.get(), products_.get()})
    if (side != nullptr) side->set_in_turn(in_turn);
  load_tokens(data, first_sample);
}

void RankWorker::begin_step(const Dataset& data) {
  for (auto& [s, h] : held_)
    h.stage->set_loss_scale(state_.loss_scale / double(plan_.workload.tokens_per_step()));
  begin(false, data, state_.samples);
}

void RankWorker::begin_evaluation(const Dataset& data, int64_t number) {
  begin(true, data, number * plan_.workload.global_batch);
}

void RankWorker::load_tokens(const Dataset& data, int64_t first_sample) {
  if (!holds(0) && !holds(program_.stages - 1)) return;
  const int64_t per_rank = plan_.workload.global_batch / plan_.layout.data;
  const int64_t sequence = plan_.workload.sequence, own = sequence / plan_.layout.context;
  const std::vector<int32_t> positions =
      context_positions(own, plan_.layout.context, at_.context, plan_.layout.context_method);
  const int64_t further = plan_.model.next_token_layers, batch = plan_.layout.micro_batch;
  std::vector<int32_t> tokens(static_cast<size_t>(sequence)), targets(tokens.size() + size_t(further));
  tokens_.resize(size_t(per_rank * own));
  targets_.resize(tokens_.size() * size_t(1 + further));
  for (int64_t i = 0; i < per_rank; ++i) {
    data.sample(first_sample + at_.data * per_rank + i, tokens.data(), targets.data());
    // The targets of a micro-batch follow those of all earlier ones.
    const int64_t first = (i / batch * batch * further + i) * own;
    for (int64_t p = 0; p < own; ++p) {
      const int64_t at = positions[size_t(p)];
      tokens_[size_t(i * own + p)] = tokens[size_t(at)];
      for (int64_t later = 0; later <= further; ++later)
        targets_[size_t(first + later * batch * own + p)] = targets[size_t(at + later)];
    }
  }
}

bool RankWorker::is_finite() const {
  return std::isfinite(loss_) && std::isfinite(next_token_loss_) && std::isfinite(gradient_norm_);
}

void RankWorker::end_step() {
  ++state_.step;
  state_.samples += plan_.workload.global_batch;
  if (is_finite()) {
    ++state_.optimizer_steps;
    state_.skipped_in_a_row = 0;
  } else if (++state_.skipped_in_a_row == 1) {
    for (auto& [s, h] : held_) h.stage->watch_for_overflow();
  }
  if (type_ != DataType::float16) return;
  state_.good_steps = is_finite() ? state_.good_steps + 1 : 0;
  if (!is_finite()) state_.loss_scale = std::max(1.0, state_.loss_scale / 2);
  if (state_.good_steps < options_.loss_scale_window) return;
  state_.loss_scale *= 2;
  state_.good_steps = 0;
}

int64_t RankWorker::first_overflow() const {
  int64_t first = kNoOverflow;
  for (const auto& [s, h] : held_) first = std::min(first, h.stage->first_overflow());
  return first;
}

void RankWorker::run(InstructionId id) {
  const Instruction& i = program_.instructions[size_t(id)];
  switch (i.kind) {
    case InstructionKind::forward:
      return forward(i);
    case InstructionKind::backward:
    case InstructionKind::input_gradient:
    case InstructionKind::weight_gradient:
      return backward(id, i);
    case InstructionKind::transfer_activation:
    case InstructionKind::transfer_gradient:
      return transfer(i);
    case InstructionKind::reduce_gradient:
      return reduce_gradients(i.stage);
    case InstructionKind::reduce_tied_embedding:
      return reduce_tied_embedding();
    case InstructionKind::reduce_norm:
      return reduce_norm();
    case InstructionKind::optimizer_step:
      return optimizer_step(i.stage);
    case InstructionKind::gather_parameters:
      return gather_parameters(i.stage);
  }
}

// If pieces were reduced as their gradients became complete, only a wait is left.
void RankWorker::reduce_gradients(int s) {
  HeldStage& h = held(s);
  if (!reduces_early()) return h.optimizer->reduce_gradients();
  const Stopwatch watch(times_->gradients_waited);
  side_->await(h.reduced);
}

void RankWorker::gather_parameters(int s) {
  if (plan_.layout.zero == 3) return;  // the plan gathers once a step; ZeRO 3 here gathers at each use
  if (side_ && plan_.layout.overlap_parameter_gather) return held(s).stage->parameters().begin_gathering();
  held(s).optimizer->gather_parameters();
}

// A boundary goes into the stage's slot, or directly to the next stage on the same rank.
void* RankWorker::output_place(const Instruction& i, std::vector<Buffer>& slots, int to) {
  if (i.send_slot >= 0) return slots[size_t(i.send_slot)].data();
  if (to < 0 || to >= program_.stages) return nullptr;
  Buffer& place = handed_over_[{to * 2 + (to < i.stage ? 1 : 0), i.micro_batch}];
  place = Buffer(device_, held(i.stage).stage->boundary_bytes());
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
  const int64_t offset =
      i.micro_batch * plan_.layout.micro_batch * plan_.workload.sequence / plan_.layout.context;
  const bool first = i.stage == 0, last = i.stage + 1 == program_.stages;
  const void* input = input_place(i, h.receive_activation);
  void* output = output_place(i, h.send_activation, i.stage + 1);
  h.stage->forward(i.micro_batch, first ? tokens_.data() + offset : nullptr,
                   last ? targets_.data() + offset * (1 + plan_.model.next_token_layers) : nullptr, input,
                   output, !evaluating_);
  handed_over_.erase({i.stage * 2, i.micro_batch});
}

void RankWorker::backward(InstructionId id, const Instruction& i) {
  HeldStage& h = held(i.stage);
  const bool last = reduces_early() && id == h.last_gradients;
  if (last)
    h.stage->on_gradients([this, &h](size_t piece) {
      h.reduced = side_->post("reducing gradients", [&h, piece] { h.optimizer->reduce_gradients(piece); });
    });
  if (i.kind == InstructionKind::weight_gradient)
    h.stage->backward_weight(i.micro_batch);
  else
    backward_input(h, i);
  if (!last) return;
  h.stage->on_gradients(nullptr);
  // Posted by this thread, too: stages share communicators, and all ranks post in the same order.
  h.reduced = side_->post("reducing gradients", [&h] { h.optimizer->reduce_gradients(); });
}

void RankWorker::backward_input(HeldStage& h, const Instruction& i) {
  const void* arriving = input_place(i, h.receive_gradient);
  void* leaving = output_place(i, h.send_gradient, i.stage - 1);
  if (i.kind == InstructionKind::backward)
    h.stage->backward(i.micro_batch, arriving, leaving);
  else
    h.stage->backward_input(i.micro_batch, arriving, leaving);
  handed_over_.erase({i.stage * 2 + 1, i.micro_batch});
}

void RankWorker::transfer(const Instruction& i) {
  const bool activation = i.kind == InstructionKind::transfer_activation;
  const int to_stage = i.stage + (activation ? 1 : -1);
  const int from = program_.rank_of_stage[size_t(i.stage)], to = program_.rank_of_stage[size_t(to_stage)];
  Communicator& edge = *pipeline_groups_.at(models::edge(plan_.layout, activation, from, to));
  if (at_.pipeline == from) {
    const HeldStage& h = held(i.stage);
    const Buffer& slot = (activation ? h.send_activation : h.send_gradient)[size_t(i.send_slot)];
    return edge.send(slot.data(), slot.bytes(), 1);
  }
  const HeldStage& h = held(to_stage);
  const Buffer& slot = (activation ? h.receive_activation : h.receive_gradient)[size_t(i.receive_slot)];
  edge.receive(slot.data(), slot.bytes(), 0);
}

// Both copies of the weight get the sum of both gradients. Each rank has the same share of both.
void RankWorker::reduce_tied_embedding() {
  struct Part {
    void* gradient;
    int64_t count;
  };
  const auto parts_of = [&](int s) {
    Stage& stage = *held(s).stage;
    std::vector<Part> parts;
    for (const OwnedRange& range : stage.parameters().owned())
      if (range.parameter == stage.shared_embedding())
        parts.push_back({stage.parameters().gradient_at(range), range.count});
    return parts;
  };
  const DataType type = state_type_of(type_);
  const int last = program_.stages - 1;
  if (const auto* ends = find_value(pipeline_groups_, models::pipeline_ends(program_.rank_of_stage))) {
    for (const Part& part : parts_of(holds(0) ? 0 : last))
      (*ends)->all_reduce(part.gradient, part.count, type, ReduceOperation::sum);
    return;
  }
  const auto first_parts = parts_of(0), last_parts = parts_of(last);
  MPT_CHECK(first_parts.size() == last_parts.size(), "shares of the tied embedding differ");
  for (size_t p = 0; p < first_parts.size(); ++p) {
    device_.run(type, ResidualAdd{.count = first_parts[p].count,
                                  .a = first_parts[p].gradient,
                                  .b = last_parts[p].gradient,
                                  .y = first_parts[p].gradient});
    device_.copy(last_parts[p].gradient, first_parts[p].gradient, first_parts[p].count * size_of(type));
  }
}

// One reduction over all ranks: the squared norm of all gradients, each counted once, and every replica's
// loss.
void RankWorker::reduce_norm() {
  double sums[3] = {0.0, 0.0, 0.0};
  for (auto& [s, h] : held_) {
    if (!evaluating_) {
      h.optimizer->sum_partial_gradients();
      sums[0] += h.optimizer->squared_norm();
    }
    const double loss = h.stage->loss_sum(), next_token_loss = h.stage->next_token_loss_sum();
    if (at_.tensor == 0) sums[1] += loss;
    if (at_.tensor == 0) sums[2] += next_token_loss;
    h.stage->reset_loss();
  }
  world_group_->all_reduce(sums, 3, DataType::float64, ReduceOperation::sum);
  const double loss = sums[1] / double(plan_.workload.tokens_per_step());
  if (evaluating_) {
    validation_loss_ = loss;
    return;
  }
  loss_ = loss;
  next_token_loss_ = sums[2] / double(plan_.workload.tokens_per_step());
  gradient_norm_ = std::sqrt(sums[0]) / state_.loss_scale;
}

void RankWorker::optimizer_step(int s) {
  HeldStage& h = held(s);
  if (!is_finite()) return h.stage->parameters().zero_gradients();
  AdamW adamw{learning_rate_at(options_, state_.step),
              options_.beta1,
              options_.beta2,
              options_.epsilon,
              options_.weight_decay,
              state_.optimizer_steps + 1,
              1.0 / state_.loss_scale};
  if (options_.clip > 0.0 && gradient_norm_ > options_.clip)
    adamw.gradient_scale *= options_.clip / gradient_norm_;
  h.optimizer->step(adamw);
}

}  // namespace mpt::runtime
