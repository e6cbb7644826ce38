// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/optimizer.h"

namespace mpt::runtime {

Optimizer::Optimizer(Parameters& parameters, Device& device, const ReplicaGroups& dense,
                     const ReplicaGroups& expert, Communicator& tensor, const HostCores& cores)
    : parameters_(parameters),
      device_(device),
      dense_(dense),
      expert_(expert),
      tensor_(tensor),
      first_(parameters.state_device(), parameters.share_count() * size_of(parameters.state_type())),
      second_(parameters.state_device(), parameters.share_count() * size_of(parameters.state_type())),
      reduced_(parameters.groups().size(), 0) {
  for (const Buffer* moment : {&first_, &second_})
    if (!parameters.stops()) parameters.state_device().zero(moment->data(), moment->bytes());
  register_gradients();
  if (cores.device != nullptr)
    host_step_ = std::make_unique<HostStep>(device, cores, parameters.type(), hosted_ranges());
}

std::vector<HostedRange> Optimizer::hosted_ranges() {
  const auto at = [](void* data) { return static_cast<char*>(data); };
  std::vector<HostedRange> ranges;
  for (const OwnedRange& range : parameters_.owned())
    ranges.push_back({range.count, range.parameter->weight_decay, range.parameter->fixed_step,
                      at(parameters_.gradient_at(range)), at(parameters_.value_at(range)),
                      at(parameters_.master(range)), at(first_moment(range)), at(second_moment(range))});
  return ranges;
}

// The buffers stay in place, and the same ranks sum them in every step. Weights are not registered: gathering
// registered memory over a network can hang before NCCL 2.32 update 1 (NVIDIA/nccl#2389).
void Optimizer::register_gradients() {
  std::vector<Communicator*> summing;
  for (const ReplicaGroups& ranks : {dense_, expert_}) {
    if (parameters_.zero() == 1) summing.push_back(ranks.shard);
    if (ranks.across->size() > 1) summing.push_back(ranks.across);
  }
  const int64_t bytes = parameters_.gradient_count() * size_of(parameters_.state_type());
  for (auto ranks = summing.begin(); ranks != summing.end(); ++ranks) {
    if (std::find(summing.begin(), ranks, *ranks) != ranks) continue;  // the same for experts
    if (auto registration = (*ranks)->register_memory(parameters_.gradients(), bytes))
      registered_.push_back(std::move(registration));
  }
}

void Optimizer::reduce(size_t first, size_t last) {
  const DataType type = parameters_.state_type();
  const auto groups = parameters_.groups();
  const ReplicaGroups& ranks = ranks_of(groups[first].expert);
  void* const own = parameters_.own_gradients(groups[first]);
  int64_t count = 0;
  for (size_t g = first; g <= last; ++g) count += groups[g].share();
  if (parameters_.zero() == 1)
    ranks.shard->reduce_scatter(parameters_.group_gradients(groups[first]), own, count, type);
  if (ranks.across->size() > 1) ranks.across->all_reduce(own, count, type, ReduceOperation::sum);
}

void Optimizer::reduce_gradients(size_t piece) {
  const auto groups = parameters_.groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].piece != piece) continue;
    reduce(g, g);
    reduced_[g] = 1;
  }
}

void Optimizer::reduce_gradients() {
  parameters_.finish_gradients();
  const auto groups = parameters_.groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    if (reduced_[g] != 0) continue;
    const size_t first = g;
    // Without ZeRO, neighbouring groups of one kind are reduced together.
    while (parameters_.zero() == 0 && g + 1 < groups.size() && reduced_[g + 1] == 0 &&
           groups[g + 1].expert == groups[g].expert)
      ++g;
    reduce(first, g);
  }
  reduced_.assign(groups.size(), 0);
}

void Optimizer::sum_partial_gradients() {
  if (tensor_.size() == 1) return;
  const DataType type = parameters_.state_type();
  int64_t count = 0;
  for (const OwnedRange& range : parameters_.owned()) count += range.parameter->partial ? range.count : 0;
  if (count == 0) return;
  const Buffer packed(device_, count * size_of(type));
  const auto for_each = [&](auto&& body) {
    char* at = static_cast<char*>(packed.data());
    for (const OwnedRange& range : parameters_.owned()) {
      if (!range.parameter->partial) continue;
      body(at, parameters_.gradient_at(range), range.count * size_of(type));
      at += range.count * size_of(type);
    }
  };
  for_each([&](char* place, void* gradient, int64_t bytes) { device_.copy(place, gradient, bytes); });
  tensor_.all_reduce(packed.data(), count, type, ReduceOperation::sum);
  for_each([&](char* place, void* gradient, int64_t bytes) { device_.copy(gradient, place, bytes); });
}

double Optimizer::squared_norm() const {
  std::vector<Stretch> counted;
  for (const OwnedRange& range : parameters_.owned()) {
    // Every rank of `across` has the same share.
    if (!range.parameter->is_first_copy || !is_first_replica(*range.parameter)) continue;
    if (range.parameter->fixed_step > 0.0) continue;
    counted.push_back({parameters_.gradient_at(range), range.count});
  }
  return device_.squared_norm(parameters_.state_type(), counted);
}

void Optimizer::step(const AdamW& options) {
  parameters_.finish_gathering();
  host_step_ ? host_step_->run(options) : step_on_device(options);
  parameters_.values_changed();
  if (host_step_ || !parameters_.owns_all_gradients()) parameters_.zero_gradients();
}

void Optimizer::step_on_device(const AdamW& options) {
  for (const OwnedRange& range : parameters_.owned()) {
    const AdamW own = options_of(options, range.parameter->weight_decay, range.parameter->fixed_step);
    const NarrowCopy copy{parameters_.type(),
                          parameters_.has_master() ? parameters_.value_at(range) : nullptr};
    device_.run(parameters_.state_type(), AdamStep{.count = range.count,
                                                   .options = own,
                                                   .gradient = parameters_.gradient_at(range),
                                                   .parameter = parameters_.master(range),
                                                   .first_moment = first_moment(range),
                                                   .second_moment = second_moment(range),
                                                   .copy = copy,
                                                   .zeroes = parameters_.owns_all_gradients()});
  }
}

void Optimizer::gather_parameters() {
  for (const ParameterGroup& group : parameters_.groups())
    ranks_of(group.expert)
        .shard->all_gather(parameters_.own_values(group), parameters_.group_values(group), group.share(),
                           parameters_.type());
}

}  // namespace mpt::runtime
