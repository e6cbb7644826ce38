// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cupti_counters.h"

#include <cupti_pmsampling.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/cuda/counter_metrics.h"
#include "runtime/cuda/cupti_error.h"

namespace mpt::runtime {
namespace {

constexpr uint64_t kIntervalNs = 5'000'000;
// Often enough that neither what the GPU writes to nor what it is decoded to is ever full: 50 samples come in
// between, of 4 to 7 KB each on an H100, and a full buffer of the GPU's stays full.
constexpr std::chrono::milliseconds kDecodeEvery{250};
constexpr size_t kHardwareBufferBytes = size_t{16} << 20;
constexpr uint32_t kMostSamples = 512;

std::string chip_of(int gpu) {
  CUpti_Device_GetChipName_Params params{};
  params.structSize = CUpti_Device_GetChipName_Params_STRUCT_SIZE;
  params.deviceIndex = size_t(gpu);
  check_cupti(cuptiDeviceGetChipName(&params), "cuptiDeviceGetChipName");
  return params.pChipName;
}

// Which counters this machine and user may have. Asked before sampling begins, which it would disturb.
std::vector<uint8_t> availability_of(int gpu) {
  CUpti_PmSampling_GetCounterAvailability_Params params{};
  params.structSize = CUpti_PmSampling_GetCounterAvailability_Params_STRUCT_SIZE;
  params.deviceIndex = size_t(gpu);
  check_cupti(cuptiPmSamplingGetCounterAvailability(&params), "cuptiPmSamplingGetCounterAvailability");
  std::vector<uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  check_cupti(cuptiPmSamplingGetCounterAvailability(&params), "cuptiPmSamplingGetCounterAvailability");
  return image;
}

// One GPU, being sampled.
class GpuSampler {
 public:
  explicit GpuSampler(const CountedGpu& gpu)
      : gpu_(gpu), chip_(chip_of(gpu.index)), metrics_(chip_, availability_of(gpu.index)) {
    if (metrics_.passes() != 1) throw CuptiError(CUPTI_ERROR_NOT_SUPPORTED, "counting all at once");
    start();
  }

  /// Adds up what has come since the last call. A GPU that fails is not sampled any more.
  void decode() {
    if (!sampling_) return;
    try {
      ++decodings_;
      if (decode_once()) return;
      ++full_;
      start();
    } catch (const CuptiError& error) {
      sampling_.reset();
      last_.reset();
      failure_ = error.what();
    }
  }

  /// Why there is no reading; empty: there is one.
  std::string complaint() const {
    if (last_) return {};
    if (!failure_.empty()) return fmt::format("{}: {}", gpu_.uuid, failure_);
    return fmt::format(
        "{}: {} samples in {} looks at the GPU's buffer, which was full {} times; {} samples "
        "had no time or no values",
        gpu_.uuid, samples_, decodings_, full_, samples_ - mean_samples_);
  }

  std::optional<CounterReading> take() {
    if (auto reading = mean_.take()) {
      last_ = std::move(reading);
      last_->gpu = gpu_.uuid;
    }
    return last_;
  }

 private:
  struct End {
    void operator()(CUpti_PmSampling_Object* sampling) const {
      CUpti_PmSampling_Stop_Params stop{};
      stop.structSize = CUpti_PmSampling_Stop_Params_STRUCT_SIZE;
      stop.pPmSamplingObject = sampling;
      cuptiPmSamplingStop(&stop);
      CUpti_PmSampling_Disable_Params disable{};
      disable.structSize = CUpti_PmSampling_Disable_Params_STRUCT_SIZE;
      disable.pPmSamplingObject = sampling;
      cuptiPmSamplingDisable(&disable);
    }
  };

  void start() {
    sampling_.reset();
    CUpti_PmSampling_Enable_Params enable{};
    enable.structSize = CUpti_PmSampling_Enable_Params_STRUCT_SIZE;
    enable.deviceIndex = size_t(gpu_.index);
    check_cupti(cuptiPmSamplingEnable(&enable), "cuptiPmSamplingEnable");
    sampling_.reset(enable.pPmSamplingObject);

    CUpti_PmSampling_SetConfig_Params config{};
    config.structSize = CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE;
    config.pPmSamplingObject = sampling_.get();
    config.configSize = metrics_.configuration().size();
    config.pConfig = metrics_.configuration().data();
    config.hardwareBufferSize = kHardwareBufferBytes;
    // GA100 cannot sample by time (cupti_pmsampling.h): cycles of a clock of one to two GHz.
    config.triggerMode = chip_ == "GA100" ? CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL
                                          : CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    config.samplingInterval = kIntervalNs;
    config.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
    check_cupti(cuptiPmSamplingSetConfig(&config), "cuptiPmSamplingSetConfig");

    auto names = kCounterMetrics;
    CUpti_PmSampling_GetCounterDataSize_Params size{};
    size.structSize = CUpti_PmSampling_GetCounterDataSize_Params_STRUCT_SIZE;
    size.pPmSamplingObject = sampling_.get();
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxSamples = kMostSamples;
    check_cupti(cuptiPmSamplingGetCounterDataSize(&size), "cuptiPmSamplingGetCounterDataSize");
    counter_data_.resize(size.counterDataSize);
    clear();

    CUpti_PmSampling_Start_Params start{};
    start.structSize = CUpti_PmSampling_Start_Params_STRUCT_SIZE;
    start.pPmSamplingObject = sampling_.get();
    check_cupti(cuptiPmSamplingStart(&start), "cuptiPmSamplingStart");
  }

  void clear() {
    CUpti_PmSampling_CounterDataImage_Initialize_Params params{};
    params.structSize = CUpti_PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE;
    params.pPmSamplingObject = sampling_.get();
    params.counterDataSize = counter_data_.size();
    params.pCounterData = counter_data_.data();
    check_cupti(cuptiPmSamplingCounterDataImageInitialize(&params),
                "cuptiPmSamplingCounterDataImageInitialize");
  }

