// SPDX-License-Identifier: Apache-2.0

// What mixers of linear cost are made of, and gates (cuda_device_test.h).

#include "tests/runtime/device/cuda_device_test.h"

namespace mpt::runtime {
namespace {

TEST_P(CudaDeviceTest, Convolution) {
  const DataType t = GetParam();
  // Sequences shorter than the convolution, and channels around a warp's.
  for (const ConvolutionShape s : {ConvolutionShape{2, 3, 5, 4, 7}, {1, 40, 33, 4, 40}, {2, 9, 8, 1, 8}}) {
    const int64_t count = s.tokens() * s.channels;
    Pair x = make(s.tokens() * s.row, 1), w = make(s.channels * s.length, 2), y = make(count, 3),
         dy = make(count, 4), dx = make(s.tokens() * s.row, 5);
    Pair dw = make_state(s.channels * s.length, 6);
    on_both([&](Device& d, void* px, void* pw,
                void* py) { d.run(t, ConvolutionForward{.shape = s, .x = px, .w = pw, .y = py}); },
            x, w, y);
    y.expect_equal("convolution_forward", s.length, 8.0);
    on_both(
        [&](Device& d, void* pdy, void* px, void* pw, void* pdx, void* pdw) {
          d.run(t, ConvolutionBackward{.shape = s, .dy = pdy, .x = px, .w = pw, .dx = pdx, .dw = pdw});
        },
        dy, x, w, dx, dw);
    dx.expect_equal("convolution_backward", 2 * s.length, 20.0);
    dw.expect_equal("its weights", s.tokens() + s.length, 20.0);
  }
}

// Sequences of a part of a chunk, of chunks and a part, and of whole ones; squares of threads are 4 x 4.
TEST_P(CudaDeviceTest, DeltaRule) {
  const DataType t = GetParam();
  for (const DeltaShape s :
       {DeltaShape{2, 5, 2, 1, 3, 6, 8, 5}, {1, 21, 4, 2, 9, 4, 8, 11}, {1, 16, 1, 1, 8, 8, 16, 2}}) {
    Pair qkv = make(s.tokens() * s.columns(), 1), gates = make(s.tokens() * s.row, 2),
         decay = make(s.heads, 3, 0.5), bias = make(s.heads, 4, 0.5), out = make(s.tokens() * s.values(), 5),
         dout = make(s.tokens() * s.values(), 6), d_qkv = make(s.tokens() * s.columns(), 7),
         d_gates = make(s.tokens() * s.row, 8);
    Pair d_decay = make_state(s.heads, 9), d_bias = make_state(s.heads, 10),
         room = make_state(s.backward_room(), 11);
    on_both(
        [&](Device& d, void* q, void* g, void* a, void* b, void* o, void* r) {
          d.run(t, DeltaForward{.shape = s, .in = {q, g, a, b}, .out = o, .room = r});
        },
        qkv, gates, decay, bias, out, room);
    const int64_t terms = 4 * (s.part() + s.key_dim);
    out.expect_equal("delta_forward", terms, 8.0);
    on_both(
        [&](Device& d, void* q, void* g, void* a, void* b, void* o, void* dq, void* dg, void* da, void* db,
            void* r) {
          d.run(t,
                DeltaBackward{.shape = s, .in = {q, g, a, b}, .dout = o, .d = {dq, dg, da, db}, .room = r});
        },
        qkv, gates, decay, bias, dout, d_qkv, d_gates, d_decay, d_bias, room);
    d_qkv.expect_equal("delta_backward", terms + s.head_dim, 40.0);
    d_gates.expect_equal("its gates", terms + s.head_dim, 40.0);
    d_decay.expect_equal("its decays", s.tokens() * s.part(), 40.0);
    d_bias.expect_equal("its step biases", s.tokens() * s.part(), 40.0);
  }
}

TEST_P(CudaDeviceTest, GatedNorm) {
  const DataType t = GetParam();
  for (const GatedNormShape s : {GatedNormShape{3, 2, 5, 12, 1e-6}, {70, 3, 40, 120, 1e-6}}) {
    const int64_t count = s.tokens * s.columns();
    Pair x = make(count, 1), gate = make(s.tokens * s.row, 2), scale = make(s.head_dim, 3),
         y = make(count, 4), dy = make(count, 5), dx = make(count, 6), dgate = make(s.tokens * s.row, 7);
    Pair dscale = make_state(s.head_dim, 8);
    on_both(
        [&](Device& d, void* px, void* pg, void* ps, void* py) {
          d.run(t, GatedNormForward{.shape = s, .x = px, .gate = pg, .scale = ps, .y = py});
        },
        x, gate, scale, y);
    y.expect_equal("gated_norm_forward", s.head_dim, 10.0);
    on_both(
        [&](Device& d, void* pdy, void* px, void* pg, void* ps, void* pdx, void* pdg, void* pds) {
          d.run(t, GatedNormBackward{.shape = s,
                                     .dy = pdy,
                                     .x = px,
                                     .gate = pg,
                                     .scale = ps,
                                     .dx = pdx,
                                     .dgate = pdg,
                                     .dscale = pds});
        },
        dy, x, gate, scale, dx, dgate, dscale);
    dx.expect_equal("gated_norm_backward", s.head_dim, 20.0);
    dgate.expect_equal("its gate", s.head_dim, 20.0);
    dscale.expect_equal("its scale", s.tokens * s.heads, 10.0);
  }
}

TEST_P(CudaDeviceTest, Gates) {
  const DataType t = GetParam();
  for (const GateShape s : {GateShape{5, 12, 12}, {5, 12, 3}, {33, 70, 1}}) {
    const int64_t count = s.rows * s.columns;
    Pair x = make(count, 1), gate = make(s.rows * s.gates, 2), y = make(count, 3), dy = make(count, 4),
         dx = make(count, 5), dgate = make(s.rows * s.gates, 6);
    on_both([&](Device& d, void* px, void* pg,
                void* py) { d.run(t, GateForward{.shape = s, .x = px, .gate = pg, .y = py}); },
            x, gate, y);
    y.expect_equal("gate_forward", 4);
    on_both(
        [&](Device& d, void* pdy, void* px, void* pg, void* pdx, void* pdg) {
          d.run(t, GateBackward{.shape = s, .dy = pdy, .x = px, .gate = pg, .dx = pdx, .dgate = pdg});
        },
        dy, x, gate, dx, dgate);
    dx.expect_equal("gate_backward", 4);
    dgate.expect_equal("its gate", s.width() + 4, 4.0);
    on_both(
        [&](Device& d, void* pdy, void* px, void* pg, void* pdg) {
          d.run(t, GateBackward{.shape = s, .dy = pdy, .x = px, .gate = pg, .dx = pdy, .dgate = pdg});
        },
        dy, x, gate, dgate);
    dy.expect_equal("in place", 4);
  }
}

}  // namespace
}  // namespace mpt::runtime
