// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/json.h"
#include "runtime/comm/reduction.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kMostHeaderBytes = int64_t{100} << 20;  // the format's own limit
constexpr size_t kMostDimensions = 8;

const std::map<std::string, DataType>& types_by_name() {
  static const std::map<std::string, DataType> types{{"F32", DataType::float32},
                                                     {"F64", DataType::float64},
                                                     {"BF16", DataType::bfloat16},
                                                     {"F16", DataType::float16}};
  return types;
}

std::string name_of(DataType type) {
  for (const auto& [name, other] : types_by_name())
    if (other == type) return name;
  return "";
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& found,
                         const std::string& expected) {
  refuse_input(file.string(), found, expected, "the file is damaged, cut off or no safetensors file");
}

// A list of `count` whole numbers from 0 to `most`, or nothing.
std::optional<std::vector<int64_t>> whole_numbers(const Json& json, size_t most_entries, int64_t most) {
  if (!json.is_array() || json.size() > most_entries) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& value : json) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(most)) return std::nullopt;
    numbers.push_back(value.get<int64_t>());
  }
  return numbers;
}

// The number of elements of a shape; nothing if it is above `most`.
std::optional<int64_t> elements_of(const std::vector<int64_t>& shape, int64_t most) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size != 0 && count > most / size) return std::nullopt;
    count *= size;
  }
  return count;
}

}  // namespace

int64_t SafetensorsEntry::count() const { return bytes / size_of(type); }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : file_(file, file.string()) {
  uint64_t length = 0;
  if (file_.size() < int64_t(sizeof length)) refuse(file, fmt::format("{} bytes", file_.size()), "a header");
  std::memcpy(&length, file_.bytes().data(), sizeof length);
  if (length > uint64_t(kMostHeaderBytes) || length > uint64_t(file_.size()) - sizeof length)
    refuse(file, fmt::format("a header of {} bytes in a file of {}", length, file_.size()),
           fmt::format("one that is in the file, of at most {} bytes", kMostHeaderBytes));
  first_ = int64_t(sizeof length + length);
  const int64_t room = file_.size() - first_;
  const Json header =
      parse_json(std::string(reinterpret_cast<const char*>(file_.bytes().data()) + sizeof length, length),
                 file.string());
  if (!header.is_object()) refuse(file, "a header that is " + detail::describe_json(header), "an object");
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      if (!json.is_object()) refuse(file, "__metadata__: " + detail::describe_json(json), "an object");
      for (const auto& [key, value] : json.items())
        if (value.is_string()) metadata_[key] = value.get<std::string>();
      continue;
    }
    // Clang before 16 lets no lambda refer to a structured binding.
    const auto field = [&entry = json](const char* key) {
      return entry.is_object() && entry.contains(key) ? entry[key] : Json();
    };
    const auto shape = whole_numbers(field("shape"), kMostDimensions, int64_t{1} << 48);
    const auto place = whole_numbers(field("data_offsets"), 2, room);
    if (!field("dtype").is_string() || !shape || !place || place->size() != 2 || (*place)[0] > (*place)[1])
      refuse(file,
             fmt::format("tensor \"{}\" without a type, shape or place in the file", name.substr(0, 80)),
             "all three");
    const auto type = types_by_name().find(field("dtype").get<std::string>());
    if (type == types_by_name().end()) continue;
    const int64_t bytes = (*place)[1] - (*place)[0];
    const auto elements = elements_of(*shape, room);
    if (!elements || *elements * size_of(type->second) != bytes)
      refuse(file, fmt::format("tensor \"{}\": {} bytes", name.substr(0, 80), bytes),
             "as many as its shape has");
    entries_[name] = {type->second, *shape, (*place)[0], bytes};
  }
}

void read_elements(const SafetensorsFile& file, const SafetensorsEntry& entry, int64_t first, int64_t count,
                   double* out) {
  const uint8_t* at = file.data(entry) + first * size_of(entry.type);
  if (entry.type == DataType::float64) {
    std::memcpy(out, at, size_t(count) * sizeof(double));
    return;
  }
  constexpr int64_t kBlock = 4096;
  float block[kBlock];
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t here = std::min(kBlock, count - done);
    if (entry.type == DataType::float32) {
      std::memcpy(block, at + done * 4, size_t(here) * 4);
    } else {
      // The header's length may leave elements at odd addresses.
      uint16_t bits[kBlock];
      std::memcpy(bits, at + done * 2, size_t(here) * 2);
      widen(entry.type, bits, here, block);
    }
    std::copy_n(block, here, out + done);
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& file,
                                     const std::vector<NamedTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(file) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t place = 0;
  for (const NamedTensor& tensor : tensors) {
    int64_t bytes = size_of(tensor.type);
    for (const int64_t size : tensor.shape) bytes *= size;
    header[tensor.name] = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {place, place + bytes}}};
    place += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format aligns data to 8 bytes by spaces
  const uint64_t length = text.size();
  descriptor_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail();
  append(&length, sizeof length);
  append(text.data(), int64_t(text.size()));
  expected_ = bytes_ + place;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SafetensorsWriter::fail() const {
  fail_run("{}: cannot be written ({})", file_.string(), std::strerror(errno));
}

void SafetensorsWriter::append(const void* data, int64_t bytes) {
  if (!write_all(descriptor_, {static_cast<const char*>(data), size_t(bytes)})) fail();
  crc32_ = uint32_t(::crc32_z(crc32_, static_cast<const Bytef*>(data), size_t(bytes)));
  bytes_ += bytes;
}

void SafetensorsWriter::finish() {
  MPT_CHECK(bytes_ == expected_, "{} bytes written to {}, its header says {}", bytes_, file_.string(),
            expected_);
  const bool synced = ::fsync(descriptor_) == 0;
  const bool closed = ::close(descriptor_) == 0;
  descriptor_ = -1;
  if (!synced || !closed) fail();
}

uint32_t file_crc32(const std::filesystem::path& file) {
  const MappedFile mapped(file, file.string());
  return uint32_t(::crc32_z(0, mapped.bytes().data(), mapped.bytes().size()));
}

}  // namespace mpt::runtime
