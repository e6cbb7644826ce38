// SPDX-License-Identifier: Apache-2.0
#pragma once

// Socket: a TCP connection or listener, closed at the end of its life. Failures are RunErrors.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace mpt::runtime {

class Socket {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  /// Listens on `address` (a name or a number), `port` 0: any.
  static Socket listen(const std::string& address, int port);
  /// Tries again until the deadline: the other side may not listen yet.
  static Socket connect(const std::string& address, int port, Deadline deadline);
  Socket accept(Deadline deadline) const;

  /// Sends may wait this long for the other side to read.
  void set_send_timeout(std::chrono::milliseconds timeout) const;
  /// 0: receives may wait for ever.
  void set_receive_timeout(std::chrono::milliseconds timeout) const;
  void send_all(const void* data, size_t bytes) const;
  /// False if the connection ends before the first byte.
  bool receive_all(void* data, size_t bytes) const;
  /// Reads and forgets what was sent, up to `most` bytes, so that closing does not cut the answer off.
  void drain(size_t most) const;
  /// Ends a receive_all() of another thread.
  void shut_down() const;

  int port() const;             // of this side
  std::string address() const;  // of this side, as a number
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace mpt::runtime
