// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/mixer_device.h"

#include "runtime/device/cuda/dispatch.h"
#include "runtime/device/cuda/mixer_kernels.h"

namespace mpt::runtime::cuda {
namespace {

template <class T>
const T* in(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* to(void* data) {
  return static_cast<T*>(data);
}

template <class T>
DeltaOperands<T> operands(const DeltaInputs& inputs) {
  return {in<T>(inputs.qkv), in<T>(inputs.gates), in<T>(inputs.decay), in<T>(inputs.step_bias)};
}

}  // namespace

void MixerDevice::convolution_forward(DataType type, const ConvolutionShape& s, const void* x, const void* w,
                                      void* y) {
  MPT_DISPATCH(type, cuda::convolution_forward<T>(stream(), s, in<T>(x), in<T>(w), to<T>(y)));
}

void MixerDevice::convolution_backward(DataType type, const ConvolutionShape& s, const void* dy,
                                       const void* x, const void* w, void* dx, void* dw) {
  MPT_DISPATCH(
      type, cuda::convolution_backward<T>(stream(), s, in<T>(dy), in<T>(x), in<T>(w), to<T>(dx), to<S>(dw)));
}

void MixerDevice::delta_forward(DataType type, const DeltaShape& s, const DeltaInputs& inputs, void* out,
                                void* room) {
  MPT_DISPATCH(type, cuda::delta_forward<T>(stream(), s, operands<T>(inputs), to<T>(out), to<S>(room)));
}

void MixerDevice::delta_backward(DataType type, const DeltaShape& s, const DeltaInputs& inputs,
                                 const void* dout, const DeltaGradients& d, void* room) {
  MPT_DISPATCH(type, cuda::delta_backward<T>(
                         stream(), s, operands<T>(inputs), in<T>(dout),
                         {to<T>(d.qkv), to<T>(d.gates), to<S>(d.decay), to<S>(d.step_bias)}, to<S>(room)));
}

void MixerDevice::gated_norm_forward(DataType type, const GatedNormShape& s, const void* x, const void* gate,
                                     const void* scale, void* y) {
  MPT_DISPATCH(type, cuda::gated_norm_forward<T>(stream(), s, in<T>(x), in<T>(gate), in<T>(scale), to<T>(y)));
}

void MixerDevice::gated_norm_backward(DataType type, const GatedNormShape& s, const void* dy, const void* x,
                                      const void* gate, const void* scale, void* dx, void* dgate,
                                      void* dscale) {
  const Scratch sums(streams(), gated_norm_scratch_bytes(s));
  MPT_DISPATCH(type, cuda::gated_norm_backward<T>(stream(), s, in<T>(dy), in<T>(x), in<T>(gate), in<T>(scale),
                                                  to<T>(dx), to<T>(dgate), to<S>(dscale), sums.data()));
}

void MixerDevice::gate_forward(DataType type, const GateShape& s, const void* x, const void* gate, void* y) {
  MPT_DISPATCH(type, cuda::gate_forward<T>(stream(), s, in<T>(x), in<T>(gate), to<T>(y)));
}

void MixerDevice::gate_backward(DataType type, const GateShape& s, const void* dy, const void* x,
                                const void* gate, void* dx, void* dgate) {
  MPT_DISPATCH(
      type, cuda::gate_backward<T>(stream(), s, in<T>(dy), in<T>(x), in<T>(gate), to<T>(dx), to<T>(dgate)));
}

}  // namespace mpt::runtime::cuda
