// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_curves.h"

#include <unistd.h>

#include <bit>
#include <chrono>

#include "base/error.h"
#include "base/json.h"

namespace mpt::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "fixed numbers of event files are little-endian");

template <class T>
std::string fixed(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += char(value | 0x80);
  return bytes + char(value);
}

enum class WireType { varint = 0, bits64 = 1, bytes = 2, bits32 = 5 };  // of Protocol Buffers

std::string field(int number, WireType type, const std::string& value) {
  return varint(uint64_t(number) << 3 | uint64_t(type)) +
         (type == WireType::bytes ? varint(value.size()) : "") + value;
}

// CRC-32C, rotated and shifted as in TFRecords. A step has a few hundred bytes, so no table is worth it.
uint32_t masked_crc(const std::string& data) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : data) {
    crc ^= uint8_t(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return std::rotr(~crc, 15) + 0xa282ead8;
}

// An Event: its time, its step, and one more field.
std::string record(int64_t step, int number, const std::string& content) {
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string event = field(1, WireType::bits64, fixed(now_s)) +
                            field(2, WireType::varint, varint(uint64_t(step))) +
                            field(number, WireType::bytes, content);
  const std::string length = fixed(uint64_t(event.size()));
  return length + fixed(masked_crc(length)) + event + fixed(masked_crc(event));
}

// Tags of curves and fields of a step.
constexpr std::pair<const char*, const char*> kStepCurves[] = {
#include "generated/StepCurves.inc"
};

}  // namespace

std::unique_ptr<LogFile> open_event_file(const std::filesystem::path& folder) {
  const std::string option = "--tensorboard " + folder.string();
  std::error_code failed;
  if (std::filesystem::create_directories(folder, failed); failed)
    refuse_input(option, failed.message(), "a folder, or a path where one can be made");
  const int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  const auto name = fmt::format("events.out.tfevents.{}.mpt-run.{}", now, ::getpid());
  return std::make_unique<LogFile>(folder / name, true, option);
}

std::string start_events(int64_t first_step) {
  constexpr int kFileVersion = 3, kSessionLog = 7;
  return record(0, kFileVersion, "brain.Event:2") +
         record(first_step, kSessionLog, field(1, WireType::varint, varint(1)));  // status: START
}

std::string event_of(const reports::StepRecord& r) {
  const Json figures = to_json(r);
  std::string summary;
  for (const auto& [tag, member] : kStepCurves)
    if (const auto figure = figures.find(member); figure != figures.end())
      summary += field(1, WireType::bytes,
                       field(1, WireType::bytes, tag) +
                           field(2, WireType::bits32, fixed(figure->is_null() ? NAN : figure->get<float>())));
  constexpr int kSummary = 5;
  return record(r.step, kSummary, summary);
}

}  // namespace mpt::runtime
