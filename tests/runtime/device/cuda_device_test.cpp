// SPDX-License-Identifier: Apache-2.0

// Products, norms, positions and attention (cuda_device_test.h).

#include "tests/runtime/device/cuda_device_test.h"

#include "runtime/device/fp8.h"

namespace mpt::runtime {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::float64, DataType::bfloat16, DataType::float16};

TEST_P(CudaDeviceTest, Linear) {
  for (const LinearShape s : {LinearShape{1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {16, 24, 8}}) {
    Pair x = make(s.rows * s.inner, 1), w = make(s.columns * s.inner, 2), bias = make(s.columns, 3),
         dy = make(s.rows * s.columns, 4), y = make(s.rows * s.columns, 5), dx = make(s.rows * s.inner, 6);
    Pair dw = make_state(s.columns * s.inner, 7), db = make_state(s.columns, 8);
    const DataType t = GetParam();
    on_both([&](Device& d, void* px, void* pw, void* pb,
                void* py) { d.run(t, LinearForward{.shape = s, .x = px, .w = pw, .bias = pb, .y = py}); },
            x, w, bias, y);
    y.expect_equal("linear_forward", s.inner);
    on_both([&](Device& d, void* px, void* pw,
                void* py) { d.run(t, LinearForward{.shape = s, .x = px, .w = pw, .y = py}); },
            x, w, y);
    y.expect_equal("linear_forward without bias", s.inner);
    on_both([&](Device& d, void* pdy, void* pw,
                void* pdx) { d.run(t, LinearBackwardInput{.shape = s, .dy = pdy, .w = pw, .dx = pdx}); },
            dy, w, dx);
    dx.expect_equal("linear_backward_input", s.columns);
    on_both(
        [&](Device& d, void* pdy, void* px, void* pdw, void* pdb) {
          d.run(t, LinearBackwardWeight{.shape = s, .dy = pdy, .x = px, .dw = pdw, .dbias = pdb});
        },
        dy, x, dw, db);
    dw.expect_equal("linear_backward_weight", s.rows);
    db.expect_equal("its bias", s.rows);
    on_both(
        [&](Device& d, void* pb, void* py) {
          d.run(t, BiasForward{.rows = s.rows, .columns = s.columns, .bias = pb, .y = py});
        },
        bias, y);
    y.expect_equal("bias_forward", s.inner);
  }
}

// Sizes of whole packs, which epilogues take, and others. One device may round what goes into the activation,
// or comes out of the product before it, to 16 bits, and the other not: slopes are at most 1.13.
TEST_P(CudaDeviceTest, LinearWithActivation) {
  const DataType t = GetParam();
  for (const LinearShape s : {LinearShape{3, 5, 7}, {16, 24, 48}, {33, 16, 64}}) {
    for (const bool is_gelu : {true, false}) {
      const auto kind = is_gelu ? ActivationKind::gelu_tanh : ActivationKind::silu;
      const double rounded = 1.13 * 1.5 * 1.5 * double(s.inner), back = 1.13 * 1.5 * 1.5 * double(s.columns);
      Pair x = make(s.rows * s.inner, 1), w = make(s.columns * s.inner, 2), bias = make(s.columns, 3),
           up = make(s.rows * s.columns, 4), y = make(s.rows * s.columns, 5);
      const ActivationShape behind{kind, s.rows, s.columns, false, 0.0};
      on_both(
          [&](Device& d, void* px, void* pw, void* pb, void* pup, void* py) {
            d.run(t, LinearActivationForward{
                         .shape = s, .activation = behind, .x = px, .w = pw, .bias = pb, .up = pup, .y = py});
          },
          x, w, bias, up, y);
      up.expect_equal("up", s.inner);
      y.expect_equal("its activation", s.inner, 4.0, rounded, t);
      Pair dy = make(s.rows * s.columns, 6), before = make(s.rows * s.inner, 7),
           room = make(s.rows * s.inner, 8), dup = make(s.rows * s.inner, 9);
      const ActivationShape between{kind, s.rows, s.inner, false, 0.0};
      on_both(
          [&](Device& d, void* pdy, void* pw, void* pup, void* pr, void* pdup) {
            d.run(t, LinearActivationBackward{.shape = s,
                                              .activation = between,
                                              .dy = pdy,
                                              .w = pw,
                                              .up = pup,
                                              .room = pr,
                                              .dup = pdup});
          },
          dy, w, before, room, dup);
      dup.expect_equal("its gradient", s.columns, 4.0, back, t);
    }
  }
}

// What the sum of products of 8 bits loses, where its terms are of this magnitude. Hopper's tensor cores keep
// some 14 bits of each term beside the largest (DeepSeek-V3, arXiv:2412.19437, section 3.3.2).
double lost_in_8_bits(int64_t terms, double magnitude) {
  return has_tensor_cores_under_test() ? 0x1p-13 * double(terms) * magnitude : 0.0;
}

// Both narrow the same numbers with the same scale; sums of products of 8 bits are exact but for their order.
TEST_P(CudaDeviceTest, LinearInFp8) {
  const DataType t = GetParam();
  if (state_type_of(t) == t) GTEST_SKIP() << "operands of 16 bits are narrowed";
  for (const LinearShape s : {LinearShape{16, 16, 16, true}, {80, 144, 48, true}, {17, 33, 65, true}}) {
    Pair x = make(s.rows * s.inner, 1), w = make(s.columns * s.inner, 2, 0.02), bias = make(s.columns, 3),
         dy = make(s.rows * s.columns, 4, 1e-4), y = make(s.rows * s.columns, 5),
         dx = make(s.rows * s.inner, 6);
    Pair dw = make_state(s.columns * s.inner, 7), db = make_state(s.columns, 8);
    on_both([&](Device& d, void* px, void* pw, void* pb,
                void* py) { d.run(t, LinearForward{.shape = s, .x = px, .w = pw, .bias = pb, .y = py}); },
            x, w, bias, y);
    y.expect_equal("linear_forward", s.inner, 1.0, 0.0, DataType::float64,
                   lost_in_8_bits(s.inner, 1.5 * 0.02));
    on_both([&](Device& d, void* pdy, void* pw,
                void* pdx) { d.run(t, LinearBackwardInput{.shape = s, .dy = pdy, .w = pw, .dx = pdx}); },
            dy, w, dx);
    dx.expect_equal("linear_backward_input", s.columns, 1e-4, 0.0, DataType::float64,
                    lost_in_8_bits(s.columns, 1e-4 * 0.02));
    on_both(
        [&](Device& d, void* pdy, void* px, void* pdw, void* pdb) {
          d.run(t, LinearBackwardWeight{.shape = s, .dy = pdy, .x = px, .dw = pdw, .dbias = pdb});
        },
        dy, x, dw, db);
    dw.expect_equal("linear_backward_weight", s.rows, 4.0, 0.0, DataType::float64,
                    lost_in_8_bits(s.rows, 1e-4 * 1.5));
    db.expect_equal("its bias", s.rows, 1.0);
  }
}

// Results of products of 8 bits on the GPU, with what is kept in the shape.
struct Fp8Results {
  std::vector<double> y, dx, dw, db;
  bool operator==(const Fp8Results&) const = default;
};
template <class Backward>
Fp8Results results_in_8_bits(Device& d, DataType t, const LinearShape& s, const void* x, const void* w,
                             const void* dy, Backward&& backward) {
  const DataType state = state_type_of(t);
  const Buffer y(d, s.rows * s.columns * size_of(t)), dx(d, s.rows * s.inner * size_of(t)),
      dw(d, s.columns * s.inner * size_of(state)), db(d, s.columns * size_of(state));
  d.zero(dw.data(), dw.bytes());
  d.zero(db.data(), db.bytes());
  d.run(t, LinearForward{.shape = s, .x = x, .w = w, .y = y.data()});
  backward(dy, w, dx.data(), x, dw.data(), db.data());
  const auto numbers = [&](DataType type, const Buffer& from) {
    std::vector<double> values(size_t(from.bytes() / size_of(type)));
    d.download(type, from.data(), int64_t(values.size()), values.data());
    return values;
  };
  return {numbers(t, y), numbers(t, dx), numbers(state, dw), numbers(state, db)};
}

TEST_P(CudaDeviceTest, WhatIsKeptIn8BitsChangesNoBit) {
  const DataType t = GetParam();
  if (state_type_of(t) == t) GTEST_SKIP() << "operands of 16 bits are narrowed";
  for (const LinearShape s : {LinearShape{16, 16, 16, true}, {80, 144, 48, true}}) {
    const Pair x = make(s.rows * s.inner, 1), w = make(s.columns * s.inner, 2, 0.02),
               dy = make(s.rows * s.columns, 3, 1e-4), other = make(s.columns * s.inner, 4, 0.3);
    Device& d = *gpu_;
    const auto of = [&](const LinearShape& shape, const Pair& weight, bool at_once) {
      return results_in_8_bits(
          d, t, shape, x.on_gpu.data(), weight.on_gpu.data(), dy.on_gpu.data(),
          [&](const void* pdy, const void* pw, void* dx, const void* px, void* dw, void* db) {
            if (at_once)
              return d.run(t,
                           LinearBackward{
                               .shape = shape, .dy = pdy, .w = pw, .dx = dx, .x = px, .dw = dw, .dbias = db});
            d.run(t, LinearBackwardInput{.shape = shape, .dy = pdy, .w = pw, .dx = dx});
            d.run(t, LinearBackwardWeight{.shape = shape, .dy = pdy, .x = px, .dw = dw, .dbias = db});
          });
    };
    const Fp8Results plain = of(s, w, false);
    EXPECT_EQ(of(s, w, true), plain);
    const Buffer weight(d, fp8_weight_bytes(s.columns, s.inner)), magnitudes(d, 2 * int64_t(sizeof(float)));
    float* const magnitude = static_cast<float*>(magnitudes.data());
    d.run(t, NarrowWeight{.shape = s, .w = w.on_gpu.data(), .kept = weight.data()});
    LinearShape kept = s;
    kept.kept = {weight.data(), magnitude, false, nullptr};
    EXPECT_EQ(of(kept, w, false), plain);  // leaves the magnitude of x
    kept.kept.x_is_known = true;
    const ActivationShape identity{ActivationKind::relu, s.rows, s.columns, false, 0.0, magnitude + 1};
    EXPECT_EQ(of(kept, other, true), plain) << "the weight is the one that is kept";
    // Of dy: what a rectifier leaves of it and of its negative.
    const Buffer positive(d, dy.on_gpu.bytes()), negative(d, dy.on_gpu.bytes());
    d.zero(magnitude + 1, int64_t(sizeof(float)));
    d.run(t, Scale{.count = dy.count, .factor = -1.0, .x = dy.on_gpu.data(), .y = negative.data()});
    d.run(t, ActivationForward{.shape = identity, .x = dy.on_gpu.data(), .y = positive.data()});
    d.run(t, ActivationForward{.shape = identity, .x = negative.data(), .y = positive.data()});
    kept.kept.dy_magnitude = magnitude + 1;
    EXPECT_EQ(of(kept, w, false), plain);
    EXPECT_EQ(of(kept, w, true), plain);
    const double large = 100.0;
    d.upload(DataType::float32, &large, 1, magnitude);
    EXPECT_NE(of(kept, w, true).y, plain.y) << "what is known is not looked for";
    EXPECT_NE(of(kept, w, true).dw, plain.dw);
  }
}

TEST_P(CudaDeviceTest, ActivationsFindTheLargestMagnitude) {
  const DataType t = GetParam();
  if (state_type_of(t) == t) GTEST_SKIP() << "operands of 16 bits are narrowed";
  for (const bool gated : {false, true}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {40, 64}}) {
      const Buffer found(*gpu_, 2 * int64_t(sizeof(float)));
      gpu_->zero(found.data(), found.bytes());
      ActivationShape s{ActivationKind::silu, rows, columns, gated, 0.0, found.data()};
      const Pair x = make(rows * s.input_columns(), 1), dy = make(rows * columns, 2);
      const Pair y = make(rows * columns, 3), dx = make(rows * s.input_columns(), 4);
      gpu_->run(t, ActivationForward{.shape = s, .x = x.on_gpu.data(), .y = y.on_gpu.data()});
      s.magnitude = static_cast<float*>(found.data()) + 1;
      gpu_->run(t, ActivationBackward{
                       .shape = s, .dy = dy.on_gpu.data(), .x = x.on_gpu.data(), .dx = dx.on_gpu.data()});
      double magnitudes[2];
      gpu_->download(DataType::float32, found.data(), 2, magnitudes);
      for (const Pair* written : {&y, &dx}) {
        std::vector<double> values(size_t(written->count));
        gpu_->download(t, written->on_gpu.data(), written->count, values.data());
        double most = 0.0;
        for (const double v : values) most = std::max(most, std::fabs(v));
        EXPECT_EQ(magnitudes[written == &y ? 0 : 1], most) << gated << " " << rows << " x " << columns;
      }
    }
  }
}

