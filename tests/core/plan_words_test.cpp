// SPDX-License-Identifier: Apache-2.0
#include "core/plan_words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/layout.h"
#include "core/schedule_catalog.h"

namespace mpt {
namespace {

std::string source(const char* path) {
  std::ifstream file(std::filesystem::path(MPT_SOURCE_DIR) / path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> matches(const std::string& text, const char* pattern) {
  std::vector<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

std::string without(const char* pattern, const std::string& text) {
  return std::regex_replace(text, std::regex(pattern), "");
}

// All that layout_name() may print, from its own source: the words of its literals, without numbers.
std::vector<std::string> tokens_of_layout_name() {
  const std::string code = source("core/layout.cpp");
  const size_t begin = code.find("std::string layout_name(");
  std::vector<std::string> tokens;
  for (const std::string& literal :
       matches(code.substr(begin, code.find("\n}\n", begin) - begin), "\"([^\"]*)\"")) {
    std::istringstream words(literal);
    for (std::string word; words >> word;) tokens.push_back(without("[{}0-9]", word));
  }
  return tokens;
}

TEST(LayoutWords, ThePageOfTheShortFormHasEveryTokenThatItPrints) {
  const std::string whole = source("docs/notation.md");
  std::vector<std::string> explained;
  for (const std::string& code : matches(whole, "`([^`\n]*)`")) {
    if (!code.starts_with("--")) explained.push_back(without("[0-9]", code));
  }
  const std::vector<std::string> tokens = tokens_of_layout_name();
  ASSERT_GE(tokens.size(), 15u) << "the function has another form";
  for (const std::string& token : tokens) {
    if (token.empty() || token == "+") continue;
    EXPECT_TRUE(std::any_of(explained.begin(), explained.end(), [&](const std::string& code) {
      return code.starts_with(token) || code.ends_with(token);
    })) << token;
  }
  const auto expect_word = [&](const std::string& word) {
    EXPECT_NE(whole.find("`" + word + "`"), std::string::npos) << word;
  };
  for (const std::string& name : schedule_names()) expect_word(name);
  for (const RecomputeModule& module : recompute_modules()) expect_word(module.name);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    expect_word("recompute=" + enum_name(recompute));
}

TEST(LayoutWords, NamesWhatALayoutUsesAndNothingElse) {
  Layout l;
  EXPECT_EQ(describe_layout_in_words(l), "nothing split, micro-batches of 1 sequence, no recompute");
  l.tensor = 4;
  l.sequence_parallel = true;
  l.pipeline = 2;
  l.data = 8;
  l.chunks = 3;
  l.schedule = "interleaved";
  l.zero = 1;
  l.shard = 8;
  l.micro_batch = 2;
  EXPECT_EQ(describe_layout_in_words(l),
            "tensor parallel 4 with sequence parallel, 2 pipeline stages (interleaved, 3 chunks each), data "
            "parallel 8, ZeRO 1, micro-batches of 2 sequences, no recompute");
}

TEST(LayoutWords, TellsWhatTheShortFormTells) {
  Layout l;
  l.context = 2;
  l.context_method = ContextMethod::all_to_all;
  l.data = 4;
  l.pipeline = 2;
  l.expert = 4;
  l.expert_tensor = 2;
  l.zero = 3;
  l.shard = 4;
  l.order = RankOrder::data_outermost;
  l.offload_optimizer = true;
  l.recompute = Recompute::full;
  l.recomputed_layers = {0, 3};
  const std::string text = describe_layout_in_words(l);
  for (const char* part :
       {"context parallel 2 (all-to-all)", "2 pipeline stages (1f1b)",
        "experts over 8 GPUs, each split over 2", "ZeRO 3 (fully sharded, FULL_SHARD) within groups of 4",
        "data outermost", "optimizer in host memory",
        "recompute of up to 3 layers per stage (activation checkpointing)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  l.pipeline = 1;
  l.recomputed_layers = {1};
  EXPECT_EQ(describe_recompute(l), "recompute of 1 layer");
  l.recompute = Recompute::selective;
  l.recomputed_layers.clear();
  EXPECT_EQ(describe_recompute(l), "selective recompute of core_attn");
}

TEST(LayoutWords, LayersOfEachStageAreListed) {
  Layout l;
  l.pipeline = 4;
  l.layers_per_stage = {5, 11, 11, 9};
  EXPECT_NE(describe_layout_in_words(l).find("4 pipeline stages (1f1b, layers 5 11 11 9)"),
            std::string::npos);
  l.layers_per_stage = {9, 9, 9, 9};
  EXPECT_EQ(describe_layers_per_stage(l), "9 layers a stage");
  l.layers_per_stage.assign(32, 4);
  l.layers_per_stage.front() = 2;
  EXPECT_EQ(describe_layers_per_stage(l), "layers 2 4 (31 times)");
  l.layers_per_stage.clear();
  EXPECT_EQ(describe_layers_per_stage(l), "");
}

SearchCertificate certificate() {
  SearchCertificate c;
  c.layouts = 10;
  c.over_memory = 3;
  c.over_bound = 2;
  c.simulated = 1;
  c.same = 4;
  c.optimal = true;
  c.seconds = 0.5;
  return c;
}

TEST(SearchWords, CountsOfTheProofAreAllOfTheLayouts) {
  SearchCertificate c = certificate();
  const std::string counts = "3 do not fit, 2 are provably slower, 4 are duplicates, 1 simulated in full";
  EXPECT_EQ(describe_certificate(c, 2.0),
            "Searched all 10 layouts in 500 ms: " + counts + "; none is faster by MPT's model.");
  c.optimal = false;
  c.not_reached = 5;
  c.layouts = 15;
  c.gap = 0.03;
  EXPECT_EQ(
      describe_certificate(c, 2.0),
      "Stopped after 500 ms: of 15 layouts 3 do not fit, 2 are provably slower, 4 are duplicates, 5 not "
      "reached, 1 simulated in full; the best is at most 3.0% faster.");
  c.counted = false;
  EXPECT_NE(describe_certificate(c, 2.0).find("of at least 15 layouts"), std::string::npos);
}

TEST(SearchWords, TellHowFarThePlanIsFromTheFastest) {
  SearchCertificate c = certificate();
  c.fastest_s = 1.98;
  EXPECT_NE(describe_certificate(c, 2.0).find(
                "; by MPT's model a layout 1.0% faster exists, which is less simple or larger"),
            std::string::npos)
      << describe_certificate(c, 2.0);
  c.fastest_s = 2.0;
  EXPECT_NE(describe_certificate(c, 2.0).find("none is faster"), std::string::npos);
}

}  // namespace
}  // namespace mpt
