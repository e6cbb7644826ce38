// SPDX-License-Identifier: Apache-2.0
#include "frameworks/dialects.h"
#include "frameworks/megatron-core/dialect.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/json.h"
#include "frameworks/export.h"
#include "frameworks/framework.h"
#include "frameworks/megatron-core/flags.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "models/zoo.h"
#include "tests/support/make_plan.h"

namespace mpt::frameworks {
namespace {

constexpr const char* kFrameworks[] = {"megatron-core", "megatron-bridge"};

// The text of a model, without what names it.
std::string exported(const char* framework, const ModelSpec& model) {
  test::WantedPlan wanted{model, {64, std::min<int64_t>(2048, model.max_positions)}};
  wanted.model.name = "model";
  const Plan plan = test::make_plan(wanted);
  return (framework == kFrameworks[0] ? export_megatron_core(plan) : export_megatron_bridge(plan))
      .files.front()
      .text;
}

ModelSpec imported(const char* framework, const std::string& text) {
  const std::string file =
      testing::TempDir() + (framework == kFrameworks[0] ? "/dialect.txt" : "/dialect.py");
  write_file_atomically(file, text);
  return *(framework == kFrameworks[0] ? import_megatron_core(file) : import_megatron_bridge(file)).model;
}

void expect_back(const char* framework, const ModelSpec& model) {
  const std::string text = exported(framework, model);
  ModelSpec back = imported(framework, text);
  if (framework == kFrameworks[1]) back.max_positions = model.max_positions;
  const auto difference = models::first_difference(model, back);
  EXPECT_FALSE(difference) << enum_name(difference.value_or(models::Value::layers)) << "\n" << text;
  EXPECT_EQ(exported(framework, back), text);
}

TEST(MegatronDialect, ZooModelsComeBackThroughFiles) {
  for (const char* framework : kFrameworks) {
    for (const std::string& name : models::zoo_names()) {
      const ModelSpec model = models::load_model(name);
      if (models::first_difference(dialect_of(framework), model)) continue;
      SCOPED_TRACE(fmt::format("{} {}", framework, name));
      expect_back(framework, model);
    }
  }
}

class RandomModel {
 public:
  explicit RandomModel(uint32_t seed) : random_(seed) {}

  ModelSpec model() {
    ModelSpec m;
    m.name = "random";
    const int64_t heads = pick({4, 8, 12});
    m.hidden = pick({256, 512, 1024, 1536, 2000});
    m.vocab = pick({1000, 50257});
    m.max_positions = pick({128, 2048});
    m.norm = pick({NormKind::rms_norm, NormKind::layer_norm});
    m.norm_epsilon = pick({1e-5, 1e-6});
    m.position =
        pick({PositionKind::rotary, PositionKind::rotary, PositionKind::learned, PositionKind::none});
    m.tied_embeddings = often();
    m.next_token_layers = seldom() ? 1 : 0;
    const Mlp dense = mlp();
    const Attention whole = attention(m, heads, dense);
    const MixtureOfExperts experts = moe(dense);
    const int64_t dense_layers = pick({0, 1, 2, 6});
    const bool windows = seldom() && !whole.latent;
    m.layers = LayerList::of(6, [&](int64_t l) {
      LayerKind kind{.attention = whole};
      if (windows && l % pick({1, 2}) == 0) kind.attention->window = 64;
      if (l < dense_layers) kind.mlp = dense;
      if (l >= dense_layers) kind.moe = experts;
      return kind;
    });
    // What Megatron-LM has no word for.
    if (seldom()) m.norm_placement = pick({NormPlacement::pre, NormPlacement::sandwich});
    if (seldom()) m.logit_cap = 30.0;
    return m;
  }

 private:
  bool often() { return random_() % 2 == 0; }
  bool seldom() { return random_() % 6 == 0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return *(values.begin() + random_() % values.size());
  }

  Mlp mlp() {
    Mlp mlp{.ffn_hidden = pick({256, 1024, 4096}), .gated = often(), .bias = often()};
    mlp.activation = mlp.gated ? ActivationKind::silu
                               : pick({ActivationKind::gelu, ActivationKind::gelu_tanh,
                                       ActivationKind::squared_relu, ActivationKind::relu});
    if (seldom()) mlp.activation_limit = 7.0;
    return mlp;
  }