TEST_P(CudaDeviceTest, Norms) {
  const DataType t = GetParam();
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 37}, {70, 64}}) {
      const NormShape s{kind, rows, columns, 1e-5};
      const int64_t count = rows * columns;
      Pair x = make(count, 1), scale = make(columns, 2), bias = make(columns, 3), y = make(count, 4),
           dy = make(count, 5), dx = make(count, 6);
      Pair statistics = make_state(s.statistics(), 7), dscale = make_state(columns, 8),
           dbias = make_state(columns, 9);
      const bool biased = kind == NormKind::layer_norm;
      on_both(
          [&](Device& d, void* px, void* ps, void* pb, void* py, void* pst) {
            d.run(t, NormForward{.shape = s,
                                 .x = px,
                                 .scale = ps,
                                 .bias = biased ? pb : nullptr,
                                 .y = py,
                                 .statistics = pst});
          },
          x, scale, bias, y, statistics);
      // One column: the reciprocal deviation is 1 / sqrt(epsilon), which magnifies everything.
      const double magnitude = columns == 1 ? 1000.0 : 10.0;
      y.expect_equal("norm_forward", columns, magnitude);
      statistics.expect_equal("statistics", columns, magnitude);
      on_both(
          [&](Device& d, void* pdy, void* px, void* ps, void* pst, void* pdx) {
            d.run(t, NormBackwardInput{
                         .shape = s, .dy = pdy, .x = px, .scale = ps, .statistics = pst, .dx = pdx});
          },
          dy, x, scale, statistics, dx);
      dx.expect_equal("norm_backward_input", columns, magnitude);
      on_both(
          [&](Device& d, void* pdy, void* px, void* pst, void* pds, void* pdb) {
            d.run(t, NormBackwardWeight{.shape = s,
                                        .dy = pdy,
                                        .x = px,
                                        .statistics = pst,
                                        .dscale = pds,
                                        .dbias = biased ? pdb : nullptr});
          },
          dy, x, statistics, dscale, dbias);
      dscale.expect_equal("dscale", rows, magnitude);
      dbias.expect_equal("dbias", rows);
    }
  }
}

