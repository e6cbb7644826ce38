// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/stream_device.h"

#include "base/clock.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {
namespace {

class EventMarks final : public WorkMarks {
 public:
  EventMarks(StreamDevice& device, int64_t count)
      : device_(device), starts_(size_t(count)), ends_(size_t(count)) {
    device_.stream();  // makes its GPU the current one, for the events
    check(cudaEventCreate(&zero_), "cudaEventCreate");
  }
  ~EventMarks() override {
    cudaEventDestroy(zero_);
    for (const auto* events : {&starts_, &ends_})
      for (const cudaEvent_t event : *events)
        if (event != nullptr) cudaEventDestroy(event);
  }

  void begin_step() override {
    record(zero_);
    device_.synchronize();
    zero_s_ = now_s();
  }
  void start(int64_t number) override { record(starts_[size_t(number)]); }
  void end(int64_t number) override { record(ends_[size_t(number)]); }
  void await(int64_t number) override {
    check(cudaStreamWaitEvent(device_.stream(), ends_[size_t(number)], 0), "cudaStreamWaitEvent");
  }
  // Waits only for the marked pieces. Users of other streams wait for those themselves.
  void finish() override {
    for (const cudaEvent_t end : ends_)
      if (end != nullptr) device_.wait_for(end);
  }
  double last_call_s() const override { return device_.last_call_s(); }
  std::pair<double, double> time_s(int64_t number) const override {
    return {since_zero(starts_[size_t(number)]), since_zero(ends_[size_t(number)])};
  }

 private:
  // Each event belongs to one thread until finish().
  void record(cudaEvent_t& event) {
    const cudaStream_t stream = device_.stream();
    if (event == nullptr) check(cudaEventCreate(&event), "cudaEventCreate");
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  double since_zero(cudaEvent_t event) const {
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, zero_, event), "cudaEventElapsedTime");
    return zero_s_ + double(milliseconds) * 1e-3;
  }

  StreamDevice& device_;
  cudaEvent_t zero_ = nullptr;
  double zero_s_ = 0.0;
  std::vector<cudaEvent_t> starts_, ends_;
};

}  // namespace

std::unique_ptr<WorkMarks> make_work_marks(StreamDevice& device, int64_t count) {
  return std::make_unique<EventMarks>(device, count);
}

}  // namespace mpt::runtime::cuda
