// SPDX-License-Identifier: Apache-2.0

// Every operator of the CUDA device against the CPU's, in all types, on sizes that no block divides and on
// some that packs do. Both sum in the state type, in other orders: results differ by k unit roundoffs of the
// sum of magnitudes, and by one rounding of 16 bits. Built twice: for a GPU, and interpreted on the CPU
// (tests/support/cuda_on_cpu).

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/support/gpu_under_test.h"

namespace mpt::runtime {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::float64, DataType::bfloat16, DataType::float16};

double unit_roundoff(DataType type) {
  switch (type) {
    case DataType::float32:
      return 6e-8;
    case DataType::float64:
      return 1.2e-16;
    case DataType::bfloat16:
      return 4e-3;
    case DataType::float16:
      return 5e-4;
  }
  return 0.0;
}

// The same numbers on both devices.
struct Pair {
  Device *cpu, *gpu;
  DataType type;
  int64_t count;
  Buffer on_cpu, on_gpu;

  Pair(Device& c, Device& g, DataType t, int64_t n, int seed, double spread = 1.5)
      : cpu(&c), gpu(&g), type(t), count(n), on_cpu(c, n * size_of(t)), on_gpu(g, n * size_of(t)) {
    std::mt19937 random{unsigned(seed)};
    std::uniform_real_distribution<double> draw(-spread, spread);
    std::vector<double> values(static_cast<size_t>(n));
    for (double& v : values) v = draw(random);
    c.upload(t, values.data(), n, on_cpu.data());
    g.upload(t, values.data(), n, on_gpu.data());
  }

  // `terms` additions of values of about `magnitude` went into each element; `rounded` is the sum of
  // magnitudes of operands that only one of the devices rounds to 16 bits.
  void expect_equal(const std::string& what, int64_t terms, double magnitude = 4.0, double rounded = 0.0,
                    DataType rounded_to = DataType::float64, double lost = 0.0) const {
    std::vector<double> want(static_cast<size_t>(count)), got(want.size());
    cpu->download(type, on_cpu.data(), count, want.data());
    gpu->download(type, on_gpu.data(), count, got.data());
    const double sums = unit_roundoff(state_type_of(type)) * double(terms + 8) * magnitude +
                        unit_roundoff(rounded_to) * rounded + lost;
    for (size_t i = 0; i < want.size(); ++i) {
      const double rounding = 2.0 * unit_roundoff(type) * std::fabs(want[i]);
      ASSERT_LE(std::fabs(got[i] - want[i]), sums + rounding)
          << what << ", element " << i << ": " << got[i] << " on the GPU, " << want[i] << " on the CPU";
    }
  }
};

class CudaDeviceTest : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    std::string reason;
    gpu_ = gpu_under_test(reason);
    if (!gpu_) GTEST_SKIP() << reason;
  }
  Pair make(int64_t count, int seed, double spread = 1.5) {
    return {*cpu_, *gpu_, GetParam(), count, seed, spread};
  }
  Pair make_state(int64_t count, int seed, double spread = 1.5) {
    return {*cpu_, *gpu_, state_type_of(GetParam()), count, seed, spread};
  }
  // Calls `body` with each device and its side of the pairs.
  template <class F, class... Pairs>
  void on_both(F&& body, Pairs&... pairs) {
    body(*cpu_, pairs.on_cpu.data()...);
    body(*gpu_, pairs.on_gpu.data()...);
  }

  std::unique_ptr<Device> cpu_ = make_cpu_device();
  std::unique_ptr<Device> gpu_;
};