// One addition before the norm and one behind its gradient. Rows of one, two and four packs of 16 bytes for
// each thread, of more, and of none.
TEST_P(CudaDeviceTest, NormsWithResiduals) {
  const DataType t = GetParam();
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    for (const int64_t columns : {37, 264, 8192, 16384, 32768}) {
      const NormShape s{kind, 2, columns, 1e-5};
      const int64_t count = s.rows * columns;
      Pair a = make(count, 1), b = make(count, 2), scale = make(columns, 3), bias = make(columns, 4),
           sum = make(count, 5), y = make(count, 6), dy = make(count, 7), beside = make(count, 8),
           dx = make(count, 9);
      Pair statistics = make_state(s.statistics(), 10);
      const bool biased = kind == NormKind::layer_norm;
      on_both(
          [&](Device& d, void* pa, void* pb, void* ps, void* pbias, void* psum, void* py, void* pst) {
            d.run(t, NormForward{.shape = s,
                                 .x = pb,
                                 .scale = ps,
                                 .bias = biased ? pbias : nullptr,
                                 .y = py,
                                 .statistics = pst,
                                 .residual = pa,
                                 .sum = psum});
          },
          a, b, scale, bias, sum, y, statistics);
      sum.expect_equal("the sum", 1);
      y.expect_equal("its norm", columns);
      statistics.expect_equal("statistics", columns);
      // The CPU rounds the gradient through the norm before it adds the other.
      on_both(
          [&](Device& d, void* pdy, void* px, void* ps, void* pst, void* pr, void* pdx) {
            d.run(t, NormBackwardInput{.shape = s,
                                       .dy = pdy,
                                       .x = px,
                                       .scale = ps,
                                       .statistics = pst,
                                       .dx = pdx,
                                       .residual = pr});
          },
          dy, sum, scale, statistics, beside, dx);
      dx.expect_equal("norm_backward_residual", columns, 4.0, 4.0, t);
      // The sum may take the place of a summand.
      on_both(
          [&](Device& d, void* pa, void* pb, void* ps, void* py, void* pst) {
            d.run(
                t,
                NormForward{
                    .shape = s, .x = pb, .scale = ps, .y = py, .statistics = pst, .residual = pa, .sum = pb});
          },
          a, b, scale, y, statistics);
      b.expect_equal("the sum in place", 1);
      y.expect_equal("its norm", columns);
    }
  }
}

