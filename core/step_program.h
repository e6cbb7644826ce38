// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepProgram: every instruction of one training step on every pipeline rank, in one list. The simulator
// gives each a duration, the executor runs each. Neither adds rules.
//
// The one rule: an instruction waits only on earlier ids, and a transfer or collective across pipeline ranks
// is ONE instruction that occupies a lane on each rank it touches. The first unfinished instruction of the
// list can therefore always run, whether sends block or not: a deadlock cannot be written down.
//
// The program is made for representative ranks, one per pipeline position: tensor- and data-parallel
// neighbours do the same, so its size is stages x micro-batches, not GPUs.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

using InstructionId = int32_t;

enum class InstructionKind : uint8_t {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  transfer_activation,
  transfer_gradient,
  reduce_gradient,        // over the data-parallel group, one per stage
  reduce_tied_embedding,  // first and last stage add their gradients of the shared weight
  reduce_norm,            // gradient norm and loss over all ranks of a replica
  optimizer_step,
  gather_parameters,  // ZeRO 1 and 2: updated weights from their owners, one per stage
};
inline constexpr size_t kInstructionKinds = 11;

/// Streams of a rank. Work in one stream runs in list order; streams overlap.
enum class Stream : uint8_t { compute, activation_out, activation_in, gradient_out, gradient_in, reduction };
inline constexpr int kStreamCount = 6;

struct Lane {
  int rank = 0;  // pipeline rank
  Stream stream = Stream::compute;
  bool operator==(const Lane&) const = default;
  int index() const { return rank * kStreamCount + int(stream); }
};

struct Instruction {
  InstructionKind kind = InstructionKind::forward;
  int stage = -1;               // virtual stage; the sending one of a transfer; -1 for reduce_norm
  int micro_batch = -1;         // -1 where there is none
  int receive_slot = -1;        // forward, backward: slot it reads; transfer: slot it fills on the receiver
  int send_slot = -1;           // forward, backward: slot it fills; transfer: slot it empties on the sender
  int64_t bytes = 0;            // payload of a transfer or collective
  int64_t acquire_bytes = 0;    // activations this keeps when done
  int64_t release_bytes = 0;    // activations this frees when done
  int64_t workspace_bytes = 0;  // needed only while it runs
  // Ranges into StepProgram::lane_table and ::wait_table.
  int32_t first_lane = 0, lane_count = 0;
  int32_t first_wait = 0, wait_count = 0;

  bool operator==(const Instruction&) const = default;
  bool is_compute() const {
    return kind <= InstructionKind::weight_gradient || kind == InstructionKind::optimizer_step;
  }
  bool is_transfer() const {
    return kind == InstructionKind::transfer_activation || kind == InstructionKind::transfer_gradient;
  }
};

/// Transfer buffers of one stage, each of boundary_bytes.
struct StageSlots {
  int receive_activation = 0;
  int send_activation = 0;
  int receive_gradient = 0;
  int send_gradient = 0;
  int total() const { return receive_activation + send_activation + receive_gradient + send_gradient; }
  bool operator==(const StageSlots&) const = default;
};

struct StepProgram {
  int ranks = 1;
  int stages = 1;
  int micro_batches = 1;
  std::vector<int> rank_of_stage;
  std::vector<Instruction> instructions;  // id = index
  std::vector<Lane> lane_table;
  std::vector<InstructionId> wait_table;
  std::vector<StageSlots> slots;      // per stage
  std::vector<int64_t> static_bytes;  // per rank: weights, gradients, optimizer state and slots

  InstructionId size() const { return InstructionId(instructions.size()); }
  std::span<const Lane> lanes(InstructionId id) const {
    const Instruction& i = instructions[size_t(id)];
    return {lane_table.data() + i.first_lane, size_t(i.lane_count)};
  }
  std::span<const InstructionId> waits(InstructionId id) const {
    const Instruction& i = instructions[size_t(id)];
    return {wait_table.data() + i.first_wait, size_t(i.wait_count)};
  }
  /// The lane of `id` on pipeline rank `rank`, or nothing if the rank takes no part.
  std::optional<Lane> lane_on(InstructionId id, int rank) const;
  bool operator==(const StepProgram&) const = default;
};

/// "F stage 2 micro-batch 5", "send activation 1->2 micro-batch 0": for messages and traces.
std::string instruction_name(const StepProgram& program, InstructionId id);

/// Checks the one rule, and that lanes and slots are in range. Returns a text of the defect.
std::optional<std::string> find_defect(const StepProgram& program);

/// 16 hex digits over all of the program. A plan stores it; a run that lowers to another one is refused.
std::string program_digest(const StepProgram& program);

/// Peak bytes of each pipeline rank, exact from list order, without times: static bytes plus the largest sum
/// of kept activations and workspace at any compute instruction.
std::vector<int64_t> peak_bytes(const StepProgram& program);

/// Bytes in use on `rank` after and during each of its compute instructions, in list order.
struct MemoryPoint {
  InstructionId id;
  int64_t during_bytes;
  int64_t after_bytes;
};
std::vector<MemoryPoint> memory_trace(const StepProgram& program, int rank);

}  // namespace mpt
