// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamDevice: one rank's part of a GPU without its operators (cuda_device.cpp): memory, copies and waits,
// and the memory of single calls. Each calling thread has one stream. Memory passes between threads in stream
// order. It is also the mover of its rank's buffers within a process.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/mover.h"
#include "runtime/device/cuda/call_streams.h"
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

/// Lists that recur in every layer of every step, such as positions. They are found by their content, and
/// sent to the device only once.
class KeptLists {
 public:
  ~KeptLists();

  /// The list of `bytes` at `list` on the current device; sent in `stream` if it is not there yet. An empty
  /// list gives `list` itself.
  const void* find(const void* list, int64_t bytes, cudaStream_t stream);
  int64_t bytes() const { return bytes_; }

 private:
  std::mutex mutex_;
  std::map<std::vector<char>, void*> lists_;
  std::atomic<int64_t> bytes_{0};
};

/// Whether `data` is memory of the host, pinned or not.
bool is_on_host(const void* data);

std::string bus_id_of(int index);

class StreamDevice : public Device, public Mover {
 public:
  /// Makes GPU `index` the calling thread's current one.
  explicit StreamDevice(int index);
  ~StreamDevice() override;

  /// The calling thread's stream.
  cudaStream_t stream();
  double last_call_s() const { return last_call_s_; }
  /// Called repeatedly while the host waits for the GPU, with the seconds of that wait; it ends the wait by
  /// throwing. Must be set before use.
  void set_watch(std::function<void(double waited_s)> watch) { watch_ = std::move(watch); }
  /// Memory in addition to the callers' allocations: workspaces, lists of numbers, and memory of kernels.
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
  std::string bus_id() const override { return bus_id_of(index_); }
  bool waits_to_load_kernels() const override { return true; }
  std::unique_ptr<WorkMarks> make_marks(int64_t count) override;
  /// Waits for the last recorded event work, like synchronize().
  void wait_for(cudaEvent_t event);

  // Used by the operators.
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
  /// A list in device memory with the content of a host list; it lives as long as the device.
  template <class T>
  const T* kept_list(const T* list, int64_t count) {
    return as<T>(lists_.find(list, count * int64_t(sizeof(T)), stream()));
  }
  /// Reads one number from device memory after all earlier work is complete.
  double read(const double* from);

 protected:
  /// Waits for the calling thread's stream.
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
  CallStreams streams_;  // last, so destroyed first, after waiting for work that uses the others
};

/// For `count` pieces of work on the streams of `device`, which must outlive the marks. Throws RunError.
std::unique_ptr<WorkMarks> make_work_marks(StreamDevice& device, int64_t count);

struct CudaOptions {
  // The first use of a matrix product times several algorithms for it. The bits of results then depend on the
  // outcome.
  bool times_products = false;
};
/// For GPU `index`. Throws RunError if it cannot be used.
std::unique_ptr<StreamDevice> make_cuda_device(int index, const CudaOptions& options = {});

}  // namespace mpt::runtime::cuda
