// SPDX-License-Identifier: Apache-2.0
#include "models/layer_builder.h"

#include <gtest/gtest.h>

#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

ModelSpec published(const std::string& name) {
  return load_model(std::string(MPT_SOURCE_DIR) + "/tests/models/configs/" + name + ".json");
}

const LayerKind& first_linear(const ModelSpec& model) {
  return *model.layers.first([](const LayerKind& k) { return k.linear.has_value(); });
}

Layout in_bf16(int64_t tensor = 1) {
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = tensor;
  return layout;
}

template <class F>
double sum_of_mixer(const LayerProgram& program, F&& value) {
  double sum = 0.0;
  for (const Operator& op : program.operators) {
    if (op.name.starts_with("mixer.")) sum += double(value(op));
  }
  return sum;
}

// Bytes of a token from the norm's output on, added up by hand from what the kernels save (FLA's
// gated_delta_rule, mamba_ssm's mamba_split_conv1d_scan_combined).
TEST(Mixers, KeepWhatTheirKernelsKeep) {
  for (const auto& [file, bytes] : {std::pair{"Qwen--Qwen3.5-27B", 110784.0},
                                    {"Qwen--Qwen3.5-397B-A17B", 139520.0},
                                    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 50560.0},
                                    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 184832.0}}) {
    const ModelSpec model = published(file);
    Layout layout = in_bf16();
    layout.execution.edit().kept.keeps_whole_projection = false;
    const LayerProgram layer = layer_program(model, first_linear(model), layout, 4096);
    EXPECT_NEAR(sum_of_mixer(layer, [](const Operator& op) { return op.saved_bytes; }) / 4096, bytes,
                1e-3 * bytes)
        << file;
  }
}

// The input, what the first product makes, and what the rule gives before and behind its norm: of a hidden
// size of 5,120 and 16 key heads for 48, (5,120 + 16,480 + 2 x 6,144) x 2 bytes.
TEST(Mixers, OfThisProjectMakeConvolutionAndStatesAgain) {
  for (const auto& [file, bytes] :
       {std::pair{"Qwen--Qwen3.5-27B", 67776.0}, {"Qwen--Qwen3.5-397B-A17B", 82176.0}}) {
    const ModelSpec model = published(file);
    const LayerProgram layer = layer_program(model, first_linear(model), in_bf16(), 4096);
    EXPECT_NEAR(sum_of_mixer(layer, [](const Operator& op) { return op.saved_bytes; }) / 4096, bytes,
                1e-3 * bytes)
        << file;
  }
}

// Gated DeltaNet's core, keys and values of 128 and chunks of 64: 184,320 FLOP for each head and token.
TEST(Mixers, CoresCountTheProductsOfTheirChunkedForm) {
  LinearMixer delta{LinearKind::gated_delta, 48, 128, 16, 128, 4, 64};
  EXPECT_EQ(core_flop(delta, 1).forward, 184320);
  EXPECT_EQ(core_flop(delta, 48).forward, 48 * 184320);
  // Mamba-2 with states of 128, chunks of 128 and 8 groups: 672 FLOP for each of 4,096 channels.
  LinearMixer mamba{LinearKind::mamba2, 64, 64, 8, 128, 4, 128};
  EXPECT_EQ(core_flop(mamba, 64).forward, 672 * 4096);
  for (const LinearKind kind :
       {LinearKind::gated_delta, LinearKind::kimi_delta, LinearKind::lightning, LinearKind::mamba2}) {
    delta.kind = kind;
    const CoreFlop flop = core_flop(delta, 48);
    EXPECT_GT(flop.backward, 2 * flop.forward) << enum_name(kind);
    EXPECT_LT(flop.backward, 3 * flop.forward) << enum_name(kind);
  }
}

TEST(Mixers, TensorRanksShareParametersAndWork) {
  for (const char* file : {"Qwen--Qwen3.5-27B", "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"}) {
    const ModelSpec model = published(file);
    const LayerKind& kind = first_linear(model);
    const LayerProgram whole = layer_program(model, kind, in_bf16(), 4096),
                       half = layer_program(model, kind, in_bf16(2), 4096);
    const auto parameters = [](const Operator& op) { return op.parameters; };
    const auto flop = [](const Operator& op) { return forward_flop(op.shape); };
    EXPECT_NEAR(2 * sum_of_mixer(half, parameters), sum_of_mixer(whole, parameters), 1e3) << file;
    EXPECT_DOUBLE_EQ(2 * sum_of_mixer(half, flop), sum_of_mixer(whole, flop)) << file;
  }
}

