// SPDX-License-Identifier: Apache-2.0

// Gradients of every layer type against central finite differences in double, through the whole stage: each
// weight of embedding, positions, norms, projections, MLP and head, and the gradient of the stage's input.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "runtime/comm/mover.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/nn/stage.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kSequence = 7;
constexpr int64_t kBatch = 2;
constexpr double kWeight = 0.7;  // of next-token modules

// The load-balancing loss is no part of the loss that is read, so it stays out.
ModelSpec tiny(const ModelSpec& base) {
  ModelSpec m = base;
  m.hidden = 12;
  m.vocab = 11;
  m.max_positions = kSequence;
  LayerKind layer = m.layers[0];
  layer.attention->head_dim = 4;
  layer.attention->heads = m.position == PositionKind::rotary ? 4 : 3;
  layer.attention->kv_heads = m.position == PositionKind::rotary ? 2 : 3;
  if (layer.mlp) layer.mlp->ffn_hidden = 10;
  if (layer.moe) {
    layer.moe->expert.ffn_hidden = 10;
    layer.moe->balance_loss = 0.0;
  }
  m.layers = LayerList(2, layer);
  return m;
}

struct Fixture {
  explicit Fixture(const ModelSpec& model, Recompute recompute = Recompute::none)
      : device(make_cpu_device()), group(make_single_communicator()) {
    Layout layout;
    layout.micro_batch = kBatch;
    layout.recompute = recompute;
    layout.layers_per_stage = {model.layers.count()};
    // Loss scale 1: the gradient of the summed loss.
    stage = std::make_unique<Stage>(StageOptions{model, layout, kSequence, DataType::float64, 3, kWeight}, 0,
                                    StageContent{0, model.layers.count(), true, true}, *device,
                                    StageGroups{{group.get(), group.get(), group.get()}, {}});
    // Start values are too small for a derivative to stand out: make every weight count. Rows of the
    // embedding stay away from zero, where a norm is so curved that no difference of any step says much.
    auto* values = static_cast<double*>(stage->parameters().values());
    for (const Parameter& p : stage->parameters().list()) {
      const double wave = p.name == "embedding.weight" ? 0.5 : 0.05;
      // Logarithms and what goes into an exponential stay small, so that states last.
      const bool exponent = p.name.ends_with(".decay") || p.name.ends_with(".step_bias");
      const int64_t first = stage->parameters().first_element(p);
      for (int64_t i = first; i < first + p.count; ++i)
        values[i] = exponent ? 0.3 * std::sin(double(i)) : values[i] * 8 + wave * std::sin(double(i));
    }
    for (int64_t i = 0; i < kBatch * kSequence; ++i) tokens.push_back(int32_t(i * 5 % model.vocab));
    for (int64_t i = 0; i < (1 + model.next_token_layers) * kBatch * kSequence; ++i)
      targets.push_back(int32_t((i * 3 + 1) % model.vocab));
  }

  double loss() {
    stage->reset_loss();
    stage->forward(0, tokens.data(), targets.data(), nullptr, nullptr);
    const double value = stage->loss_sum() + kWeight * stage->next_token_loss_sum();
    stage->backward(0, nullptr, nullptr);
    return value;
  }

