// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/single.h"

#include <cstring>

#include "core/error.h"

namespace mpt::runtime {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(void*, int64_t, DataType, ReduceOperation) override {}
  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    if (send != receive) std::memcpy(receive, send, size_t(count * size_of(type)));
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
    std::memmove(received, data, size_t(bytes));
  }
  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t>) override {
    if (sent[0] > 0) std::memmove(received, data, size_t(sent[0]));
  }
  void barrier() override {}
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

}  // namespace mpt::runtime
