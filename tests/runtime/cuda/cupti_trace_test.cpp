// SPDX-License-Identifier: Apache-2.0

// Kernels traced through CUPTI's activity records, with functions of this file in the place of its own. They
// refuse calls out of order. Records come late, in small buffers and from another thread, as CUPTI's guide
// permits ("CUPTI Activity API").

#include "runtime/device/backend.h"

#include <cupti.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mpt::runtime {
namespace {

#if CUPTI_API_VERSION >= 130001
using TracedKernel = CUpti_ActivityKernel10;
#else
using TracedKernel = CUpti_ActivityKernel9;
#endif
union TracedRecord {
  CUpti_ActivityKind kind;
  TracedKernel kernel;
};
constexpr size_t kRecordBytes = (sizeof(TracedRecord) + 7) / 8 * 8;

struct FakeActivities {
  CUptiResult register_result = CUPTI_SUCCESS;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::set<CUpti_ActivityKind> enabled;
  std::vector<TracedRecord> waiting;
  std::set<const uint8_t*> delivered;  // buffers whose records may be read
  size_t dropped = 0, most_in_buffer = 3;
  std::vector<std::string> mistakes;
};
FakeActivities activities;

void launch_traced(const char* name, uint64_t start_ns) {
  if (!activities.enabled.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  TracedRecord record{};
  record.kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.kernel.name = name;
  record.kernel.start = start_ns;
  record.kernel.end = start_ns + 1000;
  activities.waiting.push_back(record);
}

// Hands over what waits in as many buffers as it takes.
void deliver() {
  FakeActivities& a = activities;
  for (size_t first = 0; first < a.waiting.size(); first += a.most_in_buffer) {
    uint8_t* buffer = nullptr;
    size_t bytes = 0, most = 0;
    a.request(&buffer, &bytes, &most);
    const size_t count = std::min(a.most_in_buffer, a.waiting.size() - first);
    if (buffer == nullptr || reinterpret_cast<uintptr_t>(buffer) % 8 != 0 || bytes < (1 << 20)) {
      a.mistakes.push_back("a buffer that is no MiB long, or not aligned to 8 bytes");
      return;
    }
    for (size_t i = 0; i < count; ++i)
      std::memcpy(buffer + i * kRecordBytes, &a.waiting[first + i], sizeof(TracedRecord));
    a.delivered.insert(buffer);
    a.complete(nullptr, 0, buffer, bytes, count * kRecordBytes);
  }
  a.waiting.clear();
}

}  // namespace
}  // namespace mpt::runtime

using mpt::runtime::activities;

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (activities.register_result != CUPTI_SUCCESS) return activities.register_result;
  activities.request = request;
  activities.complete = complete;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (activities.request == nullptr) activities.mistakes.emplace_back("enabled before there are buffers");
  activities.enabled.insert(kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t) {
  std::thread(mpt::runtime::deliver).join();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  if (!activities.delivered.contains(buffer)) activities.mistakes.emplace_back("records of no buffer");
  auto* const begin = reinterpret_cast<CUpti_Activity*>(buffer);
  auto* const next =
      *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + mpt::runtime::kRecordBytes;
  if (valid == 0 || next >= reinterpret_cast<uint8_t*>(begin) + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = std::exchange(activities.dropped, 0);
  return CUPTI_SUCCESS;
}

}  // extern "C"

namespace mpt::runtime {
namespace {

// Each call has the kernels since the last one, however many buffers they lie in.
TEST(CuptiTrace, HasTheKernelsOfEachOperator) {
  std::string reason;
  activities.register_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_EQ(make_cupti_trace(reason), nullptr);
  EXPECT_NE(reason.find("cuptiActivityRegisterCallbacks"), std::string::npos) << reason;
  activities.register_result = CUPTI_SUCCESS;
  const auto trace = make_cupti_trace(reason);
  ASSERT_NE(trace, nullptr) << reason;

  uint64_t now = 10'000;
  for (const std::vector<std::string>& kernels : std::vector<std::vector<std::string>>{
           {"norm"}, {"magnitude", "narrow", "product"}, {"a", "b", "c", "d", "e", "f", "g"}}) {
    for (const std::string& name : kernels) launch_traced(name.c_str(), now += 2'000);
    const std::vector<KernelRecord> records = trace->take();
    ASSERT_EQ(records.size(), kernels.size());
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i].name, kernels[i]);
      EXPECT_NEAR(records[i].seconds, 1e-6, 1e-12);
    }
  }
  EXPECT_TRUE(trace->take().empty());
  EXPECT_TRUE(activities.mistakes.empty()) << activities.mistakes.front();

  // Records that CUPTI had no room for: kernels are missing, and a line says so.
  launch_traced("norm", now += 2'000);
  activities.dropped = 7;
  testing::internal::CaptureStderr();
  EXPECT_EQ(trace->take().size(), 1u);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("7 records"), std::string::npos);
}

}  // namespace
}  // namespace mpt::runtime