TEST_P(CudaDeviceTest, Linear) {
  for (const LinearShape s : {LinearShape{1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {16, 24, 8}}) {
    Pair x = make(s.rows * s.inner, 1), w = make(s.columns * s.inner, 2), bias = make(s.columns, 3),
         dy = make(s.rows * s.columns, 4), y = make(s.rows * s.columns, 5), dx = make(s.rows * s.inner, 6);
    Pair dw = make_state(s.columns * s.inner, 7), db = make_state(s.columns, 8);
    const DataType t = GetParam();
    on_both(
        [&](Device& d, void* px, void* pw, void* pb, void* py) { d.linear_forward(t, s, px, pw, pb, py); }, x,
        w, bias, y);
    y.expect_equal("linear_forward", s.inner);
    on_both([&](Device& d, void* px, void* pw, void* py) { d.linear_forward(t, s, px, pw, nullptr, py); }, x,
            w, y);
    y.expect_equal("linear_forward without bias", s.inner);
    on_both([&](Device& d, void* pdy, void* pw, void* pdx) { d.linear_backward_input(t, s, pdy, pw, pdx); },
            dy, w, dx);
    dx.expect_equal("linear_backward_input", s.columns);
    on_both([&](Device& d, void* pdy, void* px, void* pdw,
                void* pdb) { d.linear_backward_weight(t, s, pdy, px, pdw, pdb); },
            dy, x, dw, db);
    dw.expect_equal("linear_backward_weight", s.rows);
    db.expect_equal("its bias", s.rows);
    on_both([&](Device& d, void* pb, void* py) { d.bias_forward(t, s.rows, s.columns, pb, py); }, bias, y);
    y.expect_equal("bias_forward", s.inner);
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
    on_both(
        [&](Device& d, void* px, void* pw, void* pb, void* py) { d.linear_forward(t, s, px, pw, pb, py); }, x,
        w, bias, y);
    y.expect_equal("linear_forward", s.inner, 1.0, 0.0, DataType::float64,
                   lost_in_8_bits(s.inner, 1.5 * 0.02));
    on_both([&](Device& d, void* pdy, void* pw, void* pdx) { d.linear_backward_input(t, s, pdy, pw, pdx); },
            dy, w, dx);
    dx.expect_equal("linear_backward_input", s.columns, 1e-4, 0.0, DataType::float64,
                    lost_in_8_bits(s.columns, 1e-4 * 0.02));
    on_both([&](Device& d, void* pdy, void* px, void* pdw,
                void* pdb) { d.linear_backward_weight(t, s, pdy, px, pdw, pdb); },
            dy, x, dw, db);
    dw.expect_equal("linear_backward_weight", s.rows, 4.0, 0.0, DataType::float64,
                    lost_in_8_bits(s.rows, 1e-4 * 1.5));
    db.expect_equal("its bias", s.rows, 1.0);
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
      on_both([&](Device& d, void* px, void* ps, void* pb, void* py,
                  void* pst) { d.norm_forward(t, s, px, ps, biased ? pb : nullptr, py, pst); },
              x, scale, bias, y, statistics);
      // One column: the reciprocal deviation is 1 / sqrt(epsilon), which magnifies everything.
      const double magnitude = columns == 1 ? 1000.0 : 10.0;
      y.expect_equal("norm_forward", columns, magnitude);
      statistics.expect_equal("statistics", columns, magnitude);
      on_both([&](Device& d, void* pdy, void* px, void* ps, void* pst,
                  void* pdx) { d.norm_backward_input(t, s, pdy, px, ps, pst, pdx); },
              dy, x, scale, statistics, dx);
      dx.expect_equal("norm_backward_input", columns, magnitude);
      on_both([&](Device& d, void* pdy, void* px, void* pst, void* pds,
                  void* pdb) { d.norm_backward_weight(t, s, pdy, px, pst, pds, biased ? pdb : nullptr); },
              dy, x, statistics, dscale, dbias);
      dscale.expect_equal("dscale", rows, magnitude);
      dbias.expect_equal("dbias", rows);
    }
  }
}

