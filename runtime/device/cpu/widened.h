// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operands of one kernel call: those of float or double AsTheyAre; those in 16 bits Widened, as floats.
// Kernels compute in float; what they write is rounded once when the call is over.

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/allocation.h"
#include "runtime/comm/reduction.h"
#include "runtime/device/fp8.h"
#include "runtime/device/operator_shapes.h"

namespace mpt::runtime::cpu {

/// Memory that calls use again and again. Aligned as a device's, for sums in vectors begin where a vector
/// does: equal numbers in equal places give equal bits.
class WideningMemory {
 public:
  float* take(int64_t count) {
    if (used_ == blocks_.size()) blocks_.emplace_back();
    Block& block = blocks_[used_++];
    if (block.count < count) {
      block.data.reset(static_cast<float*>(
          ::operator new(size_t(count) * sizeof(float), std::align_val_t(kAllocationUnit))));
      block.count = count;
    }
    return block.data.get();
  }
  void give_back() { used_ = 0; }

 private:
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t(kAllocationUnit)); }
  };
  struct Block {
    std::unique_ptr<float[], Free> data;
    int64_t count = 0;
  };
  std::vector<Block> blocks_;
  size_t used_ = 0;
};

/// As Widened, which documents its members.
template <class T>
struct AsTheyAre {
  static const T* in(const void* data, int64_t) { return static_cast<const T*>(data); }
  static const T* in_product(const LinearShape&, Fp8, const void* data, int64_t count) {
    return in(data, count);
  }
  static T* out(void* data, int64_t) { return static_cast<T*>(data); }
  static T* in_out(void* data, int64_t) { return static_cast<T*>(data); }
  static const T* state(const void* data) { return static_cast<const T*>(data); }
  static T* state(void* data) { return static_cast<T*>(data); }
};

class Widened {
 public:
  Widened(DataType type, WideningMemory& memory) : type_(type), memory_(memory) {}
  Widened(const Widened&) = delete;
  ~Widened() {
    for (const Result& r : results_) narrow(type_, r.wide, r.count, r.to);
    memory_.give_back();
  }

  /// An operand that is read; null stays null.
  const float* in(const void* data, int64_t count) {
    return data == nullptr ? nullptr : widened(data, count);
  }
  /// One that a product reads, as it is after it was narrowed to 8 bits if the product is of these.
  const float* in_product(const LinearShape& product, Fp8 format, const void* data, int64_t count) {
    float* const wide = widened(data, count);
    if (product.narrows()) round_to_fp8(format, count, wide, wide);
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
  /// One in full precision, as it is.
  static const float* state(const void* data) { return static_cast<const float*>(data); }
  static float* state(void* data) { return static_cast<float*>(data); }

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
