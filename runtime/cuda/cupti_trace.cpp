// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/backend.h"

#include <cupti.h>

#include <cstdlib>
#include <mutex>

#include "base/error.h"

// The library fills the newest record of its own version. The fields read here exist in all versions.
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
  fail_run("{}: {}", call, text == nullptr ? "an unknown error" : text);
}

constexpr size_t kBufferBytes = 4 << 20;

// Buffers filled by CUPTI's own thread. Another thread parses them.
struct Buffers {
  std::mutex mutex;
  std::vector<std::pair<uint8_t*, size_t>> full;
  size_t lost = 0;  // records dropped for lack of room
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
    std::vector<KernelRecord> records;
    for (const auto& [buffer, valid] : full) {
      CUpti_Activity* activity = nullptr;
      while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) {
        if (activity->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        const auto& k = *reinterpret_cast<const KernelActivity*>(activity);
        records.push_back({k.name == nullptr ? "" : k.name, double(k.end - k.start) * 1e-9});
      }
      std::free(buffer);
    }
    return records;
  }
};

}  // namespace

std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason) {
  static bool enabled = false;
  if (!enabled) {
    try {
      check_cupti(cuptiActivityRegisterCallbacks(request_buffer, complete_buffer),
                  "cuptiActivityRegisterCallbacks");
      check_cupti(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
    } catch (const RunError& error) {
      reason = error.what();
      return nullptr;
    }
  }
  enabled = true;
  return std::make_unique<CuptiTrace>();
}

}  // namespace mpt::runtime
