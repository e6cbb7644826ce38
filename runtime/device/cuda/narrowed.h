// SPDX-License-Identifier: Apache-2.0
#pragma once

// Narrowed: an operand of products in 8 bits, for one call.

#include <optional>

#include "runtime/device/cuda/call_streams.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

/// The destination of a tensor in 8 bits: its numbers as they are and transposed, of which one may be null,
/// and the factor that scales them back.
struct Fp8Place {
  uint8_t* rows = nullptr;
  uint8_t* columns = nullptr;
  float* from_fp8 = nullptr;
};
/// The place of a tensor's largest magnitude: to be read if `known`, else to be written; null: neither.
struct Fp8Magnitude {
  float* at = nullptr;
  bool known = false;
};
/// Converts x [rows, columns] to 8 bits with its own scale. T is Bfloat16 or Half.
int64_t fp8_scratch_bytes();
template <class T>
void narrow_to_fp8(cudaStream_t, Fp8 format, int64_t rows, int64_t columns, const T* x,
                   const Fp8Magnitude& magnitude, const Fp8Place& to, void* scratch);

class Narrowed {
 public:
  enum Order { kAsItIs, kTransposed, kBoth };
  /// Converts data [rows, columns] of Bfloat16 or Half.
  Narrowed(CallStreams& streams, DataType type, Fp8 format, int64_t rows, int64_t columns, Order order,
           const void* data, const Fp8Magnitude& magnitude)
      : format_(format),
        numbers_(streams, (order == kBoth ? 2 : 1) * rows * columns),
        scale_(streams, sizeof(float)) {
    uint8_t* const first = static_cast<uint8_t*>(numbers_.data());
    place_ = {order == kTransposed ? nullptr : first,
              order == kAsItIs ? nullptr
              : order == kBoth ? first + rows * columns
                               : first,
              static_cast<float*>(scale_.data())};
    narrow(streams, type, format, rows, columns, data, magnitude, place_);
  }
  Fp8Matrix matrix() const { return {format_, place_.rows, place_.from_fp8}; }
  Fp8Matrix transposed() const { return {format_, place_.columns, place_.from_fp8}; }

  static void narrow(CallStreams& streams, DataType type, Fp8 format, int64_t rows, int64_t columns,
                     const void* data, const Fp8Magnitude& magnitude, const Fp8Place& place) {
    const Scratch magnitudes(streams, fp8_scratch_bytes());
    const auto go = [&](auto* from) {
      narrow_to_fp8(streams.mine(), format, rows, columns, from, magnitude, place, magnitudes.data());
    };
    type == DataType::bfloat16 ? go(static_cast<const Bfloat16*>(data)) : go(static_cast<const Half*>(data));
  }

 private:
  Fp8 format_;
  Scratch numbers_, scale_;
  Fp8Place place_;
};

/// The weight of products in 8 bits, in one order: the kept copy, or one for this call.
class NarrowedWeight {
 public:
  /// `w` [columns, inner].
  NarrowedWeight(CallStreams& streams, DataType type, const LinearShape& s, const void* w,
                 Narrowed::Order order) {
    if (s.kept.weight == nullptr) {
      own_.emplace(streams, type, Fp8::e4m3, s.columns, s.inner, order, w, Fp8Magnitude{});
      matrix_ = order == Narrowed::kTransposed ? own_->transposed() : own_->matrix();
    } else {
      const Fp8Place kept = place_in(s, const_cast<void*>(s.kept.weight));
      matrix_ = {Fp8::e4m3, order == Narrowed::kTransposed ? kept.columns : kept.rows, kept.from_fp8};
    }
  }
  const Fp8Matrix& matrix() const { return matrix_; }

  /// The places within memory of fp8_weight_bytes().
  static Fp8Place place_in(const LinearShape& s, void* kept) {
    const int64_t count = s.columns * s.inner;
    auto* const numbers = static_cast<uint8_t*>(kept);
    return {numbers, numbers + count, reinterpret_cast<float*>(numbers + 2 * count)};
  }

 private:
  std::optional<Narrowed> own_;
  Fp8Matrix matrix_;
};

}  // namespace mpt::runtime::cuda
