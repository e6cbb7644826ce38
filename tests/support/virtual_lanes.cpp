// SPDX-License-Identifier: Apache-2.0
#include "tests/support/virtual_lanes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>

namespace mpt::test {
namespace {

class VirtualLanes final : public runtime::Lanes {
 public:
  VirtualLanes(const StepProgram& program, const std::vector<double>& durations_s, VirtualMeeting& meeting)
      : program_(program),
        durations_s_(durations_s),
        meeting_(meeting),
        spans_(program.instructions.size()) {}

  void begin_step() override { clock_s_.fill(0.0); }

  void launch(InstructionId id, Stream stream, std::span<const InstructionId> waits,
              std::function<void()> work) override {
    double start_s = clock_s_[size_t(stream)];
    for (const InstructionId wait : waits) start_s = std::max(start_s, spans_[size_t(wait)].end_s);
    const int parties = program_.instructions[size_t(id)].lane_count;
    if (parties > 1) start_s = meeting_.meet(id, parties, start_s);
    work();
    const double end_s = start_s + durations_s_[size_t(id)];
    clock_s_[size_t(stream)] = end_s;
    spans_[size_t(id)] = {start_s, end_s};
  }

  void synchronize() override {}
  Span span(InstructionId id) const override { return spans_[size_t(id)]; }

 private:
  const StepProgram& program_;
  const std::vector<double>& durations_s_;
  VirtualMeeting& meeting_;
  std::array<double, kStreamCount> clock_s_{};
  std::vector<Span> spans_;
};

}  // namespace

double VirtualMeeting::meet(InstructionId id, int parties, double ready_s) {
  std::unique_lock lock(mutex_);
  Seats& seats = seats_[id];
  seats.latest_s = std::max(seats.latest_s, ready_s);
  if (++seats.arrived == parties) changed_.notify_all();
  const bool met =
      changed_.wait_for(lock, std::chrono::seconds(20), [&] { return seats.arrived >= parties; });
  if (!met) throw std::runtime_error("instruction " + std::to_string(id) + " waits for ever");
  return seats.latest_s;
}

std::unique_ptr<runtime::Lanes> make_virtual_lanes(const StepProgram& program,
                                                   const std::vector<double>& durations_s,
                                                   VirtualMeeting& meeting) {
  return std::make_unique<VirtualLanes>(program, durations_s, meeting);
}

}  // namespace mpt::test
