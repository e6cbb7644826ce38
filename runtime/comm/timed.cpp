// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/timed.h"

namespace mpt::runtime {
namespace {

class HostMeter final : public CallMeter {
 public:
  explicit HostMeter(CallTime& time) : time_(time) {}
  void begin() override { start_s_ = now_s(); }
  void end() override { time_.fetch_add(now_s() - start_s_, std::memory_order_relaxed); }

 private:
  CallTime& time_;
  double start_s_ = 0.0;
};

class Timed final : public Communicator {
 public:
  Timed(std::shared_ptr<Communicator> inner, std::shared_ptr<CallMeter> meter)
      : inner_(std::move(inner)), meter_(std::move(meter)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    measure([&] { inner_->all_reduce(data, count, type, operation); });
  }
  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    measure([&] { inner_->all_gather(send, receive, count, type); });
  }
  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    measure([&] { inner_->reduce_scatter(send, receive, count, type); });
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    measure([&] { inner_->broadcast(data, bytes, root); });
  }
  void send(const void* data, int64_t bytes, int peer) override {
    measure([&] { inner_->send(data, bytes, peer); });
  }
  void receive(void* data, int64_t bytes, int peer) override {
    measure([&] { inner_->receive(data, bytes, peer); });
  }
  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    measure([&] { inner_->send_receive(data, to, received, from, bytes); });
  }
  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    measure([&] { inner_->all_to_all(data, sent, received, received_bytes); });
  }
  void barrier() override {
    measure([&] { inner_->barrier(); });
  }
  Registration register_memory(void* data, int64_t bytes) override {
    return inner_->register_memory(data, bytes);
  }

 private:
  template <class Call>
  void measure(Call&& call) {
    meter_->begin();
    call();
    meter_->end();
  }

  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<CallMeter> meter_;
};

}  // namespace

std::unique_ptr<Communicator> timed(std::shared_ptr<Communicator> inner, CallTime& time) {
  return timed(std::move(inner), std::make_shared<HostMeter>(time));
}
std::unique_ptr<Communicator> timed(std::shared_ptr<Communicator> inner, std::shared_ptr<CallMeter> meter) {
  return std::make_unique<Timed>(std::move(inner), std::move(meter));
}

}  // namespace mpt::runtime
