// SPDX-License-Identifier: Apache-2.0
#include "core/layer_list.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "core/model_spec.h"
#include "tests/support/core_plan.h"

namespace mpt {
namespace {

using Names = std::vector<std::string>;

Names names_of(const std::vector<LayerRun>& runs) {
  Names names;
  for (const LayerRun& run : runs) {
    for (int64_t r = 0; r < run.repeat; ++r) names.insert(names.end(), run.of.begin(), run.of.end());
  }
  return names;
}

TEST(LayerList, RunsAreTheShortestThatRepeatedBlocksGive) {
  const auto check = [](const Names& names, const std::vector<LayerRun>& wanted) {
    EXPECT_EQ(runs_of(names), wanted);
    EXPECT_EQ(names_of(runs_of(names)), names);
  };
  check({}, {});
  check({"a"}, {{1, {"a"}}});
  check({"a", "a", "a"}, {{3, {"a"}}});
  check({"a", "b", "a", "b"}, {{2, {"a", "b"}}});
  check({"a", "a", "b", "b", "b"}, {{2, {"a"}}, {3, {"b"}}});
  check({"a", "b", "c"}, {{1, {"a", "b", "c"}}});
  // Gemma 3: five windows and a full layer, and two windows at the end.
  Names gemma;
  for (int l = 0; l < 62; ++l) gemma.push_back(l % 6 == 5 ? "full" : "window");
  check(gemma, {{10, {"window", "window", "window", "window", "window", "full"}}, {2, {"window"}}});
}

TEST(LayerList, AnyOrderComesBack) {
  uint32_t state = 1;
  for (int list = 0; list < 200; ++list) {
    Names names;
    for (uint32_t l = 0; l < 1 + state % 60; ++l) {
      state = state * 1664525 + 1013904223;
      names.push_back(std::string(1, char('a' + (state >> 24) % 3)));
    }
    EXPECT_EQ(names_of(runs_of(names)), names);
  }
}

ModelSpec rotary_model() {
  ModelSpec model = test::small_model(4);
  model.position = PositionKind::rotary;
  model.layers.change([](LayerKind& kind) { kind.attention->rotary = Rotary{}; });
  return model;
}

LayerKind windowed(int64_t window) {
  LayerKind kind = rotary_model().layers[0];
  kind.attention->window = window;
  return kind;
}

TEST(LayerList, LayersAreOfTheKindsThatTheyWereMadeOf) {
  const LayerList list = LayerList::of(9, [](int64_t l) { return windowed(l % 3 == 2 ? 8 : 4); });
  EXPECT_EQ(list.count(), 9);
  EXPECT_EQ(list.kinds.size(), 2);
  for (int64_t l = 0; l < 9; ++l) EXPECT_EQ(list[l], windowed(l % 3 == 2 ? 8 : 4)) << l;
  EXPECT_EQ(list.runs.size(), 1);
  EXPECT_THROW(list[9], InternalError);
}

// What kinds are called and runs are cut into says nothing about the model.
TEST(LayerList, EqualLayersAreEqualWhateverTheirNames) {
  const LayerList list = LayerList::of(6, [](int64_t l) { return windowed(l % 2 == 0 ? 8 : 4); });
  LayerList other;
  other.kinds = {{"x", windowed(8)}, {"y", windowed(4)}};
  other.runs = {{1, {"x", "y"}}, {2, {"x", "y"}}};
  EXPECT_EQ(list, other);
  other.runs = {{3, {"y", "x"}}};
  EXPECT_NE(list, other);
  other.runs = {{1, {"x", "y"}}};
  EXPECT_NE(list, other);
  other.runs = {{3, {"x", "y"}}};
  other.kinds["y"].mlp->ffn_hidden += 1;
  EXPECT_NE(list, other);
}

std::string problems_of(ModelSpec model) {
  try {
    validate_model(model, "model.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(ModelSpec, WhatIsWrongWithItsLayersIsNamed) {
  const ModelSpec good = rotary_model();
  EXPECT_EQ(problems_of(good), "none");
  const auto broken = [&](auto&& change) {
    ModelSpec model = good;
    change(model.layers);
    return problems_of(model);
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  };
  has(broken([](LayerList& l) { l.runs[0].of = {"attention_mpl"}; }), "/layers/order/0/of");
  has(broken([](LayerList& l) { l.runs[0].of.clear(); }), "/layers/order/0/of");
  has(broken([](LayerList& l) { l.kinds["idle"] = windowed(4); }), "/layers/kinds/idle");
  has(broken([](LayerList& l) {
        l.runs[0].repeat = 100000;
        l.runs.push_back(l.runs[0]);
      }),
      "200000 layers");
  has(broken([](LayerList& l) { l.change([](LayerKind& k) { k = LayerKind{}; }); }), "a kind without parts");
  has(broken([](LayerList& l) { l.change([](LayerKind& k) { k.attention->kv_heads = 3; }); }),
      "/layers/kinds/attention_mlp/attention/kv_heads");
  has(broken([](LayerList& l) { l.change([](LayerKind& k) { k.attention->head_dim = 3; }); }),
      "odd head size 3");
  has(broken([](LayerList& l) { l.change([](LayerKind& k) { k.attention->rotary.reset(); }); }), "/position");
  ModelSpec none = good;
  none.position = PositionKind::none;
  has(problems_of(none), "/attention/rotary");
  has(broken([](LayerList& l) { l = LayerList::of(200, [](int64_t layer) { return windowed(layer + 1); }); }),
      "200 kinds of layers");
}

}  // namespace
}  // namespace mpt
