// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/counter_metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/cuda/cupti_error.h"

namespace mpt::runtime {

void CounterMetrics::Deinitialize::operator()(CUpti_Profiler_Host_Object* host) const {
  CUpti_Profiler_Host_Deinitialize_Params params{};
  params.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
  params.pHostObject = host;
  cuptiProfilerHostDeinitialize(&params);
}

CounterMetrics::CounterMetrics(const std::string& chip, std::vector<uint8_t> availability)
    : availability_(std::move(availability)) {
  CUpti_Profiler_Host_Initialize_Params start{};
  start.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  start.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  start.pChipName = chip.c_str();
  start.pCounterAvailabilityImage = availability_.empty() ? nullptr : availability_.data();
  check_cupti(cuptiProfilerHostInitialize(&start), "cuptiProfilerHostInitialize");
  host_.reset(start.pHostObject);

  auto names = kCounterMetrics;
  CUpti_Profiler_Host_ConfigAddMetrics_Params add{};
  add.structSize = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE;
  add.pHostObject = host_.get();
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  check_cupti(cuptiProfilerHostConfigAddMetrics(&add), "cuptiProfilerHostConfigAddMetrics for " + chip);

  CUpti_Profiler_Host_GetConfigImageSize_Params size{};
  size.structSize = CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE;
  size.pHostObject = host_.get();
  check_cupti(cuptiProfilerHostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize");
  configuration_.resize(size.configImageSize);

  CUpti_Profiler_Host_GetConfigImage_Params image{};
  image.structSize = CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE;
  image.pHostObject = host_.get();
  image.configImageSize = configuration_.size();
  image.pConfigImage = configuration_.data();
  check_cupti(cuptiProfilerHostGetConfigImage(&image), "cuptiProfilerHostGetConfigImage");
}

size_t CounterMetrics::passes() {
  CUpti_Profiler_Host_GetNumOfPasses_Params params{};
  params.structSize = CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE;
  params.configImageSize = configuration_.size();
  params.pConfigImage = configuration_.data();
  check_cupti(cuptiProfilerHostGetNumOfPasses(&params), "cuptiProfilerHostGetNumOfPasses");
  return params.numOfPasses;
}

CounterValues CounterMetrics::values_of(const std::vector<uint8_t>& counter_data, size_t sample) {
  auto names = kCounterMetrics;
  CounterValues values{};
  CUpti_Profiler_Host_EvaluateToGpuValues_Params params{};
  params.structSize = CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE;
  params.pHostObject = host_.get();
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = sample;
  params.ppMetricNames = names.data();
  params.numMetrics = names.size();
  params.pMetricValues = values.data();
  check_cupti(cuptiProfilerHostEvaluateToGpuValues(&params), "cuptiProfilerHostEvaluateToGpuValues");
  return values;
}

bool CounterMean::add(uint64_t start_ns, uint64_t end_ns, const CounterValues& values) {
  const bool counted = std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  if (!counted || start_ns == 0 || end_ns <= start_ns) return false;
  const double seconds = double(end_ns - start_ns) * 1e-9;
  seconds_ += seconds;
  for (size_t i = 0; i < percent_seconds_.size(); ++i) percent_seconds_[i] += values[i] * seconds;
  bytes_ += values.back();
  return true;
}

std::optional<CounterReading> CounterMean::take() {
  const CounterMean sum = std::exchange(*this, {});
  if (sum.seconds_ == 0.0) return std::nullopt;
  const auto share = [&](size_t i) { return sum.percent_seconds_[i] / sum.seconds_ / 100.0; };
  return CounterReading{"", share(0), share(1), share(2), sum.bytes_ / sum.seconds_};
}

}  // namespace mpt::runtime
