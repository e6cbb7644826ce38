// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/call_meter.h"

namespace mpt::runtime {

MarkMeter::MarkMeter(std::unique_ptr<WorkMarks> marks, CallTime& time)
    : marks_(std::move(marks)), time_(time) {
  marks_->begin_step();
}

void MarkMeter::begin() {
  if (calls_ < kMarked) marks_->start(calls_);
}
void MarkMeter::end() {
  if (calls_ < kMarked) marks_->end(calls_);
  ++calls_;
}

void MarkMeter::collect() {
  const int64_t known = std::min(calls_, kMarked);
  double sum_s = 0.0;
  for (int64_t call = 0; call < known; ++call) {
    const auto [start_s, end_s] = marks_->time_s(call);
    sum_s += end_s - start_s;
  }
  if (known > 0) time_.fetch_add(sum_s * double(calls_) / double(known), std::memory_order_relaxed);
  calls_ = 0;
}

}  // namespace mpt::runtime
