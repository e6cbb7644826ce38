// SPDX-License-Identifier: Apache-2.0
#pragma once

// MappedFile: a whole file as read-only memory, so that token files and checkpoints larger than memory can be
// read in place.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace mpt {

class MappedFile {
 public:
  MappedFile() = default;
  /// Throws UserError with the system's message; `where` names the option or file.
  MappedFile(const std::filesystem::path& file, const std::string& where);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  int64_t size() const { return int64_t(size_); }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mpt
