// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/timed.h"

namespace mpt::runtime {
namespace {

class Timed final : public Communicator {
 public:
  Timed(std::unique_ptr<Communicator> inner, CallTime& time) : inner_(std::move(inner)), time_(time) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    const Stopwatch watch(time_);
    inner_->all_reduce(data, count, type, operation);
  }
  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    const Stopwatch watch(time_);
    inner_->all_gather(send, receive, count, type);
  }
  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    const Stopwatch watch(time_);
    inner_->reduce_scatter(send, receive, count, type);
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    const Stopwatch watch(time_);
    inner_->broadcast(data, bytes, root);
  }
  void send(const void* data, int64_t bytes, int peer) override {
    const Stopwatch watch(time_);
    inner_->send(data, bytes, peer);
  }
  void receive(void* data, int64_t bytes, int peer) override {
    const Stopwatch watch(time_);
    inner_->receive(data, bytes, peer);
  }
  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    const Stopwatch watch(time_);
    inner_->send_receive(data, to, received, from, bytes);
  }
  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    const Stopwatch watch(time_);
    inner_->all_to_all(data, sent, received, received_bytes);
  }
  void barrier() override {
    const Stopwatch watch(time_);
    inner_->barrier();
  }
  std::unique_ptr<Registration> register_memory(void* data, int64_t bytes) override {
    return inner_->register_memory(data, bytes);
  }

 private:
  std::unique_ptr<Communicator> inner_;
  CallTime& time_;
};

}  // namespace

std::unique_ptr<Communicator> timed(std::unique_ptr<Communicator> inner, CallTime& time) {
  return std::make_unique<Timed>(std::move(inner), time);
}

}  // namespace mpt::runtime