  RotaryScaling scaling() {
    RotaryScaling s;
    s.kind = pick({RotaryScalingKind::linear, RotaryScalingKind::llama3, RotaryScalingKind::yarn});
    s.factor = pick({2.0, 8.0, 2.5});
    if (s.kind != RotaryScalingKind::yarn) return s;
    s.original_positions = pick({4096, 8192});
    s.beta_fast = pick({32.0, 16.0});
    s.mscale = s.mscale_all_dim = pick({0.0, 1.0});
    s.whole_dimensions = often();
    return s;
  }

  Attention attention(const ModelSpec& m, int64_t heads, const Mlp& mlp) {
    Attention a{
        .heads = heads, .kv_heads = pick({heads, heads / 2, int64_t{1}}), .head_dim = pick({64, 128, 256})};
    if (seldom()) {
      a.latent = LatentAttention{pick({0, 64}), 128, 64, 32, pick({64, 96})};
      a.head_dim = 96;
      a.kv_heads = heads;
    } else {
      a.query_key_norm = seldom() ? QueryKeyNorm::per_head : QueryKeyNorm::none;
    }
    a.sinks = seldom();
    a.output_bias = mlp.bias;
    a.qkv_bias = mlp.bias || seldom();
    if (m.position != PositionKind::rotary) return a;
    a.rotary = Rotary{pick({10000.0, 500000.0}), pick({1.0, 0.5})};
    if (often()) a.rotary->scaling = scaling();
    return a;
  }

  MixtureOfExperts moe(const Mlp& dense) {
    MixtureOfExperts e;
    e.experts = pick({16, 64});
    e.experts_per_token = pick({1, 2, 4});
    e.expert = dense;
    e.expert.ffn_hidden = pick({256, 1024});
    e.shared_ffn_hidden = pick({0, 512});
    e.shared_gate = e.shared_ffn_hidden > 0 && often();
    e.scores = pick({RouterScores::softmax, RouterScores::sigmoid});
    e.router_bias = often();
    e.bias_in_logits = e.router_bias && dense.bias;
    e.normalized = often();
    e.routed_scale = pick({1.0, 2.5});
    e.balance_loss = pick({0.0, 0.001, 0.02});
    e.expert_groups = pick({1, 4});
    e.groups_per_token = std::min<int64_t>(e.expert_groups, pick({1, 2, 4}));
    return e;
  }

  std::mt19937 random_;
};

TEST(MegatronDialect, RandomModelsComeBackOrAreRefused) {
  for (const char* framework : kFrameworks) {
    int has = 0;
    std::set<std::string> lacking;
    for (uint32_t seed = 0; seed < 500; ++seed) {
      const ModelSpec model = RandomModel(seed).model();
      const auto found = models::first_difference(dialect_of(framework), model);
      SCOPED_TRACE(fmt::format("{} {}", framework, seed));
      EXPECT_EQ(verdict_on(*find_framework(framework), model).verdict != VerdictKind::exported,
                found.has_value());
      if (found) lacking.insert(enum_name(*found));
      if (found) continue;
      ++has;
      expect_back(framework, model);
    }
    EXPECT_GE(has, 50) << framework;
    // What their own code takes from other values, so that no word can say it.
    for (const char* value : {"activation_limit", "normalized", "router_bias", "sinks"})
      EXPECT_TRUE(lacking.contains(value)) << framework << " " << value;
  }
}

TEST(MegatronDialect, LatentAttentionHasASizeOfHeads) {
  const ModelSpec glm = models::load_model("glm-4.7-flash");
  ASSERT_NE(glm.hidden % glm.attention().heads, 0) << "Megatron-LM's own size of heads does not hold for it";
  EXPECT_NE(exported("megatron-core", glm).find("--kv-channels 256\n"), std::string::npos);
  EXPECT_NE(exported("megatron-bridge", glm).find("config.model.kv_channels = 256\n"), std::string::npos);
}

}  // namespace
}  // namespace mpt::frameworks
