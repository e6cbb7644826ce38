// SPDX-License-Identifier: Apache-2.0

// Operators on elements, rows and tables, and memory (cuda_device_test.h).

#include "tests/runtime/device/cuda_device_test.h"

namespace mpt::runtime {
namespace {

TEST_P(CudaDeviceTest, ActivationsAndSums) {
  const DataType t = GetParam();
  for (const ActivationKind kind : {ActivationKind::gelu_tanh, ActivationKind::gelu, ActivationKind::silu,
                                    ActivationKind::relu, ActivationKind::squared_relu}) {
    for (const bool gated : {false, true}) {
      for (const int64_t columns : {int64_t{5}, int64_t{16}}) {
        const ActivationShape s{kind, 7, columns, gated};
        Pair x = make(s.rows * s.input_columns(), 1, 3.0), y = make(s.rows * columns, 2),
             dy = make(s.rows * columns, 3), dx = make(s.rows * s.input_columns(), 4);
        on_both(
            [&](Device& d, void* px, void* py) { d.run(t, ActivationForward{.shape = s, .x = px, .y = py}); },
            x, y);
        y.expect_equal("activation_forward", 8);
        on_both([&](Device& d, void* pdy, void* px,
                    void* pdx) { d.run(t, ActivationBackward{.shape = s, .dy = pdy, .x = px, .dx = pdx}); },
                dy, x, dx);
        dx.expect_equal("activation_backward", 8, 10.0);
      }
    }
  }
  for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{1003}}) {
    Pair a = make(count, 1), b = make(count, 2), y = make(count, 3);
    on_both([&](Device& d, void* pa, void* pb,
                void* py) { d.run(t, ResidualAdd{.count = count, .a = pa, .b = pb, .y = py}); },
            a, b, y);
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
      ids.push_back(int32_t(i % 3 == 0 ? 12 : i * i % 31));  // some below and above this rank's words
      positions.push_back(int32_t(i % 40));
    }
    Pair table = make(rows * hidden, 1), y = make(tokens * hidden, 2), dy = make(tokens * hidden, 3),
         places = make(40 * hidden, 4);
    Pair d_table = make_state(rows * hidden, 5), d_places = make_state(40 * hidden, 6);
    on_both(
        [&](Device& d, void* p, void* py) {
          d.run(t, EmbeddingForward{
                       .shape = {tokens, hidden, first, rows}, .ids = ids.data(), .table = p, .y = py});
        },
        table, y);
    y.expect_equal("embedding_forward", 0);
    on_both(
        [&](Device& d, void* p, void* pd) {
          d.run(t, EmbeddingBackward{
                       .shape = {tokens, hidden, first, rows}, .ids = ids.data(), .dy = p, .dtable = pd});
        },
        dy, d_table);
    d_table.expect_equal("embedding_backward", tokens);
    on_both(
        [&](Device& d, void* p, void* py) {
          d.run(t,
                PositionForward{
                    .tokens = tokens, .hidden = hidden, .positions = positions.data(), .table = p, .y = py});
        },
        places, y);
    y.expect_equal("position_forward", 1);
    on_both(
        [&](Device& d, void* p, void* pd) {
          d.run(
              t,
              PositionBackward{
                  .tokens = tokens, .hidden = hidden, .positions = positions.data(), .dy = p, .dtable = pd});
        },
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
    cpu_->run(t, RouterForward{.shape = s,
                               .logits = logits.on_cpu.data(),
                               .probabilities = p.on_cpu.data(),
                               .chosen = chosen.data(),
                               .weights = weights.on_cpu.data()});
    gpu_->run(t, RouterForward{.shape = s,
                               .logits = logits.on_gpu.data(),
                               .probabilities = p.on_gpu.data(),
                               .chosen = chosen_gpu.data(),
                               .weights = weights.on_gpu.data()});
    EXPECT_EQ(chosen, chosen_gpu);
    p.expect_equal("probabilities", experts);
    weights.expect_equal("weights", experts);
  }
  // Sequences of 7, the first of which began 3 tokens before; then without the balance.
  for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid}) {
    RouterShape s = router;
    s.scores = scores;
    s.sequence = 7;
    s.first = 3;
    on_both(
        [&](Device& d, void* pp, void* pw, void* pb, void* pd) {
          d.run(t, RouterBackward{.shape = s,
                                  .probabilities = pp,
                                  .chosen = chosen.data(),
                                  .dweights = pw,
                                  .balance = pb,
                                  .dlogits = pd});
        },
        p, weights, balance, dlogits);
    dlogits.expect_equal("router_backward", 4 * experts);
    on_both(
        [&](Device& d, void* pp, void* pw, void* pd) {
          d.run(t,
                RouterBackward{
                    .shape = s, .probabilities = pp, .chosen = chosen.data(), .dweights = pw, .dlogits = pd});
        },
        p, weights, dlogits);
    dlogits.expect_equal("router_backward without balance", 4 * experts);
  }
  std::vector<int32_t> rows, places;
  for (int64_t i = 0; i < tokens * top; ++i) {
    rows.push_back(int32_t(i * 7 % tokens));
    places.push_back(int32_t(i * 5 % (tokens * top)));
  }
  on_both(
      [&](Device& d, void* px, void* pc) {
        d.run(t,
              GatherRows{.count = tokens * top, .columns = columns, .rows = rows.data(), .x = px, .y = pc});
      },
      x, copies);
  copies.expect_equal("gather_rows", 0);
  on_both(
      [&](Device& d, void* pw, void* pc) {
        d.run(t, ScaleRows{.rows = tokens * top, .columns = columns, .factors = pw, .x = pc, .y = pc});
      },
      weights, copies);
  copies.expect_equal("scale_rows", 1);
  on_both(
      [&](Device& d, void* pc, void* pd) {
        d.run(t, RowDots{.rows = tokens * top, .columns = columns, .a = pc, .b = pc, .dots = pd});
      },
      copies, dots);
  dots.expect_equal("row_dots", columns, 4.0, 2.0 * double(columns), t);
  on_both(
      [&](Device& d, void* pc, void* ps) {
        d.run(t,
              SumRows{
                  .tokens = tokens, .top = top, .columns = columns, .rows = places.data(), .x = pc, .y = ps});
      },
      copies, summed);
  summed.expect_equal("sum_rows", top, 4.0, 2.0 * double(top), t);
}