TEST_P(CudaDeviceTest, HeadNorm) {
  const DataType t = GetParam();
  for (const AttentionShape& s : {AttentionShape{2, 5, 4, 2, 6}, {1, 40, 3, 1, 40}}) {
    Pair qkv = make(s.tokens() * s.row(), 1), kept = make(s.tokens() * s.rotated(), 2),
         q = make(s.head_dim, 3), k = make(s.head_dim, 4), d_qkv = make(s.tokens() * s.row(), 5);
    Pair dq = make_state(s.head_dim, 6), dk = make_state(s.head_dim, 7);
    on_both([&](Device& d, void* pq, void* pk, void* p,
                void* kp) { d.head_norm_forward(t, s, 1e-6, pq, pk, p, kp); },
            q, k, qkv, kept);
    qkv.expect_equal("head_norm_forward", s.head_dim);
    kept.expect_equal("what it kept", 0);
    on_both([&](Device& d, void* pq, void* pk, void* kp, void* p, void* pdq,
                void* pdk) { d.head_norm_backward(t, s, 1e-6, pq, pk, kp, p, pdq, pdk); },
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
    on_both([&](Device& d, void* p) { d.rotary(t, s, {frequencies, positions}, direction, p); }, qkv);
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
                                  {1, 100, 2, 1, 64, 0, 40, 0.3, 1.5}}) {
    const int64_t out_count = s.tokens() * s.outputs();
    Pair qkv = make(s.tokens() * s.row(), 1), out = make(out_count, 2), dout = make(out_count, 3),
         d_qkv = make(s.tokens() * s.row(), 4);
    Pair lse = make_state(s.tokens() * s.heads, 5);
    on_both([&](Device& d, void* p, void* po, void* pl) { d.attention_forward(t, s, p, po, pl); }, qkv, out,
            lse);
    const int64_t terms = s.sequence + 4 * s.head_dim;
    // Tensor cores take probabilities and score gradients in 16 bits; probabilities of a query sum to 1.
    const bool rounds = s.head_dim >= 64 || (has_tensor_cores_under_test() && s.head_dim % 8 == 0);
    out.expect_equal("attention_forward", terms, 4.0, rounds ? 1.5 : 0.0, t);
    lse.expect_equal("log_sum_exp", terms);
    on_both([&](Device& d, void* pd, void* p, void* po, void* pl,
                void* pdq) { d.attention_backward(t, s, pd, p, po, pl, pdq); },
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
        d.attention_block_forward(t, {s, keys, visible, {}}, p, pk, first, po, pl);
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
            d.attention_block_backward(t, {s, keys, *list, {}}, pd, p, pk, po, pl, pq, pdk);
          },
          dout, qkv, *kv, rounded, lse, dq, dkv);
    }
    dq.expect_equal("dq", terms, 100.0, 20.0, t);
    dkv.expect_equal("dkv", terms, 100.0, 20.0, t);
  }
}

TEST_P(CudaDeviceTest, ActivationsAndSums) {
  const DataType t = GetParam();
  for (const ActivationKind kind : {ActivationKind::gelu_tanh, ActivationKind::gelu, ActivationKind::silu,
                                    ActivationKind::relu, ActivationKind::squared_relu}) {
    for (const bool gated : {false, true}) {
      for (const int64_t columns : {int64_t{5}, int64_t{16}}) {
        const ActivationShape s{kind, 7, columns, gated};
        Pair x = make(s.rows * s.input_columns(), 1, 3.0), y = make(s.rows * columns, 2),
             dy = make(s.rows * columns, 3), dx = make(s.rows * s.input_columns(), 4);
        on_both([&](Device& d, void* px, void* py) { d.activation_forward(t, s, px, py); }, x, y);
        y.expect_equal("activation_forward", 8);
        on_both([&](Device& d, void* pdy, void* px, void* pdx) { d.activation_backward(t, s, pdy, px, pdx); },
                dy, x, dx);
        dx.expect_equal("activation_backward", 8, 10.0);
      }
    }
  }
  for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{1003}}) {
    Pair a = make(count, 1), b = make(count, 2), y = make(count, 3);
    on_both([&](Device& d, void* pa, void* pb, void* py) { d.residual_add(t, count, pa, pb, py); }, a, b, y);
    y.expect_equal("residual_add", 1);
    const double want = cpu_->sum_of_squares(t, count, a.on_cpu.data());
    EXPECT_NEAR(gpu_->sum_of_squares(t, count, a.on_gpu.data()), want,
                unit_roundoff(state_type_of(t)) * double(count) * want + 1e-300);
  }
}

