// SPDX-License-Identifier: Apache-2.0

// The gated delta rule against a plain form of its recurrence in double, forward and backward, and that
// recurrence's own gradients against differences.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/support/delta_recurrence.h"

namespace mpt::runtime {
namespace {

std::vector<double> drawn(std::mt19937& random, int64_t count, double low, double high) {
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> values(static_cast<size_t>(count));
  // As float has them, so that all types start with the same numbers.
  for (double& v : values) v = double(float(draw(random)));
  return values;
}

test::DeltaNumbers draw_inputs(const DeltaShape& s, double decay) {
  std::mt19937 random(11);
  return {drawn(random, s.tokens() * s.columns(), -1.5, 1.5), drawn(random, s.tokens() * s.row, -2.0, 2.0),
          drawn(random, s.heads, decay - 0.5, decay + 0.5), drawn(random, s.heads, -2.0, 0.5)};
}

Buffer put(Device& device, DataType type, const std::vector<double>& values) {
  Buffer buffer(device, int64_t(values.size()) * size_of(type));
  device.upload(type, values.data(), int64_t(values.size()), buffer.data());
  return buffer;
}

std::vector<double> get(Device& device, DataType type, const Buffer& buffer, size_t count) {
  std::vector<double> values(count);
  device.download(type, buffer.data(), int64_t(count), values.data());
  return values;
}

struct OnDevice {
  std::vector<double> out;
  test::DeltaNumbers d;
};

OnDevice run(Device& device, DataType type, const DeltaShape& s, const test::DeltaNumbers& in,
             const std::vector<double>& dout) {
  const DataType wide = state_type_of(type);
  const Buffer qkv = put(device, type, in.qkv), gates = put(device, type, in.gates),
               decay = put(device, type, in.decay), bias = put(device, type, in.step_bias),
               d = put(device, type, dout);
  const Buffer out(device, d.bytes()), d_qkv(device, qkv.bytes());
  // What lies between the gates stays: numbers that are seen if they do not.
  const Buffer d_gates = put(device, type, std::vector<double>(in.gates.size(), 7.0));
  const Buffer d_decay = put(device, wide, std::vector<double>(in.decay.size(), 0.0));
  const Buffer d_bias = put(device, wide, std::vector<double>(in.decay.size(), 0.0));
  const Buffer room(device, s.backward_room() * size_of(wide));
  const DeltaInputs inputs{qkv.data(), gates.data(), decay.data(), bias.data()};
  device.run(type, DeltaForward{.shape = s, .in = inputs, .out = out.data(), .room = room.data()});
  device.run(type, DeltaBackward{.shape = s,
                                 .in = inputs,
                                 .dout = d.data(),
                                 .d = {d_qkv.data(), d_gates.data(), d_decay.data(), d_bias.data()},
                                 .room = room.data()});
  return {get(device, type, out, dout.size()),
          {get(device, type, d_qkv, in.qkv.size()), get(device, type, d_gates, in.gates.size()),
           get(device, wide, d_decay, in.decay.size()), get(device, wide, d_bias, in.decay.size())}};
}

void expect_near(const std::vector<double>& own, const std::vector<double>& want, double share,
                 const char* what) {
  ASSERT_EQ(own.size(), want.size());
  double largest = 0.0, worst = 0.0;
  for (size_t i = 0; i < own.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    worst = std::max(worst, std::fabs(own[i] - want[i]));
  }
  EXPECT_GT(largest, 1e-3) << what << ": nothing to compare";
  EXPECT_LT(worst, share * largest) << what;
}

// Sequences of less than a chunk, of whole chunks, and of a part beside them; one key head for all and one
// for each.
std::vector<DeltaShape> shapes() {
  std::vector<DeltaShape> all;
  for (const auto& [sequence, chunk] : {std::pair{1, 64}, {7, 64}, {130, 64}, {48, 16}, {9, 1}}) {
    for (const int64_t key_heads : {1, 2, 4})
      all.push_back({2, sequence, 4, key_heads, 5, 6, chunk, 2 * 4 + 3});
  }
  return all;
}

void expect_recurrence(DataType type, double share) {
  const auto device = make_cpu_device();
  for (const DeltaShape& s : shapes()) {
    for (const double decay : {-1.0, 2.0}) {  // states that last, and some that soon are gone
      const test::DeltaNumbers in = draw_inputs(s, decay);
      std::mt19937 random(5);
      const std::vector<double> dout = drawn(random, s.tokens() * s.values(), -1.0, 1.0);
      const OnDevice own = run(*device, type, s, in, dout);
      SCOPED_TRACE(testing::Message() << s.sequence << " tokens in chunks of " << s.chunk << ", "
                                      << s.key_heads << " key heads, decay " << decay);
      expect_near(own.out, delta_recurrence(s, in), share, "output");
      test::DeltaNumbers d = delta_recurrence_gradients(s, in, dout);
      for (size_t i = 0; i < d.gates.size(); ++i) {
        if (int64_t(i) % s.row >= 2 * s.heads) d.gates[i] = 7.0;
      }
      expect_near(own.d.qkv, d.qkv, share, "queries, keys and values");
      expect_near(own.d.gates, d.gates, share, "gates");
      if (s.sequence == 1) continue;  // there is no state to decay
      expect_near(own.d.decay, d.decay, share, "decay");
      expect_near(own.d.step_bias, d.step_bias, share, "step bias");
    }
  }
}

// A head's room ends where the next one's begins, and the last one's where the counted room ends.
TEST(DeltaRoom, CountsWhatItsPartsTake) {
  for (const int64_t sequence : {5, 8, 21}) {
    DeltaShape s{.batch = 2, .sequence = sequence, .heads = 3, .key_heads = 3, .head_dim = 7, .key_dim = 4};
    s.chunk = 8;
    std::vector<char> memory(size_t(s.backward_room()));
    for (int64_t head = 0; head < 6; ++head) {
      const DeltaRoom<char> room = delta_room(s, memory.data(), true, head);
      EXPECT_EQ(room.d_step_bias + 1, memory.data() + (head + 1) * (s.backward_room() / 6))
          << "head " << head;
      EXPECT_EQ(room.d_k - room.d_q, sequence * 4);
      const DeltaRoom<char> forward = delta_room(s, memory.data(), false, head);
      EXPECT_EQ(forward.k + s.part() * 4, memory.data() + (head + 1) * (s.forward_room() / 6))
          << "head " << head;
    }
  }
}

TEST(DeltaRule, IsTheRecurrenceInDouble) { expect_recurrence(DataType::float64, 1e-12); }
TEST(DeltaRule, IsTheRecurrenceInFloat) { expect_recurrence(DataType::float32, 2e-5); }

TEST(DeltaRule, TheRecurrencesGradientsAreItsDifferences) {
  const DeltaShape s{1, 9, 2, 1, 3, 4, 64, 4};
  test::DeltaNumbers in = draw_inputs(s, -1.0);
  std::mt19937 random(5);
  const std::vector<double> dout = drawn(random, s.tokens() * s.values(), -1.0, 1.0);
  const auto loss = [&] {
    const std::vector<double> out = delta_recurrence(s, in);
    double sum = 0.0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  const test::DeltaNumbers d = delta_recurrence_gradients(s, in, dout);
  for (const auto& [values, gradient] :
       {std::pair<std::vector<double>*, const std::vector<double>*>{&in.qkv, &d.qkv},
        {&in.gates, &d.gates},
        {&in.decay, &d.decay},
        {&in.step_bias, &d.step_bias}}) {
    for (size_t i = 0; i < values->size(); ++i) {
      const double kept = (*values)[i], step = 1e-5;
      (*values)[i] = kept + step;
      const double above = loss();
      (*values)[i] = kept - step;
      const double below = loss();
      (*values)[i] = kept;
      EXPECT_NEAR((above - below) / (2 * step), (*gradient)[i], 1e-8);
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
