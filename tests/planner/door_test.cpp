// SPDX-License-Identifier: Apache-2.0

// The door for programs: the same answers as the functions that mpt-plan calls, to the last digit.

#include "planner/door/door.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "core/bound_words.h"
#include "planner/answer/known_plan.h"

namespace mpt::planner {
namespace {

Json ask(const Json& question, const Watch& watch = {}) {
  return parse_json(answer_json(question.dump(), watch), "answer");
}

Json llama() {
  return {{"model", "llama3-8b"}, {"cluster", "dgx-h100:1"}, {"global_batch", 64}, {"threads", 1}};
}

// What differs between two runs of one search.
Json without_time(Json plan) {
  plan["search"].erase("seconds");
  return plan;
}

// What mpt-plan prints; skips where it is not built.
std::optional<std::string> printed(const std::string& arguments) {
  const std::string program = MPT_BINARY_DIR "/bin/mpt-plan";
  if (access(program.c_str(), X_OK) != 0) return std::nullopt;
  std::FILE* const pipe = popen((program + " " + arguments + " 2>/dev/null").c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  EXPECT_EQ(pclose(pipe), 0) << arguments;
  return text;
}

void expect_same_plan(const Json& question, const std::string& arguments) {
  const Json answer = ask(question);
  ASSERT_TRUE(answer.contains("answer")) << answer.dump(1);
  const auto text = printed(arguments + " --json");
  if (!text) GTEST_SKIP() << "mpt-plan is not built";
  const Json ours = without_time(answer["answer"]["plan"]);
  const Json theirs = without_time(parse_json(*text, "mpt-plan"));
  for (const auto& [key, value] : theirs.items())
    EXPECT_EQ(ours.value(key, Json()).dump(), value.dump()) << key << " of " << arguments;
  EXPECT_EQ(ours.size(), theirs.size());
}

TEST(Door, GivesThePlansOfTheProgram) {
  expect_same_plan({{"do", "plan"}, {"request", llama()}},
                   "--model llama3-8b --cluster dgx-h100:1 --global-batch 64 --threads 1");
  Json request = llama();
  request["framework"] = "torchtitan";
  request["seq"] = 8192;
  request["bounds"] = {{"tp", {1, 2}}};
  expect_same_plan({{"do", "plan"}, {"request", request}},
                   "--model llama3-8b --cluster dgx-h100:1 --global-batch 64 --threads 1 --framework "
                   "torchtitan --seq 8192 --tp 1,2");
  request["bounds"] = {{"tp", {2}}, {"zero", {1}}};
  expect_same_plan(
      {{"do", "estimate"}, {"request", request}},
      "estimate --model llama3-8b --cluster dgx-h100:1 --global-batch 64 --threads 1 --framework "
      "torchtitan --seq 8192 --tp 2 --zero 1");
}

TEST(Door, AnswersAboutAPlan) {
  const Json plan = ask({{"do", "plan"}, {"request", llama()}})["answer"]["plan"];
  const std::string why = ask({{"do", "why_not"}, {"plan", plan}, {"layout", "tp=8"}})["answer"]["text"];
  const KnownPlan known{plan_from_text(plan.dump(), "plan"), "plan", "", ""};
  EXPECT_EQ(why, why_not(known, *problem_of(known, parse_bounds("tp=8", "")), "tp=8"));
  EXPECT_EQ(ask({{"do", "explain"}, {"plan", plan}})["answer"]["text"], explain(known.plan));
  const Json diagnosis =
      ask({{"do", "diagnose"}, {"plan", plan}, {"measured", "1000s"}, {"search", false}})["answer"];
  EXPECT_EQ(diagnosis["diagnosis"]["measured_step_time_s"], 1000.0);
  const Json files =
      ask({{"do", "export"}, {"plan", plan}, {"to", {"pytorch"}}, {"force", true}})["answer"][0]["files"];
  EXPECT_EQ(files[0]["name"], "mpt_train.py");
  const Json drawn = ask({{"do", "plan"}, {"request", llama()}, {"draw", true}})["answer"];
  EXPECT_EQ(drawn["drawing"]["ranking"].size(), plan["ranking"].size());
  EXPECT_FALSE(drawn["drawing"]["series"][0][1].empty()) << "the step's timeline";
  EXPECT_NE(ask({{"do", "report"}, {"plan", plan}})["answer"]["html"].get<std::string>().find("<!DOCTYPE"),
            std::string::npos);
}

// Where nothing fits, the layout that lacks least memory is drawn: its bar is in the text, too.
TEST(Door, TheNearestLayoutIsToldWhereNothingFits) {
  Json request = llama();
  request["model"] = "llama3-405b";
  const Json error = ask({{"do", "plan"}, {"request", request}})["error"];
  ASSERT_TRUE(error.contains("nearest")) << error.dump(1);
  EXPECT_NE(error["text"].get<std::string>().find("g gradients "), std::string::npos) << "the bar";
  request["layout"] = error["nearest"];
  const Json doctor = ask({{"do", "doctor"}, {"request", request}})["answer"];
  ASSERT_EQ(doctor["memory"].size(), 8u);
  double sum = 0.0;
  for (const Json& part : doctor["memory"]) sum += double(part["bytes"]);
  EXPECT_GT(sum, 3.0 * double(doctor["device_bytes"])) << "of a GPU with 80 GB";
  EXPECT_EQ(doctor["device_bytes"], int64_t{80} << 30);
  request = llama();
  request["bounds"] = {{"tp", {3}}};
  EXPECT_FALSE(ask({{"do", "plan"}, {"request", request}})["error"].contains("nearest")) << "nothing divides";
}

// A choice that is no degree is a question about the layouts that have it, as tp=2 is.
TEST(Door, OtherChoicesThanDegreesAreOfLayoutsThatHaveThem) {
  Json request = llama();
  request["cluster"] = "dgx-h100:2";
  const Json plan = ask({{"do", "plan"}, {"request", request}})["answer"]["plan"];
  const auto answer = [&](const std::string& layout) {
    return ask({{"do", "why_not"}, {"plan", plan}, {"layout", layout}})["answer"]["text"].get<std::string>();
  };
  const auto fastest = [&](const std::string& layout) {
    const std::string text = answer(layout), mark = " of this kind is ";
    const size_t begin = text.find(mark);
    return begin == std::string::npos ? text : text.substr(begin + mark.size(), 40);
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(fastest("sp=on"), "+sp ")) << answer("sp=on");
  EXPECT_TRUE(has(fastest("cp-method=ring"), " cp")) << answer("cp-method=ring");
  EXPECT_TRUE(has(fastest("zero=3"), "zero3")) << answer("zero=3");
  EXPECT_TRUE(has(fastest("recompute=full"), "recompute=")) << answer("recompute=full");
  EXPECT_FALSE(has(fastest("schedule=1f1b"), " pp1 ")) << answer("schedule=1f1b");
  EXPECT_FALSE(has(fastest("order=data_outermost"), " pp1 ")) << answer("order=data_outermost");
  request["framework"] = "torchtitan";
  const Json sharded = ask({{"do", "plan"}, {"request", request}})["answer"]["plan"];
  const std::string one = ask({{"do", "why_not"}, {"plan", sharded}, {"layout", "zero=1"}})["answer"]["text"];
  EXPECT_TRUE(has(one, "--zero 1")) << one;
  EXPECT_TRUE(has(one, "No layout of this kind is possible")) << "it has ZeRO 2 and 3: " << one;
}

TEST(Door, TakesTheContentsOfFilesOfModelsAndClusters) {
  Json request = llama();
  request["model"] = {{"model_type", "llama"},       {"hidden_size", 4096},
                      {"intermediate_size", 14336},  {"num_hidden_layers", 32},
                      {"num_attention_heads", 32},   {"num_key_value_heads", 8},
                      {"vocab_size", 128256},        {"max_position_embeddings", 8192},
                      {"tie_word_embeddings", false}};
  request["cluster"] = {{"name", "ours"}, {"like", "dgx-h100"}, {"nodes", 1}};
  const Json own = ask({{"do", "plan"}, {"request", request}}),
             named = ask({{"do", "plan"}, {"request", llama()}});
  ASSERT_TRUE(own.contains("answer")) << own.dump(1);
  EXPECT_EQ(own["answer"]["plan"]["prediction"]["step_time_s"],
            named["answer"]["plan"]["prediction"]["step_time_s"]);
  EXPECT_EQ(own["answer"]["plan"]["cluster"]["name"], "ours");
}

TEST(Door, ReadsALengthAsTheProgramDoes) {
  Json request = llama();
  request["seq"] = "8K";
  const Json answer = ask({{"do", "estimate"}, {"request", request}});
  ASSERT_TRUE(answer.contains("answer")) << answer.dump(1);
  EXPECT_EQ(answer["answer"]["plan"]["workload"]["sequence"], 8192);
  request["seq"] = "8x";
  const Json problem = ask({{"do", "plan"}, {"request", request}})["error"]["problems"][0];
  EXPECT_EQ(problem["place"], "--seq");
  EXPECT_NE(problem["expectation"].get<std::string>().find("8k"), std::string::npos);
}

TEST(Door, NamesPlaceFindingExpectationAndRemedy) {
  Json request = llama();
  request["global_bach"] = 1;
  const Json error = ask({{"do", "plan"}, {"request", request}})["error"];
  EXPECT_EQ(error["kind"], "input");
  EXPECT_EQ(error["problems"][0]["finding"], "unknown key \"global_bach\"");
  EXPECT_EQ(error["problems"][0]["remedy"], "did you mean \"global_batch\"?");
  EXPECT_EQ(ask({{"do", "paln"}})["error"]["kind"], "input");
  EXPECT_EQ(ask({{"do", "plan"}})["error"]["kind"], "input") << "no request";
  EXPECT_EQ(ask({{"do", "plan"}, {"request", llama()}, {"layout", "tp=8"}})["error"]["kind"], "input")
      << "a field of another question";
  EXPECT_EQ(parse_json(answer_json("{"), "answer")["error"]["kind"], "input");
  EXPECT_EQ(ask({{"do", "machine"}, {"gpus", {"Voodoo 2"}}})["error"]["problems"][0]["finding"], "Voodoo 2");
}

TEST(Door, KnowsThisMachineByItsDriversNames) {
  const Json gpus(std::vector<std::string>(4, "NVIDIA H100 80GB HBM3"));
  const Json cluster = ask({{"do", "machine"}, {"gpus", gpus}})["answer"];
  EXPECT_EQ(cluster["like"], "dgx-h100");
  Json request = llama();
  request["cluster"] = cluster;
  const Json plan = ask({{"do", "plan"}, {"request", request}});
  ASSERT_TRUE(plan.contains("answer")) << plan.dump(1);
  EXPECT_EQ(plan["answer"]["plan"]["cluster"]["devices"], 4);
}

struct Heard {
  int told = 0, asked = 0;
};

TEST(Door, AStopGivesTheBestSoFar) {
  Json request = llama();
  request["model"] = "llama3-70b";
  request["cluster"] = "dgx-h100:32";
  Heard heard;
  char* const text = mpt_answer(
      Json{{"do", "plan"}, {"request", request}}.dump().c_str(),
      [](void* context, const char* progress) {
        ++static_cast<Heard*>(context)->told;
        EXPECT_TRUE(parse_json(progress, "progress").contains("layouts"));
      },
      [](void* context) { return ++static_cast<Heard*>(context)->asked > 0 ? 1 : 0; }, &heard);
  const Json answer = parse_json(text, "answer");
  mpt_free(text);
  EXPECT_EQ(heard.asked, 1) << "a stop is asked for once";
  EXPECT_EQ(heard.told, 1);
  EXPECT_EQ(answer["stopped"], true);
  ASSERT_TRUE(answer.contains("answer")) << answer.dump(1);
  EXPECT_EQ(answer["answer"]["plan"]["search"]["optimal"], false);
}

}  // namespace
}  // namespace mpt::planner
