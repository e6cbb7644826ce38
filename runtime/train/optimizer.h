// SPDX-License-Identifier: Apache-2.0
#pragma once

// Optimizer: what happens to one stage's parameters at the end of a step: gradients are summed over the ranks
// that hold the same weights, the owner of each share changes it with AdamW, and with ZeRO 1 and 2 the
// changed weights are gathered. Collectives run over whole groups of parameters. An offloaded optimizer does
// the step on the host (runtime/train/host_step.h); all else is on the device.

#include <memory>
#include <vector>

#include "runtime/nn/parameters.h"
#include "runtime/train/host_step.h"

namespace mpt::runtime {

/// Ranks with the same weights: those that share out the state (one without ZeRO), and those that hold the
/// same share.
struct ReplicaGroups {
  Communicator* shard = nullptr;
  Communicator* across = nullptr;
};

class Optimizer {
 public:
  /// `tensor` sums what tensor ranks hold parts of (Parameter::partial); `cores` do the step where the
  /// parameters' state is the host's. All must outlive the optimizer.
  Optimizer(Parameters& parameters, Device& device, const ReplicaGroups& dense, const ReplicaGroups& expert,
            Communicator& tensor, const HostCores& cores);

  /// Sums gradients over replicas: each rank has its share of the sum. Of one piece, whose gradients of the
  /// whole step are there; and of all pieces that are left.
  void reduce_gradients(size_t piece);
  void reduce_gradients();
  /// Sums the parts that tensor ranks hold. Once all gradients of the step are reduced.
  void sum_partial_gradients();
  /// Of this rank's shares; weights that other ranks count are left out.
  double squared_norm() const;
  /// `options.weight_decay` is that of matrices. The gradients are zero afterwards.
  void step(const AdamW& options);
  void gather_parameters();
  /// Whether the norm counts this rank's share of the parameter and a checkpoint takes it from here.
  bool is_first_replica(const Parameter& parameter) const {
    return ranks_of(parameter.expert).across->rank() == 0;
  }

  Parameters& parameters() { return parameters_; }
  void* first_moment(const OwnedRange& range) { return state_at(first_, range); }
  void* second_moment(const OwnedRange& range) { return state_at(second_, range); }

 private:
  void* state_at(const Buffer& buffer, const OwnedRange& range) const {
    return static_cast<char*>(buffer.data()) + range.state_offset * size_of(parameters_.state_type());
  }
  void register_gradients();
  std::vector<HostedRange> hosted_ranges();
  void step_on_device(const AdamW& options);
  // Groups `first` to `last` lie one behind the other and have the same replicas.
  void reduce(size_t first, size_t last);
  const ReplicaGroups& ranks_of(bool expert) const { return expert ? expert_ : dense_; }

  Parameters& parameters_;
  Device& device_;
  ReplicaGroups dense_, expert_;
  Communicator& tensor_;
  std::vector<std::unique_ptr<Registration>> registered_;  // gradients, with those who sum them
  Buffer first_, second_;
  std::unique_ptr<HostStep> host_step_;  // null: the step is the device's
  std::vector<char> reduced_;            // groups that are done before the others
};

}  // namespace mpt::runtime
