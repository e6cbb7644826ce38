// SPDX-License-Identifier: Apache-2.0

// Kernels in float against plain loops in double, on sizes that no block divides. The tolerance follows from
// the length of the sums: k unit roundoffs of the sum of magnitudes, k the number of additions.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

constexpr double kUnit = 6e-8;  // unit roundoff of float

std::vector<float> values(int64_t count, int seed) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(float(std::sin(double(i * 37 + seed * 101)) * 1.5));
  return out;
}

TEST(CpuDevice, AccountsMemoryInWholeUnitsAndReusesIt) {
  const auto device = make_cpu_device();
  void* a = device->allocate(1);
  EXPECT_EQ(device->in_use_bytes(), 64);
  EXPECT_EQ(uintptr_t(a) % 64, 0u);
  void* b = device->allocate(65);
  EXPECT_EQ(device->in_use_bytes(), 64 + 128);
  device->release(a, 1);
  device->release(b, 65);
  EXPECT_EQ(device->in_use_bytes(), 0);
  EXPECT_EQ(device->peak_bytes(), 192);
  EXPECT_EQ(device->allocate(100), b);
  EXPECT_EQ(device->peak_bytes(), 192);
  device->release(b, 100);
}

TEST(CpuDevice, LinearForwardAndGradientsOverOddShapes) {
  const auto device = make_cpu_device();
  for (const auto& [rows, columns, inner] : std::vector<std::array<int, 3>>{
           {1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {17, 65, 33}, {2, 1, 129}, {4, 1025, 257}}) {
    const LinearShape shape{rows, columns, inner};
    const auto x = values(rows * inner, 1), w = values(columns * inner, 2), bias = values(columns, 3),
               dy = values(rows * columns, 4);
    std::vector<float> y(size_t(rows * columns)), dx(size_t(rows * inner)), dw = values(columns * inner, 5),
                                                                            db = values(columns, 6);
    const auto dw_before = dw, db_before = db;
    device->run(
        DataType::float32,
        LinearForward{.shape = shape, .x = x.data(), .w = w.data(), .bias = bias.data(), .y = y.data()});
    device->run(DataType::float32,
                LinearBackwardInput{.shape = shape, .dy = dy.data(), .w = w.data(), .dx = dx.data()});
    device->run(DataType::float32,
                LinearBackwardWeight{
                    .shape = shape, .dy = dy.data(), .x = x.data(), .dw = dw.data(), .dbias = db.data()});
    const auto check = [&](float got, double want, double magnitude, int64_t terms) {
      EXPECT_LE(std::fabs(got - want), kUnit * double(terms + 2) * (magnitude + std::fabs(want)));
    };
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        double sum = bias[size_t(c)], magnitude = std::fabs(sum);
        for (int i = 0; i < inner; ++i)
          sum += double(x[size_t(r * inner + i)]) * w[size_t(c * inner + i)],
              magnitude += std::fabs(double(x[size_t(r * inner + i)]) * w[size_t(c * inner + i)]);
        check(y[size_t(r * columns + c)], sum, magnitude, inner);
      }
      for (int i = 0; i < inner; ++i) {
        double sum = 0, magnitude = 0;
        for (int c = 0; c < columns; ++c)
          sum += double(dy[size_t(r * columns + c)]) * w[size_t(c * inner + i)],
              magnitude += std::fabs(double(dy[size_t(r * columns + c)]) * w[size_t(c * inner + i)]);
        check(dx[size_t(r * inner + i)], sum, magnitude, columns);
      }
    }
    for (int c = 0; c < columns; ++c) {
      double bias_sum = db_before[size_t(c)], bias_magnitude = std::fabs(bias_sum);
      for (int r = 0; r < rows; ++r)
        bias_sum += dy[size_t(r * columns + c)], bias_magnitude += std::fabs(dy[size_t(r * columns + c)]);
      check(db[size_t(c)], bias_sum, bias_magnitude, rows);
      for (int i = 0; i < inner; ++i) {
        double sum = dw_before[size_t(c * inner + i)], magnitude = std::fabs(sum);
        for (int r = 0; r < rows; ++r)
          sum += double(dy[size_t(r * columns + c)]) * x[size_t(r * inner + i)],
              magnitude += std::fabs(double(dy[size_t(r * columns + c)]) * x[size_t(r * inner + i)]);
        check(dw[size_t(c * inner + i)], sum, magnitude, rows);
      }
    }
  }
}

