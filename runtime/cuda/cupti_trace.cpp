// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cupti_trace.h"

#include <cupti.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

// The library fills the newest record of its own version; what is read here stands in all of them.
#if CUPTI_API_VERSION >= 130001
using KernelActivity = CUpti_ActivityKernel10;
#else
using KernelActivity = CUpti_ActivityKernel9;
#endif

namespace mpt::runtime {
namespace {

void check_cupti(CUptiResult result, std::string_view call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  throw RunError(fmt::format("{}: {}", call, text == nullptr ? "an unknown error" : text));
}

constexpr size_t kBufferBytes = 4 << 20;
constexpr auto kLabels = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// Buffers that CUPTI filled, from its own thread. They are parsed elsewhere.
struct Buffers {
  std::mutex mutex;
  std::vector<std::pair<uint8_t*, size_t>> full;
  size_t lost = 0;  // records that there was no room for
};
Buffers& buffers() {
  static Buffers buffers;
  return buffers;
}

void CUPTIAPI request_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}
void CUPTIAPI complete_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  size_t lost = 0;
  cuptiActivityGetNumDroppedRecords(context, stream, &lost);
  const std::lock_guard lock(buffers().mutex);
  buffers().full.emplace_back(buffer, valid);
  buffers().lost += lost;
}

class CuptiTrace final : public KernelTrace {
 public:
  void label(int64_t number) override {
    check_cupti(cuptiActivityPushExternalCorrelationId(kLabels, uint64_t(number)),
                "cuptiActivityPushExternalCorrelationId");
  }
  void unlabel() override {
    uint64_t last = 0;
    check_cupti(cuptiActivityPopExternalCorrelationId(kLabels, &last),
                "cuptiActivityPopExternalCorrelationId");
  }

  std::vector<KernelRecord> take() override {
    check_cupti(cuptiActivityFlushAll(0), "cuptiActivityFlushAll");
    std::vector<std::pair<uint8_t*, size_t>> full;
    size_t lost = 0;
    {
      const std::lock_guard lock(buffers().mutex);
      full.swap(buffers().full);
      lost = std::exchange(buffers().lost, 0);
    }
    if (lost > 0) warn(fmt::format("note: CUPTI lost {} records: kernels are missing from the trace", lost));
    for (const auto& [buffer, valid] : full) {
      parse(buffer, valid);
      std::free(buffer);
    }
    std::vector<KernelRecord> records;
    for (auto& [correlation, record] : kernels_) {
      const auto found = label_of_.find(correlation);
      if (found == label_of_.end()) continue;  // launched outside of all labels
      record.label = found->second;
      records.push_back(std::move(record));
    }
    kernels_.clear();
    label_of_.clear();
    std::sort(records.begin(), records.end(),
              [](const KernelRecord& a, const KernelRecord& b) { return a.start_s < b.start_s; });
    return records;
  }

 private:
  void parse(uint8_t* buffer, size_t valid) {
    CUpti_Activity* activity = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) {
      if (activity->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
        const auto& e = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(activity);
        label_of_[e.correlationId] = int64_t(e.externalId);
      } else if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto& k = *reinterpret_cast<const KernelActivity*>(activity);
        kernels_.emplace(k.correlationId,
                         KernelRecord{0, k.name == nullptr ? "" : k.name, double(k.start) * 1e-9,
                                      double(k.end - k.start) * 1e-9});
      }
    }
  }

  std::map<uint32_t, int64_t> label_of_;
  std::multimap<uint32_t, KernelRecord> kernels_;
};

}  // namespace

std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason) {
  static bool enabled = false;
  if (!enabled) {
    try {
      check_cupti(cuptiActivityRegisterCallbacks(request_buffer, complete_buffer),
                  "cuptiActivityRegisterCallbacks");
      // Labels are attached to records of API calls, so that these must be on; libraries launch through
      // either.
      for (const CUpti_ActivityKind kind :
           {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER})
        check_cupti(cuptiActivityEnable(kind), "cuptiActivityEnable");
    } catch (const RunError& error) {
      reason = error.what();
      return nullptr;
    }
  }
  enabled = true;
  return std::make_unique<CuptiTrace>();
}

}  // namespace mpt::runtime
