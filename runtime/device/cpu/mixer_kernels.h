// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels of mixers and gates on the CPU; as kernels.h.

#include "runtime/device/device.h"

namespace mpt::runtime::cpu {

template <class T>
void convolution_forward(const ConvolutionShape&, const T* x, const T* w, T* y);
template <class T>
void convolution_backward(const ConvolutionShape&, const T* dy, const T* x, const T* w, T* dx, T* dw);

template <class T>
struct DeltaOperands {
  const T *qkv, *gates, *decay, *step_bias;
};
template <class T>
struct DeltaResults {
  T *qkv, *gates, *decay, *step_bias;
};
template <class T>
void delta_forward(const DeltaShape&, const DeltaOperands<T>&, T* out, T* room);
template <class T>
void delta_backward(const DeltaShape&, const DeltaOperands<T>&, const T* dout, const DeltaResults<T>&,
                    T* room);

template <class T>
void gated_norm_forward(const GatedNormShape&, const T* x, const T* gate, const T* scale, T* y);
template <class T>
void gated_norm_backward(const GatedNormShape&, const T* dy, const T* x, const T* gate, const T* scale, T* dx,
                         T* dgate, T* dscale);
template <class T>
void gate_forward(const GateShape&, const T* x, const T* gate, T* y);
template <class T>
void gate_backward(const GateShape&, const T* dy, const T* x, const T* gate, T* dx, T* dgate);

}  // namespace mpt::runtime::cpu
