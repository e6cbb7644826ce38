// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CPU's operators (runtime/device/operations.h), for float and double, and for 16 bits through floats.
// Single-threaded and deterministic: a rank is a thread. Compiled with the machine's own instruction set.

#include "runtime/device/cpu/products.h"
#include "runtime/device/cpu/widened.h"
#include "runtime/device/operations.h"

namespace mpt::runtime::cpu {

/// What an operator needs of its device for one call.
struct Call {
  DataType type;
  WideningMemory& memory;
  Products* products = nullptr;  // of a library; null: there are none

  /// Whether a library computed this.
  bool multiplied(const ProductShape& shape, const ProductOperands& operands) const {
    return type == DataType::bfloat16 && products != nullptr && products->multiply(shape, operands, memory);
  }
  /// Calls `body` with what gives it operands in the type that kernels compute in: AsTheyAre or Widened.
  template <class Body>
  auto compute(Body&& body) const {
    if (type == DataType::float32) {
      AsTheyAre<float> operands;
      return body(operands);
    }
    if (type == DataType::float64) {
      AsTheyAre<double> operands;
      return body(operands);
    }
    Widened operands(type, memory);
    return body(operands);
  }
  /// Calls `body` with a null pointer to numbers of the type's size, for kernels that only copy.
  template <class Body>
  void copy(Body&& body) const {
    if (type == DataType::float32) return body(static_cast<const float*>(nullptr));
    if (type == DataType::float64) return body(static_cast<const double*>(nullptr));
    body(static_cast<const uint16_t*>(nullptr));
  }
};

void run(const Call&, const ActivationForward&);
void run(const Call&, const ActivationBackward&);
void run(const Call&, const AttentionForward&);
void run(const Call&, const AttentionBackward&);
void run(const Call&, const AttentionBlockForward&);
void run(const Call&, const AttentionBlockBackward&);
void run(const Call&, const Rotate&);
void run(const Call&, const ConvolutionForward&);
void run(const Call&, const ConvolutionBackward&);
void run(const Call&, const DeltaForward&);
void run(const Call&, const DeltaBackward&);
void run(const Call&, const EmbeddingForward&);
void run(const Call&, const EmbeddingBackward&);
void run(const Call&, const PositionForward&);
void run(const Call&, const PositionBackward&);
void run(const Call&, const RouterForward&);
void run(const Call&, const RouterBackward&);
void run(const Call&, const GatherRows&);
void run(const Call&, const SumRows&);
void run(const Call&, const ScaleRows&);
void run(const Call&, const RowDots&);
void run(const Call&, const Scale&);
void run(const Call&, const SoftCap&);
void run(const Call&, const SinkForward&);
void run(const Call&, const SinkBackward&);
void run(const Call&, const WeightedBiasForward&);
void run(const Call&, const WeightedBiasBackward&);
void run(const Call&, const GatedNormForward&);
void run(const Call&, const GatedNormBackward&);
void run(const Call&, const GateForward&);
void run(const Call&, const GateBackward&);
void run(const Call&, const LatentJoin&);
void run(const Call&, const LatentSplit&);
void run(const Call&, const LinearForward&);
void run(const Call&, const LinearBackwardInput&);
void run(const Call&, const LinearBackwardWeight&);
void run(const Call&, const NarrowWeight&);
void run(const Call&, const BiasForward&);
void run(const Call&, const BiasBackward&);
void run(const Call&, const ResidualAdd&);
void run(const Call&, const LossMaximum&);
void run(const Call&, const LossExponentials&);
void run(const Call&, const LossGradient&);
void run(const Call&, const NormForward&);
void run(const Call&, const NormBackwardInput&);
void run(const Call&, const NormBackwardWeight&);
void run(const Call&, const HeadNormForward&);
void run(const Call&, const HeadNormBackward&);
void run(const Call&, const AdamStep&);
void run(const Call&, const WideNormSquares&);
void run(const Call&, const WideNormForward&);
void run(const Call&, const WideNormDots&);
void run(const Call&, const WideNormBackward&);
void run(const Call&, const CopyColumns&);
double sum_of_squares(const Call&, const Stretch&);

/// Between float32 and a narrower type, or within a type.
void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count);

}  // namespace mpt::runtime::cpu
