// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/profile.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/little_profile.h"

namespace mpt::profiler {
namespace {

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
  write_file_atomically(file, profile_to_text(test::little_profile()));
  EXPECT_EQ(load_profile(file), test::little_profile());
  Profile other = test::little_profile();
  other.pieces[0].seconds *= 2;
  EXPECT_NE(profile_digest(other), profile_digest(test::little_profile()));
}

TEST(Profile, BadFieldsAreNamed) {
  const std::pair<const char*, Json> bad[] = {
      {"/format", "mpt-plan"},
      {"/pieces/0/seconds", -1},
      {"/pieces/0/piece", "layr"},
      {"/pieces/0/tensor", 0},
      {"/pieces/0/layer", 4},
      {"/rate_by_active_ranks/1", 2},
      {"/rate_by_active_ranks", Json::array()},
      {"/pieces", Json::array()},
      {"/model/heads", "four"},
      {"/transport/0/bytes", 1e30},
      {"/operators/0/shape/rows", -5},
      {"/version", 7},
  };
  for (const auto& [pointer, value] : bad) {
    Json json = to_json(test::little_profile());
    json[Json::json_pointer(pointer)] = value;
    EXPECT_NE(error_of(json).find(pointer), std::string::npos) << pointer << ": " << error_of(json);
  }
}

TEST(Profile, TruncatedAnywhereIsAnError) {
  const std::string text = profile_to_text(test::little_profile()),
                    file = testing::TempDir() + "/cut_profile.json";
  for (size_t length = 0; length + 2 < text.size(); length += 53) {
    write_file_atomically(file, text.substr(0, length));
    EXPECT_THROW(load_profile(file), UserError);
  }
}

TEST(Profile, HoldsForModelsWhoseLayersAreTheSame) {
  const Profile profile = test::little_profile();
  ModelSpec model = profile.model;
  model.name = "another";
  model.layers = LayerList(40, model.layers[0]);
  EXPECT_TRUE(profile_matches(profile, model, 32, Precision::fp32));
  EXPECT_FALSE(profile_matches(profile, model, 64, Precision::fp32));
  EXPECT_FALSE(profile_matches(profile, model, 32, Precision::bf16));
  model.layers.change([](LayerKind& k) { k.mlp->ffn_hidden *= 2; });
  EXPECT_FALSE(profile_matches(profile, model, 32, Precision::fp32));
}

}  // namespace
}  // namespace mpt::profiler
