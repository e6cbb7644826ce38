// SPDX-License-Identifier: Apache-2.0
#include "core/step_program.h"

#include "base/digest.h"
#include "base/error.h"

namespace mpt {
namespace {

std::optional<std::string> find_instruction_defect(const StepProgram& program, InstructionId id) {
  const Instruction& instruction = program.instructions[size_t(id)];
  const auto out_of_table = [](int64_t first, int64_t count, size_t size) {
    return first < 0 || count < 0 || first + count > int64_t(size);
  };
  if (instruction.lane_count < 1 ||
      out_of_table(instruction.first_lane, instruction.lane_count, program.lane_table.size()) ||
      out_of_table(instruction.first_wait, instruction.wait_count, program.wait_table.size()))
    return "its lanes or waits lie outside the tables";
  for (const InstructionId wait : program.waits(id))
    if (wait < 0 || wait >= id) return fmt::format("waits on instruction {}, which is not earlier", wait);
  for (const Lane& lane : program.lanes(id))
    if (lane.rank < 0 || lane.rank >= program.ranks) return fmt::format("uses a lane of rank {}", lane.rank);
  if (instruction.stage >= program.stages) return fmt::format("belongs to stage {}", instruction.stage);
  return std::nullopt;
}

}  // namespace

std::optional<Lane> StepProgram::lane_on(InstructionId id, int rank) const {
  for (const Lane& lane : lanes(id))
    if (lane.rank == rank) return lane;
  return std::nullopt;
}

std::string instruction_name(const StepProgram& program, InstructionId id) {
  const Instruction& i = program.instructions[size_t(id)];
  using K = InstructionKind;
  if (i.kind == K::transfer_activation)
    return fmt::format("transfer of activation {}->{}, micro-batch {}", i.stage, i.stage + 1, i.micro_batch);
  if (i.kind == K::transfer_gradient)
    return fmt::format("transfer of gradient {}->{}, micro-batch {}", i.stage, i.stage - 1, i.micro_batch);
  if (i.kind == K::reduce_norm) return "gradient norm";
  if (i.kind == K::reduce_gradient) return fmt::format("gradient reduction, stage {}", i.stage);
  if (i.kind == K::reduce_tied_embedding) return "reduction of the tied embedding's gradient";
  if (i.kind == K::optimizer_step) return fmt::format("optimizer step, stage {}", i.stage);
  return fmt::format("{}, stage {}, micro-batch {}", enum_name(i.kind), i.stage, i.micro_batch);
}

std::optional<std::string> find_defect(const StepProgram& program) {
  for (InstructionId id = 0; id < program.size(); ++id)
    if (auto defect = find_instruction_defect(program, id))
      return fmt::format("instruction {} ({}): {}", id, instruction_name(program, id), *defect);
  return std::nullopt;
}

std::string program_digest(const StepProgram& program) {
  Digest digest;
  for (const int64_t value : {program.ranks, program.stages, program.micro_batches}) digest.add(value);
  for (const int rank : program.rank_of_stage) digest.add(rank);
  for (const Instruction& i : program.instructions) {
    for (const int64_t value :
         {int64_t(i.kind), int64_t(i.stage), int64_t(i.micro_batch), int64_t(i.receive_slot),
          int64_t(i.send_slot), i.bytes, i.acquire_bytes, i.release_bytes, i.workspace_bytes,
          int64_t(i.lane_count), int64_t(i.wait_count)})
      digest.add(value);
  }
  for (const Lane& lane : program.lane_table) digest.add(lane.index());
  for (const InstructionId wait : program.wait_table) digest.add(wait);
  for (const StageSlots& s : program.slots) digest.add(s.total());
  for (const int64_t bytes : program.static_bytes) digest.add(bytes);
  return digest.text();
}

std::vector<MemoryPoint> memory_trace(const StepProgram& program, int rank) {
  std::vector<MemoryPoint> points;
  int64_t held = program.static_bytes[size_t(rank)];
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (!i.is_compute() || program.lanes(id).front().rank != rank) continue;
    const int64_t during = held + i.acquire_bytes + i.workspace_bytes;
    held += i.acquire_bytes - i.release_bytes;
    points.push_back({id, during, held});
  }
  return points;
}

std::vector<int64_t> peak_bytes(const StepProgram& program) {
  std::vector<int64_t> held = program.static_bytes;
  std::vector<int64_t> peak = held;
  for (const Instruction& i : program.instructions) {
    if (!i.is_compute()) continue;
    const auto rank = size_t(program.lane_table[size_t(i.first_lane)].rank);
    peak[rank] = std::max(peak[rank], held[rank] + i.acquire_bytes + i.workspace_bytes);
    held[rank] += i.acquire_bytes - i.release_bytes;
  }
  return peak;
}

}  // namespace mpt
