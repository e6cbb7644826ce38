// SPDX-License-Identifier: Apache-2.0
#include "races.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <unordered_map>

#include <cuda_runtime.h>

#include "memory.h"
#include "shared_memory.h"

namespace cuda_on_cpu {

namespace {

constexpr uint64_t kWord = 4;  // bytes that share a cell
constexpr int kReaders = 3;
constexpr int kCountBits = 44;

// Who touched a word last: stream and number of its work, plus one; 0: nobody.
struct Cell {
  uint64_t writer;
  uint64_t readers[kReaders];
};

uint64_t stamp(size_t stream, uint64_t number) { return uint64_t(stream) << kCountBits | number; }
size_t stream_of(uint64_t stamp) { return size_t(stamp >> kCountBits); }
uint64_t number_of(uint64_t stamp) { return stamp & ((uint64_t{1} << kCountBits) - 1); }

struct State {
  Cell* const cells = [] {
    void* const made = mmap(nullptr, kArenaBytes / kWord * sizeof(Cell), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) std::abort();
    return static_cast<Cell*>(made);
  }();
  Working work;
  uint64_t own = 0;
  bool at_work = false;
  std::string finding;
  const char* arguments = nullptr;
  size_t argument_bytes = 0;
  struct Name {
    const void* function;
    const char* name;
  };
  std::unordered_map<uint64_t, Name> names;  // by stamp
  std::map<const void*, Traffic> traffic;    // by function
  Traffic now;                               // of the work that runs
};
std::atomic<State*> made{nullptr};
State& make_state() {
  static State state;
  made = &state;
  return state;
}
// Called for every access: small enough to be inlined.
State& state() {
  State* const known = made.load(std::memory_order_acquire);
  return known != nullptr ? *known : make_state();
}

// Of the fibres that run kernels; outside State, because every access asks.
const char* stacks = nullptr;
size_t stack_bytes = 0;
bool is_on_stacks(const void* data) {
  return uint64_t(static_cast<const char*>(data) - stacks) < stack_bytes;
}

std::string describe(const void* function, const char* name) {
  return function != nullptr ? name_of(function) : name != nullptr ? name : "work without a name";
}
std::string describe(uint64_t by) {
  const auto found = state().names.find(by);
  const std::string what =
      found == state().names.end() ? "work" : describe(found->second.function, found->second.name);
  return fmt::format("{} (stream {}, number {})", what, stream_of(by), number_of(by));
}

void found(const std::string& what) {
  if (state().finding.empty()) state().finding = what;
}

void race(const char* own, uint64_t by, const char* other, const void* data) {
  found(fmt::format("no event orders {} that {} and {} that {} (GPU {}, byte {} of its memory)",
                    describe(state().own), own, describe(by), other, part_of(data),
                    uint64_t(static_cast<const char*>(data) - arena()) % kPartBytes));
}

bool is_before(uint64_t by) {
  const State& s = state();
  return by == 0 || stream_of(by) == s.work.stream || s.work.clock->of(stream_of(by)) >= number_of(by);
}

void note_read(Cell& cell, const void* data) {
  const uint64_t own = state().own;
  if (cell.readers[0] == own || cell.writer == own) return;
  state().now.read_bytes += kWord;
  if (!is_before(cell.writer)) race("reads", cell.writer, "writes", data);
  // In place of an earlier reader that this one comes after, if any; the newest is the first.
  int place = kReaders - 1;
  for (int i = 0; i < kReaders; ++i) {
    if (!is_before(cell.readers[i])) continue;
    place = i;
    break;
  }
  cell.readers[place] = cell.readers[0];
  cell.readers[0] = own;
}

void note_write(Cell& cell, const void* data) {
  const uint64_t own = state().own;
  if (cell.writer == own && cell.readers[0] == 0) return;
  state().now.written_bytes += kWord;
  if (!is_before(cell.writer)) race("writes", cell.writer, "writes", data);
  for (const uint64_t reader : cell.readers) {
    if (!is_before(reader)) race("writes", reader, "reads", data);
  }
  cell = {own, {}};
}

bool is_near(const char* data, const void* place) {
  constexpr int64_t kNear = 1 << 20;
  const int64_t distance = data - static_cast<const char*>(place);
  return -kNear < distance && distance < kNear;
}

// What is a kernel's though it is the host's memory here: its stack, its shared memory and its constants.
bool is_kernels_own(const char* data) {
  if (is_on_stacks(data)) return true;
  struct Range {
    const char *begin = nullptr, *end = nullptr;
  };
  static thread_local const Range stack = [] {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    return Range{static_cast<char*>(begin), static_cast<char*>(begin) + bytes};
  }();
  static const Object own = own_object();
  return uint64_t(data - state().arguments) < state().argument_bytes ||
         (data >= stack.begin && data < stack.end) ||
         (uintptr_t(data) >= own.begin && uintptr_t(data) < own.end) || is_near(data, &threadIdx);
}

void note(const void* data, size_t bytes, bool writes, const void* code) {
  const char* const at = static_cast<const char*>(data);
  if (is_shared(at)) {
    const std::string wrong = note_shared(running_thread(), data, bytes, writes, code);
    if (!wrong.empty()) found(describe(state().own) + ": " + wrong);
    return;
  }
  if (!is_in_arena(at)) {
    if (!is_kernels_own(at)) {
      found(fmt::format("{} {} pageable memory of the host", describe(state().own),
                        writes ? "writes" : "reads"));
    }
    return;
  }
  const int part = part_of(at);
  if (part != kPinned && part != state().work.gpu) {
    found(
        fmt::format("{} of GPU {} touches memory of GPU {}", describe(state().own), state().work.gpu, part));
    return;
  }
  const uint64_t offset = uint64_t(at - arena());
  for (uint64_t word = offset / kWord; word <= (offset + bytes - 1) / kWord; ++word) {
    Cell& cell = state().cells[word];
    writes ? note_write(cell, at) : note_read(cell, at);
  }
}

void note_range(const void* data, size_t bytes, bool writes) {
  if (!state().at_work || bytes == 0 || !is_in_arena(data)) return;
  const auto left = bytes_from(data);
  if (!left || *left < bytes) {
    return found(fmt::format("{} {} {} bytes that no allocation holds", describe(state().own),
                             writes ? "writes" : "reads", bytes));
  }
  note(data, bytes, writes, nullptr);
}

template <size_t kBytes, bool kWrites>
void kernel_access(void* data, const void* code) {
  if (!is_on_stacks(__builtin_frame_address(0))) return;  // code of the host
  if (reinterpret_cast<uintptr_t>(data) % kBytes != 0 && is_in_arena(data))
    found(fmt::format("{} touches {} bytes at an address that they do not divide", describe(state().own),
                      kBytes));
  note(data, kBytes, kWrites, code);
}

}  // namespace

void begin_work(const Working& work) {
  State& s = state();
  s.work = work;
  s.own = stamp(work.stream, work.number);
  s.at_work = true;
  s.finding.clear();
  s.now = {};
  s.names[s.own] = {work.function, work.name};
}

std::string end_work() {
  State& s = state();
  s.at_work = false;
  if (s.work.function == nullptr) return s.finding;
  Traffic& all = s.traffic[s.work.function];
  ++all.launches;
  all.read_bytes += s.now.read_bytes;
  all.written_bytes += s.now.written_bytes;
  const BankCycles cycles = take_bank_cycles();
  all.bank_cycles += cycles.taken;
  all.least_bank_cycles += cycles.least;
  return s.finding;
}

std::map<std::string, Traffic> traffic() {
  std::map<std::string, Traffic> named;
  for (const auto& [function, of_function] : state().traffic) {
    Traffic& all = named[name_of(function)];
    all.launches += of_function.launches;
    all.read_bytes += of_function.read_bytes;
    all.written_bytes += of_function.written_bytes;
    all.bank_cycles += of_function.bank_cycles;
    all.least_bank_cycles += of_function.least_bank_cycles;
  }
  return named;
}
void reset_traffic() { state().traffic.clear(); }

void forget(const void* data, size_t bytes) {
  constexpr uint64_t kPage = 4096 / sizeof(Cell);  // cells
  const uint64_t begin = uint64_t(static_cast<const char*>(data) - arena()) / kWord,
                 end = begin + (bytes + kWord - 1) / kWord;
  // Whole pages are given back instead: most of a large block is never used.
  const uint64_t first = (begin + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
  Cell* const cells = state().cells;
  if (first >= last) return std::fill(cells + begin, cells + end, Cell{});
  std::fill(cells + begin, cells + first, Cell{});
  std::fill(cells + last, cells + end, Cell{});
  madvise(cells + first, (last - first) * sizeof(Cell), MADV_DONTNEED);
}

void forget_everything() {
  madvise(state().cells, kArenaBytes / kWord * sizeof(Cell), MADV_DONTNEED);
  state().names.clear();
}

void set_stacks(const void* begin, size_t bytes) {
  stacks = static_cast<const char*>(begin);
  stack_bytes = bytes;
}

void set_arguments(const void* data, size_t bytes) {
  state().arguments = static_cast<const char*>(data);
  state().argument_bytes = bytes;
}

bool kernels_report() {
#ifdef MPT_KERNELS_REPORT
  return true;
#else
  return false;
#endif
}

void reads(const void* data, size_t bytes) { note_range(data, bytes, false); }
void writes(const void* data, size_t bytes) { note_range(data, bytes, true); }

}  // namespace cuda_on_cpu

#ifdef MPT_KERNELS_REPORT
// What compilers call at every access with -fsanitize=thread.
extern "C" {
void __tsan_init() {}
#define MPT_ACCESS(bytes)                                                        \
  void __tsan_read##bytes(void* data) {                                          \
    cuda_on_cpu::kernel_access<bytes, false>(data, __builtin_return_address(0)); \
  }                                                                              \
  void __tsan_write##bytes(void* data) {                                         \
    cuda_on_cpu::kernel_access<bytes, true>(data, __builtin_return_address(0));  \
  }
MPT_ACCESS(1)
MPT_ACCESS(2)
MPT_ACCESS(4)
MPT_ACCESS(8)
MPT_ACCESS(16)
void __tsan_read_range(void* data, size_t bytes) {
  if (!cuda_on_cpu::is_on_stacks(__builtin_frame_address(0))) return;
  cuda_on_cpu::note(data, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* data, size_t bytes) {
  if (!cuda_on_cpu::is_on_stacks(__builtin_frame_address(0))) return;
  cuda_on_cpu::note(data, bytes, true, __builtin_return_address(0));
}
#define MPT_UNALIGNED(bytes)                                                        \
  void __tsan_unaligned_read##bytes(void* data) { __tsan_read_range(data, bytes); } \
  void __tsan_unaligned_write##bytes(void* data) { __tsan_write_range(data, bytes); }
MPT_UNALIGNED(2)
MPT_UNALIGNED(4)
MPT_UNALIGNED(8)
MPT_UNALIGNED(16)
}
#endif
