// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "shared_memory.h"
#include "streams.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kMostThreads = 1024;  // of a block
constexpr int kWarpLanes = 32;

// Of all fibres, one behind the other.
char* stacks() {
  static char* const all = [] {
    void* const made = mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) std::abort();
    set_stacks(made, kMostThreads * kStackBytes);
    return static_cast<char*>(made);
  }();
  return all;
}

enum class Waits { nothing, block, warp };

// Contexts start a fibre; from then on it is resumed by jumps, which unlike contexts need no system call. It
// goes on to the next block like that, too.
struct Fibre {
  ucontext_t context{};
  jmp_buf resume{};
  bool started = false;
  dim3 thread;
  Waits waits = Waits::nothing;
  unsigned mask = 0;           // where it waits for lanes of its warp
  const char* file = nullptr;  // and the place
  unsigned line = 0, column = 0;
  bool done = false;
  bool is_with(const Fibre& other) const {
    return !done && waits == Waits::warp && mask == other.mask && line == other.line &&
           column == other.column && file == other.file;
  }
};

// A block at work. Fibres are kept from block to block.
struct Machine {
  std::vector<std::unique_ptr<Fibre>> fibres;
  unsigned char* shared = nullptr;
  uint64_t lanes[kMostThreads] = {};
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

  bool all_wait_for_block() const {
    return std::all_of(fibres.begin(), fibres.begin() + int64_t(count),
                       [](const auto& f) { return f->done || f->waits == Waits::block; });
  }
  // Lanes of the warp from `first` that all others of their masks have joined go on.
  bool free_lanes(size_t first) {
    const size_t last = std::min(first + kWarpLanes, count);
    bool freed = false;
    for (size_t i = first; i < last; ++i) {
      Fibre& one = *fibres[i];
      if (one.done || one.waits != Waits::warp) continue;
      bool complete = true;
      for (size_t j = first; j < last; ++j) {
        if ((one.mask >> (j - first) & 1u) != 0) complete &= fibres[j]->is_with(one);
      }
      complete &= (one.mask >> (i - first) & 1u) != 0;
      if (!complete) continue;
      const unsigned mask = one.mask;
      for (size_t j = first; j < last; ++j) {
        if ((mask >> (j - first) & 1u) == 0) continue;
        fibres[j]->waits = Waits::nothing;
        pass_warp_barrier(j);
      }
      freed = true;
    }
    return freed;
  }

  /// What is wrong where no thread can go on.
  std::string stuck() const {
    std::string what = "a kernel hangs:";
    for (size_t i = 0, told = 0; i < count && told < 6; ++i) {
      const Fibre& f = *fibres[i];
      if (f.done || f.waits != Waits::warp) continue;
      what += fmt::format(" thread {} waits at line {} for lanes {:08x};", i, f.line, f.mask);
      ++told;
    }
    const size_t done = size_t(std::count_if(fibres.begin(), fibres.begin() + int64_t(count),
                                             [](const auto& f) { return f->done; }));
    return fmt::format("{} {} of {} threads have ended", what, done, count);
  }

  /// False: it hangs.
  bool run_block();
};

Machine& machine() {
  // One block runs at a time.
  static Machine machine;
  return machine;
}

void enter() {
  while (true) {
    (*machine().kernel)();
    machine().running().done = true;
    machine().give_way(Waits::nothing);
  }
}

void make_ready(Fibre& f, size_t number) {
  // One that has not ended is left where it is, and begins anew.
  f.started = f.started && f.done;
  f.done = false;
  f.waits = Waits::nothing;
  if (f.started) return;
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = stacks() + number * kStackBytes;
  f.context.uc_stack.ss_size = kStackBytes;
  f.context.uc_link = nullptr;
  makecontext(&f.context, enter, 0);
}

bool Machine::run_block() {
  for (size_t i = 0; i < count; ++i) make_ready(*fibres[i], i);
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
    if (!unfinished) return true;
    for (size_t first = 0; first < count; first += kWarpLanes) progress |= free_lanes(first);
    if (all_wait_for_block()) {
      for (size_t i = 0; i < count; ++i) fibres[i]->waits = Waits::nothing;
      pass_block_barrier();
      progress = true;
    }
    if (!progress) return false;
  }
}

std::mutex attribute_mutex;
std::map<const void*, int>& most_shared() {
  static std::map<const void*, int> bytes;
  return bytes;
}

bool is_possible(const cudaLaunchConfig_t& config, const void* function) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  // What a GPU of compute capability 9.0 allows (CUDA C++ guide, technical specifications).
  constexpr size_t kAlwaysAllowed = 48 << 10;
  if (block.x * block.y * block.z > kMostThreads || block.x * block.y * block.z == 0 || block.z > 64 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
      config.dynamicSmemBytes > size_t(most_shared_bytes()))
    return false;
  if (config.dynamicSmemBytes <= kAlwaysAllowed) return true;
  const std::lock_guard lock(attribute_mutex);
  const auto allowed = most_shared().find(function);
  return allowed != most_shared().end() && size_t(allowed->second) >= config.dynamicSmemBytes;
}

}  // namespace

unsigned char* dynamic_shared() { return machine().shared; }
void wait_for_block() { machine().give_way(Waits::block); }
void wait_for_warp(unsigned mask, const std::source_location& place) {
  Fibre& f = machine().running();
  f.mask = mask;
  f.file = place.file_name();
  f.line = place.line();
  f.column = place.column();
  machine().give_way(Waits::warp);
}
size_t running_thread() { return machine().current; }
int lane() { return int(machine().current % kWarpLanes); }
uint64_t& of_lane(int lane) {
  Machine& m = machine();
  return m.lanes[m.current / kWarpLanes * kWarpLanes + size_t(lane)];
}

cudaError_t run(const cudaLaunchConfig_t& config, const void* function, const std::function<void()>& kernel) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  if (!is_possible(config, function)) return cudaErrorInvalidConfiguration;
  Machine& m = machine();
  m.kernel = &kernel;
  m.count = block.x * block.y * block.z;
  std::fill_n(m.lanes, kMostThreads, 0);
  while (m.fibres.size() < m.count) m.fibres.push_back(std::make_unique<Fibre>());
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        m.shared = begin_shared(config.dynamicSmemBytes);
        for (unsigned i = 0; i < m.count; ++i)
          m.fibres[i]->thread = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
        blockIdx = dim3(x, y, z);
        blockDim = block;
        gridDim = grid;
        if (m.run_block()) continue;
        locked([&] { fail(name_of(function) + ": " + m.stuck()); });
        return cudaErrorLaunchFailure;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = cuda_on_cpu::most_shared_bytes();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const std::lock_guard lock(cuda_on_cpu::attribute_mutex);
  cuda_on_cpu::most_shared()[kernel] = value;
  return cudaSuccess;
}
