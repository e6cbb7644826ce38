// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_curves.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"

namespace mpt::runtime {
namespace {

// CRC-32C by a table (RFC 3720, appendix B.4), masked as TFRecords have it.
uint32_t reference_crc(const std::string& data) {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] % 2 == 1 ? t[i] / 2 ^ 0x82f63b78u : t[i] / 2;
    }
    return t;
  }();
  uint32_t crc = 0xffffffffu;
  for (const char c : data) crc = table[(crc ^ uint8_t(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked(const std::string& data) {
  const uint32_t crc = reference_crc(data);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Fields of a message of Protocol Buffers: numbers as bytes, varints as digits, texts as they are.
std::multimap<int, std::string> fields_of(const std::string& message) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = uint8_t(message.at(at++));
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  std::multimap<int, std::string> fields;
  while (at < message.size()) {
    const uint64_t key = varint();
    const size_t start = at;
    if (key % 8 == 0) {
      fields.emplace(int(key / 8), std::to_string(varint()));
      continue;
    }
    const size_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : size_t(varint());
    fields.emplace(int(key / 8), message.substr(key % 8 == 2 ? at : start, size));
    at = (key % 8 == 2 ? at : start) + size;
  }
  return fields;
}

std::string only(const std::multimap<int, std::string>& fields, int number) {
  EXPECT_EQ(fields.count(number), 1u) << number;
  const auto found = fields.find(number);
  return found == fields.end() ? "" : found->second;
}

// Messages of a file. Lengths and contents must have the right checksums.
std::vector<std::multimap<int, std::string>> events_of(const std::string& bytes) {
  std::vector<std::multimap<int, std::string>> events;
  for (size_t at = 0; at < bytes.size();) {
    const std::string length = bytes.substr(at, 8);
    const auto size = size_t(number_at<uint64_t>(bytes, at));
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 8), masked(length));
    const std::string event = bytes.substr(at + 12, size);
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 12 + size), masked(event));
    events.push_back(fields_of(event));
    at += 16 + size;
  }
  return events;
}

std::map<std::string, float> scalars_of(const std::multimap<int, std::string>& event) {
  std::map<std::string, float> scalars;
  for (const auto& [number, value] : fields_of(only(event, 5))) {
    const auto parts = fields_of(value);
    scalars[only(parts, 1)] = number_at<float>(only(parts, 2), 0);
  }
  return scalars;
}

TEST(TensorBoard, TheReferenceHasThePublishedChecksum) {
  EXPECT_EQ(reference_crc("123456789"), 0xe3069283u);
  EXPECT_EQ(reference_crc(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
}

TEST(TensorBoard, AStepIsOneEventWithItsFigures) {
  reports::StepRecord step;
  step.step = 300;
  step.loss = 2.5;
  step.gradient_norm = 0.75;
  step.learning_rate = 1e-3;
  step.tokens_per_s = 4096;
  step.step_time_s = 0.5;
  step.bubble_share = 0.125;
  std::vector<std::multimap<int, std::string>> events = events_of(event_of(step));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(only(events[0], 2), "300");
  const std::map<std::string, float> usual{{"train/loss", 2.5f},           {"train/grad_norm", 0.75f},
                                           {"train/learning_rate", 1e-3f}, {"train/tokens_per_s", 4096.0f},
                                           {"time/step_s", 0.5f},          {"time/idle_share", 0.125f}};
  EXPECT_EQ(scalars_of(events[0]), usual);
  step.validation_loss = 3.0;
  step.next_token_loss = 4.0;
  step.model_flop_utilization = 0.25;
  step.loss = NAN;
  std::map<std::string, float> all = scalars_of(events_of(event_of(step)).at(0));
  EXPECT_TRUE(std::isnan(all["train/loss"]));
  EXPECT_EQ(all.size(), 9u);
  EXPECT_EQ(all["eval/loss"], 3.0f);
  EXPECT_EQ(all["train/next_token_loss"], 4.0f);
  EXPECT_EQ(all["time/mfu"], 0.25f);
}

TEST(TensorBoard, AFileStartsAtTheFirstStepOfItsRun) {
  const std::filesystem::path folder = testing::TempDir() + "/curves/of/a run";
  std::filesystem::remove_all(folder);
  open_event_file(folder)->add(start_events(41));
  const std::filesystem::directory_iterator made(folder);
  EXPECT_EQ(made->path().filename().string().rfind("events.out.tfevents.", 0), 0u);
  std::stringstream bytes;
  bytes << std::ifstream(made->path(), std::ios::binary).rdbuf();
  const auto events = events_of(bytes.str());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(only(events[0], 3), "brain.Event:2");
  EXPECT_EQ(only(events[1], 2), "41");
  EXPECT_EQ(only(fields_of(only(events[1], 7)), 1), "1");  // SessionLog.START
  EXPECT_NEAR(number_at<double>(only(events[0], 1), 0), double(std::time(nullptr)), 60.0);
}

TEST(TensorBoard, AFolderThatCannotBeIsAUserError) {
  EXPECT_THROW(open_event_file("/dev/null/curves"), UserError);
}

}  // namespace
}  // namespace mpt::runtime
