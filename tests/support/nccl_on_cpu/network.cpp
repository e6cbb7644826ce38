// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace nccl_on_cpu {
namespace {

// Whole or not at all.
void write(const std::filesystem::path& path, const void* data, size_t bytes) {
  const std::filesystem::path unfinished = path.string() + ".unfinished";
  std::ofstream(unfinished, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  std::error_code error;  // without the message its receiver waits, and says so
  std::filesystem::rename(unfinished, path, error);
}

}  // namespace

Network::Network(uint64_t id, int size, int rank)
    : folder_(std::filesystem::temp_directory_path() / fmt::format("nccl-on-cpu-{:x}", id)),
      size_(size),
      rank_(rank) {
  std::filesystem::create_directories(folder_);
  write(folder_ / fmt::format("joined-{}", rank_), "", 0);
}

Network::~Network() {
  std::error_code error;
  write(folder_ / fmt::format("left-{}", rank_), "", 0);
  for (int rank = 0; rank < size_; ++rank) {
    if (!std::filesystem::exists(folder_ / fmt::format("left-{}", rank), error)) return;
  }
  std::filesystem::remove_all(folder_, error);
}

bool Network::all_have_joined() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!std::filesystem::exists(folder_ / fmt::format("joined-{}", rank))) return false;
  }
  return true;
}

std::filesystem::path Network::message(int from, int to, const std::string& name) const {
  return folder_ / fmt::format("{}-from-{}-to-{}", name, from, to);
}
void Network::send(int to, const std::string& name, const void* data, size_t bytes) {
  write(message(rank_, to, name), data, bytes);
}
bool Network::is_received(int by, const std::string& name) const {
  return !std::filesystem::exists(message(rank_, by, name));
}
bool Network::has_arrived(int from, const std::string& name) const {
  return std::filesystem::exists(message(from, rank_, name));
}
std::vector<char> Network::receive(int from, const std::string& name) {
  const std::filesystem::path path = message(from, rank_, name);
  std::ifstream file(path, std::ios::binary);
  std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return data;
}

}  // namespace nccl_on_cpu
