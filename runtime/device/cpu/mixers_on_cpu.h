// SPDX-License-Identifier: Apache-2.0
#pragma once

// MixersOnCpu: the CPU's operators of mixers of linear cost, and of gates.

#include "runtime/device/cpu/mixer_kernels.h"
#include "runtime/device/cpu/model_operators.h"

namespace mpt::runtime {

class MixersOnCpu : public ModelOperators {
 public:
  void convolution_forward(DataType type, const ConvolutionShape& s, const void* x, const void* w,
                           void* y) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::convolution_forward<T>(s, as<T>(x), as<T>(w), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::convolution_forward(s, f.in(x, s.read()), f.in(w, s.channels * s.length),
                             f.out(y, s.tokens() * s.channels));
  }
  void convolution_backward(DataType type, const ConvolutionShape& s, const void* dy, const void* x,
                            const void* w, void* dx, void* dw) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::convolution_backward<T>(s, as<T>(dy), as<T>(x), as<T>(w), as<T>(dx), as<T>(dw)));
    }
    cpu::Widened f(type, memory_);
    cpu::convolution_backward(s, f.in(dy, s.tokens() * s.channels), f.in(x, s.read()),
                              f.in(w, s.channels * s.length), f.in_out(dx, s.read()), as<float>(dw));
  }
  void delta_forward(DataType type, const DeltaShape& s, const DeltaInputs& in, void* out,
                     void* room) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::delta_forward<T>(s, operands<T>(in), as<T>(out), as<T>(room)));
    cpu::Widened f(type, memory_);
    cpu::delta_forward(s, widened(s, in, f), f.out(out, s.tokens() * s.values()), as<float>(room));
  }
  void delta_backward(DataType type, const DeltaShape& s, const DeltaInputs& in, const void* dout,
                      const DeltaGradients& d, void* room) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::delta_backward<T>(s, operands<T>(in), as<T>(dout),
                                       {as<T>(d.qkv), as<T>(d.gates), as<T>(d.decay), as<T>(d.step_bias)},
                                       as<T>(room)));
    }
    cpu::Widened f(type, memory_);
    cpu::delta_backward<float>(s, widened(s, in, f), f.in(dout, s.tokens() * s.values()),
                               {f.out(d.qkv, s.tokens() * s.columns()), f.in_out(d.gates, s.read_gates()),
                                as<float>(d.decay), as<float>(d.step_bias)},
                               as<float>(room));
  }
  void gated_norm_forward(DataType type, const GatedNormShape& s, const void* x, const void* gate,
                          const void* scale, void* y) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::gated_norm_forward<T>(s, as<T>(x), as<T>(gate), as<T>(scale), as<T>(y)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.tokens * s.columns();
    cpu::gated_norm_forward(s, f.in(x, count), f.in(gate, s.read_gate()), f.in(scale, s.head_dim),
                            f.out(y, count));
  }
  void gated_norm_backward(DataType type, const GatedNormShape& s, const void* dy, const void* x,
                           const void* gate, const void* scale, void* dx, void* dgate,
                           void* dscale) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::gated_norm_backward<T>(s, as<T>(dy), as<T>(x), as<T>(gate), as<T>(scale),
                                                            as<T>(dx), as<T>(dgate), as<T>(dscale)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.tokens * s.columns();
    cpu::gated_norm_backward(s, f.in(dy, count), f.in(x, count), f.in(gate, s.read_gate()),
                             f.in(scale, s.head_dim), f.out(dx, count), f.in_out(dgate, s.read_gate()),
                             as<float>(dscale));
  }
  void gate_forward(DataType type, const GateShape& s, const void* x, const void* gate, void* y) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::gate_forward<T>(s, as<T>(x), as<T>(gate), as<T>(y)));
    cpu::Widened f(type, memory_);
    const int64_t count = s.rows * s.columns;
    cpu::gate_forward(s, f.in(x, count), f.in(gate, s.rows * s.gates), f.out(y, count));
  }
  void gate_backward(DataType type, const GateShape& s, const void* dy, const void* x, const void* gate,
                     void* dx, void* dgate) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::gate_backward<T>(s, as<T>(dy), as<T>(x), as<T>(gate), as<T>(dx), as<T>(dgate)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.rows * s.columns;
    cpu::gate_backward(s, f.in(dy, count), f.in(x, count), f.in(gate, s.rows * s.gates), f.out(dx, count),
                       f.out(dgate, s.rows * s.gates));
  }

 private:
  template <class T>
  static cpu::DeltaOperands<T> operands(const DeltaInputs& in) {
    return {as<T>(in.qkv), as<T>(in.gates), as<T>(in.decay), as<T>(in.step_bias)};
  }
  static cpu::DeltaOperands<float> widened(const DeltaShape& s, const DeltaInputs& in, cpu::Widened& f) {
    return {f.in(in.qkv, s.tokens() * s.columns()), f.in(in.gates, s.read_gates()), f.in(in.decay, s.heads),
            f.in(in.step_bias, s.heads)};
  }
};

}  // namespace mpt::runtime
