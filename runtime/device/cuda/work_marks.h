// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks in a GPU's streams: events, from which the times of queued work are read once it is done.

#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime::cuda {

/// For `count` pieces of work on the streams of `device`, which must outlive them. Throws RunError.
std::unique_ptr<WorkMarks> make_work_marks(StreamDevice& device, int64_t count);

}  // namespace mpt::runtime::cuda
