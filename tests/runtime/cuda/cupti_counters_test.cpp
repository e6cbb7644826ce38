// SPDX-License-Identifier: Apache-2.0

// Sampling, with functions of this file in the place of those of CUPTI that need a GPU. They refuse what the
// headers say is refused: calls out of order, of a wrong size, or for what is not there.

#include "runtime/cuda/cupti_counters.h"

#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/cuda/counter_metrics.h"

struct CUpti_PmSampling_Object {
  size_t gpu;
  bool configured = false, started = false, decoded_since_clear = false;
  size_t image_bytes = 0;
};

namespace mpt::runtime {
namespace {

// The GPUs and CUPTI's state. Its functions may be called by any thread, but by one at a time.
struct Fake {
  std::mutex mutex;
  CUptiResult enable_result = CUPTI_SUCCESS;
  std::string chip = "GH100";
  size_t gpus = 1;
  size_t samples = 40;  // in the GPU's buffer at each decoding
  int overflows = 0;    // decodings that find the buffer full
  bool fails = false;   // decoding ends with an error
  bool profiler = false;
  int decodings = 0, starts = 0;
  std::set<CUpti_PmSampling_Object*> objects;
  CUpti_PmSampling_SetConfig_Params config{};
  std::vector<std::string> mistakes;
};
Fake* fake = nullptr;

CUptiResult mistake(const char* what) {
  fake->mistakes.push_back(what);
  return CUPTI_ERROR_INVALID_PARAMETER;
}

// Every function begins so.
#define MPT_FAKE(Params)                                        \
  const std::unique_lock lock(fake->mutex, std::try_to_lock);   \
  if (!lock.owns_lock()) return mistake("two threads at once"); \
  if (params->structSize != Params##_STRUCT_SIZE || params->pPriv != nullptr) return mistake(#Params)

bool known(CUpti_PmSampling_Object* object) { return fake->objects.count(object) > 0; }

constexpr size_t kImageBytesPerSample = 64;

}  // namespace
}  // namespace mpt::runtime

using mpt::runtime::fake;
using mpt::runtime::known;
using mpt::runtime::mistake;

extern "C" {

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* params) {
  MPT_FAKE(CUpti_Profiler_Initialize_Params);
  fake->profiler = true;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params* params) {
  MPT_FAKE(CUpti_Profiler_DeInitialize_Params);
  if (!fake->profiler || !fake->objects.empty()) return mistake("the profiler ends before its sampling");
  fake->profiler = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* params) {
  MPT_FAKE(CUpti_Device_GetChipName_Params);
  if (!fake->profiler) return mistake("the chip's name before the profiler");
  if (params->deviceIndex >= fake->gpus) return CUPTI_ERROR_INVALID_DEVICE;
  params->pChipName = fake->chip.c_str();
  return CUPTI_SUCCESS;
}

// Nothing is known, so that CUPTI's own half takes all of the chip's counters for there.
CUptiResult cuptiPmSamplingGetCounterAvailability(CUpti_PmSampling_GetCounterAvailability_Params* params) {
  MPT_FAKE(CUpti_PmSampling_GetCounterAvailability_Params);
  if (!fake->objects.empty() && fake->gpus == 1) return mistake("availability is asked while sampling");
  params->counterAvailabilityImageSize = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* params) {
  MPT_FAKE(CUpti_PmSampling_Enable_Params);
  for (const CUpti_PmSampling_Object* object : fake->objects) {
    if (object->gpu == params->deviceIndex) return CUPTI_ERROR_INVALID_OPERATION;
  }
  if (fake->enable_result != CUPTI_SUCCESS) return fake->enable_result;
  params->pPmSamplingObject = new CUpti_PmSampling_Object{params->deviceIndex};
  fake->objects.insert(params->pPmSamplingObject);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params* params) {
  MPT_FAKE(CUpti_PmSampling_Disable_Params);
  CUpti_PmSampling_Object* const object = params->pPmSamplingObject;
  if (!known(object) || object->started) return mistake("disable");
  fake->objects.erase(object);
  delete object;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingSetConfig(CUpti_PmSampling_SetConfig_Params* params) {
  MPT_FAKE(CUpti_PmSampling_SetConfig_Params);
  CUpti_PmSampling_Object* const object = params->pPmSamplingObject;
  if (!known(object) || object->started || params->configSize == 0) return mistake("configuration");
  object->configured = true;
  fake->config = *params;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterDataSize(CUpti_PmSampling_GetCounterDataSize_Params* params) {
  MPT_FAKE(CUpti_PmSampling_GetCounterDataSize_Params);
  if (!known(params->pPmSamplingObject) || params->numMetrics != mpt::runtime::kCounterMetrics.size())
    return mistake("counter data size");
  params->counterDataSize = params->maxSamples * mpt::runtime::kImageBytesPerSample;
  params->pPmSamplingObject->image_bytes = params->counterDataSize;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingCounterDataImageInitialize(
    CUpti_PmSampling_CounterDataImage_Initialize_Params* params) {
  MPT_FAKE(CUpti_PmSampling_CounterDataImage_Initialize_Params);
  CUpti_PmSampling_Object* const object = params->pPmSamplingObject;
  if (!known(object) || params->counterDataSize != object->image_bytes) return mistake("image");
  object->decoded_since_clear = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingStart(CUpti_PmSampling_Start_Params* params) {
  MPT_FAKE(CUpti_PmSampling_Start_Params);
  CUpti_PmSampling_Object* const object = params->pPmSamplingObject;
  if (!known(object) || !object->configured || object->started) return mistake("start");
  object->started = true;
  ++fake->starts;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params* params) {
  MPT_FAKE(CUpti_PmSampling_Stop_Params);
  CUpti_PmSampling_Object* const object = params->pPmSamplingObject;
  if (!known(object) || !object->started) return mistake("stop");
  object->started = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* params) {
  MPT_FAKE(CUpti_PmSampling_DecodeData_Params);
  CUpti_PmSampling_Object* const object = params->pPmSamplingObject;
  if (!known(object) || !object->started || params->counterDataImageSize != object->image_bytes)
    return mistake("decode");
  if (object->decoded_since_clear) return mistake("decoded into an image that is in use");
  ++fake->decodings;
  if (fake->fails) return CUPTI_ERROR_UNKNOWN;
  if (fake->overflows > 0) {
    --fake->overflows;
    params->overflow = 1;
    return CUPTI_ERROR_OUT_OF_MEMORY;
  }
  object->decoded_since_clear = true;
  params->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* params) {
  MPT_FAKE(CUpti_PmSampling_GetCounterDataInfo_Params);
  params->numCompletedSamples = params->numPopulatedSamples = fake->samples;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(
    CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
  MPT_FAKE(CUpti_PmSampling_CounterData_GetSampleInfo_Params);
  if (!known(params->pPmSamplingObject) || params->sampleIndex >= fake->samples) return mistake("sample");
  params->startTimestamp = 1'000'000'000 + params->sampleIndex * 5'000'000;
  params->endTimestamp = params->startTimestamp + 5'000'000;
  return CUPTI_SUCCESS;
}

// Half of the samples at 100 %, half at 0 %, 2 GB in each of 5 ms.
CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
  MPT_FAKE(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  if (params->numMetrics != mpt::runtime::kCounterMetrics.size()) return mistake("metrics");
  for (size_t i = 0; i < 3; ++i) params->pMetricValues[i] = params->rangeIndex % 2 == 0 ? 100.0 : 0.0;
  params->pMetricValues[3] = 2e9;
  return CUPTI_SUCCESS;
}

}  // extern "C"

namespace mpt::runtime {
namespace {

class CuptiCounters : public testing::Test {
 protected:
  void SetUp() override {
    fake = &state_;
    CUpti_Profiler_Host_GetSupportedChips_Params chips{};
    chips.structSize = CUpti_Profiler_Host_GetSupportedChips_Params_STRUCT_SIZE;
    if (cuptiProfilerHostGetSupportedChips(&chips) != CUPTI_SUCCESS)
      GTEST_SKIP() << "CUPTI knows no chips; is libnvperf_host.so beside it?";
  }
  void TearDown() override {
    EXPECT_TRUE(state_.mistakes.empty()) << state_.mistakes.front();
    EXPECT_TRUE(state_.objects.empty()) << "GPUs are still sampled";
    EXPECT_FALSE(state_.profiler);
  }

  // Reads until `enough` is true; nothing after ten seconds.
  template <class Enough>
  static std::vector<CounterReading> read_until(HardwareCounters& counters, Enough enough) {
    for (int i = 0; i < 1000; ++i) {
      auto readings = counters.read();
      if (enough(readings)) return readings;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
  }

  Fake state_;
  std::string reason_;
};

TEST_F(CuptiCounters, AreMeansOfSamples) {
  state_.gpus = 2;
  const auto counters = make_cupti_counters({{0, "GPU-a"}, {1, "GPU-b"}}, reason_);
  ASSERT_NE(counters, nullptr) << reason_;
  const auto readings = read_until(*counters, [](const auto& r) { return r.size() == 2; });
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_EQ(readings[0].gpu, "GPU-a");
  EXPECT_EQ(readings[1].gpu, "GPU-b");
  EXPECT_DOUBLE_EQ(readings[1].sm_active, 0.5);
  EXPECT_DOUBLE_EQ(readings[1].tensor_active, 0.5);
  EXPECT_DOUBLE_EQ(readings[1].dram_share, 0.5);
  EXPECT_NEAR(readings[1].dram_bytes_per_s, 4e11, 1.0);
  // Nothing new: what is known stays.
  EXPECT_EQ(counters->read().size(), 2u);
}

TEST_F(CuptiCounters, AreSampledByTimeButOnA100) {
  ASSERT_NE(make_cupti_counters({{0, "GPU-a"}}, reason_), nullptr) << reason_;
  EXPECT_EQ(state_.config.triggerMode, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
  EXPECT_EQ(state_.config.samplingInterval, 5'000'000u);  // ns
  state_.chip = "GA100";
  ASSERT_NE(make_cupti_counters({{0, "GPU-a"}}, reason_), nullptr) << reason_;
  EXPECT_EQ(state_.config.triggerMode, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
}

TEST_F(CuptiCounters, BeginAnewAfterAFullBuffer) {
  state_.overflows = 2;
  auto counters = make_cupti_counters({{0, "GPU-a"}}, reason_);
  ASSERT_NE(counters, nullptr) << reason_;
  EXPECT_EQ(read_until(*counters, [](const auto& r) { return !r.empty(); }).size(), 1u);
  counters.reset();
  EXPECT_EQ(state_.starts, 3);
}

TEST_F(CuptiCounters, StopWhereDecodingFails) {
  state_.fails = true;
  {
    const auto counters = make_cupti_counters({{0, "GPU-a"}}, reason_);
    ASSERT_NE(counters, nullptr) << reason_;
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    EXPECT_TRUE(counters->read().empty());
    EXPECT_NE(counters->complaint().find("GPU-a: cuptiPmSamplingDecodeData"), std::string::npos)
        << counters->complaint();
  }
  EXPECT_EQ(state_.decodings, 1);
}

TEST_F(CuptiCounters, SayWhatTheDriverRefusesAndTheRemedy) {
  state_.enable_result = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  EXPECT_EQ(make_cupti_counters({{0, "GPU-a"}}, reason_), nullptr);
  EXPECT_NE(reason_.find("NVreg_RestrictProfilingToAdminUsers=0"), std::string::npos) << reason_;
  EXPECT_EQ(reason_.find('\n'), std::string::npos);
  state_.enable_result = CUPTI_ERROR_HARDWARE_BUSY;
  EXPECT_EQ(make_cupti_counters({{0, "GPU-a"}}, reason_), nullptr);
  EXPECT_NE(reason_.find("dcgmi profile --pause"), std::string::npos) << reason_;
  state_.enable_result = CUPTI_SUCCESS;
  state_.chip = "GB10B";  // its memory is the host's
  EXPECT_EQ(make_cupti_counters({{0, "GPU-a"}}, reason_), nullptr);
  EXPECT_NE(reason_.find("for GB10B"), std::string::npos) << reason_;
}

TEST_F(CuptiCounters, OfTheGpusThatCanBeSampled) {
  const auto counters = make_cupti_counters({{0, "GPU-a"}, {1, "GPU-of-nobody"}}, reason_);
  ASSERT_NE(counters, nullptr) << reason_;
  const auto readings = read_until(*counters, [](const auto& r) { return !r.empty(); });
  ASSERT_EQ(readings.size(), 1u);
  EXPECT_EQ(readings[0].gpu, "GPU-a");
  EXPECT_EQ(counters->complaint().rfind("GPU-of-nobody: ", 0), 0u) << counters->complaint();
}

TEST_F(CuptiCounters, SayThatThereIsNoGpu) {
  EXPECT_EQ(make_cupti_counters({}, reason_), nullptr);
  EXPECT_FALSE(reason_.empty());
}

// A GPU that gives no samples, or none with a time.
TEST_F(CuptiCounters, SayWhatCameInTheirPlace) {
  state_.samples = 0;
  const auto counters = make_cupti_counters({{0, "GPU-a"}}, reason_);
  ASSERT_NE(counters, nullptr) << reason_;
  EXPECT_TRUE(counters->read().empty());
  EXPECT_EQ(counters->complaint().rfind("GPU-a: 0 samples in ", 0), 0u) << counters->complaint();
}

}  // namespace
}  // namespace mpt::runtime
