// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/ranges.h"

namespace mpt::runtime {
namespace {

[[noreturn]] void fail(const std::string& what) { fail_run("{} ({})", what, std::strerror(errno)); }

std::unique_ptr<addrinfo, void (*)(addrinfo*)> resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    refuse_input("MASTER_ADDR", "\"" + address.substr(0, 80) + "\": " + ::gai_strerror(error),
                 "the name or number of the first host");
  return {found, ::freeaddrinfo};
}

int milliseconds_until(Patience::Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

// False at the deadline. A signal may arrive just before poll() sleeps, so `stop` is checked again.
bool wait_until_ready(std::vector<pollfd>& polls, const Patience& patience) {
  constexpr int kGlance_ms = 100;
  while (true) {
    if (patience.stop != nullptr && *patience.stop) throw StopRequested();
    const int left = milliseconds_until(patience.deadline);
    const int ready = ::poll(polls.data(), polls.size(), std::min(left, kGlance_ms));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("cannot wait for connections");
    if (left == 0) return false;
  }
}

void set_option(int descriptor, int level, int option) {
  const int on = 1;
  ::setsockopt(descriptor, level, option, &on, sizeof on);
}

// Whether a pending connection is established; errno has the reason if not.
bool is_connected(int descriptor) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return false;
  errno = error;
  return error == 0;
}

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

bool Socket::wait(short events, const Patience& patience) const {
  std::vector<pollfd> polls{{descriptor_, events, 0}};
  return wait_until_ready(polls, patience);
}

std::vector<bool> wait_for_any(const std::vector<const Socket*>& sockets, const Patience& patience) {
  std::vector<pollfd> polls;
  for (const Socket* socket : sockets) polls.push_back({socket->descriptor_, POLLIN, 0});
  wait_until_ready(polls, patience);
  return mapped<bool>(polls, [](const pollfd& poll) { return poll.revents != 0; });
}

Socket Socket::connect(const std::string& address, int port, const Patience& patience) {
  const auto found = resolve(address, port);
  while (true) {
    Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) fail("no socket");
    bool connected = ::connect(socket.descriptor_, found->ai_addr, found->ai_addrlen) == 0;
    if (!connected && (errno == EINPROGRESS || errno == EINTR))
      connected = socket.wait(POLLOUT, patience) && is_connected(socket.descriptor_);
    if (connected) {
      ::fcntl(socket.descriptor_, F_SETFL, ::fcntl(socket.descriptor_, F_GETFL) & ~O_NONBLOCK);
      set_option(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY);
      return socket;
    }
    if (std::chrono::steady_clock::now() > patience.deadline)
      fail(fmt::format("nobody answers at {}, port {}", address, port));
    if (patience.stop != nullptr && *patience.stop) throw StopRequested();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Socket Socket::accept(const Patience& patience) const {
  if (!wait(POLLIN, patience)) throw RunError("the other processes did not come within the timeout");
  Socket socket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) fail("no connection");
  set_option(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

void Socket::set_send_timeout(std::chrono::milliseconds timeout) const {
  const timeval value{timeout.count() / 1000, timeout.count() % 1000 * 1000};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value);
}

void Socket::send_all(const void* data, size_t bytes, const std::optional<Patience>& patience,
                      bool more_follows) const {
  const int flags = MSG_NOSIGNAL | (patience ? MSG_DONTWAIT : 0) | (more_follows ? MSG_MORE : 0);
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (patience && !wait(POLLOUT, *patience)) throw RunError("the other side did not read in time");
    const ssize_t sent = ::send(descriptor_, at, bytes, flags);
    if (sent < 0 && (errno == EINTR || (patience && errno == EAGAIN))) continue;
    if (sent <= 0) fail("the connection is lost");
    at += sent;
    bytes -= size_t(sent);
  }
}

bool Socket::receive_all(void* data, size_t bytes, const std::optional<Patience>& patience) const {
  char* at = static_cast<char*>(data);
  for (size_t got = 0; got < bytes;) {
    if (patience && !wait(POLLIN, *patience)) throw RunError("the other side did not answer in time");
    const ssize_t received = ::recv(descriptor_, at + got, bytes - got, patience ? MSG_DONTWAIT : 0);
    if (received < 0 && (errno == EINTR || (patience && errno == EAGAIN))) continue;
    if (received == 0 && got == 0) return false;
    if (received <= 0) fail("the connection is lost");
    got += size_t(received);
  }
  return true;
}

std::optional<size_t> Socket::receive_some(void* data, size_t bytes) const {
  const ssize_t received = ::recv(descriptor_, data, bytes, MSG_DONTWAIT);
  if (received < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
  return received > 0 ? size_t(received) : 0;
}

void Socket::stop_receiving() const { ::shutdown(descriptor_, SHUT_RD); }
void Socket::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

int Socket::port() const { return own_name(descriptor_).second; }
std::string Socket::address() const { return own_name(descriptor_).first; }

}  // namespace mpt::runtime
