// SPDX-License-Identifier: Apache-2.0

// The space of the search against brute force: every combination of values that supports() accepts, of whole
// layouts alone, is visited once, and nothing else is.

#include "planner/search/space.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/plan.h"
#include "frameworks/framework.h"
#include "models/zoo.h"
#include "planner/search/leaves.h"
#include "profiler/hardware/catalog.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

using frameworks::Framework;

// A few ranks, a small batch and some of the schedules: all else is open.
SearchProblem small_problem(const ModelSpec& model, const Framework* framework, std::mt19937& random) {
  const auto pick = [&](std::vector<int64_t> values) { return values[random() % values.size()]; };
  SearchProblem p;
  p.model = model;
  p.cluster = profiler::load_cluster("dgx-h100:2", {});
  p.ranks = pick({6, 8, 12, 16});
  p.cluster.devices = p.ranks;
  p.workload = {pick({8, 12, 24}), pick({4096, 12288})};
  p.precision = Precision::bf16;
  p.overlaps = {true, true, false, true, false};  // those that every framework has
  p.fits_recompute = false;
  if (framework != nullptr) p.framework = std::make_shared<const Framework>(*framework);
  p.bounds.schedules = {"1f1b", schedule_catalog()[random() % (schedule_catalog().size() - 1)].name};
  std::erase(p.bounds.schedules, "generated");
  p.bounds.chunks = {1, 2};
  p.bounds.micro_batch = {1, 2, 3};
  p.bounds.recomputes = {Recompute::none, Recompute::full};
  return p;
}

// Adds layouts that differ from `whole` in one more choice each.
class BruteForce {
 public:
  explicit BruteForce(const SearchProblem& problem) : problem_(problem) {}

  std::map<std::string, Layout> run() {
    Layout l;
    l.precision = problem_.precision;
    for (l.tensor = 1; l.tensor <= problem_.ranks; ++l.tensor)
      for (l.context = 1; l.context <= problem_.ranks; ++l.context)
        for (l.pipeline = 1; l.pipeline <= problem_.ranks; ++l.pipeline) {
          const int64_t inner = l.tensor * l.context * l.pipeline;
          l.data = problem_.ranks / inner;
          if (problem_.ranks % inner == 0) splits(l);
        }
    return std::move(found_);
  }

 private:
  void splits(Layout l) {
    for (const auto& [method, name] : EnumNames<ContextMethod>::table())
      for (const auto& [order, order_name] : EnumNames<RankOrder>::table())
        for (const int64_t micro_batch : problem_.bounds.micro_batch)
          for (const bool sequence_parallel : {false, true}) {
            l.context_method = method;
            l.order = order;
            l.micro_batch = micro_batch;
            l.sequence_parallel = sequence_parallel;
            const bool one_order =
                l.pipeline == 1 || l.data == 1;  // the other is the same under another name
            if (l.context == 1 && method != ContextMethod::ring) continue;
            if (one_order && order != RankOrder::pipeline_outermost) continue;
            experts(l);
          }
  }

  void experts(Layout l) {
    const int64_t most = problem_.model.moe() != nullptr ? problem_.model.moe()->experts : 1;
    for (l.expert = 1; l.expert <= std::min(most, l.tensor * l.context * l.data); ++l.expert)
      for (const int64_t split : {int64_t{1}, l.tensor}) {
        l.expert_tensor = split == l.tensor ? 0 : split;
        const bool far = l.order == RankOrder::data_outermost && l.expert > 1;
        if (far && l.expert * split > l.tensor * l.context) continue;  // over the slowest links
        problem_.set_overlaps(l);
        shardings(l);
        if (l.tensor == 1) break;
      }
  }

  void shardings(Layout l) {
    for (l.zero = 0; l.zero <= 3; ++l.zero)
      for (l.shard = 1; l.shard <= l.replicas(); ++l.shard)
        for (const bool offload : {false, true}) {
          l.offload_optimizer = offload;
          // States are shared out over all replicas, or over those within a node.
          const int64_t near = l.order == RankOrder::pipeline_outermost
                                   ? std::gcd(l.replicas(), std::max<int64_t>(1, 8 / l.tensor))
                                   : std::gcd(l.replicas(), l.context);
          const bool nothing_to_share = l.replicas() == 1 || !l.reduces_gradients();
          if (nothing_to_share && l.zero > 0 && !offload) continue;
          if (l.zero > 0 && !nothing_to_share &&
              (l.shard == 1 || (l.shard != l.replicas() && l.shard != near)))
            continue;
          leaves(l);
        }
  }

  void leaves(Layout l) {
    for (const ScheduleEntry& entry : schedule_catalog())
      for (const int64_t chunks : problem_.bounds.chunks)
        for (const Recompute recompute : problem_.bounds.recomputes) {
          l.schedule = entry.name;
          l.chunks = chunks;
          l.recompute = recompute;
          if (!allowed(problem_.bounds.schedules, l.schedule)) continue;
          if (chunks < entry.min_chunks || chunks > entry.max_chunks) continue;
          if (l.pipeline == 1 && (chunks > 1 || l.schedule != "1f1b")) continue;  // nothing to order
          if (l.stages() > problem_.model.layers.count()) continue;
          l.layers_per_stage = even_stages(problem_.model.layers.count(), l.stages());
          if (accepted(l)) found_.emplace(layout_name(l), l);
        }
  }

  bool accepted(const Layout& l) const {
    if (check_layout(problem_.model, l, problem_.workload)) return false;
    return !problem_.framework ||
           !frameworks::supports(*problem_.framework, problem_.model, l, problem_.workload);
  }

  const SearchProblem& problem_;
  std::map<std::string, Layout> found_;
};