  // False if the GPU's buffer was full: sampling has to begin anew.
  bool decode_once() {
    CUpti_PmSampling_DecodeData_Params decode{};
    decode.structSize = CUpti_PmSampling_DecodeData_Params_STRUCT_SIZE;
    decode.pPmSamplingObject = sampling_.get();
    decode.pCounterDataImage = counter_data_.data();
    decode.counterDataImageSize = counter_data_.size();
    const CUptiResult result = cuptiPmSamplingDecodeData(&decode);
    if (result == CUPTI_ERROR_OUT_OF_MEMORY || decode.overflow != 0) return false;
    check_cupti(result, "cuptiPmSamplingDecodeData");

    CUpti_PmSampling_GetCounterDataInfo_Params info{};
    info.structSize = CUpti_PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE;
    info.pCounterDataImage = counter_data_.data();
    info.counterDataImageSize = counter_data_.size();
    check_cupti(cuptiPmSamplingGetCounterDataInfo(&info), "cuptiPmSamplingGetCounterDataInfo");
    for (size_t i = 0; i < info.numCompletedSamples; ++i) add(i);
    samples_ += info.numCompletedSamples;
    if (info.numPopulatedSamples > 0) clear();
    return true;
  }

  void add(size_t i) {
    CUpti_PmSampling_CounterData_GetSampleInfo_Params sample{};
    sample.structSize = CUpti_PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE;
    sample.pPmSamplingObject = sampling_.get();
    sample.pCounterDataImage = counter_data_.data();
    sample.counterDataImageSize = counter_data_.size();
    sample.sampleIndex = i;
    check_cupti(cuptiPmSamplingCounterDataGetSampleInfo(&sample), "cuptiPmSamplingCounterDataGetSampleInfo");
    if (mean_.add(sample.startTimestamp, sample.endTimestamp, metrics_.values_of(counter_data_, i)))
      ++mean_samples_;
  }

  CountedGpu gpu_;
  std::string chip_;
  CounterMetrics metrics_;
  std::vector<uint8_t> counter_data_;
  CounterMean mean_;
  std::optional<CounterReading> last_;
  std::string failure_;
  size_t decodings_ = 0, full_ = 0, samples_ = 0, mean_samples_ = 0;
  std::unique_ptr<CUpti_PmSampling_Object, End> sampling_;  // ends before what it refers to
};

struct Profiler {
  Profiler() {
    CUpti_Profiler_Initialize_Params params{};
    params.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
    check_cupti(cuptiProfilerInitialize(&params), "cuptiProfilerInitialize");
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler() {
    CUpti_Profiler_DeInitialize_Params params{};
    params.structSize = CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE;
    cuptiProfilerDeInitialize(&params);
  }
};

class CuptiCounters final : public HardwareCounters {
 public:
  explicit CuptiCounters(const std::vector<CountedGpu>& gpus) {
    std::optional<CuptiError> refusal;
    for (const CountedGpu& gpu : gpus) {
      try {
        samplers_.push_back(std::make_unique<GpuSampler>(gpu));
      } catch (const CuptiError& error) {
        refusal = error;
        refused_.push_back(fmt::format("{}: {}", gpu.uuid, error.what()));
      }
    }
    if (samplers_.empty() && refusal) throw *refusal;
    if (samplers_.empty()) throw CuptiError(CUPTI_ERROR_INVALID_DEVICE, "looking for the run's GPUs");
    thread_ = std::jthread([this](const std::stop_token& stop) { decode_until(stop); });
  }

  std::vector<CounterReading> read() override {
    const std::lock_guard lock(mutex_);
    std::vector<CounterReading> readings;
    for (const auto& sampler : samplers_) {
      if (auto reading = sampler->take()) readings.push_back(std::move(*reading));
    }
    return readings;
  }

  std::string complaint() override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> complaints = refused_;
    for (const auto& sampler : samplers_) {
      if (std::string one = sampler->complaint(); !one.empty()) complaints.push_back(std::move(one));
    }
    return fmt::format("{}", fmt::join(complaints, "; "));
  }

 private:
  void decode_until(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      woken_.wait_for(lock, stop, kDecodeEvery, [] { return false; });
      for (const auto& sampler : samplers_) sampler->decode();
    }
  }

  Profiler profiler_;
  std::vector<std::unique_ptr<GpuSampler>> samplers_;
  std::vector<std::string> refused_;
  std::mutex mutex_;
  std::condition_variable_any woken_;
  std::jthread thread_;  // ends before what it works on
};

std::string explanation(const CuptiError& error) {
  switch (error.result()) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "the driver keeps them for administrators: load it with NVreg_RestrictProfilingToAdminUsers=0, "
             "or "
             "run with CAP_PERFMON (drivers before 565: CAP_SYS_ADMIN)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "this is a virtual GPU, and its host does not let guests profile";
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_INVALID_OPERATION:
      return fmt::format(
          "{}; another profiler may hold them: Nsight, or DCGM, which dcgmi profile --pause stops",
          error.what());
    case CUPTI_ERROR_NOT_INITIALIZED:
      return fmt::format("{}; CUPTI needs libnvperf_host.so and libnvperf_target.so beside it", error.what());
    default:
      return error.what();
  }
}

}  // namespace

std::unique_ptr<HardwareCounters> make_cupti_counters(const std::vector<CountedGpu>& gpus,
                                                      std::string& reason) {
  try {
    return std::make_unique<CuptiCounters>(gpus);
  } catch (const CuptiError& error) {
    reason = explanation(error);
    return nullptr;
  }
}

}  // namespace mpt::runtime
