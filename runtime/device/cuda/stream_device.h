// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamDevice: one rank's part of a GPU, but for its operators (cuda_device.cpp): memory, copies, waits, and
// what single calls need of them. Each thread that calls it has a stream of its own; memory goes back and
// forth between them in stream order. It is also the mover of its rank's buffers within a process.

#include <atomic>
#include <functional>
#include <memory>

#include "runtime/comm/mover.h"
#include "runtime/device/cuda/call_streams.h"
#include "runtime/device/cuda/kept_lists.h"
#include "runtime/device/device.h"

namespace mpt::runtime::cuda {

template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}

/// Whether `data` is memory of the host, pinned or not.
bool is_on_host(const void* data);

class StreamDevice : public Device, public Mover {
 public:
  /// Makes GPU `index` the calling thread's.
  explicit StreamDevice(int index);
  ~StreamDevice() override;

  /// The calling thread's.
  cudaStream_t stream();
  double last_call_s() const { return last_call_s_; }
  /// Called again and again while the host waits for the GPU, with the seconds of that wait; ends it by
  /// throwing. Set before use.
  void set_watch(std::function<void(double waited_s)> watch) { watch_ = std::move(watch); }
  /// Memory beside what callers allocated: workspaces, lists of numbers, and room that kernels need.
  virtual int64_t scratch_bytes() const { return streams_.peak_bytes() + lists_.bytes(); }

  void reserve(int64_t bytes) override;
  void* allocate(int64_t bytes) override;
  void release(void* data, int64_t bytes) override;
  int64_t in_use_bytes() const override { return in_use_; }
  int64_t peak_bytes() const override { return peak_; }
  void* allocate_host(int64_t bytes) override;
  void release_host(void* data) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void zero(void* data, int64_t bytes) override;
  void upload(DataType type, const double* from, int64_t count, void* to) override;
  void download(DataType type, const void* from, int64_t count, double* to) override;
  void move(void* to, const void* from, int64_t bytes) override;
  void finish() override { wait(); }

  void synchronize() override { wait(); }
  bool waits_to_load_kernels() const override { return true; }
  std::unique_ptr<WorkMarks> make_marks(int64_t count) override;
  /// Waits for what was recorded last, as synchronize() waits.
  void wait_for(cudaEvent_t event);

  // For the operators.
  // A list of numbers for one call, which may be in host memory.
  class Numbers {
   public:
    Numbers(StreamDevice& device, const int32_t* list, int64_t count);
    const int32_t* data() const { return data_; }

   private:
    const int32_t* data_;
    std::unique_ptr<Scratch> copy_;
  };

  CallStreams& streams() { return streams_; }
  /// A list of the host's memory, in device memory for as long as the device lives.
  template <class T>
  const T* kept_list(const T* list, int64_t count) {
    return as<T>(lists_.find(list, count * int64_t(sizeof(T)), stream()));
  }
  /// One number of device memory, when all before it is done.
  double read(const double* from);

 protected:
  /// Until the calling thread's stream is done.
  void wait();

 private:
  template <class Query>
  void poll(Query&& query);

  const int index_;
  std::function<void(double)> watch_;
  std::atomic<int64_t> in_use_{0}, peak_{0};
  std::atomic<double> last_call_s_{0.0};
  KeptLists lists_;
  MemoryPool pool_;
  CallStreams streams_;  // last: destroyed first, after a wait for work that uses the others
};

/// For `count` pieces of work on the streams of `device`, which must outlive them. Throws RunError.
std::unique_ptr<WorkMarks> make_work_marks(StreamDevice& device, int64_t count);

struct CudaOptions {
  // The first use of a matrix product times several algorithms for it. The bits of results then depend on
  // the outcome.
  bool times_products = false;
};
/// Of GPU `index`. Throws RunError if it cannot be used.
std::unique_ptr<StreamDevice> make_cuda_device(int index, const CudaOptions& options = {});

}  // namespace mpt::runtime::cuda
