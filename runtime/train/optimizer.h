// SPDX-License-Identifier: Apache-2.0
#pragma once

// Optimizer: the end of a step for one stage's parameters. Gradients are summed over the ranks that hold the
// same weights. The owner of each share changes it with AdamW. With ZeRO 1 and 2 the changed weights are
// gathered. Collectives run over whole groups of parameters. An offloaded optimizer does the step on the host
// (runtime/train/host_step.h); all else is on the device.

#include <memory>
#include <vector>

#include "runtime/nn/parameters.h"
#include "runtime/train/host_step.h"

namespace mpt::runtime {

/// Ranks with the same weights: those that share the state (one without ZeRO), and those with the same share.
struct ReplicaGroups {
  Communicator* shard = nullptr;
  Communicator* across = nullptr;
};

class Optimizer {
 public:
  /// `tensor` sums the gradients that tensor ranks hold in parts (Parameter::partial). `cores` do the step if
  /// the state is in host memory. All must outlive the optimizer.
  Optimizer(Parameters& parameters, Device& device, const ReplicaGroups& dense, const ReplicaGroups& expert,
            Communicator& tensor, const HostCores& cores);

  /// Sums gradients over replicas: each rank gets its share of the sum. For one piece with complete gradients
  /// of the step, or for all remaining pieces.
  void reduce_gradients(size_t piece);
  void reduce_gradients();
  /// Sums the parts of tensor ranks. To be called after all gradients of the step are reduced.
  void sum_partial_gradients();
  /// For this rank's shares, without weights that other ranks count.
  double squared_norm() const;
  /// `options.weight_decay` is for matrices. The gradients are zero afterwards.
  void step(const AdamW& options);
  void gather_parameters();
  /// Whether the norm and checkpoints take this rank's share of the parameter.
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
  // Groups `first` to `last` are contiguous and have the same replicas.
  void reduce(size_t first, size_t last);
  const ReplicaGroups& ranks_of(bool expert) const { return expert ? expert_ : dense_; }

  Parameters& parameters_;
  Device& device_;
  ReplicaGroups dense_, expert_;
  Communicator& tensor_;
  std::vector<Registration> registered_;  // gradients, with the ranks that sum them
  Buffer first_, second_;
  std::unique_ptr<HostStep> host_step_;  // null: the device does the step
  std::vector<char> reduced_;            // groups that were reduced early
};

}  // namespace mpt::runtime
