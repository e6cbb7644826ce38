// SPDX-License-Identifier: Apache-2.0
#pragma once

// The network between ranks that NCCL takes for hosts of their own, because NCCL_HOSTID is set: messages are
// files of a folder that their processes share. A message is there once it is complete, and gone once it is
// received.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace nccl_on_cpu {

class Network {
 public:
  /// Of the communicator with this id. Ranks that do not join keep the others waiting.
  Network(uint64_t id, int size, int rank);
  Network(const Network&) = delete;
  /// The last rank that leaves removes the folder.
  ~Network();

  bool all_have_joined() const;
  /// `name` is the same at both ends, and no two messages between them have the same.
  void send(int to, const std::string& name, const void* data, size_t bytes);
  bool is_received(int by, const std::string& name) const;
  bool has_arrived(int from, const std::string& name) const;
  std::vector<char> receive(int from, const std::string& name);

 private:
  std::filesystem::path message(int from, int to, const std::string& name) const;

  std::filesystem::path folder_;
  int size_, rank_;
};

}  // namespace nccl_on_cpu
