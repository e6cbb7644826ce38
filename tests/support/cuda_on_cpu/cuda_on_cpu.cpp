// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <ucontext.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"

struct FakeGraph {
  std::vector<std::function<cudaError_t()>> work;
};
struct FakeStream {
  std::unique_ptr<FakeGraph> captured;  // null: calls are done at once
};
struct FakeEvent {
  std::chrono::steady_clock::time_point at;
};

namespace cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kWarpLanes = 32;

enum class Waits { nothing, block, warp };

// Contexts start a fibre; from then on it is resumed by jumps, which unlike contexts need no system call.
struct Fibre {
  ucontext_t context{};
  jmp_buf resume{};
  bool started = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  dim3 thread;
  Waits waits = Waits::nothing;
  bool done = false;
};

// A block at work. Fibres are kept from block to block.
struct Machine {
  std::vector<std::unique_ptr<Fibre>> fibres;
  std::vector<unsigned char> shared;
  std::vector<uint64_t> lanes;
  ucontext_t scheduler_context{};
  jmp_buf scheduler{};
  const std::function<void()>* kernel = nullptr;
  size_t count = 0, current = 0;

  Fibre& running() { return *fibres[current]; }
  void give_way(Waits waits) {
    running().waits = waits;
    if (_setjmp(running().resume) == 0) _longjmp(scheduler, 1);
  }
  void resume() {
    Fibre& f = running();
    if (_setjmp(scheduler) != 0) return;
    if (f.started) _longjmp(f.resume, 1);
    f.started = true;
    swapcontext(&scheduler_context, &f.context);
  }

  // Whether all of fibres [first, last) that are not done wait for the same.
  bool all_wait(size_t first, size_t last, Waits waits) const {
    for (size_t i = first; i < last; ++i) {
      if (!fibres[i]->done && fibres[i]->waits != waits) return false;
    }
    return true;
  }
  void free(size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) fibres[i]->waits = Waits::nothing;
  }

  void run_block();
};

Machine& machine() {
  static thread_local Machine machine;
  return machine;
}

void enter() {
  (*machine().kernel)();
  machine().running().done = true;
  _longjmp(machine().scheduler, 1);
}

void Machine::run_block() {
  for (size_t i = 0; i < count; ++i) {
    Fibre& f = *fibres[i];
    f.done = f.started = false;
    f.waits = Waits::nothing;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
  }
  while (true) {
    bool progress = false, unfinished = false;
    for (current = 0; current < count; ++current) {
      Fibre& f = running();
      if (f.done || f.waits != Waits::nothing) {
        unfinished |= !f.done;
        continue;
      }
      progress = unfinished = true;
      threadIdx = f.thread;
      resume();
    }
    if (!unfinished) return;
    for (size_t first = 0; first < count; first += kWarpLanes) {
      const size_t last = std::min(first + kWarpLanes, count);
      if (!all_wait(first, last, Waits::warp)) continue;
      free(first, last);
      progress = true;
    }
    if (all_wait(0, count, Waits::block)) {
      free(0, count);
      progress = true;
    }
    // Threads that wait at different barriers wait for ever on a GPU.
    if (!progress) std::abort();
  }
}

std::atomic<int64_t> launches{0};
// A thread that captures may not call what waits for the GPU.
thread_local bool captures = false;

std::mutex memory_mutex;
struct Block {
  size_t bytes;
  cudaMemoryType type;
};
std::map<const char*, Block>& memory() {
  static std::map<const char*, Block> blocks;
  return blocks;
}

// Fresh memory holds NaN in every type, for a GPU's holds anything.
cudaError_t allocate(void** data, size_t bytes, cudaMemoryType type) {
  if (captures) return cudaErrorStreamCaptureUnsupported;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  const std::lock_guard lock(memory_mutex);
  memory()[static_cast<const char*>(*data)] = {bytes, type};
  return cudaSuccess;
}
cudaError_t release(void* data, cudaMemoryType type) {
  const std::lock_guard lock(memory_mutex);
  const auto found = memory().find(static_cast<const char*>(data));
  if (found == memory().end() || found->second.type != type) return cudaErrorInvalidValue;
  memory().erase(found);
  std::free(data);
  return cudaSuccess;
}

}  // namespace

unsigned char* dynamic_shared() { return machine().shared.data(); }
void wait_for_block() { machine().give_way(Waits::block); }
void wait_for_warp() { machine().give_way(Waits::warp); }
int lane() { return int(machine().current % kWarpLanes); }
uint64_t& of_lane(int lane) {
  Machine& m = machine();
  return m.lanes[m.current / kWarpLanes * kWarpLanes + size_t(lane)];
}

cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  // What a GPU of compute capability 8.0 and later allows.
  if (block.x * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535 ||
      config.dynamicSmemBytes > 227 << 10)
    return cudaErrorInvalidConfiguration;
  Machine& m = machine();
  m.kernel = &kernel;
  m.count = block.x * block.y * block.z;
  m.lanes.assign((m.count + kWarpLanes - 1) / kWarpLanes * kWarpLanes, 0);
  while (m.fibres.size() < m.count) m.fibres.push_back(std::make_unique<Fibre>());
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        // Rubbish, as on a GPU: a kernel must write before it reads.
        m.shared.assign(config.dynamicSmemBytes + 16, 0x7f);
        for (unsigned i = 0; i < m.count; ++i)
          m.fibres[i]->thread = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
        blockIdx = dim3(x, y, z);
        blockDim = block;
        gridDim = grid;
        m.run_block();
      }
    }
  }
  return cudaSuccess;
}

cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> work) {
  if (!stream->captured) return work();
  stream->captured->work.push_back(std::move(work));
  return cudaSuccess;
}
int64_t graph_launches() { return launches; }

}  // namespace cuda_on_cpu

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return cuda_on_cpu::allocate(data, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaFree(void* data) { return cuda_on_cpu::release(data, cudaMemoryTypeDevice); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return cuda_on_cpu::allocate(data, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaFreeHost(void* data) { return cuda_on_cpu::release(data, cudaMemoryTypeHost); }
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  *available = *total = size_t(1) << 30;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const std::lock_guard lock(cuda_on_cpu::memory_mutex);
  const auto& blocks = cuda_on_cpu::memory();
  const auto* at = static_cast<const char*>(data);
  auto after = blocks.upper_bound(at);
  const bool inside = after != blocks.begin() && (--after, at < after->first + after->second.bytes);
  attributes->type = inside ? after->second.type : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return cuda_on_cpu::submit(stream, [=] {
    std::memmove(to, from, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return cuda_on_cpu::submit(stream, [=] {
    std::memset(data, value, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new FakeStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream->captured ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->captured = std::make_unique<FakeGraph>();
  cuda_on_cpu::captures = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->captured.release();
  cuda_on_cpu::captures = false;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new FakeGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  ++cuda_on_cpu::launches;
  for (const auto& work : graph->work) {
    if (const cudaError_t status = work(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  return event == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new FakeEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