TEST_P(CudaDeviceTest, EmbeddingsAndPositions) {
  const DataType t = GetParam();
  for (const int64_t hidden : {int64_t{5}, int64_t{264}}) {
    const int64_t tokens = 300, rows = 19, first = 7;
    std::vector<int32_t> ids, positions;
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(int32_t(i * i % 31));  // some below and above this rank's words
      positions.push_back(int32_t(i % 40));
    }
    Pair table = make(rows * hidden, 1), y = make(tokens * hidden, 2), dy = make(tokens * hidden, 3),
         places = make(40 * hidden, 4);
    Pair d_table = make_state(rows * hidden, 5), d_places = make_state(40 * hidden, 6);
    on_both([&](Device& d, void* p,
                void* py) { d.embedding_forward(t, tokens, hidden, first, rows, ids.data(), p, py); },
            table, y);
    y.expect_equal("embedding_forward", 0);
    on_both([&](Device& d, void* p,
                void* pd) { d.embedding_backward(t, tokens, hidden, first, rows, ids.data(), p, pd); },
            dy, d_table);
    d_table.expect_equal("embedding_backward", tokens);
    on_both(
        [&](Device& d, void* p, void* py) { d.position_forward(t, tokens, hidden, positions.data(), p, py); },
        places, y);
    y.expect_equal("position_forward", 1);
    on_both([&](Device& d, void* p,
                void* pd) { d.position_backward(t, tokens, hidden, positions.data(), p, pd); },
            dy, d_places);
    d_places.expect_equal("position_backward", tokens);
  }
}

TEST_P(CudaDeviceTest, Experts) {
  const DataType t = GetParam();
  const int64_t tokens = 33, experts = 8, top = 3, columns = 21;
  const RouterShape router{tokens, experts, top};
  Pair logits = make(tokens * experts, 1), dlogits = make(tokens * experts, 2), x = make(tokens * columns, 3),
       copies = make(tokens * top * columns, 4), summed = make(tokens * columns, 5);
  Pair p = make_state(tokens * experts, 6), weights = make_state(tokens * top, 7),
       balance = make_state(tokens * experts, 8), dots = make_state(tokens * top, 9);
  std::vector<int32_t> chosen(size_t(tokens * top)), chosen_gpu(chosen.size());
  // In four groups of two, of which two are a token's, and then free.
  for (const RouterShape& s : {RouterShape{tokens, experts, top, 4, 2}, router}) {
    cpu_->router_forward(t, s, logits.on_cpu.data(), p.on_cpu.data(), chosen.data(), weights.on_cpu.data());
    gpu_->router_forward(t, s, logits.on_gpu.data(), p.on_gpu.data(), chosen_gpu.data(),
                         weights.on_gpu.data());
    EXPECT_EQ(chosen, chosen_gpu);
    p.expect_equal("probabilities", experts);
    weights.expect_equal("weights", experts);
  }
  on_both([&](Device& d, void* pp, void* pw, void* pb,
              void* pd) { d.router_backward(t, router, pp, chosen.data(), pw, pb, pd); },
          p, weights, balance, dlogits);
  dlogits.expect_equal("router_backward", 4 * experts);
  std::vector<int32_t> rows, places;
  for (int64_t i = 0; i < tokens * top; ++i) {
    rows.push_back(int32_t(i * 7 % tokens));
    places.push_back(int32_t(i * 5 % (tokens * top)));
  }
  on_both(
      [&](Device& d, void* px, void* pc) { d.gather_rows(t, tokens * top, columns, rows.data(), px, pc); }, x,
      copies);
  copies.expect_equal("gather_rows", 0);
  on_both([&](Device& d, void* pw, void* pc) { d.scale_rows(t, tokens * top, columns, pw, pc, pc); }, weights,
          copies);
  copies.expect_equal("scale_rows", 1);
  on_both([&](Device& d, void* pc, void* pd) { d.row_dots(t, tokens * top, columns, pc, pc, pd); }, copies,
          dots);
  dots.expect_equal("row_dots", columns, 4.0, 2.0 * double(columns), t);
  on_both([&](Device& d, void* pc, void* ps) { d.sum_rows(t, tokens, top, columns, places.data(), pc, ps); },
          copies, summed);
  summed.expect_equal("sum_rows", top, 4.0, 2.0 * double(top), t);
}

