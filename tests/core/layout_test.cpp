// SPDX-License-Identifier: Apache-2.0
#include "core/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/json.h"
#include "tests/support/core_plan.h"

namespace mpt {
namespace {

Layout layout_for(const ModelSpec& model, int64_t tensor, int64_t pipeline, int64_t data) {
  Layout layout;
  layout.tensor = tensor;
  layout.pipeline = pipeline;
  layout.data = data;
  layout.layers_per_stage = even_stages(model.layers.count(), pipeline);
  return layout;
}

TEST(Layout, EvenStagesAddUpAndDifferByOne) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int64_t stages = 1; stages <= layers; ++stages) {
      const auto split = even_stages(layers, stages);
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), layers);
      const auto [low, high] = std::minmax_element(split.begin(), split.end());
      EXPECT_LE(*high - *low, 1);
      // The ends carry the embedding and the loss as well: they never get the surplus before the middle.
      if (stages > 2 && layers % stages != 0 && layers % stages <= stages - 2) {
        EXPECT_EQ(split.front(), layers / stages);
        EXPECT_EQ(split.back(), layers / stages);
      }
    }
  }
}

TEST(Layout, StageContentsCoverTheModelOnce) {
  const ModelSpec model = test::small_model(10);
  Layout layout = layout_for(model, 1, 4, 1);
  const auto contents = stage_contents(model, layout);
  int64_t next = 0;
  for (size_t s = 0; s < contents.size(); ++s) {
    EXPECT_EQ(contents[s].first_layer, next);
    next += contents[s].layer_count;
    EXPECT_EQ(contents[s].has_embedding, s == 0);
    EXPECT_EQ(contents[s].has_head, s + 1 == contents.size());
  }
  EXPECT_EQ(next, model.layers.count());
}

TEST(Layout, RejectionNamesTheRuleThatFails) {
  const ModelSpec model = test::small_model(8);
  const Workload workload{8, 32};
  EXPECT_FALSE(check_layout(model, layout_for(model, 2, 2, 2), workload));
  EXPECT_NE(check_layout(model, layout_for(model, 3, 1, 1), workload)->reason.find("heads 4"),
            std::string::npos);
  EXPECT_NE(check_layout(model, layout_for(model, 1, 1, 3), workload)->reason.find("global batch 8"),
            std::string::npos);
  Layout uneven = layout_for(model, 1, 2, 1);
  uneven.layers_per_stage = {5, 4};
  EXPECT_NE(check_layout(model, uneven, workload)->reason.find("adds up to 9"), std::string::npos);
  uneven.layers_per_stage = {4, 0, 4};
  uneven.pipeline = 3;
  EXPECT_NE(check_layout(model, uneven, workload)->reason.find("stage 1 holds no layer"), std::string::npos);
}

// Degrees that files of other programs may hold: zeros divide by nothing, products do not fit.
TEST(Layout, CopiesShareWhatTheyAreChosenForUntilOneChangesIt) {
  EXPECT_LE(sizeof(Layout), 240u);  // a search holds many
  Layout first;
  first.training.edit().adapter_rank = 8;
  first.execution.edit().kernels.loss_chunks = 4;
  Layout second = first;
  EXPECT_EQ(&*second.training, &*first.training);
  EXPECT_EQ(second, first);
  second.training.edit().adapter_rank = 16;
  EXPECT_EQ(first.training->adapter_rank, 8);
  EXPECT_NE(second, first);
  EXPECT_EQ(&*second.execution, &*first.execution);
  second.training.edit().adapter_rank = 8;
  EXPECT_EQ(second, first);
  EXPECT_EQ(from_json<Layout>(to_json(first), "layout"), first);
  EXPECT_EQ(Layout{}.training->adapter_rank, 0);
}

TEST(Layout, DegreesBelowOneAndBeyondAClusterAreRefusedFirst) {
  const ModelSpec model = test::small_model(8);
  const Workload workload{8, 32};
  int64_t Layout::*const degrees[] = {&Layout::tensor,      &Layout::context, &Layout::pipeline,
                                      &Layout::data,        &Layout::chunks,  &Layout::expert,
                                      &Layout::micro_batch, &Layout::shard};
  for (const auto degree : degrees) {
    for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 40,
                                std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      Layout layout = layout_for(model, 1, 1, 1);
      layout.*degree = value;
      const auto rejection = check_layout(model, layout, workload);
      ASSERT_TRUE(rejection) << value;
      EXPECT_NE(rejection->reason.find(fmt::format(" {} is not between", value)), std::string::npos)
          << rejection->reason;
    }
  }
  Layout layout = layout_for(model, 1, 1, 1);
  layout.tensor = layout.context = layout.pipeline = layout.data = 10'000'000;
  EXPECT_EQ(check_layout(model, layout, workload)->reason, "more than 10000000 ranks");
  EXPECT_TRUE(check_layout(model, layout_for(model, 1, 1, 1), {0, 32}));
  EXPECT_TRUE(check_layout(model, layout_for(model, 1, 1, 1), {8, 0}));
}

// Three of four layers have a mixer with 6 heads and 2 key heads in place of attention.
ModelSpec hybrid_model() {
  ModelSpec model = test::small_model(8);
  const LayerKind attention = model.layers[0];
  model.layers = LayerList::of(8, [&](int64_t l) {
    LayerKind kind = attention;
    if (l % 4 == 3) return kind;
    kind.attention.reset();
    kind.linear = LinearMixer{.heads = 6, .head_dim = 8, .key_heads = 2, .key_dim = 8};
    return kind;
  });
  return model;
}

TEST(Layout, RulesHoldForEveryKindOfLayer) {
  const ModelSpec model = hybrid_model();
  const Workload workload{8, 32};
  EXPECT_FALSE(check_layout(model, layout_for(model, 2, 2, 1), workload));
  EXPECT_NE(check_layout(model, layout_for(model, 4, 1, 1), workload)->reason.find("mixer heads 6"),
            std::string::npos);
  Layout context = layout_for(model, 1, 1, 1);
  context.context = 2;
  // Where attention goes round a ring, other mixers exchange heads all the same.
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_to_all}) {
    context.context_method = method;
    context.context = 2;
    EXPECT_FALSE(check_layout(model, context, workload));
    context.context = 4;
    EXPECT_NE(check_layout(model, context, workload)->reason.find("6 heads, 2 for keys"), std::string::npos);
  }
}

}  // namespace
}  // namespace mpt
