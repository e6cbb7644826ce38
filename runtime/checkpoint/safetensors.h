// SPDX-License-Identifier: Apache-2.0
#pragma once

// Safetensors files (github.com/huggingface/safetensors, README "Format"): 8 bytes with the length of a JSON
// header, the header with type, shape and offset of each tensor, then the tensors. Little-endian.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "runtime/comm/communicator.h"

namespace mpt::runtime {

struct SafetensorsEntry {
  DataType type = DataType::float32;
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  // from the end of the header

  int64_t count() const;
};

class SafetensorsFile {
 public:
  /// Reads and checks the header: every tensor is within the file, and sizes fit shapes. Tensors of types
  /// other than DataType are left out. Throws UserError that names the file.
  explicit SafetensorsFile(const std::filesystem::path& file);

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const uint8_t* data(const SafetensorsEntry& entry) const {
    return file_.bytes().data() + first_ + entry.begin;
  }
  int64_t size() const { return file_.size(); }

 private:
  MappedFile file_;
  int64_t first_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// `count` elements from `first` on, as doubles.
void read_elements(const SafetensorsFile& file, const SafetensorsEntry& entry, int64_t first, int64_t count,
                   double* out);

struct NamedTensor {
  std::string name;
  DataType type = DataType::float32;
  std::vector<int64_t> shape;
};

/// Writes a file front to back: first declare all tensors, then append their data in that order.
class SafetensorsWriter {
 public:
  /// Throws RunError if the file cannot be made.
  SafetensorsWriter(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();

  /// Throws RunError on a short write, such as on a full disk.
  void append(const void* data, int64_t bytes);
  /// Flushes to the disk and closes. Throws RunError.
  void finish();

  int64_t bytes() const { return bytes_; }
  uint32_t crc32() const { return crc32_; }

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path file_;
  int descriptor_ = -1;
  int64_t expected_ = 0, bytes_ = 0;
  uint32_t crc32_ = 0;
};

/// CRC-32 (the one of zip and PNG) of a whole file. Throws UserError.
uint32_t file_crc32(const std::filesystem::path& file);

}  // namespace mpt::runtime
