// SPDX-License-Identifier: Apache-2.0

// The host's half of hardware counters, which CUPTI does for every chip it knows, without a GPU.

#include "runtime/cuda/counter_metrics.h"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/cuda/cupti_error.h"

namespace mpt::runtime {
namespace {

// "percent" or "byte", as CUPTI says of a metric.
std::string unit_of(const std::string& chip, const char* metric) {
  CUpti_Profiler_Host_Initialize_Params start{};
  start.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  start.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  start.pChipName = chip.c_str();
  check_cupti(cuptiProfilerHostInitialize(&start), "cuptiProfilerHostInitialize");
  CUpti_Profiler_Host_GetMetricProperties_Params properties{};
  properties.structSize = CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE;
  properties.pHostObject = start.pHostObject;
  properties.pMetricName = metric;
  const CUptiResult result = cuptiProfilerHostGetMetricProperties(&properties);
  const std::string unit = result == CUPTI_SUCCESS ? properties.pDimUnit : "no such metric";
  CUpti_Profiler_Host_Deinitialize_Params end{};
  end.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
  end.pHostObject = start.pHostObject;
  check_cupti(cuptiProfilerHostDeinitialize(&end), "cuptiProfilerHostDeinitialize");
  return unit;
}

class CounterMetricsOfChip : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    CUpti_Profiler_Host_GetSupportedChips_Params chips{};
    chips.structSize = CUpti_Profiler_Host_GetSupportedChips_Params_STRUCT_SIZE;
    if (const CUptiResult result = cuptiProfilerHostGetSupportedChips(&chips); result != CUPTI_SUCCESS)
      GTEST_SKIP() << "CUPTI knows no chips; is libnvperf_host.so beside it? "
                   << CuptiError(result, "cuptiProfilerHostGetSupportedChips").what();
    for (size_t i = 0; i < chips.numChips; ++i) {
      if (std::string(chips.ppChipNames[i]) == GetParam()) return;
    }
    GTEST_SKIP() << "this CUPTI does not know " << GetParam();
  }
};

TEST_P(CounterMetricsOfChip, AreThereAndAreCountedInOnePass) {
  for (size_t i = 0; i < kCounterMetrics.size(); ++i)
    EXPECT_EQ(unit_of(GetParam(), kCounterMetrics[i]), i < 3 ? "percent" : "byte") << kCounterMetrics[i];
  CounterMetrics metrics(GetParam(), {});
  EXPECT_FALSE(metrics.configuration().empty());
  EXPECT_EQ(metrics.passes(), 1u);
}

// A100, RTX 3090, L40S, H100 and H200, B200, RTX 5090.
INSTANTIATE_TEST_SUITE_P(Gpus, CounterMetricsOfChip,
                         testing::Values("GA100", "GA102", "AD102", "GH100", "GB100", "GB202"),
                         [](const auto& info) { return info.param; });

TEST(CounterMetrics, RefusesAChipThatIsNone) { EXPECT_THROW(CounterMetrics("GX999", {}), CuptiError); }

TEST(CounterMean, WeighsSamplesByTheirLength) {
  CounterMean mean;
  EXPECT_FALSE(mean.take());
  mean.add(1'000'000'000, 2'000'000'000, {40.0, 10.0, 100.0, 3e12});
  mean.add(2'000'000'000, 5'000'000'000, {80.0, 50.0, 0.0, 1e12});
  const auto reading = mean.take();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->sm_active, 0.7);
  EXPECT_DOUBLE_EQ(reading->tensor_active, 0.4);
  EXPECT_DOUBLE_EQ(reading->dram_share, 0.25);
  EXPECT_DOUBLE_EQ(reading->dram_bytes_per_s, 1e12);
  EXPECT_FALSE(mean.take());
}

TEST(CounterMean, LeavesOutWhatSaysNothing) {
  CounterMean mean;
  mean.add(0, 0, {1.0, 1.0, 1.0, 1.0});  // lost: no time
  mean.add(7, 7, {1.0, 1.0, 1.0, 1.0});
  mean.add(0, 9, {1.0, 1.0, 1.0, 1.0});
  mean.add(1, 2, {1.0, std::numeric_limits<double>::quiet_NaN(), 1.0, 1.0});  // shared with other tenants
  EXPECT_FALSE(mean.take());
}

}  // namespace
}  // namespace mpt::runtime
