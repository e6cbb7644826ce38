// SPDX-License-Identifier: Apache-2.0

// The optimizer's step on the host: whatever pieces it is cut into and however many threads take them, the
// bits are those of one AdamW over each range.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/host_step.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kGap = 3;  // elements that are no range's, before the fourth

// Weights with what belongs to them: device memory in one flat buffer each, as a stage has it.
struct State {
  std::unique_ptr<Device> device = make_cpu_device(), host = make_cpu_device();
  DataType type;
  Buffer gradients, values, masters, first, second;
  std::vector<HostedRange> ranges;

  State(DataType t, const std::vector<int64_t>& counts) : type(t) {
    int64_t all = kGap;
    for (const int64_t count : counts) all += count;
    const DataType state = state_type_of(type);
    std::mt19937 random{7};
    const auto make = [&](Device& of, DataType as, double least) {
      std::uniform_real_distribution<double> draw(least, 1.0);
      std::vector<double> content(static_cast<size_t>(all));
      for (double& v : content) v = draw(random);
      Buffer buffer(of, all * size_of(as));
      of.upload(as, content.data(), all, buffer.data());
      return buffer;
    };
    gradients = make(*device, state, -1.0);
    values = make(*device, type, -1.0);
    masters = make(*host, state, -1.0);
    first = make(*host, state, -1.0);
    second = make(*host, state, 0.0);
    int64_t at = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (i == 3) at += kGap;
      const auto place = [&](const Buffer& b, DataType as) {
        return static_cast<char*>(b.data()) + at * size_of(as);
      };
      ranges.push_back({counts[i], i % 2 == 0, 0.0, place(gradients, state), place(values, type),
                        place(masters, state), place(first, state), place(second, state)});
      at += counts[i];
    }
  }

  std::string bits() const {
    std::string all;
    for (const Buffer* b : {&values, &masters, &first, &second})
      all.append(static_cast<const char*>(b->data()), size_t(b->bytes()));
    return all;
  }
};

AdamW options() { return {1e-2, 0.9, 0.95, 1e-8, 0.1, 3, 0.7}; }

TEST(HostStep, GivesTheBitsOfOneCallForEachRange) {
  const std::vector<int64_t> counts{1000, 3, 1, 517, 64, 2};
  for (const DataType type : {DataType::float32, DataType::float64, DataType::bfloat16, DataType::float16}) {
    State slow(type, counts);
    const std::string before = slow.bits();
    for (const HostedRange& r : slow.ranges) {
      AdamW own = options();
      if (!r.decays) own.weight_decay = 0.0;
      slow.host->run(state_type_of(type), AdamStep{.count = r.count,
                                                   .options = own,
                                                   .gradient = r.gradient,
                                                   .parameter = r.master,
                                                   .first_moment = r.first_moment,
                                                   .second_moment = r.second_moment});
      slow.host->convert(state_type_of(type), r.master, type, r.value, r.count);
    }
    const std::string want = slow.bits();
    EXPECT_NE(want, before);
    for (const int64_t piece : {1, 7, 64, 1000, 1 << 18}) {
      for (const size_t threads : {0, 1, 3}) {
        State state(type, counts);
        const int64_t counted = state.device->in_use_bytes();
        std::vector<std::unique_ptr<SideStream>> streams;
        HostCores cores{state.host.get(), {}};
        for (size_t t = 0; t < threads; ++t) {
          streams.push_back(std::make_unique<SideStream>(
              *state.device, [](const std::string&, const std::string& what) { FAIL() << what; }));
          cores.threads.push_back(streams.back().get());
        }
        HostStep step(*state.device, cores, type, state.ranges, piece);
        EXPECT_EQ(state.device->in_use_bytes(), counted) << "room for copies is the host's";
        step.run(options());
        EXPECT_EQ(state.bits() == want, true)
            << "type " << int(type) << ", piece " << piece << ", " << threads << " threads";
      }
    }
  }
}

// A rank may own nothing of a stage, as when ranks are more than elements.
TEST(HostStep, OfNothingDoesNothing) {
  const auto device = make_cpu_device();
  HostStep(*device, {device.get(), {}}, DataType::bfloat16, {}).run(options());
}

}  // namespace
}  // namespace mpt::runtime