// Attention by its definition, over sequences shorter, equal and longer than a block of queries.
TEST(CpuDevice, AttentionEqualsItsDefinition) {
  const auto device = make_cpu_device();
  for (const int64_t s : {1, 5, 48, 49, 130}) {
    const AttentionShape shape{2, s, 4, 2, 6};
    const auto qkv = values(shape.batch * s * shape.row(), 7);
    std::vector<float> out(size_t(shape.batch * s * shape.heads * shape.head_dim)),
        lse(size_t(shape.batch * shape.heads * s));
    device->run(
        DataType::float32,
        AttentionForward{.shape = shape, .qkv = qkv.data(), .out = out.data(), .log_sum_exp = lse.data()});
    const auto at = [&](int64_t b, int64_t t, int64_t slot, int64_t d) {
      return double(qkv[size_t((b * s + t) * shape.row() + slot * shape.head_dim + d)]);
    };
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        for (int64_t i = 0; i < s; ++i) {
          std::vector<double> score(size_t(i + 1));
          double sum = 0;
          for (int64_t j = 0; j <= i; ++j) {
            double dot = 0;
            for (int64_t d = 0; d < 6; ++d) dot += at(b, i, h, d) * at(b, j, 4 + h / 2, d);
            sum += score[size_t(j)] = std::exp(dot / std::sqrt(6.0));
          }
          EXPECT_NEAR(lse[size_t((b * 4 + h) * s + i)], std::log(sum), 2e-5);
          for (int64_t d = 0; d < 6; ++d) {
            double want = 0;
            for (int64_t j = 0; j <= i; ++j) want += score[size_t(j)] / sum * at(b, j, 6 + h / 2, d);
            EXPECT_NEAR(out[size_t((b * s + i) * 24 + h * 6 + d)], want, kUnit * double(s + 40) * 4) << s;
          }
        }
      }
    }
  }
}

TEST(CpuDevice, CrossEntropyOverSlicesEqualsItOverTheWhole) {
  const auto device = make_cpu_device();
  constexpr int64_t kTokens = 5, kVocabulary = 13;
  const auto logits = values(kTokens * kVocabulary, 9);
  const int32_t targets[kTokens] = {0, 12, 6, 7, 3};
  double expected = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    double sum = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(double(logits[size_t(t * kVocabulary + v)]));
    expected += std::log(sum) - logits[size_t(t * kVocabulary + targets[t])];
  }
  std::vector<float> work = logits, maximum(kTokens), sums(2 * kTokens);
  device->run(DataType::float32, LossMaximum{.shape = {kTokens, kVocabulary, kVocabulary},
                                             .logits = work.data(),
                                             .maximum = maximum.data()});
  device->run(DataType::float32, LossExponentials{.shape = {kTokens, kVocabulary, kVocabulary, 0},
                                                  .targets = targets,
                                                  .maximum = maximum.data(),
                                                  .logits = work.data(),
                                                  .sums = sums.data()});
  double loss = 1.0;
  device->run(DataType::float32, LossGradient{.shape = {kTokens, kVocabulary, kVocabulary, 0},
                                              .targets = targets,
                                              .sums = sums.data(),
                                              .scale = 1.0,
                                              .logits = work.data(),
                                              .loss = &loss});
  EXPECT_NEAR(loss, 1.0 + expected, 1e-5) << "it is added";
  for (int64_t t = 0; t < kTokens; ++t) {
    double row = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) row += work[size_t(t * kVocabulary + v)];
    EXPECT_NEAR(row, 0.0, 1e-6) << "softmax minus one-hot adds up to nothing";
  }
}

