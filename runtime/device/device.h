// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device: memory with exact accounting, and a runner of operators (runtime/device/operations.h).

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/allocation.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/operations.h"

namespace mpt::runtime {

/// Where pieces of work begin and end in the streams of a device that runs behind its callers: each thread
/// that calls the device has a stream of its own, and its calls run in their order.
class WorkMarks {
 public:
  virtual ~WorkMarks() = default;
  /// Work of the last step is done; times count from here.
  virtual void begin_step() = 0;
  /// What the calling thread asks for from here on, or did up to here, is piece `number`.
  virtual void start(int64_t number) = 0;
  virtual void end(int64_t number) = 0;
  /// What the calling thread asks for next runs after piece `number`, which has its end.
  virtual void await(int64_t number) = 0;
  /// Returns when every piece that had its end is done. Throws RunError if one failed.
  virtual void finish() = 0;
  /// When a thread last asked the device for something, or was told that it goes on waiting; in seconds of
  /// base/clock.h.
  virtual double last_call_s() const = 0;
  /// When piece `number` ran, in seconds of base/clock.h. After finish().
  virtual std::pair<double, double> time_s(int64_t number) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Memory. Sizes are rounded up to kAllocationUnit; blocks are aligned to it and cached for reuse.
  /// Takes `bytes` for blocks to come, as far as there are so many. Before the first of them.
  virtual void reserve(int64_t bytes) { (void)bytes; }
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) = 0;
  virtual int64_t in_use_bytes() const = 0;
  virtual int64_t peak_bytes() const = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* data, int64_t bytes) = 0;
  /// Memory of the host that copies to and from the device reach directly. The device does not count it.
  virtual void* allocate_host(int64_t bytes) {
    return ::operator new(size_t(rounded_bytes(bytes)), std::align_val_t(kAllocationUnit));
  }
  virtual void release_host(void* data) { ::operator delete(data, std::align_val_t(kAllocationUnit)); }
  /// Between the host's doubles and device memory of `type`, rounded to nearest.
  virtual void upload(DataType type, const double* from, int64_t count, void* to) = 0;
  virtual void download(DataType type, const void* from, int64_t count, double* to) = 0;

  /// `type` is that of weights and activations, where the operator does not say otherwise.
  virtual void run(DataType type, const Operation& operation) = 0;
  /// float32 to a narrower type, or back.
  void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) {
    run(from_type, CopyColumns{to_type, 1, count, from, count, to, count});
  }
  /// Of several stretches together.
  virtual double squared_norm(DataType type, std::span<const Stretch> parts) = 0;
  double sum_of_squares(DataType type, int64_t count, const void* data) {
    const Stretch all{data, count};
    return squared_norm(type, {&all, 1});
  }

  /// Returns when what the calling thread asked for is done.
  virtual void synchronize() {}
  /// Whether the first use of a kernel may wait for all work of the GPU, transfers among it.
  virtual bool waits_to_load_kernels() const { return false; }
  /// Marks of `count` pieces of work, for a device that works behind its callers; null: work is done when a
  /// call returns.
  virtual std::unique_ptr<WorkMarks> make_marks(int64_t count) {
    (void)count;
    return nullptr;
  }
};

/// Memory from a device, given back at the end of its life.
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

/// The host's memory for copies of a device, given back at the end of its life.
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
