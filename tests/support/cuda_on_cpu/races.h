// SPDX-License-Identifier: Apache-2.0
#pragma once

// Accesses of device and pinned memory by streams, in order or not. A stream's clock says how much of every
// other stream happened before its present work: what events, synchronisation and collectives ordered. Each
// word of memory knows its last writer and readers. An access that its clock does not put behind them is a
// race, whichever came first in this run. Kernels report their accesses through the calls that the compiler
// puts there for thread sanitizers (-fsanitize=thread, without its library).

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cuda_on_cpu {

/// By number of stream: how many of its pieces of work happened before.
class Clock {
 public:
  uint64_t of(size_t stream) const { return stream < counts_.size() ? counts_[stream] : 0; }
  void set(size_t stream, uint64_t count) {
    if (counts_.size() <= stream) counts_.resize(stream + 1);
    counts_[stream] = count;
  }
  void join(const Clock& other) {
    if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
    for (size_t i = 0; i < other.counts_.size(); ++i)
      counts_[i] = counts_[i] < other.counts_[i] ? other.counts_[i] : counts_[i];
  }
  void clear() { counts_.clear(); }

 private:
  std::vector<uint64_t> counts_;
};

/// The work that runs: one piece at a time in this process.
struct Working {
  int gpu = 0;
  size_t stream = 0;
  uint64_t number = 0;  // in its stream
  const Clock* clock = nullptr;
  const void* function = nullptr;
  const char* name = nullptr;
};
void begin_work(const Working& work);
/// What was wrong with it: a race, or memory that it may not touch; empty: nothing.
std::string end_work();
void forget(const void* data, size_t bytes);
/// Streams are numbered from 0 again, and nothing is known of memory.
void forget_everything();

/// Where the stacks of fibres are: what code on them touches is a kernel's.
void set_stacks(const void* begin, size_t bytes);

/// What the kernels of one name have read and written since reset_traffic(): each word once in each launch.
struct Traffic {
  int64_t launches = 0, read_bytes = 0, written_bytes = 0;
  // What its accesses of shared memory took and would take without conflicts, where count_banks() is on.
  int64_t bank_cycles = 0, least_bank_cycles = 0;
};
std::map<std::string, Traffic> traffic();
void reset_traffic();

/// Whether kernels report their accesses: not where a sanitizer watches them.
bool kernels_report();

/// A kernel's name, from the program's symbols.
std::string name_of(const void* function);

/// The program or the module that this is part of: its file, and where that is in memory.
struct Object {
  std::string file;
  uintptr_t base = 0, begin = 0, end = 0;
};
Object own_object();

}  // namespace cuda_on_cpu
