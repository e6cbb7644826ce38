// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/mover.h"

#include "base/error.h"

namespace mpt::runtime {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  explicit SingleCommunicator(Mover& mover) : mover_(mover) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(void*, int64_t, DataType, ReduceOperation) override {}
  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    mover_.move(receive, send, count * size_of(type));
  }
  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    all_gather(send, receive, count, type);
  }
  void broadcast(void*, int64_t, int) override {}
  void send(const void*, int64_t, int peer) override {
    MPT_CHECK(false, "send to rank {} of a group of one", peer);
  }
  void receive(void*, int64_t, int peer) override {
    MPT_CHECK(false, "receive from rank {} of a group of one", peer);
  }
  void send_receive(const void* data, int, void* received, int, int64_t bytes) override {
    mover_.move(received, data, bytes);
  }
  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t>) override {
    mover_.move(received, data, sent[0]);
  }
  void barrier() override {}

 private:
  Mover& mover_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator(Mover& mover) {
  return std::make_unique<SingleCommunicator>(mover);
}

}  // namespace mpt::runtime
