// SPDX-License-Identifier: Apache-2.0
#include "shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cuda_on_cpu {
namespace {

constexpr size_t kMostBytes = 228 << 10, kMostThreads = 1024, kLanes = 32;
constexpr uint64_t kWord = 4, kBanks = 32;

// Who touched a word: the thread plus one, 0 for nobody, and how many barriers of the block and of its warp
// it had passed.
struct Touch {
  size_t thread = 0;
  uint64_t block = 0, warp = 0;
};
struct Word {
  Touch writer, reader, other_reader;  // the latter is another thread than the former
};
struct Access {
  const void* code;
  uint64_t at;
  size_t bytes;
};
struct Memory {
  alignas(128) unsigned char bytes[kMostBytes] = {};
  std::array<Word, kMostBytes / kWord> words{};
  std::array<uint64_t, kMostThreads> warp_barriers{};  // by thread
  uint64_t block_barriers = 1;
  std::array<std::vector<Access>, kMostThreads> accesses;  // since the last barrier
  bool counts_banks = false, loses_barriers = false;
  BankCycles cycles;
};
Memory& memory() {
  static Memory memory;
  return memory;
}
int most_bytes = 227 << 10;

// Whether what it did is ordered before what `thread` does now.
bool is_before(const Touch& t, size_t thread) {
  const Memory& m = memory();
  if (t.thread == 0 || t.thread == thread + 1 || t.block != m.block_barriers) return true;
  return (t.thread - 1) / kLanes == thread / kLanes && t.warp < m.warp_barriers[thread];
}

// Cycles of one access by lanes of a warp: as many as there are words in the fullest bank, for 128 bytes of
// lanes at a time.
int64_t cycles_of(const std::vector<Access>& lanes) {
  const size_t at_once = std::max<size_t>(1, kBanks * kWord / std::max<size_t>(kWord, lanes.front().bytes));
  int64_t cycles = 0;
  for (size_t first = 0; first < lanes.size(); first += at_once) {
    std::array<std::set<uint64_t>, kBanks> words;
    size_t most = 0;
    for (size_t i = first; i < std::min(first + at_once, lanes.size()); ++i) {
      for (uint64_t w = lanes[i].at / kWord; w <= (lanes[i].at + lanes[i].bytes - 1) / kWord; ++w) {
        words[w % kBanks].insert(w);
        most = std::max(most, words[w % kBanks].size());
      }
    }
    cycles += int64_t(most);
  }
  return cycles;
}

// The n-th time that a lane comes to a place goes with the n-th time of the others.
void count_accesses() {
  Memory& m = memory();
  for (size_t first = 0; first < kMostThreads; first += kLanes) {
    std::map<std::pair<const void*, int64_t>, std::vector<Access>> together;
    for (size_t thread = first; thread < first + kLanes; ++thread) {
      std::map<const void*, int64_t> times;
      for (const Access& access : m.accesses[thread])
        together[{access.code, times[access.code]++}].push_back(access);
      m.accesses[thread].clear();
    }
    for (const auto& [key, lanes] : together) {
      m.cycles.taken += cycles_of(lanes);
      const size_t at_once = kBanks * kWord / std::max<size_t>(kWord, lanes.front().bytes);
      m.cycles.least += int64_t((lanes.size() + at_once - 1) / at_once);
    }
  }
}

}  // namespace

int most_shared_bytes() { return most_bytes; }
void set_most_shared_bytes(int bytes) { most_bytes = bytes; }

unsigned char* begin_shared(size_t bytes) {
  std::fill_n(memory().bytes, bytes, 0x7f);
  ++memory().block_barriers;
  return memory().bytes;
}

bool is_shared(const void* data) {
  return uint64_t(static_cast<const unsigned char*>(data) - memory().bytes) < kMostBytes;
}

void count_banks(bool yes) { memory().counts_banks = yes; }

std::string note_shared(size_t thread, const void* data, size_t bytes, bool writes, const void* code) {
  Memory& m = memory();
  const auto at = uint64_t(static_cast<const unsigned char*>(data) - m.bytes);
  if (m.counts_banks) m.accesses[thread].push_back({code, at, bytes});
  for (uint64_t w = at / kWord; w <= (at + bytes - 1) / kWord; ++w) {
    Word& word = m.words[w];
    const Touch now{thread + 1, m.block_barriers, m.warp_barriers[thread]};
    for (const Touch* const before : {&word.writer, &word.reader, &word.other_reader}) {
      if (is_before(*before, thread) || (!writes && before != &word.writer)) continue;
      return fmt::format("thread {} {} shared memory that thread {} {}, without a barrier between them",
                         thread, writes ? "writes" : "reads", before->thread - 1,
                         before == &word.writer ? "wrote" : "read");
    }
    if (writes) {
      word = {now, {}, {}};
    } else {
      if (word.reader.thread != now.thread) word.other_reader = word.reader;
      word.reader = now;
    }
  }
  return "";
}

void pass_block_barrier() {
  Memory& m = memory();
  if (!m.loses_barriers) ++m.block_barriers;
  if (m.counts_banks) count_accesses();
}
void set_lost_barriers(bool lost) { memory().loses_barriers = lost; }
void pass_warp_barrier(size_t thread) { ++memory().warp_barriers[thread]; }

BankCycles take_bank_cycles() {
  if (memory().counts_banks) count_accesses();
  return std::exchange(memory().cycles, {});
}

}  // namespace cuda_on_cpu
