// SPDX-License-Identifier: Apache-2.0
#pragma once

// Streams as late as CUDA permits: what is submitted runs when a thread asks whether a stream is done, one
// piece of work at a time in the process, from ready streams in an order that a seed decides. Other threads
// submit meanwhile. When nothing is ready, waits that depend on each other are a deadlock, and so is a rest
// of kStall_s in which nobody submits: then every call fails with what each stream waits for.

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "races.h"

namespace cuda_on_cpu {

constexpr double kStall_s = 15.0;

struct Stream;

/// One recording of an event.
struct Recorded {
  Stream* stream = nullptr;
  bool done = false;
  int64_t epoch = 0;
  Clock clock;
  std::chrono::steady_clock::time_point at;
};

/// Streams whose present work must end first, all or one of them; beside what was not submitted yet.
struct Blockers {
  std::vector<Stream*> streams;
  bool one_is_enough = false;
};

/// A piece of work of a stream. Its functions are called with the engine locked, but for `run`.
struct Work {
  std::function<cudaError_t()> run;
  const char* name = nullptr;
  const void* function = nullptr;
  /// Whether it can run now; null: it can.
  std::function<bool()> ready = nullptr;
  std::function<Blockers()> waits_for = nullptr;  // while it is not ready
  std::function<std::string()> describe = nullptr;
  std::function<void()> ended = nullptr;
  std::shared_ptr<Recorded> records = nullptr, awaits = nullptr;
  Clock host = {};  // what the host knew to be done when it submitted this
  uint64_t number = 0;
  double extra_s = 0.0;  // that it would take on a GPU, for the times of events behind it
};

struct Stream {
  size_t number = 0;
  int gpu = 0;
  uint64_t submitted = 0;
  Clock clock;
  double extra_s = 0.0;                     // of its work so far
  std::deque<std::shared_ptr<Work>> queue;  // the first may be at work
  bool working = false;
  bool destroyed = false;
};

/// Submits to a stream.
cudaError_t submit(Stream& stream, Work work);
/// Runs work until that of `stream` is done, or an error; the calling thread waits for it like this in calls
/// that block.
cudaError_t drain(Stream& stream);
/// Runs what is ready, for a while: cudaSuccess when `stream` is done.
cudaError_t advance(Stream& stream);
/// The same for a recording.
cudaError_t advance(Recorded& recorded);
/// All streams of a GPU.
cudaError_t drain_gpu(int gpu);
/// Called with the engine locked: the error that every later call gets, as a GPU's after a fault.
void fail(const std::string& what);
std::string failure();
/// Runs `change` with the engine locked, and wakes who waits.
void locked(const std::function<void()>& change);
/// Streams may be numbered anew, for there are none: recordings of earlier ones count as long past.
int64_t epoch();
/// The order of ready streams from now on.
void set_seed(uint64_t seed);
/// Of calls of cudaStreamWaitEvent from now on, leave out those for which this is true. Null: none.
void set_lost_waits(std::function<bool(cudaStream_t waiting)> lost);
/// From now on work also runs while nobody here waits for it: who does may be in another process.
void work_without_being_waited_for();
/// Forgets a failure that a test planted.
void forget_failure();

}  // namespace cuda_on_cpu

struct FakeStream {
  cuda_on_cpu::Stream stream;
};
struct FakeEvent {
  bool has_time = true;
  int gpu = 0;
  std::shared_ptr<cuda_on_cpu::Recorded> last;
};
