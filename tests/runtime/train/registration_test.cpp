// SPDX-License-Identifier: Apache-2.0

// Gradients are registered with the groups that sum them, before they do and until they are gone.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/error.h"
#include "base/json.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

struct Seen {
  std::atomic<int> registrations{0}, open{0}, summed_in_place{0}, summed_elsewhere{0}, scattered_elsewhere{0},
      late{0};
  std::atomic<bool> times_products{false};
};

// Notes which sums of groups named "gradient..." lie in memory that was registered with them.
class NotingCommunicator final : public Communicator {
 public:
  NotingCommunicator(std::unique_ptr<Communicator> inner, bool sums_gradients, Seen& seen)
      : inner_(std::move(inner)), sums_gradients_(sums_gradients), seen_(seen) {}
  ~NotingCommunicator() override { seen_.late += int(ranges_->size()); }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    note(data, count * size_of(type), seen_.summed_elsewhere);
    inner_->all_reduce(data, count, type, operation);
  }
  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    note(send, size() * count * size_of(type), seen_.scattered_elsewhere);
    note(receive, count * size_of(type), seen_.scattered_elsewhere);
    inner_->reduce_scatter(send, receive, count, type);
  }
  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    inner_->all_gather(send, receive, count, type);
  }
  void broadcast(void* data, int64_t bytes, int root) override { inner_->broadcast(data, bytes, root); }
  void send(const void* data, int64_t bytes, int peer) override { inner_->send(data, bytes, peer); }
  void receive(void* data, int64_t bytes, int peer) override { inner_->receive(data, bytes, peer); }
  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    inner_->send_receive(data, to, received, from, bytes);
  }
  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    inner_->all_to_all(data, sent, received, received_bytes);
  }
  void barrier() override { inner_->barrier(); }

  Registration register_memory(void* data, int64_t bytes) override {
    inner_->barrier();  // of all ranks, or this does not return
    ++seen_.registrations;
    return std::make_shared<Noted>(ranges_, Range{static_cast<char*>(data), bytes}, seen_);
  }

 private:
  struct Range {
    char* data;
    int64_t bytes;
    bool operator==(const Range&) const = default;
  };
  using Ranges = std::vector<Range>;

  class Noted {
   public:
    Noted(std::shared_ptr<Ranges> ranges, Range range, Seen& seen)
        : ranges_(std::move(ranges)), range_(range), seen_(seen) {
      ranges_->push_back(range_);
      ++seen_.open;
    }
    Noted& operator=(Noted&&) = delete;
    ~Noted() {
      range_.data[0] = range_.data[range_.bytes - 1];  // it is still there
      std::erase(*ranges_, range_);
      --seen_.open;
    }

   private:
    std::shared_ptr<Ranges> ranges_;
    Range range_;
    Seen& seen_;
  };

  void note(const void* data, int64_t bytes, std::atomic<int>& elsewhere) {
    if (!sums_gradients_ || size() == 1) return;
    const auto* const begin = static_cast<const char*>(data);
    const bool inside = std::any_of(ranges_->begin(), ranges_->end(), [&](const Range& r) {
      return begin >= r.data && begin + bytes <= r.data + r.bytes;
    });
    ++(inside ? seen_.summed_in_place : elsewhere);
  }

  std::unique_ptr<Communicator> inner_;
  bool sums_gradients_;
  Seen& seen_;
  std::shared_ptr<Ranges> ranges_ = std::make_shared<Ranges>();
};

class NotingWorld final : public World {
 public:
  NotingWorld(World& inner, Seen& seen) : inner_(inner), seen_(seen) {}
  std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                             const std::string& name) override {
    return std::make_unique<NotingCommunicator>(inner_.communicator(world_rank, members, name),
                                                name.starts_with("gradient"), seen_);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  bool aborted() const override { return inner_.aborted(); }
  std::vector<int> local_ranks() const override { return inner_.local_ranks(); }

 private:
  World& inner_;
  Seen& seen_;
};

