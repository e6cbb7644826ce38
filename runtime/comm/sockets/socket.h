// SPDX-License-Identifier: Apache-2.0
#pragma once

// Socket: a TCP connection or listener; the destructor closes it. Failures are RunErrors.

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace mpt::runtime {

/// The user asked the program to stop while it waited for another process.
class StopRequested : public std::runtime_error {
 public:
  StopRequested() : std::runtime_error("stopped as asked") {}
};

/// The bound of a wait: until the deadline, or until `stop` becomes true.
struct Patience {
  using Deadline = std::chrono::steady_clock::time_point;

  Patience(Deadline until, const std::atomic<bool>* stop_flag = nullptr) : deadline(until), stop(stop_flag) {}

  Deadline deadline;
  const std::atomic<bool>* stop;
};

class Socket {
 public:
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
  /// Retries until the deadline: the other side may not listen yet. Throws StopRequested.
  static Socket connect(const std::string& address, int port, const Patience& patience);
  /// Throws RunError if no connection comes until the deadline, or StopRequested.
  Socket accept(const Patience& patience) const;

  /// Limits how long a send without `patience` waits for the other side to read.
  void set_send_timeout(std::chrono::milliseconds timeout) const;
  /// With `patience`, throws RunError at the deadline, or StopRequested. If `more_follows`, it may wait for
  /// that, to leave in one packet.
  void send_all(const void* data, size_t bytes, const std::optional<Patience>& patience = {},
                bool more_follows = false) const;
  /// False if the connection ends before the first byte.
  bool receive_all(void* data, size_t bytes, const std::optional<Patience>& patience = {}) const;
  /// Reads the bytes that are there, at most `bytes`. Returns their number, 0 at the connection's end,
  /// nothing if idle.
  std::optional<size_t> receive_some(void* data, size_t bytes) const;
  /// Ends a receive_all() in another thread.
  void stop_receiving() const;
  /// The same, and ends the connection.
  void shut_down() const;

  int port() const;             // of this side
  std::string address() const;  // of this side, as a number
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  friend std::vector<bool> wait_for_any(const std::vector<const Socket*>&, const Patience&);
  bool wait(short events, const Patience& patience) const;

  int descriptor_ = -1;
};

/// Sleeps until one of `sockets` can be read, and returns which ones; none at the deadline. Throws
/// StopRequested.
std::vector<bool> wait_for_any(const std::vector<const Socket*>& sockets, const Patience& patience);

}  // namespace mpt::runtime
