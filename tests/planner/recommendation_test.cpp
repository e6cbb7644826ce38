// SPDX-License-Identifier: Apache-2.0

// A recommendation runs: the framework supports it, takes its export without a warning, and what was exported
// comes back as the same layout of the same model.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "core/schedule_catalog.h"
#include "frameworks/framework.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "models/parameter_count.h"
#include "planner/api.h"
#include "planner/recipes/recipes.h"
#include "tests/support/random_request.h"

namespace mpt::planner {
namespace {

using frameworks::Framework;
using frameworks::FrameworkCode;

uint32_t seeds_of_run() { return std::getenv("MPT_SOAK") != nullptr ? 300 : 30; }

std::vector<std::string> frameworks_with_both_ways() {
  std::vector<std::string> names;
  for (const FrameworkCode& code : frameworks::framework_code()) {
    if (code.write != nullptr && code.importer.read != nullptr) names.emplace_back(code.framework);
  }
  return names;
}

const FrameworkCode& code_named(const std::string& name) {
  const std::vector<FrameworkCode>& all = frameworks::framework_code();
  return *std::find_if(all.begin(), all.end(), [&](const FrameworkCode& c) { return name == c.framework; });
}

// The importer reads the first file; the others lie beside it.
std::filesystem::path written(const frameworks::Exported& exported, const std::string& framework) {
  const std::filesystem::path folder = testing::TempDir() + "/recommendation_" + framework;
  std::filesystem::create_directories(folder);
  for (const frameworks::ExportedFile& file : exported.files)
    write_file_atomically(folder / file.name, file.text);
  return folder / exported.files.front().name;
}

// "tensor: 2, not 4".
std::string differences(const Json& found, const Json& wanted) {
  std::vector<std::string> lines;
  for (const auto& [field, value] : wanted.items()) {
    if (!found.contains(field) || found[field] != value)
      lines.push_back(fmt::format("{}: {}, not {}", field,
                                  found.contains(field) ? found[field].dump() : "nothing", value.dump()));
  }
  for (const auto& [field, value] : found.items()) {
    if (!wanted.contains(field)) lines.push_back(fmt::format("{}: {}, not nothing", field, value.dump()));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

// Without switches of what the layout does not have: no framework has a place for them.
Layout in_effect(Layout l, const ModelSpec& model) {
  l.execution = Execution{};
  if (!l.reduces_gradients()) l.overlap_gradient_reduce = false;
  if (l.zero == 0 || l.replicas() == 1) l.overlap_parameter_gather = false;
  if (l.pipeline == 1) l.schedule = "1f1b";
  if (l.chunks == 1)
    l.overlap_transfer = true;  // those of other schedules than interleaved ones have no switch
  if (l.pipeline == 1 || l.data == 1) l.order = RankOrder::pipeline_outermost;
  if (l.context == 1) l.context_method = ContextMethod::ring;
  if (l.expert_tensor == l.tensor || model.moe() == nullptr) l.expert_tensor = 0;
  if (l.recompute != Recompute::selective) l.selective = SelectiveRecompute{};
  const std::vector<int64_t>& layers = l.recomputed_layers;
  if (!layers.empty() && std::all_of(layers.begin(), layers.end(), [](int64_t n) { return n == 0; }))
    l.recompute = Recompute::none;
  if (l.recompute != Recompute::full || layers == l.layers_per_stage) l.recomputed_layers.clear();
  return l;
}

std::string layout_difference(const Layout& found, const Layout& wanted, const ModelSpec& model) {
  return differences(to_json(in_effect(found, model)), to_json(in_effect(wanted, model)));
}

std::string model_difference(ModelSpec found, ModelSpec wanted) {
  found.name = wanted.name = "";
  for (ModelSpec* model : {&found, &wanted}) model->type = model->hub_id = "";
  found.max_positions = wanted.max_positions = 1;  // frameworks make room for the plan's sequence
  return differences(to_json(found), to_json(wanted));
}

void expect_comes_back(const FrameworkCode& code, const Plan& plan, const PlanRequest& asked) {
  const auto exported = code.write(plan);
  EXPECT_TRUE(exported.warnings.empty()) << fmt::format("{}", fmt::join(exported.warnings, "\n"));
  const std::filesystem::path file = written(exported, code.framework);
  PlanRequest blank;
  blank.cluster = asked.cluster;
  blank.gpus = plan.layout.ranks();
  const PlanRequest back = imported_request(code.importer.read(file), blank, file.string(), code.framework);
  ASSERT_TRUE(back.layout && back.model.value);
  EXPECT_EQ(layout_difference(*back.layout, plan.layout, plan.model), "");
  EXPECT_EQ(model_difference(*back.model.value, plan.model), "");
  EXPECT_EQ(back.global_batch, plan.workload.global_batch);
  EXPECT_EQ(back.sequence, plan.workload.sequence);
}

// Of what the layout combines: a run or a line of the framework, as framework.json has it.
std::string evidence_of(const Framework& framework, const Plan& plan) {
  const Layout& l = plan.layout;
  const bool splits = l.pipeline > 1 && find_schedule(l.schedule, "").splits_backward;
  const frameworks::Traits traits = frameworks::traits_of(plan.model) | frameworks::traits_of(l) |
                                    frameworks::traits_of_leaf(l, splits, l.chunks, l.recompute);
  for (const frameworks::JudgedSet& set : framework.abilities.judged) {
    if (frameworks::is_judged({set}, traits)) return set.seen;
  }
  return "";
}

class Recommendation : public testing::TestWithParam<std::string> {};

TEST_P(Recommendation, RunsAndComesBack) {
  const Framework& framework = *frameworks::find_framework(GetParam());
  uint32_t planned = 0;
  for (uint32_t seed = 0; seed < seeds_of_run(); ++seed) {
    const PlanRequest request = test::random_request(seed, framework);
    std::optional<Plan> found;
    try {
      found = plan(request);
    } catch (const UserError&) {
      continue;  // nothing fits
    }
    ++planned;
    SCOPED_TRACE(fmt::format("seed {}: {} {} {} {}", seed, request.model.name, request.cluster.name,
                             layout_name(found->layout), request.sequence));
    const auto rejection = frameworks::supports(framework, found->model, found->layout, found->workload);
    EXPECT_FALSE(rejection) << rejection->reason;
    EXPECT_FALSE(evidence_of(framework, *found).empty());
    // The Trainer's balance loss grows with the micro-batches, of which a step has to have several.
    const bool may_be_other = !request.bounds.micro_batch.empty() ||
                              found->objective.why.starts_with("multiplies the balance loss");
    EXPECT_TRUE(found->objective.same || may_be_other) << found->objective.why;
    try {
      expect_comes_back(code_named(GetParam()), *found, request);
    } catch (const UserError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  // So many that the test sees something; the zoo decides which are drawn. Where each GPU has all weights and
  // states, most of the models do not fit.
  const bool whole = framework.abilities.zero == std::vector<int64_t>{0};
  EXPECT_GE(planned, seeds_of_run() / (whole ? 15 : 3));
}

// Threads share no prices, and find layouts in another order. If a price depends on the layout that was
// priced first, plans differ, or the search throws because it does not price its result as before.
TEST(Recommendations, AreTheSameWithOneThreadAndWithTwo) {
  const char* const mixed[] = {"dgx-h100:2+dgx-a100:2@100Gb/s", "dgx-b200:1+dgx-h100:1@400Gb/s",
                               "dgx-h100:1+l40s-pcie:2@100Gb/s"};
  const std::vector<Framework>& all = frameworks::known_frameworks();
  const uint32_t seeds = seeds_of_run() / 3;
  uint32_t planned = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    const bool own = seed % 2 == 0;  // mpt-run alone trains on mixed clusters
    PlanRequest request =
        test::random_request(seed, own ? frameworks::own_runtime() : all[seed / 2 % all.size()]);
    if (own) request.cluster.name = mixed[seed / 2 % std::size(mixed)];
    std::vector<Plan> plans;
    for (const int64_t threads : {1, 2}) {
      request.threads = threads;
      try {
        plans.push_back(plan(request));
      } catch (const UserError&) {
        break;  // nothing fits
      }
    }
    if (plans.empty()) continue;
    ++planned;
    ASSERT_EQ(plans.size(), 2u) << seed;
    ASSERT_EQ(plans[0].ranking.size(), plans[1].ranking.size()) << seed;
    for (size_t row = 0; row < plans[0].ranking.size(); ++row) {
      EXPECT_EQ(plans[0].ranking[row].layout, plans[1].ranking[row].layout)
          << fmt::format("seed {}, row {}: {} on {}", seed, row, request.model.name, request.cluster.name);
      EXPECT_EQ(plans[0].ranking[row].step_time_s, plans[1].ranking[row].step_time_s) << seed;
    }
  }
  EXPECT_GE(planned, seeds / 3);
}

INSTANTIATE_TEST_SUITE_P(Frameworks, Recommendation, testing::ValuesIn(frameworks_with_both_ways()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace mpt::planner
