// SPDX-License-Identifier: Apache-2.0
#pragma once

// MixerDevice: the operators of a GPU that mixers of linear cost are made of, and gates.

#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime::cuda {

class MixerDevice : public StreamDevice {
 public:
  using StreamDevice::StreamDevice;

  void convolution_forward(DataType, const ConvolutionShape&, const void* x, const void* w, void* y) override;
  void convolution_backward(DataType, const ConvolutionShape&, const void* dy, const void* x, const void* w,
                            void* dx, void* dw) override;
  void delta_forward(DataType, const DeltaShape&, const DeltaInputs&, void* out, void* room) override;
  void delta_backward(DataType, const DeltaShape&, const DeltaInputs&, const void* dout,
                      const DeltaGradients&, void* room) override;
  void gated_norm_forward(DataType, const GatedNormShape&, const void* x, const void* gate, const void* scale,
                          void* y) override;
  void gated_norm_backward(DataType, const GatedNormShape&, const void* dy, const void* x, const void* gate,
                           const void* scale, void* dx, void* dgate, void* dscale) override;
  void gate_forward(DataType, const GateShape&, const void* x, const void* gate, void* y) override;
  void gate_backward(DataType, const GateShape&, const void* dy, const void* x, const void* gate, void* dx,
                     void* dgate) override;
};

}  // namespace mpt::runtime::cuda
