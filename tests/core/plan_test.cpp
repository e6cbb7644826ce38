// SPDX-License-Identifier: Apache-2.0
#include "core/plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/core_plan.h"
#include "tests/support/golden.h"
#include "tests/support/schema.h"

namespace mpt {
namespace {

std::string error_of(const Json& json) {
  try {
    plan_from_text(json.dump(), "plan.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

Json sample() { return Json::parse(plan_to_text(test::core_plan("1f1b", 2, 1, 4))); }

TEST(Plan, RoundTripsThroughText) {
  for (const auto& plan : {test::core_plan("1f1b", 2, 1, 4), test::core_plan("interleaved", 2, 2, 4),
                           test::core_plan("gpipe", 4, 1, 3, 2, 2), test::core_plan("1f1b", 1, 1, 1)}) {
    EXPECT_EQ(plan_from_text(plan_to_text(plan), "plan.json"), plan);
  }
}

// Names of files may be anything.
TEST(Plan, IsWrittenAndReadWithNamesThatAreNoText) {
  Plan plan = test::core_plan("1f1b", 2, 1, 4);
  plan.cluster.name = "\xfb.json";
  EXPECT_EQ(plan_from_text(plan_to_text(plan), "plan.json").layout, plan.layout);
}

TEST(Plan, KeepsTheScheduleAsReadableRows) {
  EXPECT_EQ(sample()["schedule"]["rows"]["0"], "F0 F1 B0 F2 B1 F3 B2 B3");
}

TEST(Plan, AnEditedScheduleNoLongerMatchesTheDigest) {
  Json json = sample();
  json["schedule"]["rows"]["0"] = "F0 F1 F2 F3 B0 B1 B2 B3";
  const std::string error = error_of(json);
  EXPECT_NE(error.find("/program_digest"), std::string::npos) << error;
  EXPECT_NE(error.find("plan again"), std::string::npos);
}

TEST(Plan, AnImpossibleScheduleIsShownWithTheCellMarked) {
  Json json = sample();
  json["schedule"]["rows"]["1"] = "B0 F0 F1 B1 F2 B2 F3 B3";
  const std::string error = error_of(json);
  EXPECT_NE(error.find("/schedule"), std::string::npos) << error;
  EXPECT_NE(error.find("[B0]"), std::string::npos) << error;
}

struct BadPlan {
  const char* pointer;
  Json value;
  const char* expected;  // part of the message
};

TEST(Plan, EveryBadFieldIsNamed) {
  const std::vector<BadPlan> bad{
      {"/format", "other", "/format"},
      {"/version", 99, "newer mpt-plan"},
      {"/version", 3, "older mpt-plan: plan again"},
      {"/layout/schedule", "1f1B", "did you mean \"1f1b\"?"},
      {"/layout/tensor", 3, "heads 4 does not divide by tensor 3"},
      {"/layout/data", 1000000, "global batch"},
      {"/layout/layers_per_stage", Json::array({1, 2}), "adds up to 3"},
      {"/layout/pipeline", -1, "/layout/pipeline"},
      {"/layout/pipeline", 1e18, "/layout/pipeline"},
      {"/schedule/rows", Json::object(), "no row for rank 0"},
      {"/schedule/rows/0", "F0 Q1", "\"Q1\""},
      {"/schedule/micro_batches", 3, "/schedule"},
      {"/schedule/micro_batches", 10000000, "/schedule"},
      {"/footprints", Json::array(), "/footprints"},
      {"/cluster/devices", 1, "2 ranks for 1 devices"},
      {"/workload/sequence", 4096, "128 positions"},
      {"/model/kv_heads", 3, "/kv_heads"},
      {"/program_digest", "feedfeedfeedfeed", "/program_digest"},
      {"/prediction/memory/0/rank", 90000, "/prediction/memory/0/rank: 90000; expected 0"},
      {"/prediction/memory/1/rank", 0, "/prediction/memory/1/rank: 0; expected 1"},
      {"/prediction/memory", Json::array(), "/prediction/memory: 0 entries; expected one for each of 2"},
      {"/prediction/memory/2", Json(), "/prediction/memory/2"},
      {"/durations/0/stage", 99999, "/durations/0/stage: 99999; expected one of 2 stages"},
      {"/schedule/rank_of_stage/1", 99999, "a stage is placed on rank 99999"},
      {"/schedule/rank_of_stage", Json::array({0, 0}), "rank 0 holds more than 1 stages"},
      {"/schedule/rows/0", "F0 F99999 B0 B99999", "no such stage or micro-batch"},
      {"/schedule/rows/1", "9999F0", "no such stage or micro-batch"},
      {"/model/name", "x\n#", "/model/name"},
      {"/cluster/levels/0/name", "\x1b[2J", "/cluster/levels/0/name"},
      {"/cluster/device/name", std::string(300, 'x'), "at most 200 bytes"},
  };
  for (const BadPlan& b : bad) {
    Json json = sample();
    json[Json::json_pointer(b.pointer)] = b.value;
    const std::string error = error_of(json);
    EXPECT_NE(error.find(b.expected), std::string::npos) << b.pointer << ": " << error;
  }
}

// The prediction is of the plan as it was made.
TEST(Plan, EditedInputsAreRefusedByTheirPlace) {
  const std::pair<const char*, Json> edits[] = {{"/workload/sequence", 8},
                                                {"/model/hidden", 8},
                                                {"/model/vocab", 999},
                                                {"/layout/precision", "bf16"},
                                                {"/layout/recompute", "full"},
                                                {"/layout/offload_optimizer", true},
                                                {"/cluster/levels/0/bandwidth_bytes_per_s", 1e12},
                                                {"/memory_limit_bytes", 1}};
  for (const auto& [pointer, value] : edits) {
    Json json = sample();
    Json& edited = json.at(Json::json_pointer(pointer));
    ASSERT_NE(edited, value) << pointer;
    edited = value;
    const std::string error = error_of(json);
    const std::string section = std::string(pointer).substr(0, std::string(pointer).find('/', 1));
    EXPECT_NE(error.find("plan.json at " + section + ": edited"), std::string::npos)
        << pointer << ": " << error;
    EXPECT_NE(error.find("mpt-plan --request plan.json"), std::string::npos) << error;
    json.erase("input_digests");
    EXPECT_NE(error_of(json).find("plan.json at /input_digests: missing"), std::string::npos) << pointer;
  }
}

TEST(Plan, WhatToolsChangeInJsonIsNoEdit) {
  Json json = sample();
  const Json workload = json["workload"];
  json["workload"] = Json::object();
  for (auto entry = workload.rbegin(); entry != workload.rend(); ++entry)
    json["workload"][entry.key()] = double(entry.value().get<int64_t>());
  EXPECT_EQ(error_of(json), "no error");
}

// Their products must not overflow where ranks are counted.
TEST(Plan, LayoutsOfTheRankingHaveSoundDegrees) {
  Json json = sample();
  for (const char* list : {"ranking", "front"}) {
    Json layout = json["layout"];
    layout["tensor"] = layout["pipeline"] = layout["data"] = 10'000'000;
    json[list] = Json::array({{{"layout", layout},
                               {"step_time_s", 1},
                               {"bubble_share", 0},
                               {"peak_bytes", 1},
                               {"tokens_per_s", 1}}});
    const std::string error = error_of(json), at = fmt::format("/{}/0/layout", list);
    EXPECT_NE(error.find(at), std::string::npos) << error;
    EXPECT_NE(error.find("more than 10000000 ranks"), std::string::npos) << error;
  }
}

TEST(Plan, BytesOfAStepFitIn64Bits) {
  Json json = Json::parse(plan_to_text(test::core_plan("1f1b", 2, 1, 400)));
  for (const char* bytes : {"saved_bytes", "saved_for_weight_bytes", "boundary_bytes"})
    json["footprints"][0][bytes] = 9e15;
  EXPECT_NE(error_of(json).find("/footprints"), std::string::npos) << error_of(json);
  EXPECT_NE(error_of(json).find("bytes in a step"), std::string::npos);
}

TEST(Plan, EachDurationStandsOnce) {
  Json json = sample();
  json["durations"].push_back(json["durations"][0]);
  EXPECT_NE(error_of(json).find("a second forward of stage 0"), std::string::npos) << error_of(json);
}

TEST(Plan, TruncatedAnywhereIsAnErrorNeverACrash) {
  const std::string text = plan_to_text(test::core_plan("1f1b", 2, 1, 2));
  for (size_t length = 0; length + 2 < text.size(); length += 37) {
    EXPECT_THROW(plan_from_text(text.substr(0, length), "cut.json"), UserError) << length;
  }
}

TEST(Plan, DurationsCoverTheProgramOrSayWhichIsMissing) {
  Plan plan = test::core_plan("1f1b", 2, 1, 2);
  const StepProgram program = program_of(plan);
  EXPECT_EQ(durations_of(plan, program).size(), program.instructions.size());
  plan.durations.pop_back();
  EXPECT_THROW(durations_of(plan, program), UserError);
}

TEST(Plan, SchemaInTheTreeIsTheOneOfTheFieldLists) {
  Json schema = parse_json(schema_text<Plan>("mpt plan"), "schema");
  Json digests{{"type", "object"}, {"additionalProperties", false}};
  const Json plan = parse_json(plan_to_text(test::core_plan("1f1b", 2, 1, 2)), "plan");
  for (const auto& [input, digest] : plan.at("input_digests").items())
    digests["properties"][input] = {{"type", "string"}};
  digests["description"] = "digests of what the prediction is about";
  schema["properties"]["input_digests"] = digests;
  schema["required"].push_back("input_digests");
  test::expect_source_file("docs/plan.schema.json", schema.dump(2) + "\n");
}

}  // namespace
}  // namespace mpt
