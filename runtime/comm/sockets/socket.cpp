// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/error.h"

namespace mpt::runtime {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw RunError(fmt::format("{} ({})", what, std::strerror(errno)));
}

std::unique_ptr<addrinfo, void (*)(addrinfo*)> resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw UserError(Problem{"MASTER_ADDR", "\"" + address.substr(0, 80) + "\": " + ::gai_strerror(error),
                            "the name or number of the first host", ""});
  }
  return {found, ::freeaddrinfo};
}

int milliseconds_until(Socket::Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

void set_option(int descriptor, int level, int option) {
  const int on = 1;
  ::setsockopt(descriptor, level, option, &on, sizeof on);
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket Socket::listen(const std::string& address, int port) {
  const auto found = resolve(address, port);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) fail("no socket");
  set_option(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR);
  if (::bind(socket.descriptor_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.descriptor_, SOMAXCONN) != 0)
    fail(fmt::format("cannot listen on {}, port {}", address, port));
  return socket;
}

Socket Socket::connect(const std::string& address, int port, Deadline deadline) {
  const auto found = resolve(address, port);
  while (true) {
    Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) fail("no socket");
    if (::connect(socket.descriptor_, found->ai_addr, found->ai_addrlen) == 0) {
      set_option(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY);
      return socket;
    }
    if (std::chrono::steady_clock::now() > deadline)
      fail(fmt::format("nobody answers at {}, port {}", address, port));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Socket Socket::accept(Deadline deadline) const {
  pollfd poll{descriptor_, POLLIN, 0};
  const int ready = ::poll(&poll, 1, milliseconds_until(deadline));
  if (ready == 0) throw RunError("the other processes did not come within the timeout");
  Socket socket(ready < 0 ? -1 : ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) fail("no connection");
  set_option(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

namespace {

void set_timeout(int descriptor, int option, std::chrono::milliseconds timeout) {
  const timeval value{timeout.count() / 1000, timeout.count() % 1000 * 1000};
  ::setsockopt(descriptor, SOL_SOCKET, option, &value, sizeof value);
}

}  // namespace

void Socket::set_send_timeout(std::chrono::milliseconds timeout) const {
  set_timeout(descriptor_, SO_SNDTIMEO, timeout);
}
void Socket::set_receive_timeout(std::chrono::milliseconds timeout) const {
  set_timeout(descriptor_, SO_RCVTIMEO, timeout);
}

void Socket::send_all(const void* data, size_t bytes) const {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(descriptor_, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail("the connection is lost");
    at += sent;
    bytes -= size_t(sent);
  }
}

bool Socket::receive_all(void* data, size_t bytes) const {
  char* at = static_cast<char*>(data);
  size_t got = 0;
  while (got < bytes) {
    const ssize_t received = ::recv(descriptor_, at + got, bytes - got, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received == 0 && got == 0) return false;
    if (received <= 0) fail("the connection is lost");
    got += size_t(received);
  }
  return true;
}

void Socket::drain(size_t most) const {
  ::shutdown(descriptor_, SHUT_WR);
  char block[512];
  for (size_t got = 0; got < most;) {
    const ssize_t received = ::recv(descriptor_, block, sizeof block, 0);
    if (received <= 0) return;
    got += size_t(received);
  }
}

void Socket::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

namespace {

std::pair<std::string, int> own_name(int descriptor) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&storage), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&storage), length, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    fail("a socket without a name");
  return {host, std::atoi(service)};
}

}  // namespace

int Socket::port() const { return own_name(descriptor_).second; }
std::string Socket::address() const { return own_name(descriptor_).first; }

}  // namespace mpt::runtime
