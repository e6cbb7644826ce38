// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/call_meter.h"

#include <gtest/gtest.h>

namespace mpt::runtime {
namespace {

// Each piece takes half a second, by the device's clock.
class HalfSeconds final : public WorkMarks {
 public:
  explicit HalfSeconds(int64_t& started) : started_(started) {}
  void begin_step() override {}
  void start(int64_t number) override { started_ = std::max(started_, number + 1); }
  void end(int64_t) override {}
  void await(int64_t) override {}
  void finish() override {}
  double last_call_s() const override { return 0.0; }
  std::pair<double, double> time_s(int64_t number) const override {
    return {double(number), double(number) + 0.5};
  }

 private:
  int64_t& started_;
};

TEST(MarkMeter, CountsTheDevicesTime) {
  CallTime time{0.0};
  int64_t started = 0;
  MarkMeter meter(std::make_unique<HalfSeconds>(started), time);
  const auto call = [&](int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      meter.begin();
      meter.end();
    }
    meter.collect();
    return time.exchange(0.0);
  };
  EXPECT_EQ(call(0), 0.0);
  EXPECT_EQ(call(3), 1.5);
  EXPECT_EQ(call(3), 1.5) << "marks are taken again";
  // More calls than marks: the mean of those that are known.
  EXPECT_DOUBLE_EQ(call(2 * MarkMeter::kMarked), double(MarkMeter::kMarked));
  EXPECT_EQ(started, MarkMeter::kMarked);
}

}  // namespace
}  // namespace mpt::runtime