TEST(Mixers, ContextRanksExchangeTokensForHeads) {
  const ModelSpec model = published("Qwen--Qwen3.5-27B");
  Layout layout = in_bf16();
  layout.context = 4;
  layout.context_method = ContextMethod::all_to_all;
  for (const Operator& op : layer_program(model, first_linear(model), layout, 4096).operators) {
    if (op.name != "mixer.core") continue;
    ASSERT_EQ(op.forward_collectives.size(), 1);
    EXPECT_EQ(op.forward_collectives[0].kind, CollectiveKind::all_to_all);
    EXPECT_EQ(op.forward_collectives[0].group, CollectiveGroup::context);
    EXPECT_EQ(op.shape.rows, 1024);
  }
}

// The index is frozen: it works in the forward alone.
TEST(Mixers, AnIndexChoosesTheKeysOfSparseAttention) {
  const ModelSpec sparse = published("deepseek-ai--DeepSeek-V3.2");
  size_t found = 0;
  for (const Operator& op : layer_program(sparse, 10, in_bf16(), 16384).operators) {
    if (op.name == "attention.index") {
      ++found;
      EXPECT_GT(forward_flop(op.shape), 0.0);
      EXPECT_EQ(input_gradient_flop(op.shape) + weight_gradient_flop(op.shape), 0.0);
      EXPECT_EQ(op.parameters, 1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128);
    }
    if (op.name == "attention.core") {
      EXPECT_EQ(op.shape.inner, 2048);
      EXPECT_EQ(op.shape.head_dim, 512 + 64);
      EXPECT_EQ(op.shape.kv_heads, 1);
    }
  }
  EXPECT_EQ(found, 1);
}

// A chunk of a tenth of the sequence leaves about a tenth of the pairs.
TEST(Mixers, ChunksLimitTheAttentionThatIsCounted) {
  const ModelSpec model = published("meta-llama--Llama-4-Maverick-17B-128E-Instruct");
  const LayerKind chunked = *model.layers.first([](const LayerKind& k) { return k.attention->chunk; });
  LayerKind full = chunked;
  full.attention->chunk.reset();
  const auto core_flop_of = [&](const LayerKind& kind, int64_t sequence) {
    double flop = 0.0;
    for (const Operator& op : layer_program(model, kind, in_bf16(), sequence).operators)
      flop += op.name == "attention.core" ? forward_flop(op.shape) : 0.0;
    return flop;
  };
  EXPECT_EQ(core_flop_of(chunked, 4096), core_flop_of(full, 4096));
  EXPECT_NEAR(core_flop_of(chunked, 81920) / core_flop_of(full, 81920), 0.1, 1e-3);
}

TEST(Mixers, AGateWidensTheProductBeforeAttention) {
  ModelSpec model = load_model("qwen3-8b");
  const LayerKind plain = model.layers[0];
  const auto parameters_of = [&](OutputGate gate) {
    LayerKind kind = plain;
    kind.attention->output_gate = gate;
    return parameters(layer_program(model, kind, in_bf16(), 1));
  };
  const int64_t heads = plain.attention->heads, width = heads * plain.attention->head_dim;
  EXPECT_EQ(parameters_of(OutputGate::elementwise) - parameters_of(OutputGate::none), model.hidden * width);
  EXPECT_EQ(parameters_of(OutputGate::per_head) - parameters_of(OutputGate::none), model.hidden * heads);
}

// Experts in a narrower space exchange narrower copies; experts that compute nothing take tokens away.
TEST(Experts, WorkInTheLatentSpaceAndShareTokensWithOthers) {
  ModelSpec model = load_model("mixtral-8x7b");
  Layout layout = in_bf16();
  layout.expert = 8;
  layout.data = 8;
  layout.expert_tensor = 1;
  const auto up_of = [&](auto&& change) {
    LayerKind kind = model.layers[0];
    change(*kind.moe);
    for (const Operator& op : layer_program(model, kind, layout, 4096).operators) {
      if (op.name == "mlp.experts_up") return op;
    }
    return Operator{};
  };
  const Operator plain = up_of([](MixtureOfExperts&) {});
  const Operator latent = up_of([](MixtureOfExperts& e) { e.latent_width = 1024; });
  EXPECT_EQ(latent.forward_collectives[0].bytes * 4, plain.forward_collectives[0].bytes);
  EXPECT_EQ(latent.parameters * 4, plain.parameters);
  const Operator fewer = up_of([](MixtureOfExperts& e) { e.zero_experts = 8; });
  EXPECT_EQ(fewer.shape.rows * 2, plain.shape.rows);
}

}  // namespace
}  // namespace mpt::models