// Against all sets of groups: those of a token are the set whose best experts have the largest sum.
TEST(CpuDevice, ARouterLimitedToGroupsChoosesFromTheBestOfThem) {
  const auto device = make_cpu_device();
  constexpr int64_t kTokens = 40, kExperts = 12;
  const auto logits = values(kTokens * kExperts, 3);
  for (const RouterShape& s :
       {RouterShape{kTokens, kExperts, 3}, RouterShape{kTokens, kExperts, 4, 4, 2},
        RouterShape{kTokens, kExperts, 2, 6, 2}, RouterShape{kTokens, kExperts, 3, 4, 1},
        RouterShape{kTokens, kExperts, 3, 3, 3},
        RouterShape{kTokens, kExperts, 4, 4, 2, RouterScores::sigmoid},
        RouterShape{kTokens, kExperts, 2, 6, 2, RouterScores::sigmoid}}) {
    const int64_t of_group = s.scores == RouterScores::sigmoid ? 2 : 1;
    std::vector<float> p(size_t(kTokens * kExperts)), weights(size_t(kTokens * s.top));
    std::vector<int32_t> chosen(weights.size());
    device->run(DataType::float32, RouterForward{.shape = s,
                                                 .logits = logits.data(),
                                                 .probabilities = p.data(),
                                                 .chosen = chosen.data(),
                                                 .weights = weights.data()});
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto at = [&](int64_t e) { return p[size_t(t * kExperts + e)]; };
      const auto sorted = [&](uint64_t groups) {
        std::vector<int32_t> experts;
        for (int32_t e = 0; e < kExperts; ++e) {
          if (groups >> (e / s.group_size()) & 1) experts.push_back(e);
        }
        std::sort(experts.begin(), experts.end(), [&](int32_t a, int32_t b) { return at(a) > at(b); });
        return experts;
      };
      double best_sum = -1.0;
      uint64_t best = 0;
      for (uint64_t groups = 1; groups < uint64_t{1} << s.groups; ++groups) {
        if (std::popcount(groups) != s.groups_of_token) continue;
        double sum = 0.0;
        for (int64_t g = 0; g < s.groups; ++g) {
          if (!(groups >> g & 1)) continue;
          const std::vector<int32_t> members = sorted(uint64_t{1} << g);
          for (int64_t j = 0; j < of_group; ++j) sum += at(members[size_t(j)]);
        }
        if (sum > best_sum) best = groups;
        best_sum = std::max(best_sum, sum);
      }
      const std::vector<int32_t> expected = sorted(best);
      double of_chosen = 0.0;
      for (int64_t j = 0; j < s.top; ++j) of_chosen += at(expected[size_t(j)]);
      for (int64_t j = 0; j < s.top; ++j) {
        EXPECT_EQ(chosen[size_t(t * s.top + j)], expected[size_t(j)]) << s.groups << " groups, token " << t;
        EXPECT_NEAR(weights[size_t(t * s.top + j)], at(expected[size_t(j)]) / of_chosen, 1e-6);
      }
    }
  }
}

TEST(CpuDevice, LackOfMemoryIsToldWithSizes) {
  const auto device = make_cpu_device();
  void* held = device->allocate(int64_t{1} << 20);
  std::string message;
  try {
    device->allocate(int64_t{1} << 50);
  } catch (const RunError& error) {
    message = error.what();
  }
  device->release(held, int64_t{1} << 20);
  EXPECT_EQ(message, "out of memory: 1024 TiB more could not be allocated; the rank has 1 MiB");
}

TEST(CpuDevice, AdamWFollowsItsDefinition) {
  const auto device = make_cpu_device();
  double parameter = 0.5, m = 0, v = 0;
  double p = 0.5, first = 0, second = 0;
  for (int64_t step = 1; step <= 5; ++step) {
    double gradient = 0.3 * double(step) - 0.7;
    const AdamW o{0.01, 0.9, 0.95, 1e-8, 0.1, step, 0.5};
    device->run(DataType::float64, AdamStep{.count = 1,
                                            .options = o,
                                            .gradient = &gradient,
                                            .parameter = &parameter,
                                            .first_moment = &m,
                                            .second_moment = &v});
    const double g = gradient * 0.5;
    first = 0.9 * first + 0.1 * g;
    second = 0.95 * second + 0.05 * g * g;
    const double mhat = first / (1 - std::pow(0.9, step)), vhat = second / (1 - std::pow(0.95, step));
    p -= 0.01 * 0.1 * p;
    p -= 0.01 * mhat / (std::sqrt(vhat) + 1e-8);
    EXPECT_NEAR(parameter, p, 1e-12);
  }
}

}  // namespace
}  // namespace mpt::runtime
