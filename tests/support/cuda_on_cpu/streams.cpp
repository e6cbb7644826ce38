// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>

#include "memory.h"

namespace cuda_on_cpu {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Engine {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream*> streams;
  size_t next_number = 0;
  bool busy = false;
  Clock host;  // what the host has seen done
  std::string failure;
  std::minstd_rand random{1};
  int64_t epoch = 0;
  uint64_t events = 0;  // submissions and pieces of work done, so far
  uint64_t events_at_rest = 0;
  SteadyClock::time_point rest_since;
  std::function<bool(cudaStream_t)> lost_waits;
  std::set<std::pair<int, std::string>> loaded;  // kernels, by GPU
};
Engine& engine() {
  static Engine engine;
  return engine;
}
// Who waits in the driver for a GPU's work keeps others out meanwhile.
std::recursive_mutex& driver_of(int gpu) {
  static std::array<std::recursive_mutex, kGpus> drivers;
  return drivers[size_t(gpu)];
}
using Lock = std::unique_lock<std::mutex>;

bool is_ready(const Stream& stream) {
  if (stream.queue.empty() || stream.working) return false;
  const Work& head = *stream.queue.front();
  if (head.awaits && !head.awaits->done) return false;
  return !head.ready || head.ready();
}

Blockers blockers(const Stream& stream) {
  const Work& head = *stream.queue.front();
  if (head.awaits && !head.awaits->done) return {{head.awaits->stream}};
  return head.waits_for ? head.waits_for() : Blockers{};
}

std::string describe(const Stream& stream) {
  const Work& head = *stream.queue.front();
  const std::string what = head.describe   ? head.describe()
                           : head.function ? name_of(head.function)
                           : head.awaits   ? fmt::format("an event of stream {}", head.awaits->stream->number)
                                           : head.name;
  return fmt::format("\n  GPU {}, stream {}: {}", stream.gpu, stream.number, what);
}

// Whether no submission whatever could let some stream go on.
bool some_wait_for_each_other() {
  std::set<const Stream*> may_go_on;
  size_t busy = 0;
  for (size_t before = 1; before != may_go_on.size();) {
    before = may_go_on.size();
    busy = 0;
    for (const Stream* stream : engine().streams) {
      if (stream->queue.empty()) continue;
      ++busy;
      const auto [streams, one_is_enough] = blockers(*stream);
      // A stream with nothing to do is about to get what the other waits for.
      const auto may = [&](const Stream* other) { return other->queue.empty() || may_go_on.contains(other); };
      if (one_is_enough ? std::any_of(streams.begin(), streams.end(), may)
                        : std::all_of(streams.begin(), streams.end(), may))
        may_go_on.insert(stream);
    }
  }
  return may_go_on.size() < busy;
}

void report_deadlock(const char* why) {
  std::string what = why;
  for (const Stream* stream : engine().streams) {
    if (!stream->queue.empty()) what += describe(*stream);
  }
  fail(what);
}

// Nothing can run before the host submits more.
void look_for_deadlock() {
  Engine& e = engine();
  const auto now = SteadyClock::now();
  if (e.events_at_rest != e.events) {
    e.events_at_rest = e.events;
    e.rest_since = now;
    if (some_wait_for_each_other()) return report_deadlock("deadlock: these wait for each other:");
  }
  if (std::chrono::duration<double>(now - e.rest_since).count() > kStall_s)
    report_deadlock("deadlock: nobody submits what these wait for:");
}

Stream* choose(Stream& wanted) {
  std::vector<Stream*> ready;
  for (Stream* stream : engine().streams) {
    if (is_ready(*stream)) ready.push_back(stream);
  }
  if (ready.empty()) return nullptr;
  // Others late, mostly.
  const auto number = engine().random();
  if (number % 4 != 0 && std::find(ready.begin(), ready.end(), &wanted) != ready.end()) return &wanted;
  return ready[number / 4 % ready.size()];
}

void do_work(Stream& stream, Lock& lock) {
  Engine& e = engine();
  const std::shared_ptr<Work> work = stream.queue.front();
  e.busy = stream.working = true;
  stream.clock.join(work->host);
  if (work->awaits && work->awaits->epoch == e.epoch) stream.clock.join(work->awaits->clock);
  stream.clock.set(stream.number, work->number);
  lock.unlock();
  cudaError_t status = cudaSuccess;
  std::string finding;
  if (work->run) {
    begin_work({stream.gpu, stream.number, work->number, &stream.clock, work->function, work->name});
    status = work->run();
    finding = end_work();
  }
  lock.lock();
  stream.extra_s += work->extra_s;
  if (work->records) {
    work->records->done = true;
    work->records->clock = stream.clock;
    work->records->at = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                                 std::chrono::duration<double>(stream.extra_s));
  }
  stream.queue.pop_front();
  if (work->ended) work->ended();
  e.busy = stream.working = false;
  ++e.events;
  if (!finding.empty()) fail(finding);
  if (status != cudaSuccess) fail(fmt::format("error {}", int(status)));
  e.changed.notify_all();
}

