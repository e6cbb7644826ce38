// SPDX-License-Identifier: Apache-2.0
#pragma once

// The GPU's operators (runtime/device/operations.h), each in the file of its kernels. This header chooses a
// kernel for an element type that is known at run time. In kernels T is float, double, Bfloat16 or Half; S is
// State<T>.

#include <span>
#include <type_traits>
#include <vector>

#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime::cuda {

void run(StreamDevice&, DataType, const ConvolutionForward&);
void run(StreamDevice&, DataType, const ConvolutionBackward&);
void run(StreamDevice&, DataType, const DeltaForward&);
void run(StreamDevice&, DataType, const DeltaBackward&);
void run(StreamDevice&, DataType, const EmbeddingForward&);
void run(StreamDevice&, DataType, const EmbeddingBackward&);
void run(StreamDevice&, DataType, const PositionForward&);
void run(StreamDevice&, DataType, const PositionBackward&);
void run(StreamDevice&, DataType, const Rotate&);
void run(StreamDevice&, DataType, const RouterForward&);
void run(StreamDevice&, DataType, const RouterBackward&);
void run(StreamDevice&, DataType, const GatherRows&);
void run(StreamDevice&, DataType, const SumRows&);
void run(StreamDevice&, DataType, const ScaleRows&);
void run(StreamDevice&, DataType, const RowDots&);
void run(StreamDevice&, DataType, const Scale&);
void run(StreamDevice&, DataType, const SoftCap&);
void run(StreamDevice&, DataType, const SinkForward&);
void run(StreamDevice&, DataType, const SinkBackward&);
void run(StreamDevice&, DataType, const WeightedBiasForward&);
void run(StreamDevice&, DataType, const WeightedBiasBackward&);
void run(StreamDevice&, DataType, const GatedNormForward&);
void run(StreamDevice&, DataType, const GatedNormBackward&);
void run(StreamDevice&, DataType, const GateForward&);
void run(StreamDevice&, DataType, const GateBackward&);
void run(StreamDevice&, DataType, const LatentJoin&);
void run(StreamDevice&, DataType, const LatentSplit&);
void run(StreamDevice&, DataType, const WideNormSquares&);
void run(StreamDevice&, DataType, const WideNormForward&);
void run(StreamDevice&, DataType, const WideNormDots&);
void run(StreamDevice&, DataType, const WideNormBackward&);
void run(StreamDevice&, DataType, const CopyColumns&);
void run(StreamDevice&, DataType, const ResidualAdd&);
void run(StreamDevice&, DataType, const BiasForward&);
void run(StreamDevice&, DataType, const ActivationForward&);
void run(StreamDevice&, DataType, const ActivationBackward&);
void run(StreamDevice&, DataType, const AdamStep&);
void run(StreamDevice&, DataType, const LossMaximum&);
void run(StreamDevice&, DataType, const LossExponentials&);
void run(StreamDevice&, DataType, const LossGradient&);
void run(StreamDevice&, DataType, const LossOfAll&);
void run(StreamDevice&, DataType, const BiasBackward&);
void run(StreamDevice&, DataType, const NormForward&);
void run(StreamDevice&, DataType, const NormBackwardInput&);
void run(StreamDevice&, DataType, const NormBackwardWeight&);
void run(StreamDevice&, DataType, const HeadNormForward&);
void run(StreamDevice&, DataType, const HeadNormBackward&);
void run(StreamDevice&, DataType, const AttentionForward&);
void run(StreamDevice&, DataType, const AttentionBackward&);
void run(StreamDevice&, DataType, const AttentionBlockForward&);
void run(StreamDevice&, DataType, const AttentionBlockBackward&);

double squared_norm(StreamDevice&, DataType, std::span<const Stretch>);
/// Mover::reduce() of at most kMostSources parts.
constexpr int kMostSources = 64;
void reduce(StreamDevice&, DataType, ReduceOperation, const std::vector<const void*>& parts, int64_t begin,
            int64_t end, void* to);

/// Calls `body` with a null pointer of the element type.
template <class F>
void with_type(DataType type, F&& body) {
  if (type == DataType::float32) return body(static_cast<float*>(nullptr));
  if (type == DataType::float64) return body(static_cast<double*>(nullptr));
  if (type == DataType::bfloat16) return body(static_cast<Bfloat16*>(nullptr));
  body(static_cast<Half*>(nullptr));
}

}  // namespace mpt::runtime::cuda

/// Makes the call with T as the element type, and S as the type of its sums.
#define MPT_DISPATCH(type, ...)                     \
  with_type(type, [&](auto* tag) {                  \
    using T = std::remove_pointer_t<decltype(tag)>; \
    using S [[maybe_unused]] = State<T>;            \
    __VA_ARGS__;                                    \
  })