TEST_P(CudaDeviceTest, HeadNorm) {
  const DataType t = GetParam();
  for (const AttentionShape& s : {AttentionShape{2, 5, 4, 2, 6}, {1, 40, 3, 1, 40}}) {
    Pair qkv = make(s.tokens() * s.row(), 1), kept = make(s.tokens() * s.rotated(), 2),
         q = make(s.head_dim, 3), k = make(s.head_dim, 4), d_qkv = make(s.tokens() * s.row(), 5);
    Pair dq = make_state(s.head_dim, 6), dk = make_state(s.head_dim, 7);
    on_both(
        [&](Device& d, void* pq, void* pk, void* p, void* kp) {
          d.run(t,
                HeadNormForward{
                    .shape = s, .epsilon = 1e-6, .query_scale = pq, .key_scale = pk, .qkv = p, .kept = kp});
        },
        q, k, qkv, kept);
    qkv.expect_equal("head_norm_forward", s.head_dim);
    kept.expect_equal("what it kept", 0);
    on_both(
        [&](Device& d, void* pq, void* pk, void* kp, void* p, void* pdq, void* pdk) {
          d.run(t, HeadNormBackward{.shape = s,
                                    .epsilon = 1e-6,
                                    .query_scale = pq,
                                    .key_scale = pk,
                                    .kept = kp,
                                    .dqkv = p,
                                    .dquery_scale = pdq,
                                    .dkey_scale = pdk});
        },
        q, k, kept, d_qkv, dq, dk);
    d_qkv.expect_equal("head_norm_backward", s.head_dim, 20.0);
    dq.expect_equal("its query scale", s.tokens() * s.heads);
    dk.expect_equal("its key scale", s.tokens() * s.kv_heads);
  }
}