class NotingBackend final : public Backend {
 public:
  explicit NotingBackend(Seen& seen) : seen_(seen) {}
  int device_count() const override { return 1; }
  std::unique_ptr<Device> make_device(int, const DeviceOptions& options) override {
    seen_.times_products = options.times_products;
    return make_cpu_device();
  }
  std::vector<GpuDescription> describe_gpus() override { return {}; }
  std::unique_ptr<World> make_world(World& control, const std::vector<Device*>&,
                                    std::chrono::milliseconds) override {
    return std::make_unique<NotingWorld>(control, seen_);
  }
  std::unique_ptr<KernelTrace> make_kernel_trace(std::string&) override { return nullptr; }
  std::string device_name() const override { return "a CPU"; }
  int64_t memory_bytes() const override { return int64_t{1} << 30; }
  std::string description() const override { return "a CPU whose groups take notes"; }

 private:
  Seen& seen_;
};

void train_some_steps(const test::WantedPlan& request, Seen& seen, double learning_rate, int64_t steps) {
  const Plan plan = test::make_plan(request);
  const std::string file = testing::TempDir() + "/registration_corpus.txt";
  write_file_atomically(file, std::string(4000, 'x') + "yz");
  TrainOptions options;
  options.steps = steps;
  options.learning_rate = options.minimum_learning_rate = learning_rate;
  options.warmup_steps = 0;
  options.clip = 0;
  const Dataset corpus = test::make_dataset(file, plan, 1);
  const std::atomic<bool> stop{false};
  NotingBackend backend(seen);
  RunInputs inputs{&corpus};
  inputs.backend = &backend;
  train(plan, options, inputs, nullptr, stop);
}

struct Case {
  std::string name;
  test::WantedPlan request;
};

class RegisteredGradients : public testing::TestWithParam<Case> {};

TEST_P(RegisteredGradients, AreAllSumsOfGradients) {
  Seen seen;
  train_some_steps(GetParam().request, seen, 1e-3, 2);
  EXPECT_GT(seen.registrations, 0);
  EXPECT_GT(seen.summed_in_place, 0);
  EXPECT_EQ(seen.summed_elsewhere, 0);
  if (GetParam().request.zero <
      2) {  // else each micro-batch's gradients are scattered from buffers of its own
    EXPECT_EQ(seen.scattered_elsewhere, 0);
  }
  EXPECT_EQ(seen.open, 0);
  EXPECT_EQ(seen.late, 0) << "a communicator went before what was registered with it";
  EXPECT_TRUE(seen.times_products);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t zero : {0, 1, 2, 3}) {
    test::WantedPlan request{test::little_llama()};
    request.data = 4;
    request.shard = zero == 0 ? 0 : 2;
    request.zero = zero;
    request.precision = Precision::bf16;
    all.push_back({"zero" + std::to_string(zero), request});
    request.overlap_gradient_reduce = request.overlap_parameter_gather = true;
    all.push_back({"zero" + std::to_string(zero) + "overlapped", request});
  }
  test::WantedPlan experts{test::little_mixtral()};
  experts.data = 4;
  experts.expert = 2;
  all.push_back({"experts", experts});
  experts.zero = 1;
  all.push_back({"expertszero1", experts});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, RegisteredGradients, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Registration, OfNothingWithoutReplicas) {
  Seen seen;
  test::WantedPlan request{test::little_llama()};
  request.tensor = 2;
  train_some_steps(request, seen, 1e-3, 2);
  EXPECT_EQ(seen.registrations, 0);
  EXPECT_FALSE(seen.times_products) << "tensor ranks compute some numbers alike";
}

TEST(Registration, EndsWhenTheRunFails) {
  Seen seen;
  test::WantedPlan request{test::little_llama()};
  request.data = 2;
  // A learning rate that overflows.
  EXPECT_THROW(train_some_steps(request, seen, 1e30, 50), RunError);
  EXPECT_GT(seen.registrations, 0);
  EXPECT_EQ(seen.open, 0);
  EXPECT_EQ(seen.late, 0);
}

}  // namespace
}  // namespace mpt::runtime
