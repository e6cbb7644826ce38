// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/json.h"

namespace mpt::runtime {
namespace {

std::string path_of(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

std::string write_sample() {
  std::string file = path_of("sample.safetensors");
  const float a[] = {1.0f, -2.5f, 3.25f, 0.0f, 5.0f, 6.0f};
  const double b[] = {0.1, 0.2};
  const uint16_t c[] = {0x3f80, 0xc000, 0x7f80};  // 1, -2, infinity in bf16
  SafetensorsWriter writer(
      file, {{"a", DataType::float32, {2, 3}}, {"b", DataType::float64, {2}}, {"c", DataType::bfloat16, {3}}},
      {{"format", "pt"}});
  writer.append(a, sizeof a);
  writer.append(b, sizeof b);
  writer.append(c, sizeof c);
  writer.finish();
  EXPECT_EQ(writer.crc32(), file_crc32(file));
  EXPECT_EQ(writer.bytes(), int64_t(contents(file).size()));
  return file;
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const SafetensorsFile file(write_sample());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries().at("a").shape, (std::vector<int64_t>{2, 3}));
  double values[6];
  read_elements(file, file.entries().at("a"), 1, 3, values);
  EXPECT_EQ(values[0], -2.5);
  EXPECT_EQ(values[2], 0.0);
  read_elements(file, file.entries().at("b"), 0, 2, values);
  EXPECT_EQ(values[1], 0.2);
  read_elements(file, file.entries().at("c"), 0, 3, values);
  EXPECT_EQ(values[1], -2.0);
  EXPECT_TRUE(std::isinf(values[2]));
}

TEST(Safetensors, WrongHeadersAreRefused) {
  const std::string file = path_of("wrong.safetensors");
  const auto refused = [&](const std::string& header, uint64_t length) {
    put(file, std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(16, '\0'));
    EXPECT_THROW(SafetensorsFile{file}, UserError) << header;
  };
  const auto exact = [&](const std::string& header) { refused(header, header.size()); };
  refused("{}", 1ULL << 60);
  refused("{}", 1000);
  exact("[1]");
  exact("{\"a\":1}");
  exact(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,20]}})");
  exact(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[8,0]}})");
  exact(R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})");
  exact(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}})");
  exact(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})");
  exact(R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,16]}})");
  put(file, "1234");
  EXPECT_THROW(SafetensorsFile{file}, UserError);
}

// A short fuzz: bytes of a good file changed, cut or doubled at random. Everything is refused or read in
// bounds.
TEST(Safetensors, DamagedFilesAreRefusedOrHarmless) {
  const std::string good = contents(write_sample()), file = path_of("fuzzed.safetensors");
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (int edit = int(random() % 4); edit >= 0; --edit) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = char(random());
          break;
        case 1:
          bytes.resize(at + 1);
          break;
        case 2:
          bytes.insert(at, bytes.substr(at, random() % 20));
          break;
        default:
          bytes[at] = "0123456789{}[],:\"FB"[random() % 19];
      }
    }
    put(file, bytes);
    try {
      const SafetensorsFile read(file);
      for (const auto& [name, entry] : read.entries()) {
        std::vector<double> values(static_cast<size_t>(entry.count()));
        read_elements(read, entry, 0, entry.count(), values.data());
      }
    } catch (const UserError&) {
    }
  }
}

TEST(Safetensors, AFullDiskIsARunError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_THROW(SafetensorsWriter("/dev/full", {{"a", DataType::float32, {1}}}, {}), RunError);
}

}  // namespace
}  // namespace mpt::runtime