// With the lock: until `stream` is done, nothing is ready or some time has passed.
void run_some(Stream& stream, Lock& lock) {
  Engine& e = engine();
  if (e.busy) {
    e.changed.wait_for(lock, std::chrono::milliseconds(1));
    return;
  }
  const Access access;
  for (int i = 0; i < 64 && !stream.queue.empty() && e.failure.empty(); ++i) {
    if (e.busy) return;
    Stream* const next = choose(stream);
    if (next == nullptr) {
      look_for_deadlock();
      e.changed.wait_for(lock, std::chrono::microseconds(200));
      return;
    }
    do_work(*next, lock);
  }
}

cudaError_t state_of(const Stream& stream) {
  Engine& e = engine();
  if (!e.failure.empty()) return cudaErrorLaunchFailure;
  if (!stream.queue.empty()) return cudaErrorNotReady;
  e.host.join(stream.clock);
  return cudaSuccess;
}

thread_local int current_gpu = 0;

// What GPUs do while no thread of theirs waits.
void work_alone(const std::stop_token& stop) {
  Engine& e = engine();
  for (uint64_t seen = 0; !stop.stop_requested();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Lock lock(e.mutex);
    const bool at_rest = seen == e.events && !e.busy;
    seen = e.events;
    const Access access;
    for (int i = 0; i < 64 && at_rest && !e.busy && e.failure.empty(); ++i) {
      const auto wanted =
          std::find_if(e.streams.begin(), e.streams.end(), [](const Stream* s) { return !s->queue.empty(); });
      Stream* const next = wanted == e.streams.end() ? nullptr : choose(**wanted);
      if (next == nullptr) break;
      do_work(*next, lock);
    }
  }
}

}  // namespace

void work_without_being_waited_for() {
  engine();  // outlives the thread
  static std::jthread worker(work_alone);
}

cudaError_t submit(Stream& stream, Work work) {
  Engine& e = engine();
  const std::lock_guard driver(driver_of(stream.gpu));
  const Lock lock(e.mutex);
  if (!e.failure.empty()) return cudaErrorLaunchFailure;
  if (stream.gpu != current_gpu) return cudaErrorInvalidResourceHandle;
  work.host = e.host;
  work.number = ++stream.submitted;
  if (work.records) {
    work.records->stream = &stream;
    work.records->epoch = e.epoch;
  }
  stream.queue.push_back(std::make_shared<Work>(std::move(work)));
  ++e.events;
  e.changed.notify_all();
  return cudaSuccess;
}

cudaError_t advance(Stream& stream) {
  Lock lock(engine().mutex);
  if (state_of(stream) == cudaErrorNotReady) run_some(stream, lock);
  return state_of(stream);
}

cudaError_t advance(Recorded& recorded) {
  Engine& e = engine();
  Lock lock(e.mutex);
  if (recorded.epoch != e.epoch) return cudaSuccess;
  if (!recorded.done && e.failure.empty()) run_some(*recorded.stream, lock);
  if (!e.failure.empty()) return cudaErrorLaunchFailure;
  if (!recorded.done) return cudaErrorNotReady;
  e.host.join(recorded.clock);
  return cudaSuccess;
}

cudaError_t drain(Stream& stream) {
  Lock lock(engine().mutex);
  while (true) {
    const cudaError_t state = state_of(stream);
    if (state != cudaErrorNotReady) return state;
    run_some(stream, lock);
  }
}

cudaError_t drain_gpu(int gpu) {
  const std::lock_guard driver(driver_of(gpu));
  std::vector<Stream*> streams;
  {
    const Lock lock(engine().mutex);
    for (Stream* stream : engine().streams) {
      if (stream->gpu == gpu) streams.push_back(stream);
    }
  }
  for (Stream* stream : streams) {
    if (const cudaError_t state = drain(*stream); state != cudaSuccess) return state;
  }
  return cudaSuccess;
}

