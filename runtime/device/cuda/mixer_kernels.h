// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels of mixers of linear cost, and of gates; as kernels.h.

#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

template <class T>
void convolution_forward(cudaStream_t, const ConvolutionShape&, const T* x, const T* w, T* y);
template <class T>
void convolution_backward(cudaStream_t, const ConvolutionShape&, const T* dy, const T* x, const T* w, T* dx,
                          State<T>* dw);

template <class T>
struct DeltaOperands {
  const T *qkv, *gates, *decay, *step_bias;
};
template <class T>
struct DeltaResults {
  T *qkv, *gates;
  State<T>*decay, *step_bias;
};
template <class T>
void delta_forward(cudaStream_t, const DeltaShape&, const DeltaOperands<T>&, T* out, State<T>* room);
template <class T>
void delta_backward(cudaStream_t, const DeltaShape&, const DeltaOperands<T>&, const T* dout,
                    const DeltaResults<T>&, State<T>* room);

template <class T>
void gated_norm_forward(cudaStream_t, const GatedNormShape&, const T* x, const T* gate, const T* scale, T* y);
int64_t gated_norm_scratch_bytes(const GatedNormShape&);
template <class T>
void gated_norm_backward(cudaStream_t, const GatedNormShape&, const T* dy, const T* x, const T* gate,
                         const T* scale, T* dx, T* dgate, State<T>* dscale, void* scratch);
template <class T>
void gate_forward(cudaStream_t, const GateShape&, const T* x, const T* gate, T* y);
template <class T>
void gate_backward(cudaStream_t, const GateShape&, const T* dy, const T* x, const T* gate, T* dx, T* dgate);

}  // namespace mpt::runtime::cuda
