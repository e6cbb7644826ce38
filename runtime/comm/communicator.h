// SPDX-License-Identifier: Apache-2.0
#pragma once

// Communicator: the collectives and transfers of one group of ranks. They have the form of NCCL's calls, so
// that threads, processes and NCCL can implement them. One lane at a time uses a communicator. Ranks of a
// group make the same calls in the same order. Every wait can be aborted and has a timeout.
//
// A group of one is an identity: every call returns at once.

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

namespace mpt::runtime {

enum class DataType : uint8_t { float32, float64, bfloat16, float16 };
enum class ReduceOperation : uint8_t { sum, maximum };

int64_t size_of(DataType type);
/// The type of sums and optimizer state for data of `type`: float32 for types of 16 bits.
constexpr DataType state_type_of(DataType type) {
  return type == DataType::float64 ? DataType::float64 : DataType::float32;
}

/// A wait ended because another rank failed, or because the timeout passed.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Memory that a transport is prepared for, during this object's lifetime.
using Registration = std::shared_ptr<void>;

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// In place. The result is bitwise the same on every rank, and depends only on the ranks' data: the
  /// reduction runs in rank order.
  virtual void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) = 0;
  /// `receive` gets size() x count elements, in rank order.
  virtual void all_gather(const void* send, void* receive, int64_t count, DataType type) = 0;
  /// `send` holds size() x count elements; rank r gets the sum of part r.
  virtual void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) = 0;
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
  /// A send and its receive are synchronous: both return when the data has arrived.
  virtual void send(const void* data, int64_t bytes, int peer) = 0;
  virtual void receive(void* data, int64_t bytes, int peer) = 0;
  /// Sends to one rank while receiving the same number of bytes from another: a ring requires this if sends
  /// block.
  virtual void send_receive(const void* data, int to, void* received, int from, int64_t bytes) = 0;
  /// Part r of `data`, sent[r] bytes long, goes to rank r. Part r of `received`, received_bytes[r] long,
  /// comes from rank r. Parts are contiguous.
  virtual void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                          std::span<const int64_t> received_bytes) = 0;
  virtual void barrier() = 0;

  /// Announces that many calls will use this memory, in whole or in part. It is a collective call: every rank
  /// of the group makes it, before lanes begin. Null if registration gains nothing, or failed on a rank. The
  /// result must be destroyed before the memory.
  [[nodiscard]] virtual Registration register_memory(void* /*data*/, int64_t /*bytes*/) { return nullptr; }
};

}  // namespace mpt::runtime
