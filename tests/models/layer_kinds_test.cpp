// SPDX-License-Identifier: Apache-2.0
#include "models/layer_kinds.h"

#include <gtest/gtest.h>

#include <set>

#include "models/zoo.h"
#include "tests/support/layer_traits.h"

namespace mpt::models {
namespace {

// Every third layer has a window, and with `experts` the odd ones have experts.
ModelSpec mixed(bool experts) {
  ModelSpec model = load_model("mixtral-8x7b");
  const LayerKind base = model.layers[0];
  model.layers = LayerList::of(20, [&](int64_t l) {
    LayerKind kind = base;
    if (l % 3 == 0) kind.attention->window = 1024;
    if (experts && l % 2 == 1) return kind;
    kind.mlp = base.moe->expert;
    kind.moe.reset();
    return kind;
  });
  return model;
}

TEST(LayerKinds, CountTheLayersOfARange) {
  for (const ModelSpec& model :
       {load_model("deepseek-v3"), load_model("llama3-8b"), mixed(false), mixed(true)}) {
    const LayerKinds kinds(model);
    const int64_t layers = model.layers.count();
    for (int64_t first = 0; first < layers; ++first) {
      KindCounts counts(kinds.size());
      for (int64_t end = first; end < layers; ++end) {
        EXPECT_EQ(kinds.count(first, end), counts) << model.name << " " << first << " to " << end;
        ++counts[kinds.of(end)];
      }
    }
    for (int64_t l = 0; l < layers; ++l) {
      EXPECT_EQ(kinds.kind(kinds.of(l)), model.layers[l]) << l;
      EXPECT_EQ(kinds.has_experts(kinds.of(l)), test::layer_has_experts(model, l)) << l;
    }
    EXPECT_EQ(kinds.all(), kinds.count(0, layers));
    EXPECT_EQ(kinds.all().sum(), layers);
  }
}

TEST(LayerKinds, EqualKindsOfTwoNamesAreOne) {
  ModelSpec model = load_model("llama3-8b");
  model.layers.kinds["twin"] = model.layers[0];
  model.layers.runs.push_back({2, {"twin"}});
  const LayerKinds kinds(model);
  EXPECT_EQ(kinds.size(), 1);
  EXPECT_EQ(kinds.all()[0], model.layers.count());
  EXPECT_EQ(kinds.title(0), "decoder layer");
}

TEST(LayerKinds, AWindowChangesNoBytesAndExpertsDo) {
  const LayerKinds windows(mixed(false)), experts(mixed(true));
  EXPECT_EQ(windows.size(), 2);
  EXPECT_EQ(windows.first_in_memory(1), 0);
  EXPECT_TRUE(windows.alike(0, 1, 10));
  EXPECT_EQ(experts.size(), 4);
  EXPECT_TRUE(experts.alike(0, 2, 10)) << "windows lie elsewhere, experts do not";
  EXPECT_FALSE(experts.alike(0, 1, 10));
  std::set<std::string> titles;
  for (size_t k = 0; k < experts.size(); ++k) titles.insert(experts.title(k));
  EXPECT_EQ(titles.size(), 4);
}

// More kinds than counts have room for without memory of their own.
TEST(KindCounts, OfManyKindsCompareAndAddUpAsFewDo) {
  for (const size_t size : {size_t{1}, size_t{4}, size_t{5}, size_t{40}}) {
    KindCounts a(size);
    EXPECT_EQ(a.size(), size);
    EXPECT_EQ(a.sum(), 0);
    a[size - 1] = 3;
    KindCounts b = a;
    EXPECT_EQ(a, b);
    ++b[0];
    EXPECT_NE(a, b);
    EXPECT_EQ(b.sum(), 4);
  }
}

}  // namespace
}  // namespace mpt::models