// A vocabulary over two ranks, the second with padding: element by element and in packs. One target has the
// number of a column of padding.
TEST_P(CudaDeviceTest, CrossEntropy) {
  const DataType t = GetParam();
  const int64_t tokens = 9, used = 290, first = 300;
  std::vector<int32_t> targets{int32_t(first + used + 3)};
  for (int64_t i = 1; i < tokens; ++i) targets.push_back(int32_t(i * 71 % 590));
  for (const int64_t columns : {300, 304}) {
    Pair logits = make(tokens * columns, 1, 4.0);
    Pair maximum = make_state(tokens, 2), sums = make_state(2 * tokens, 3);
    on_both(
        [&](Device& d, void* pl, void* pm) {
          d.run(t, LossMaximum{.shape = {tokens, columns, used}, .logits = pl, .maximum = pm});
        },
        logits, maximum);
    maximum.expect_equal("loss_maximum", 0);
    on_both(
        [&](Device& d, void* pm, void* pl, void* ps) {
          d.run(t, LossExponentials{.shape = {tokens, columns, used, first},
                                    .targets = targets.data(),
                                    .maximum = pm,
                                    .logits = pl,
                                    .sums = ps});
        },
        maximum, logits, sums);
    logits.expect_equal("exponentials", 2);
    sums.expect_equal("sums", used);
    const auto [want, got] = losses(
        [&](Device& d, void* ps, void* pl, double* loss) {
          d.run(t, LossGradient{.shape = {tokens, columns, used, first},
                                .targets = targets.data(),
                                .sums = ps,
                                .scale = 0.25,
                                .logits = pl,
                                .loss = loss});
        },
        sums, logits);
    logits.expect_equal("loss_gradient", 4);
    EXPECT_NEAR(got, want, unit_roundoff(state_type_of(t)) * double(used) * std::fabs(want));
  }
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
    const auto [want, got] = losses(
        [&, c = columns, u = used](Device& d, void* pl, double* loss) {
          d.run(t, LossOfAll{.shape = {tokens, c, u},
                             .targets = targets.data(),
                             .scale = 0.25,
                             .logits = pl,
                             .loss = loss});
        },
        logits);
    logits.expect_equal("loss_of_all", 8);
    EXPECT_NEAR(got, want, unit_roundoff(state_type_of(t)) * double(used + 8) * (1.0 + std::fabs(want)));
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
  EXPECT_NEAR(norm[1], norm[0], (unit_roundoff(state) + kCount * 1.2e-16) * norm[0]);
  EXPECT_GT(norm[0], 0.0);
}

