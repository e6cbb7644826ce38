// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device: memory with exact accounting, and a runner of operators (runtime/device/operations.h).

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/allocation.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/operations.h"

namespace mpt::runtime {

/// Marks the begin and end of work items in the streams of an asynchronous device. Each thread that calls the
/// device has one stream, which runs the thread's calls in order.
class WorkMarks {
 public:
  virtual ~WorkMarks() = default;
  /// The last step's work must be complete; times count from here.
  virtual void begin_step() = 0;
  /// The calling thread's next calls, up to end(), form item `number`.
  virtual void start(int64_t number) = 0;
  virtual void end(int64_t number) = 0;
  /// The calling thread's next calls run after item `number`, for which end() was called.
  virtual void await(int64_t number) = 0;
  /// Returns when every ended item is complete. Throws RunError if one failed.
  virtual void finish() = 0;
  /// The time of the last call of the device by any thread, or of the last check in a wait, in seconds of
  /// base/clock.h.
  virtual double last_call_s() const = 0;
  /// Begin and end of item `number`, in seconds of base/clock.h. Valid after finish().
  virtual std::pair<double, double> time_s(int64_t number) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Memory. Sizes are rounded up to kAllocationUnit; blocks are aligned to it and cached for reuse.
  /// Reserves `bytes` for future blocks, or less if the device has less. To be called before the first block.
  virtual void reserve(int64_t bytes) { (void)bytes; }
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) = 0;
  virtual int64_t in_use_bytes() const = 0;
  virtual int64_t peak_bytes() const = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* data, int64_t bytes) = 0;
  /// Host memory that copies to and from the device access directly. The device does not count it.
  virtual void* allocate_host(int64_t bytes) {
    return ::operator new(size_t(rounded_bytes(bytes)), std::align_val_t(kAllocationUnit));
  }
  virtual void release_host(void* data) { ::operator delete(data, std::align_val_t(kAllocationUnit)); }
  /// Converts between the host's doubles and device memory of `type`, rounded to nearest.
  virtual void upload(DataType type, const double* from, int64_t count, void* to) = 0;
  virtual void download(DataType type, const void* from, int64_t count, double* to) = 0;

  /// `type` is the type of weights and activations, unless the operator states otherwise.
  virtual void run(DataType type, const Operation& operation) = 0;
  /// From float32 to a narrower type, or back.
  void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) {
    run(from_type, CopyColumns{.to_type = to_type,
                               .rows = 1,
                               .columns = count,
                               .from = from,
                               .from_stride = count,
                               .to = to,
                               .to_stride = count});
  }
  /// The squared norm of several stretches together.
  virtual double squared_norm(DataType type, std::span<const Stretch> parts) = 0;
  double sum_of_squares(DataType type, int64_t count, const void* data) {
    const Stretch all{data, count};
    return squared_norm(type, {&all, 1});
  }

  /// Returns when the calling thread's work is complete.
  virtual void synchronize() {}
  /// Where a GPU is in its machine, such as "0000:1b:00.0".
  virtual std::string bus_id() const { return ""; }
  /// Whether the first use of a kernel may wait for all work of the GPU, even transfers.
  virtual bool waits_to_load_kernels() const { return false; }
  /// Marks for `count` items of work on an asynchronous device. Null: work is complete when a call returns.
  virtual std::unique_ptr<WorkMarks> make_marks(int64_t count) {
    (void)count;
    return nullptr;
  }
};

/// Memory of a device; the destructor releases it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, int64_t bytes) : device_(&device), bytes_(bytes), data_(device.allocate(bytes)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(static_cast<Buffer&&>(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) device_->release(data_, bytes_);
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset() { *this = Buffer(); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  Device* device_ = nullptr;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
};

/// Host memory for copies of a device; the destructor releases it.
class HostBuffer {
 public:
  HostBuffer(Device& device, int64_t bytes) : device_(&device), data_(device.allocate_host(bytes)) {}
  HostBuffer(HostBuffer&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  HostBuffer& operator=(HostBuffer&&) = delete;
  ~HostBuffer() {
    if (data_ != nullptr) device_->release_host(data_);
  }

  void* data() const { return data_; }

 private:
  Device* device_;
  void* data_;
};

}  // namespace mpt::runtime