// A vocabulary over two ranks, the second with padding.
TEST_P(CudaDeviceTest, CrossEntropy) {
  const DataType t = GetParam();
  const int64_t tokens = 9, columns = 300, used = 290, first = 300;
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < tokens; ++i) targets.push_back(int32_t(i * 71 % 590));
  Pair logits = make(tokens * columns, 1, 4.0);
  Pair maximum = make_state(tokens, 2), sums = make_state(2 * tokens, 3);
  on_both([&](Device& d, void* pl, void* pm) { d.loss_maximum(t, tokens, columns, used, pl, pm); }, logits,
          maximum);
  maximum.expect_equal("loss_maximum", 0);
  on_both([&](Device& d, void* pm, void* pl,
              void* ps) { d.loss_exponentials(t, tokens, columns, used, first, targets.data(), pm, pl, ps); },
          maximum, logits, sums);
  logits.expect_equal("exponentials", 2);
  sums.expect_equal("sums", used);
  double loss[2];
  int at = 0;
  on_both(
      [&](Device& d, void* ps, void* pl) {
        loss[at++] = d.loss_gradient(t, tokens, columns, used, first, targets.data(), ps, 0.25, pl);
      },
      sums, logits);
  logits.expect_equal("loss_gradient", 4);
  EXPECT_NEAR(loss[1], loss[0], unit_roundoff(state_type_of(t)) * double(used) * std::fabs(loss[0]));
}

// All of the vocabulary on one rank: in packs and element by element.
TEST_P(CudaDeviceTest, CrossEntropyAtOnce) {
  const DataType t = GetParam();
  for (const auto& [columns, used] :
       std::vector<std::pair<int64_t, int64_t>>{{304, 297}, {301, 301}, {8, 1}}) {
    const int64_t tokens = 9;
    std::vector<int32_t> targets;
    for (int64_t i = 0; i < tokens; ++i) targets.push_back(int32_t(i * 71 % used));
    Pair logits = make(tokens * columns, 1, 4.0);
    double loss[2];
    int at = 0;
    on_both(
        [&, c = columns, u = used](Device& d, void* pl) {
          loss[at++] = d.loss_of_all(t, tokens, c, u, targets.data(), 0.25, pl);
        },
        logits);
    logits.expect_equal("loss_of_all", 8);
    EXPECT_NEAR(loss[1], loss[0],
                unit_roundoff(state_type_of(t)) * double(used + 8) * (1.0 + std::fabs(loss[0])));
  }
}

TEST_P(CudaDeviceTest, SquaredNorms) {
  const DataType state = state_type_of(GetParam());
  constexpr int64_t kCount = 5000;
  Pair x = make_state(kCount, 1);
  const int64_t unit = size_of(state);
  double norm[2];
  int at = 0;
  on_both(
      [&](Device& d, void* p) {
        char* const begin = static_cast<char*>(p);
        // Two neighbours, one at an odd place, an empty one.
        norm[at++] = d.squared_norm(
            state,
            std::vector<Stretch>{{p, 1000}, {begin + 1000 * unit, 37}, {begin + 1501 * unit, 3001}, {p, 0}});
      },
      x);
  EXPECT_NEAR(norm[1], norm[0], unit_roundoff(state) * norm[0]);
  EXPECT_GT(norm[0], 0.0);
}

