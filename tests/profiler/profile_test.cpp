// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/profile.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/support/make_plan.h"

namespace mpt::profiler {
namespace {

Profile sample() {
  Profile profile;
  profile.date = "2026-01-02T03:04:05Z";
  profile.mpt_version = "0.1.0";
  profile.machine = {"cpu", DeviceKind::cpu, "system", 2, 1 << 30};
  profile.model = test::little_gpt();
  profile.sequence = 32;
  profile.memory_bandwidth_bytes_per_s = 1e10;
  profile.matmul_flop_per_s = 5e10;
  profile.optimizer_s_per_parameter = 1e-9;
  profile.gradient_norm_s_per_parameter = 1e-10;
  profile.dispatch_s = 1e-6;
  profile.rate_by_active_ranks = {1.0, 0.9};
  profile.pieces = {{Piece::layer, Phase::backward, 4, 2, Recompute::full, 1.25e-3, 0.01}};
  models::OperatorShape shape;
  shape.rows = shape.columns = shape.inner = 64;
  profile.operators = {{shape, Phase::forward, 1e-5, 0.1}};
  profile.transport = {{TransportOperation::all_reduce, 2, 1024, 1e-6, 0.2}};
  return profile;
}

std::string error_of(const Json& json) {
  const std::string file = testing::TempDir() + "/profile_under_test.json";
  write_file_atomically(file, json.dump());
  try {
    load_profile(file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Profile, RoundTripsAndTheDigestFollowsTheContent) {
  const std::string file = testing::TempDir() + "/profile.json";
  write_file_atomically(file, profile_to_text(sample()));
  EXPECT_EQ(load_profile(file), sample());
  Profile other = sample();
  other.pieces[0].seconds *= 2;
  EXPECT_NE(profile_digest(other), profile_digest(sample()));
}

TEST(Profile, BadFieldsAreNamed) {
  const std::pair<const char*, Json> bad[] = {
      {"/format", "mpt-plan"},
      {"/pieces/0/seconds", -1},
      {"/pieces/0/piece", "layr"},
      {"/pieces/0/tensor", 0},
      {"/rate_by_active_ranks/1", 2},
      {"/rate_by_active_ranks", Json::array()},
      {"/pieces", Json::array()},
      {"/model/heads", "four"},
      {"/transport/0/bytes", 1e30},
      {"/operators/0/shape/rows", -5},
      {"/version", 7},
  };
  for (const auto& [pointer, value] : bad) {
    Json json = to_json(sample());
    json[Json::json_pointer(pointer)] = value;
    EXPECT_NE(error_of(json).find(pointer), std::string::npos) << pointer << ": " << error_of(json);
  }
}

TEST(Profile, TruncatedAnywhereIsAnError) {
  const std::string text = profile_to_text(sample()), file = testing::TempDir() + "/cut_profile.json";
  for (size_t length = 0; length + 2 < text.size(); length += 53) {
    write_file_atomically(file, text.substr(0, length));
    EXPECT_THROW(load_profile(file), UserError);
  }
}

TEST(Profile, HoldsForModelsWhoseLayersAreTheSame) {
  const Profile profile = sample();
  ModelSpec model = profile.model;
  model.name = "another";
  model.layers = 40;
  EXPECT_TRUE(profile_matches(profile, model, 32, Precision::fp32));
  EXPECT_FALSE(profile_matches(profile, model, 64, Precision::fp32));
  EXPECT_FALSE(profile_matches(profile, model, 32, Precision::bf16));
  model.ffn_hidden *= 2;
  EXPECT_FALSE(profile_matches(profile, model, 32, Precision::fp32));
}

}  // namespace
}  // namespace mpt::profiler
