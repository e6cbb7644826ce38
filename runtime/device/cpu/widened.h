// SPDX-License-Identifier: Apache-2.0
#pragma once

// Widened: the operands of one kernel call in 16 bits, as floats. Kernels compute in float; what they write
// is rounded once when the call is over.

#include <cstdint>
#include <vector>

#include "runtime/comm/reduction.h"
#include "runtime/device/fp8.h"

namespace mpt::runtime::cpu {

/// Memory that calls use again and again.
class WideningMemory {
 public:
  float* take(int64_t count) {
    if (used_ == blocks_.size()) blocks_.emplace_back();
    std::vector<float>& block = blocks_[used_++];
    if (int64_t(block.size()) < count) block.resize(size_t(count));
    return block.data();
  }
  void give_back() { used_ = 0; }

 private:
  std::vector<std::vector<float>> blocks_;
  size_t used_ = 0;
};

class Widened {
 public:
  Widened(DataType type, WideningMemory& memory) : type_(type), memory_(memory) {}
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;
  ~Widened() {
    for (const Result& r : results_) narrow(type_, r.wide, r.count, r.to);
    memory_.give_back();
  }

  /// An operand that is read; null stays null.
  const float* in(const void* data, int64_t count) {
    return data == nullptr ? nullptr : widened(data, count);
  }
  /// One that is read, as it is after it was narrowed to 8 bits, if `narrows`.
  const float* in_fp8(bool narrows, Fp8 format, const void* data, int64_t count) {
    float* const wide = widened(data, count);
    if (narrows) round_to_fp8(format, count, wide, wide);
    return wide;
  }
  /// One that is written.
  float* out(void* data, int64_t count) {
    float* wide = memory_.take(count);
    results_.push_back({wide, count, data});
    return wide;
  }
  /// One that is read and written.
  float* in_out(void* data, int64_t count) {
    float* wide = out(data, count);
    widen(type_, data, count, wide);
    return wide;
  }

 private:
  float* widened(const void* data, int64_t count) {
    float* const wide = memory_.take(count);
    widen(type_, data, count, wide);
    return wide;
  }

  struct Result {
    const float* wide;
    int64_t count;
    void* to;
  };
  DataType type_;
  WideningMemory& memory_;
  std::vector<Result> results_;
};

}  // namespace mpt::runtime::cpu