TEST_P(CudaDeviceTest, AdamW) {
  const DataType state = state_type_of(GetParam());
  for (const int64_t count : {int64_t{3}, int64_t{1024}}) {
    Pair g = make_state(count, 1), p = make_state(count, 2), m = make_state(count, 3),
         v = make_state(count, 4);
    on_both([&](Device& d, void* pv) { d.adamw(state, count, {0, 0, 0, 1, 0, 1, 0}, pv, pv, pv, pv); }, v);
    Pair variance = make_state(count, 5, 0.0);
    const AdamW options{1e-3, 0.9, 0.95, 1e-8, 0.1, 3, 0.5};
    on_both([&](Device& d, void* pg, void* pp, void* pm,
                void* pv) { d.adamw(state, count, options, pg, pp, pm, pv); },
            g, p, m, variance);
    p.expect_equal("parameter", 8);
    m.expect_equal("first moment", 8);
    variance.expect_equal("second moment", 8);
  }
}

TEST_P(CudaDeviceTest, CopiesAndConversions) {
  const DataType t = GetParam(), state = state_type_of(t);
  Pair wide = make_state(60, 1), own = make(60, 2);
  on_both([&](Device& d, void* from, void* to) { d.convert(state, from, t, to, 60); }, wide, own);
  own.expect_equal("convert", 0);
  on_both([&](Device& d, void* from, void* to) { d.copy_columns(t, state, 6, 7, from, 10, to, 9); }, own,
          wide);
  wide.expect_equal("copy_columns", 0);
  std::vector<double> values{0.5, -2.0, 1024.0}, back(3);
  const Buffer place(*gpu_, 3 * size_of(t));
  gpu_->upload(t, values.data(), 3, place.data());
  gpu_->download(t, place.data(), 3, back.data());
  EXPECT_EQ(back, values);
}

TEST_P(CudaDeviceTest, AccountsMemoryAsTheCpuDoes) {
  for (Device* device : {cpu_.get(), gpu_.get()}) {
    void* const a = device->allocate(1);
    void* const b = device->allocate(65);
    EXPECT_EQ(device->in_use_bytes(), 64 + 128);
    device->release(a, 1);
    EXPECT_EQ(device->allocate(60), a);
    device->release(a, 60);
    device->release(b, 65);
    EXPECT_EQ(device->in_use_bytes(), 0);
    EXPECT_EQ(device->peak_bytes(), 192);
  }
}

// The same calls again and again, so that they become a graph; then with another list at the same address.
TEST_P(CudaDeviceTest, GraphsSeeListsThatChange) {
  std::string reason;
  const auto graphed = backend_under_test(reason)->make_device(0, {.graphs = true});
  const DataType t = GetParam();
  const AttentionShape s{1, 5, 2, 1, 8};
  const int64_t count = s.tokens() * s.row();
  std::vector<double> frequencies{1.0, 0.5, 0.25, 0.125}, start(size_t(count), 0.5);
  std::vector<int32_t> positions{0, 1, 2, 3, 4};
  const Buffer expected(*gpu_, count * size_of(t)), found(*graphed, count * size_of(t));
  const auto turned = [&](Device& device, const Buffer& buffer) {
    device.upload(t, start.data(), count, buffer.data());
    for (int i = 0; i < 4; ++i) device.rotary(t, s, {frequencies, positions}, 1, buffer.data());
    std::vector<double> values(start.size());
    device.download(t, buffer.data(), count, values.data());
    return values;
  };
  for (const int32_t last : {4, 4, 4, 9, 9, 9, 4}) {
    positions.back() = last;
    EXPECT_EQ(turned(*graphed, found), turned(*gpu_, expected)) << "last position " << last;
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