std::map<std::string, Layout> visited(const SearchProblem& problem, std::string* twice) {
  std::map<std::string, Layout> found;
  visit_shardings(problem, [&](const Layout& node) {
    for (const Leaf& leaf : leaves_of(problem, node)) {
      if (leaf.split != StageSplit::even) continue;
      const Layout layout = with_leaf(problem, node, leaf);
      if (!found.emplace(layout_name(layout), layout).second) *twice = layout_name(layout);
    }
  });
  return found;
}

// Names of what one has and the other has not, or has with other values.
std::string difference(const std::map<std::string, Layout>& a, const std::map<std::string, Layout>& b) {
  for (const auto& [name, layout] : a) {
    const auto at = b.find(name);
    if (at == b.end() || !(at->second == layout)) return name;
  }
  return "";
}

struct Compared {
  int64_t layouts = 0, expert_ranks = 0, whole_experts_beside_tensor = 0;
};

void compare(const SearchProblem& problem, const std::string& name, Compared& counts) {
  std::string twice;
  const std::map<std::string, Layout> expected = BruteForce(problem).run();
  const std::map<std::string, Layout> found = visited(problem, &twice);
  EXPECT_EQ(twice, "") << name << ": visited twice";
  EXPECT_EQ(difference(expected, found), "") << name << ": not visited, or with other values";
  EXPECT_EQ(difference(found, expected), "") << name << ": visited, but not supported";
  counts.layouts += int64_t(found.size());
  for (const auto& [layout_name, l] : found) {
    counts.expert_ranks += int64_t(l.expert > 1);
    counts.whole_experts_beside_tensor += int64_t(l.tensor > 1 && l.expert_tensor == 1);
  }
}

// Experts with biases, with widths and numbers that degrees divide in part, key-value heads of another number
// than heads, mixers, windows, tied embeddings; and models of the zoo in turn.
TEST(Space, IsAllThatSupportsAccepts) {
  std::vector<std::string> names{"gpt-oss-20b",   "qwen3-30b-a3b",     "mixtral-8x7b", "deepseek-v3",
                                 "llama3-8b",     "moonlight-16b-a3b", "gemma3-4b",    "qwen2.5-0.5b",
                                 "glm-4.7-flash", "qwen3-next-80b-a3b"};
  const std::vector<std::string> zoo = models::zoo_names();
  std::mt19937 random(1);
  for (int i = 0; i < 6; ++i) names.push_back(zoo[random() % zoo.size()]);
  std::map<std::string, Compared> by_model;
  for (const std::string& name : names) {
    const ModelSpec model = models::load_model(name);
    compare(small_problem(model, nullptr, random), name, by_model[name]);
    for (const Framework& framework : frameworks::known_frameworks()) {
      if (frameworks::supports_model(framework, model, Precision::bf16)) continue;
      compare(small_problem(model, &framework, random), name + " on " + framework.name, by_model[name]);
    }
  }
  for (const auto& [name, counts] : by_model) EXPECT_GT(counts.layouts, 0) << name;
  for (const char* name : {"gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3"}) {
    EXPECT_GT(by_model[name].expert_ranks, 100) << name;
    EXPECT_GT(by_model[name].whole_experts_beside_tensor, 10) << name;
  }
}

// Sinks, which Megatron-LM trains wrong over tensor ranks, left out.
ModelSpec gpt_oss_without_sinks() {
  ModelSpec model = models::load_model("gpt-oss-20b");
  model.layers.change([](LayerKind& kind) { kind.attention->sinks = false; });
  model.type.clear();
  return model;
}

// Megatron-LM splits no experts that have biases, but runs them whole beside tensor ranks.
TEST(Space, ExpertsWithBiasesStandWholeBesideTensorRanks) {
  std::mt19937 random(1);
  SearchProblem p =
      small_problem(gpt_oss_without_sinks(), frameworks::find_framework("megatron-core"), random);
  p.ranks = p.cluster.devices = 16;
  p.workload = {64, 4096};
  p.bounds.tensor = {4};
  int64_t nodes = 0;
  visit_degrees(p, [&](const Layout& l, const auto&) {
    EXPECT_EQ(l.expert_tensor, 1);
    ++nodes;
  });
  EXPECT_GT(nodes, 0);
}

// Of what the user fixed, not of choices that the search has beside it.
TEST(Space, ARefusalNamesWhatWasAskedFor) {
  std::mt19937 random(1);
  SearchProblem p =
      small_problem(models::load_model("mixtral-8x7b"), frameworks::find_framework("megatron-core"), random);
  p.ranks = p.cluster.devices = 16;
  p.workload = {64, 4096};
  p.bounds.tensor = {4};
  p.bounds.expert = {2};
  p.bounds.expert_tensor = {2};
  NotDividing reasons;
  visit_degrees(
      p, {}, [](const Layout&, const auto&) { ADD_FAILURE(); }, reasons);
  for (const auto& [reason, count] : reasons)
    EXPECT_NE(reason.find("experts stay whole or are split 4 ways"), std::string::npos) << reason;
  EXPECT_FALSE(reasons.empty());

  p.model = gpt_oss_without_sinks();
  p.bounds.expert = {};
  p.bounds.expert_tensor = {4};
  reasons.clear();
  visit_degrees(
      p, {}, [](const Layout&, const auto&) { ADD_FAILURE(); }, reasons);
  ASSERT_EQ(reasons.size(), 1u) << reasons.begin()->first << "; " << reasons.rbegin()->first;
  EXPECT_NE(reasons.begin()->first.find("does not split experts that have biases"), std::string::npos);
}

}  // namespace
}  // namespace mpt::planner