void fail(const std::string& what) {
  if (!engine().failure.empty()) return;
  engine().failure = what;
  engine().changed.notify_all();
}
std::string failure() {
  const Lock lock(engine().mutex);
  return engine().failure;
}
void forget_failure() {
  const Lock lock(engine().mutex);
  engine().failure.clear();
  for (Stream* stream : engine().streams) {
    for (const auto& work : stream->queue) {
      if (work->ended) work->ended();
    }
    stream->queue.clear();
  }
}

void locked(const std::function<void()>& change) {
  const Lock lock(engine().mutex);
  change();
  ++engine().events;
  engine().changed.notify_all();
}

int64_t epoch() { return engine().epoch; }
void set_seed(uint64_t seed) {
  const Lock lock(engine().mutex);
  engine().random.seed(unsigned(seed));
}
void set_lost_waits(std::function<bool(cudaStream_t)> lost) {
  const Lock lock(engine().mutex);
  engine().lost_waits = std::move(lost);
}

cudaError_t load(cudaStream_t stream, const std::string& kernel) {
  const int gpu = stream->stream.gpu;
  {
    const Lock lock(engine().mutex);
    if (!engine().loaded.emplace(gpu, kernel).second) return cudaSuccess;
  }
  const std::lock_guard driver(driver_of(gpu));
  const char* const stuck = std::getenv("CUDA_ON_CPU_STUCK");
  while (stuck != nullptr && kernel.find(stuck) != std::string::npos)
    std::this_thread::sleep_for(std::chrono::seconds(1));
  return drain_gpu(gpu);
}

cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> work, const char* name,
                   const void* function, double extra_s) {
  if (function != nullptr) {
    if (const cudaError_t status = load(stream, name_of(function)); status != cudaSuccess) return status;
  }
  Work piece{std::move(work), name, function};
  piece.extra_s = extra_s;
  return submit(stream->stream, std::move(piece));
}

}  // namespace cuda_on_cpu

using cuda_on_cpu::engine;
using cuda_on_cpu::Lock;

cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= cuda_on_cpu::kGpus) return cudaErrorInvalidValue;
  cuda_on_cpu::current_gpu = index;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = cuda_on_cpu::current_gpu;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  auto& e = engine();
  const Lock lock(e.mutex);
  *stream = new FakeStream;
  (*stream)->stream.number = e.next_number++;
  (*stream)->stream.gpu = cuda_on_cpu::current_gpu;
  e.streams.push_back(&(*stream)->stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cuda_on_cpu::drain(stream->stream);
  auto& e = engine();
  const Lock lock(e.mutex);
  // After a failure there may be work that never ran; what it holds is free again.
  for (const auto& work : stream->stream.queue) {
    if (work->ended) work->ended();
  }
  std::erase(e.streams, &stream->stream);
  if (e.streams.empty()) {
    e.next_number = 0;
    ++e.epoch;
    e.host.clear();
    e.loaded.clear();
    cuda_on_cpu::forget_everything();
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cuda_on_cpu::drain(stream->stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cuda_on_cpu::advance(stream->stream); }

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new FakeEvent{flags != cudaEventDisableTiming, cuda_on_cpu::current_gpu, nullptr};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->gpu != stream->stream.gpu) return cudaErrorInvalidResourceHandle;
  cuda_on_cpu::Work work;
  work.name = "recording an event";
  work.records = std::make_shared<cuda_on_cpu::Recorded>();
  const auto recorded = work.records;
  const cudaError_t status = cuda_on_cpu::submit(stream->stream, std::move(work));
  if (status == cudaSuccess) event->last = recorded;
  return status;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event == nullptr) return cudaErrorInvalidValue;
  // One that was never recorded holds nobody up.
  if (event->last == nullptr || event->last->epoch != cuda_on_cpu::epoch()) return cudaSuccess;
  {
    const Lock lock(engine().mutex);
    if (engine().lost_waits && engine().lost_waits(stream)) return cudaSuccess;
  }
  cuda_on_cpu::Work work;
  work.awaits = event->last;
  work.name = "waiting for an event";
  return cuda_on_cpu::submit(stream->stream, std::move(work));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->last ? cuda_on_cpu::advance(*event->last) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->has_time || !end->has_time || !start->last || !end->last) return cudaErrorInvalidResourceHandle;
  const Lock lock(engine().mutex);
  if (!start->last->done || !end->last->done) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->last->at - start->last->at).count();
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorLaunchFailure  ? cuda_on_cpu::failure()
                                            : fmt::format("error {}", int(error));
  return text.c_str();
}