// More stretches than one launch takes, at places that no pack begins at.
TEST_P(CudaDeviceTest, SquaredNormsOfManyStretches) {
  const DataType state = state_type_of(GetParam());
  constexpr int64_t kCount = 5000;
  Pair x = make_state(kCount, 1);
  std::vector<double> norm;
  on_both(
      [&](Device& d, void* p) {
        std::vector<Stretch> stretches;
        for (int64_t i = 0; i < 150; ++i)
          stretches.push_back({static_cast<char*>(p) + 33 * i * size_of(state), 1 + i % 30});
        norm.push_back(d.squared_norm(state, stretches));
      },
      x);
  EXPECT_NEAR(norm[1], norm[0], (unit_roundoff(state) + kCount * 1.2e-16) * norm[0]);
  EXPECT_GT(norm[0], 0.0);
}

TEST_P(CudaDeviceTest, AdamW) {
  const DataType state = state_type_of(GetParam());
  for (const int64_t count : {int64_t{3}, int64_t{1024}}) {
    Pair g = make_state(count, 1), p = make_state(count, 2), m = make_state(count, 3),
         v = make_state(count, 4);
    on_both(
        [&](Device& d, void* pv) {
          d.run(state, AdamStep{.count = count,
                                .options = {0, 0, 0, 1, 0, 1, 0},
                                .gradient = pv,
                                .parameter = pv,
                                .first_moment = pv,
                                .second_moment = pv});
        },
        v);
    Pair variance = make_state(count, 5, 0.0);
    const AdamW options{1e-3, 0.9, 0.95, 1e-8, 0.1, 3, 0.5};
    on_both(
        [&](Device& d, void* pg, void* pp, void* pm, void* pv) {
          d.run(state, AdamStep{.count = count,
                                .options = options,
                                .gradient = pg,
                                .parameter = pp,
                                .first_moment = pm,
                                .second_moment = pv});
        },
        g, p, m, variance);
    p.expect_equal("parameter", 8);
    m.expect_equal("first moment", 8);
    variance.expect_equal("second moment", 8);
  }
}

// The step with what follows it: a copy in another type, and gradients that are zero again.
TEST_P(CudaDeviceTest, AdamWWithCopyAndZero) {
  const DataType t = GetParam(), state = state_type_of(t);
  for (const int64_t count : {int64_t{3}, int64_t{1024}}) {
    for (const bool zeroes : {false, true}) {
      Pair g = make_state(count, 1), p = make_state(count, 2), m = make_state(count, 3),
           v = make_state(count, 4, 0.0), copy = make(count, 5), kept = make_state(count, 1);
      on_both(
          [&](Device& d, void* pg, void* pp, void* pm, void* pv, void* pc) {
            const NarrowCopy narrow{t, state == t ? nullptr : pc};
            d.run(state, AdamStep{.count = count,
                                  .options = {1e-3, 0.9, 0.95, 1e-8, 0.1, 3, 0.5},
                                  .gradient = pg,
                                  .parameter = pp,
                                  .first_moment = pm,
                                  .second_moment = pv,
                                  .copy = narrow,
                                  .zeroes = zeroes});
          },
          g, p, m, v, copy);
      p.expect_equal("parameter", 8);
      m.expect_equal("first moment", 8);
      v.expect_equal("second moment", 8);
      copy.expect_equal("its copy", 8);
      on_both([&](Device& d, void* pk) { zeroes ? d.zero(pk, count * size_of(state)) : void(); }, kept);
      g.expect_equal("gradient", 0);
      std::vector<double> gradient(static_cast<size_t>(count)), want(gradient.size());
      gpu_->download(state, g.on_gpu.data(), count, gradient.data());
      gpu_->download(state, kept.on_gpu.data(), count, want.data());
      EXPECT_EQ(gradient, want);
    }
  }
}

TEST_P(CudaDeviceTest, CopiesAndConversions) {
  const DataType t = GetParam(), state = state_type_of(t);
  Pair wide = make_state(60, 1), own = make(60, 2);
  on_both([&](Device& d, void* from, void* to) { d.convert(state, from, t, to, 60); }, wide, own);
  own.expect_equal("convert", 0);
  on_both(
      [&](Device& d, void* from, void* to) {
        d.run(t, CopyColumns{.to_type = state,
                             .rows = 6,
                             .columns = 7,
                             .from = from,
                             .from_stride = 10,
                             .to = to,
                             .to_stride = 9});
      },
      own, wide);
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

}  // namespace
}  // namespace mpt::runtime