  std::vector<double> gradients() {
    stage->parameters().zero_gradients();
    loss();
    const auto* data = static_cast<const double*>(stage->parameters().gradients());
    return {data, data + stage->parameters().count()};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Stage> stage;
  std::vector<int32_t> tokens, targets;
};

double central(Fixture& fixture, double& value, double step) {
  const double kept = value;
  value = kept + step;
  const double above = fixture.loss();
  value = kept - step;
  const double below = fixture.loss();
  value = kept;
  return (above - below) / (2 * step);
}

// Two central differences, with a step and half of it, extrapolated (Richardson): their distance is three
// times the truncation error of the finer one, and what is left after extrapolation is a small part of it.
// Beside that there is the rounding of the loss, divided by the step.
void check_against_differences(const ModelSpec& model) {
  Fixture fixture(model);
  const std::vector<double> gradient = fixture.gradients();
  auto* values = static_cast<double*>(fixture.stage->parameters().values());
  constexpr double kStep = 4e-5;
  const double rounding = std::fabs(fixture.loss()) * 2.3e-16 * 64 / kStep;
  for (const Parameter& p : fixture.stage->parameters().list()) {
    if (p.fixed_step > 0.0) continue;   // it has no gradient
    double worst = 0.0, largest = 0.0;  // worst: share of the tolerance used
    int64_t worst_at = 0;
    const int64_t first = fixture.stage->parameters().first_element(p);
    for (int64_t i = first; i < first + p.count; ++i) {
      const double coarse = central(fixture, values[i], kStep), fine = central(fixture, values[i], kStep / 2);
      const double difference = std::fabs((4 * fine - coarse) / 3 - gradient[size_t(i)]);
      const double share = difference / (rounding + 0.1 * std::fabs(fine - coarse));
      largest = std::max(largest, std::fabs(gradient[size_t(i)]));
      if (share > worst) worst = share, worst_at = i - first;
    }
    EXPECT_LT(worst, 1.0) << model.name << " " << p.name << ", element " << worst_at;
    // A weight that nothing depends on proves nothing.
    EXPECT_GT(largest, 1e-6) << p.name << " has no gradient at all";
  }
}

TEST(Gradient, OfGptStyleLayers) { check_against_differences(tiny(test::little_gpt())); }
TEST(Gradient, OfLlamaStyleLayers) { check_against_differences(tiny(test::little_llama())); }

TEST(Gradient, OfNormsOnHeadsWithScaledPositions) {
  ModelSpec model = tiny(test::little_qwen());
  model.tied_embeddings = false;
  check_against_differences(model);
}

TEST(Gradient, OfExpertsAndTheirRouter) {
  ModelSpec model = tiny(test::little_mixtral());
  check_against_differences(model);
}

TEST(Gradient, OfExpertsInGroups) {
  ModelSpec model = tiny(test::little_grouped());
  check_against_differences(model);
}

TEST(Gradient, OfEveryActivationGatedAndPlainAndOfQwenBiases) {
  for (const ActivationKind activation : {ActivationKind::gelu, ActivationKind::gelu_tanh,
                                          ActivationKind::silu, ActivationKind::squared_relu}) {
    for (const bool gated : {false, true}) {
      ModelSpec model = tiny(test::little_llama());
      model.layers.change([&](LayerKind& layer) {
        layer.mlp->activation = activation;
        layer.mlp->gated = gated;
        layer.attention->qkv_bias = true;
      });
      check_against_differences(model);
    }
  }
}

TEST(Gradient, OfPartialRotaryAndUntiedLearnedPositions) {
  ModelSpec model = tiny(test::little_llama());
  model.layers.change([](LayerKind& layer) { layer.attention->rotary->fraction = 0.5; });
  check_against_differences(model);
  model = tiny(test::little_gpt());
  model.tied_embeddings = false;
  model.norm_bias = false;
  check_against_differences(model);
}

// What layers of other kinds have. `change` makes both layers of a tiny Llama.
ModelSpec tiny_of(const std::function<void(ModelSpec&, LayerKind&)>& change) {
  ModelSpec m = tiny(test::little_llama());
  LayerKind layer = m.layers[0];
  change(m, layer);
  m.layers = LayerList(2, layer);
  return m;
}

TEST(Gradient, OfNormsOnBothSidesWindowsAndCaps) {
  check_against_differences(tiny_of([](ModelSpec& m, LayerKind& layer) {
    m.norm_placement = NormPlacement::sandwich;
    m.embedding_scale = 1.5;
    m.logit_cap = 4.0;
    m.tied_embeddings = true;
    layer.attention->window = 3;
    layer.attention->score_cap = 2.0;
    layer.attention->score_scale = 0.4;
  }));
}

TEST(Gradient, OfNormsBehindAndOverAllHeads) {
  check_against_differences(tiny_of([](ModelSpec& m, LayerKind& layer) {
    m.norm_placement = NormPlacement::post;
    layer.attention->query_key_norm = QueryKeyNorm::full;
  }));
}

TEST(Gradient, OfAttentionAndMlpSideBySide) {
  for (const NormPlacement place : {NormPlacement::shared, NormPlacement::pre}) {
    check_against_differences(tiny_of([place](ModelSpec& m, LayerKind& layer) {
      m.norm_placement = place;
      m.parallel_residual = true;
      m.position = PositionKind::none;
      layer.attention->rotary.reset();
    }));
  }
}

TEST(Gradient, OfSinksAndExpertsWithBiases) {
  check_against_differences(tiny_of([](ModelSpec&, LayerKind& layer) {
    layer.attention->sinks = layer.attention->qkv_bias = true;
    MixtureOfExperts& moe = layer.moe.emplace();
    moe.experts = 3;
    moe.experts_per_token = 2;
    moe.balance_loss = 0.0;
    moe.expert = *layer.mlp;
    moe.expert.bias = moe.router_bias = moe.bias_in_logits = true;
    moe.expert.activation_limit = 0.9;
    layer.mlp.reset();
  }));
}

TEST(Gradient, OfLatentsAndSharedExperts) {
  for (const int64_t query_rank : {0, 5}) {
    check_against_differences(tiny_of([query_rank](ModelSpec&, LayerKind& layer) {
      layer.attention->latent = LatentAttention{query_rank, 6, 2, 2, 3};
      layer.attention->kv_heads = layer.attention->heads;
      MixtureOfExperts& moe = layer.moe.emplace();
      moe.experts = 4;
      moe.experts_per_token = 2;
      moe.balance_loss = 0.0;
      moe.expert = *layer.mlp;
      moe.shared_ffn_hidden = 6;
      moe.router_bias = true;
      moe.scores = RouterScores::sigmoid;
      moe.normalized = query_rank > 0;
      moe.routed_scale = 1.5;
      layer.mlp.reset();
    }));
  }
}

TEST(Gradient, OfFactorsOnResidualsAndLogits) {
  for (const bool parallel : {false, true}) {
    check_against_differences(tiny_of([parallel](ModelSpec& m, LayerKind& layer) {
      m.parallel_residual = parallel;
      m.embedding_scale = 3.0;
      m.residual_scale = 0.3;
      m.logit_scale = 0.6;
      layer.attention->score_scale = 0.2;
    }));
  }
}

// Each module reads what the one before it makes, and both read the token table and the output's weight.
TEST(Gradient, OfNextTokenModules) {
  for (const bool tied : {false, true}) {
    ModelSpec model = tiny(test::little_llama());
    model.tied_embeddings = tied;
    model.next_token_layers = 2;
    if (tied) {
      model.logit_scale = 0.6;
      model.residual_scale = 0.7;
      model.embedding_scale = 1.3;
    }
    check_against_differences(model);
  }
}

// Chunks of 4 tokens of 7, with a convolution and without; attention in the second layer.
TEST(Gradient, OfGatedDeltaNetBesideAttention) {
  for (const int64_t convolution : {3, 0}) {
    ModelSpec m = tiny(test::little_llama());
    const LayerKind attention = m.layers[0];
    m.layers = LayerList::of(2, [&](int64_t l) {
      LayerKind kind = attention;
      if (l == 1) return kind;
      kind.attention.reset();
      kind.linear = LinearMixer{
          .heads = 4, .head_dim = 3, .key_heads = 2, .key_dim = 5, .convolution = convolution, .chunk = 4};
      return kind;
    });
    check_against_differences(m);
  }
}

TEST(Gradient, OfGatesOnAttentionAndOnSharedExperts) {
  for (const OutputGate gate : {OutputGate::elementwise, OutputGate::per_head}) {
    check_against_differences(tiny_of([gate](ModelSpec&, LayerKind& layer) {
      layer.attention->output_gate = gate;
      layer.attention->query_key_norm = QueryKeyNorm::per_head;
      layer.attention->qkv_bias = true;
      MixtureOfExperts& moe = layer.moe.emplace();
      moe.experts = 4;
      moe.experts_per_token = 2;
      moe.balance_loss = 0.0;
      moe.expert = *layer.mlp;
      moe.shared_ffn_hidden = 6;
      moe.shared_gate = true;
      layer.mlp.reset();
    }));
  }
}

// Layers with attention alone, and with an MLP alone.
TEST(Gradient, OfLayersOfOnePart) {
  ModelSpec m = tiny(test::little_llama());
  const LayerKind both = m.layers[0];
  m.layers = LayerList::of(2, [&](int64_t l) {
    LayerKind kind = both;
    l == 0 ? kind.mlp.reset() : kind.attention.reset();
    return kind;
  });
  check_against_differences(m);
}

// The gradient that a stage sends back: through two stages cut in the middle, equal to the bit with one stage
// whole.
TEST(Gradient, ThroughABoundaryIsTheWholeModels) {
  const ModelSpec model = tiny(test::little_llama());
  Fixture whole(model);
  const std::vector<double> expected = whole.gradients();
  const auto device = make_cpu_device();
  const auto group = make_single_communicator();
  Layout layout;
  layout.pipeline = 2;
  layout.micro_batch = kBatch;
  layout.layers_per_stage = {1, 1};
  const StageOptions options{model, layout, kSequence, DataType::float64, 3};
  const StageGroups groups{{group.get(), group.get(), group.get()}, {}};
  Stage first(options, 0, {0, 1, true, false}, *device, groups),
      second(options, 1, {1, 1, false, true}, *device, groups);
  // The same weights as the whole model's: it lists embedding and layer 0, then layer 1 and the head.
  const auto* source = static_cast<const double*>(whole.stage->parameters().values());
  std::memcpy(first.parameters().values(), source, size_t(first.parameters().count()) * 8);
  std::memcpy(second.parameters().values(), source + first.parameters().count(),
              size_t(second.parameters().count()) * 8);
  std::vector<double> activation(size_t(kBatch * kSequence * model.hidden)), gradient(activation.size());
  first.forward(0, whole.tokens.data(), nullptr, nullptr, activation.data());
  second.forward(0, nullptr, whole.targets.data(), activation.data(), nullptr);
  second.backward(0, nullptr, gradient.data());
  first.backward(0, gradient.data(), nullptr);
  const auto* a = static_cast<const double*>(first.parameters().gradients());
  const auto* b = static_cast<const double*>(second.parameters().gradients());
  std::vector<double> joined(a, a + first.parameters().count());
  joined.insert(joined.end(), b, b + second.parameters().count());
  EXPECT_EQ(joined, expected);
}

TEST(Gradient, RecomputeChangesNoBit) {
  ModelSpec predicting = tiny(test::little_llama());
  predicting.next_token_layers = 1;
  ModelSpec gated = tiny(test::little_llama());
  gated.layers.change([](LayerKind& kind) { kind.attention->output_gate = OutputGate::elementwise; });
  for (const ModelSpec& model :
       {tiny(test::little_gpt()), tiny(test::little_llama()), predicting, gated, test::little_next()}) {
    const std::vector<double> expected = Fixture(model).gradients();
    EXPECT_EQ(Fixture(model, Recompute::full).gradients(), expected);
    EXPECT_EQ(Fixture(model, Recompute::selective).gradients(), expected);
  }
}

TEST(Gradient, SplitBackwardIsTheWholeBackwardToTheBit) {
  ModelSpec predicting = tiny(test::little_llama());
  predicting.next_token_layers = 2;
  const std::pair<ModelSpec, Recompute> cases[] = {{tiny(test::little_gpt()), Recompute::none},
                                                   {tiny(test::little_gpt()), Recompute::full},
                                                   {predicting, Recompute::none},
                                                   {test::little_next(), Recompute::none},
                                                   {test::little_next(), Recompute::full}};
  for (const auto& [model, recompute] : cases) {
    const std::vector<double> expected = Fixture(model, recompute).gradients();
    Fixture split(model, recompute);
    const int64_t before = split.device->in_use_bytes();
    split.stage->parameters().zero_gradients();
    split.stage->forward(0, split.tokens.data(), split.targets.data(), nullptr, nullptr);
    split.stage->backward_input(0, nullptr, nullptr);
    split.stage->backward_weight(0);
    const auto* data = static_cast<const double*>(split.stage->parameters().gradients());
    EXPECT_EQ(std::vector<double>(data, data + split.stage->parameters().count()), expected);
    EXPECT_EQ(split.device->in_use_bytes(), before);
  }
}

}  // namespace
}  // namespace mpt::runtime