TEST_P(CudaDeviceTest, Rotary) {
  const DataType t = GetParam();
  const AttentionShape s{2, 3, 2, 1, 8};
  const std::vector<double> frequencies{1.0, 0.37, 0.01, 0.001};  // 0.37: angles that no float holds
  const std::vector<int32_t> positions{0, 17, 100'000};
  for (const int direction : {1, -1}) {
    Pair qkv = make(s.tokens() * s.row(), 1);
    on_both(
        [&](Device& d, void* p) {
          d.run(t,
                Rotate{.shape = s, .rotation = {frequencies, positions}, .direction = direction, .qkv = p});
        },
        qkv);
    // An angle of 1e5 radians is known to 1e5 roundoffs of the state type on neither device.
    qkv.expect_equal("rotary", 2);
  }
}

// Sizes around the kernels' tiles of 16 and 32 rows, with heads that share keys.
TEST_P(CudaDeviceTest, Attention) {
  const DataType t = GetParam();
  for (const AttentionShape& s : {AttentionShape{1, 1, 1, 1, 4},
                                  {2, 33, 4, 2, 6},
                                  {1, 64, 2, 1, 16},
                                  {1, 45, 6, 2, 32},
                                  {2, 70, 4, 2, 64},
                                  {1, 40, 2, 1, 128},
                                  // Values of another size, windows, a scale and a cap.
                                  {1, 45, 4, 2, 6, 10},
                                  {2, 70, 4, 2, 8, 0, 5},
                                  {1, 100, 2, 1, 64, 0, 40, 0.3, 1.5},
                                  {1, 40, 2, 1, 192, 128},
                                  {1, 40, 2, 1, 256, 0, 20}}) {
    const int64_t out_count = s.tokens() * s.outputs();
    Pair qkv = make(s.tokens() * s.row(), 1), out = make(out_count, 2), dout = make(out_count, 3),
         d_qkv = make(s.tokens() * s.row(), 4);
    Pair lse = make_state(s.tokens() * s.heads, 5);
    on_both([&](Device& d, void* p, void* po,
                void* pl) { d.run(t, AttentionForward{.shape = s, .qkv = p, .out = po, .log_sum_exp = pl}); },
            qkv, out, lse);
    const int64_t terms = s.sequence + 4 * s.head_dim;
    // Tensor cores take probabilities and score gradients in 16 bits; probabilities of a query sum to 1.
    const bool rounds = s.head_dim >= 64 || (has_tensor_cores_under_test() && s.head_dim % 8 == 0);
    out.expect_equal("attention_forward", terms, 4.0, rounds ? 1.5 : 0.0, t);
    lse.expect_equal("log_sum_exp", terms);
    on_both(
        [&](Device& d, void* pd, void* p, void* po, void* pl, void* pdq) {
          d.run(t, AttentionBackward{
                       .shape = s, .dout = pd, .qkv = p, .out = po, .log_sum_exp = pl, .dqkv = pdq});
        },
        dout, qkv, out, lse, d_qkv);
    // Differences of out, one rounding each, go into delta of every score; those of a key sum to a few.
    d_qkv.expect_equal("attention_backward", terms, 40.0, 20.0, t);
  }
}

TEST_P(CudaDeviceTest, AttentionToBlocksOfKeys) {
  const DataType t = GetParam();
  for (const int64_t head_dim : {8, 64}) {
    const AttentionShape s{2, 37, 4, 2, head_dim};
    const int64_t width = s.heads * s.head_dim, keys = 41, kv_width = 2 * s.kv_heads * s.head_dim;
    std::vector<int32_t> some(size_t(s.sequence)), all(size_t(s.sequence), int32_t(keys));
    for (int64_t i = 0; i < s.sequence; ++i) some[size_t(i)] = int32_t(std::max<int64_t>(0, i - 3));
    Pair qkv = make(s.tokens() * s.row(), 1), kv1 = make(s.batch * keys * kv_width, 2),
         kv2 = make(s.batch * keys * kv_width, 3), dout = make(s.tokens() * width, 4),
         rounded = make(s.tokens() * width, 5);
    Pair out = make_state(s.tokens() * width, 6), lse = make_state(s.tokens() * s.heads, 7),
         dq = make_state(s.tokens() * width, 8), dkv = make_state(s.batch * keys * kv_width, 9);
    const auto forward = [&](const std::vector<int32_t>& visible, bool first) {
      return [&, first](Device& d, void* p, void* pk, void* po, void* pl) {
        d.run(t, AttentionBlockForward{.block = {s, keys, visible, {}},
                                       .qkv = p,
                                       .kv = pk,
                                       .first = first,
                                       .out = po,
                                       .log_sum_exp = pl});
      };
    };
    const int64_t terms = 2 * keys + 4 * s.head_dim;
    on_both(forward(some, true), qkv, kv1, out, lse);
    const double in_16_bits = head_dim >= 64 ? 1.5 : 0.0;
    out.expect_equal("first block", terms, 4.0, in_16_bits, t);
    on_both(forward(all, false), qkv, kv2, out, lse);
    out.expect_equal("second block", terms, 4.0, in_16_bits, t);
    lse.expect_equal("log_sum_exp", terms);
    for (const auto& [visible, kv] : {std::pair<std::vector<int32_t>*, Pair*>{&some, &kv1}, {&all, &kv2}}) {
      on_both(
          [&, list = visible](Device& d, void* pd, void* p, void* pk, void* po, void* pl, void* pq,
                              void* pdk) {
            d.run(t, AttentionBlockBackward{.block = {s, keys, *list, {}},
                                            .dout = pd,
                                            .qkv = p,
                                            .kv = pk,
                                            .out = po,
                                            .log_sum_exp = pl,
                                            .dq = pq,
                                            .dkv = pdk});
          },
          dout, qkv, *kv, rounded, lse, dq, dkv);
    }
    dq.expect_equal("dq", terms, 100.0, 20.0, t);
    dkv.expect_equal("dkv", terms, 100.0, 20.0, t);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaDeviceTest, testing::ValuesIn(kTypes), [](const auto& info) {
  return std::string(info.param == DataType::float32    ? "Float32"
                     : info.param == DataType::float64  ? "Float64"
                     : info.param == DataType::bfloat16 ? "Bfloat16"
                                                        : "Float16");
});

}  // namespace
}  // namespace mpt::runtime
