// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collectives between processes, made of messages. Reductions run in rank order, as in ThreadWorld, so
// results are bitwise the same. A channel carries the messages: over TCP or over MPI.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/world.h"

namespace mpt::runtime {

/// The messages of one rank in one group. One thread at a time uses it.
class Channel {
 public:
  virtual ~Channel() = default;

  template <class Pointer>
  struct Part {
    int peer;  // in the group
    Pointer data;
    int64_t bytes;  // at most kMostBytes
  };
  static constexpr int64_t kMostBytes = 1 << 30;  // MPI counts in int
  using Sent = Part<const char*>;
  using Received = Part<char*>;

  /// Sends and receives at the same time. Returns when everything has arrived and `sent` may be changed.
  /// Messages from one rank to another arrive in order. Throws CommunicationError.
  virtual void exchange(std::span<const Sent> sent, std::span<const Received> received,
                        const char* operation) = 0;
};

/// A world with communicators that are made of messages.
class MessageWorld : public World {
 public:
  virtual std::unique_ptr<Channel> channel(int world_rank, const std::vector<int>& members,
                                           const std::string& name) = 0;
  std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                             const std::string& name) final;
};

/// The wait of a rank, as errors name it: operation, group and peer.
std::string describe_wait(const char* operation, const std::string& group, int rank, int peer);

}  // namespace mpt::runtime
