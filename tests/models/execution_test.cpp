// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/allocation.h"
#include "base/quantity.h"
#include "core/layout.h"
#include "frameworks/framework.h"
#include "models/footprint.h"
#include "models/zoo.h"
#include "tests/models/two_stages.h"

namespace mpt::models {
namespace {

using frameworks::load_framework;

TEST(Execution, StatesHaveTheBytesThatItSays) {
  const ModelSpec model = load_model("llama3-8b");
  const auto states = [&](const Execution& execution) {
    return stage_footprints(model, two_stages(execution), {8, 4096}).front();
  };
  const StageFootprint own = states({});
  Execution other;
  other.states.weight_bytes = 4;
  other.states.gradient_bytes = 2;
  other.states.optimizer_bytes = 8;
  const StageFootprint changed = states(other);
  EXPECT_NEAR(double(changed.parameter_bytes) / double(own.parameter_bytes), 2.0, 1e-6);
  EXPECT_NEAR(double(changed.gradient_bytes) / double(own.gradient_bytes), 0.5, 1e-6);
  EXPECT_NEAR(double(changed.optimizer_bytes) / double(own.optimizer_bytes), 8.0 / 12.0, 1e-6);
  other.states.gradient_bytes = 6;
  EXPECT_NEAR(double(states(other).gradient_bytes) / double(changed.gradient_bytes), 3.0, 1e-6);
}

// Megatron-LM, megatron/training/vocab_utils.py: calculate_padded_vocab_size.
TEST(Execution, MegatronPadsTheVocabularyForEveryTensorRank) {
  const ModelSpec model = load_model("gpt3-175b");
  ASSERT_EQ(model.vocab, 50257);
  Layout layout;
  layout.tensor = 8;
  EXPECT_EQ(vocabulary_share(model, layout), 6283);
  for (const char* name : {"megatron-core", "megatron-bridge"}) {
    layout.execution = load_framework(name, "the test");
    EXPECT_EQ(vocabulary_share(model, layout), 51200 / 8) << name;
  }
  const auto rows = embedding_program(model, layout, 2048).operators.front().shape.inner;
  EXPECT_EQ(rows, 6400);
  const LayerProgram head = head_program(model, layout, 2048);
  const auto output = std::find_if(head.operators.begin(), head.operators.end(),
                                   [](const Operator& op) { return op.name == "head.output"; });
  ASSERT_NE(output, head.operators.end());
  EXPECT_EQ(output->shape.columns, 6400);
}

TEST(Execution, TheHeadRunsInFp8OnlyWhereItIsTold) {
  Layout layout;
  layout.precision = Precision::mxfp8;
  const auto output = [&] {
    const LayerProgram head = head_program(load_model("llama3-8b"), layout, 2048);
    return std::find_if(head.operators.begin(), head.operators.end(),
                        [](const Operator& op) { return op.name == "head.output"; })
        ->shape.precision;
  };
  EXPECT_EQ(output(), Precision::bf16);
  layout.execution.edit().kernels.fp8_head = true;
  EXPECT_EQ(output(), Precision::mxfp8);
  layout.precision = Precision::bf16;
  EXPECT_EQ(output(), Precision::bf16);
}

// torchao 0.18.0, convert_to_float8_training on two gated blocks of width 256 and 512: eager keeps 13,320
// bytes a token in bf16 and in fp8. Compiled, bf16 keeps 8,200 and fp8 5,128: not what the norm gives, nor
// the activation. Transformer Engine keeps inputs in 8 bits.
TEST(Execution, InputsOfProductsInFp8WaitAsTheirLibraryKeepsThem) {
  const ModelSpec model = load_model("llama3-8b");
  const auto kept = [&](const char* framework, Precision precision, ElementwiseKernels kernels) {
    Layout layout;
    layout.execution = load_framework(framework, "test");
    layout.execution.edit().kernels.elementwise = kernels;
    layout.precision = precision;
    return saved_bytes(layer_program(model, 0, layout, 2048), Recompute::none);
  };
  constexpr auto kEager = ElementwiseKernels::eager, kCompiled = ElementwiseKernels::compiled;
  const int64_t inputs = 2048 * (2 * 4096 + 14336);  // of the products behind two norms and an activation
  for (const char* framework : {"torchtitan", "automodel", "transformers-fsdp"}) {
    for (const Precision precision : {Precision::fp8, Precision::mxfp8}) {
      EXPECT_EQ(kept(framework, precision, kEager), kept(framework, Precision::bf16, kEager)) << framework;
      EXPECT_EQ(kept(framework, Precision::bf16, kCompiled) - kept(framework, precision, kCompiled),
                2 * inputs)
          << framework;
    }
    EXPECT_EQ(kept(framework, Precision::bf16, kCompiled) - kept(framework, Precision::nvfp4, kCompiled),
              inputs * 23 / 16)
        << "codes of 4 bits and their scales are what torchao's nvfp4 products keep";
  }
  constexpr auto kFused = ElementwiseKernels::fused;
  EXPECT_EQ(kept("megatron-core", Precision::bf16, kFused) - kept("megatron-core", Precision::fp8, kFused),
            inputs);
}

// Korthikanti et al. 2022 (arXiv:2205.05198), table 2: selective recompute leaves s b h (10 + 24 / t), of
// which 2 / t are the attention core's output.
TEST(Execution, SelectiveRecomputeKeepsThePapersBytes) {
  const ModelSpec model = load_model("gpt3-175b");
  Layout layout;
  layout.precision = Precision::fp16;
  layout.tensor = 8;
  layout.execution.edit().kernels.attention = AttentionKernel::unfused;
  layout.execution.edit().kernels.dropout = layout.execution.edit().kept.keeps_core_output = true;
  const double sbh = 2048.0 * double(model.hidden);
  const auto kept = double(saved_bytes(layer_program(model, 0, layout, 2048), Recompute::selective));
  EXPECT_NEAR(kept / (sbh * (10 + 24.0 / 8)), 1.0, 0.002);
}

// Llama 3 70B on four tensor ranks: one empty gradient each for queries with keys and values, the projection
// behind the core, the gate with its other half and the way down; and the head's while its gradient is made.
TEST(Execution, EmptyGradientsStayOncePerShape) {
  const ModelSpec model = load_model("llama3-70b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = 4;
  layout.pipeline = 2;
  layout.layers_per_stage = {40, 40};
  const auto stages = [&](bool empty) {
    layout.execution.edit().kept.empty_gradients = empty;
    return stage_footprints(model, layout, {8, 4096});
  };
  const auto without = stages(false), with = stages(true);
  const int64_t shapes = 2 * 8192 * (10240 + 8192 + 2 * 28672 + 28672) / 4, head = 2 * 8192 * (128256 / 4);
  EXPECT_EQ(with[0].forward_workspace_bytes - without[0].forward_workspace_bytes, shapes);
  EXPECT_EQ(with[0].backward_workspace_bytes - without[0].backward_workspace_bytes, shapes);
  const auto backward = [&](bool empty) {
    layout.execution.edit().kept.empty_gradients = empty;
    int64_t sum = 0;
    for (const Operator& op : head_program(model, layout, 4096).operators) sum += op.backward_workspace_bytes;
    return sum;
  };
  EXPECT_EQ(backward(true) - backward(false), head);
  EXPECT_EQ(with[0].static_bytes(), without[0].static_bytes());
}

// PyTorch's own attention, with dropout: 5 bytes per score stay as in a fused one, and the sequence's mask;
// on the way there the scores' copy comes on top, on the way back a third gradient.
TEST(Execution, PlainAttentionCopiesItsScores) {
  const ModelSpec model = load_model("gpt3-175b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = 8;
  layout.micro_batch = 2;
  layout.execution.edit().kernels.dropout = true;
  const auto core = [&](AttentionKernel kernel) {
    layout.execution.edit().kernels.attention = kernel;
    const LayerProgram layer = layer_program(model, 0, layout, 2048);
    return *std::find_if(layer.operators.begin(), layer.operators.end(),
                         [](const Operator& op) { return op.shape.kind == OperatorKind::attention; });
  };
  const Operator fused = core(AttentionKernel::unfused), plain = core(AttentionKernel::plain);
  const int64_t square = 2 * 2048 * 2048, scores = square * model.attention().heads / 8;
  EXPECT_EQ(plain.saved_bytes - fused.saved_bytes, square);
  EXPECT_EQ(plain.saved_bytes_selective, fused.saved_bytes_selective);
  EXPECT_EQ(plain.forward_workspace_bytes - fused.forward_workspace_bytes, 2 * scores);
  EXPECT_EQ(plain.backward_workspace_bytes - fused.backward_workspace_bytes, 2 * scores);
}

// DeepSeek-V3, by Megatron-LM's modules: what a module's operators hand each other goes, what it reads stays.
TEST(Execution, SelectiveRecomputeRunsTheNamedModulesAgain) {
  const ModelSpec model = load_model("deepseek-v3");
  const int64_t tokens = 4096, h = 7168, heads = 128, f = 2048, top = 8;
  Layout layout;
  layout.precision = Precision::bf16;
  const auto layer_with = [&](const std::vector<std::string>& modules, int64_t layer) {
    set_recompute_modules(modules, layout.selective);
    EXPECT_EQ(recompute_modules_of(layout.selective), modules);
    return layer_program(model, layer, layout, tokens);
  };
  const auto freed = [](const LayerProgram& layer) {
    return saved_bytes(layer, Recompute::none) - saved_bytes(layer, Recompute::selective);
  };
  const auto again = [](const LayerProgram& layer) {
    std::vector<std::string_view> names;
    for (const Operator& op : layer.operators) {
      if (op.selective_share == 1.0) names.push_back(op.name);
    }
    return names;
  };
  using Names = std::vector<std::string_view>;
  // Queries, keys and values of every head, and the compressed ones behind their norms.
  const LayerProgram latent = layer_with({"mla_up_proj"}, 60);
  EXPECT_EQ(freed(latent), 2 * tokens * (heads * (2 * 192 + 128) + 1536 + 512));
  EXPECT_EQ(again(latent), (Names{"attention.query_norm", "attention.query_up", "attention.key_value_norm",
                                  "attention.key_value_up", "attention.rotary"}));
  // Both norms' results and what goes into the experts' second product.
  const LayerProgram light = layer_with({"layernorm", "moe_act"}, 60);
  EXPECT_EQ(freed(light), 2 * tokens * (2 * h + top * f));
  EXPECT_EQ(again(light), (Names{"attention.norm", "mlp.norm", "mlp.experts_activation"}));
  // Of the MLP only its input stays: of experts the copies, gate, up and product of each, and the shared
  // one's; and the router's probabilities.
  EXPECT_EQ(freed(layer_with({"moe"}, 60)), tokens * (2 * (top * (h + 3 * f) + 3 * f) + 4 * 256));
  EXPECT_EQ(freed(layer_with({"mlp"}, 60)), 0);
  EXPECT_EQ(freed(layer_with({"mlp"}, 0)), 2 * tokens * 3 * 18432);
  EXPECT_EQ(freed(layer_with({"moe"}, 0)), 0);
  layout.recompute = Recompute::selective;
  EXPECT_EQ(layout_name(layout), "tp1 pp1 dp1 mbs1 recompute=moe");
  // Norms of a dense layer of Llama are part of the products behind them.
  const ModelSpec llama = load_model("llama3-8b");
  set_recompute_modules({"layernorm"}, layout.selective);
  EXPECT_EQ(freed(layer_program(llama, 0, layout, tokens)), 0);
}

// DeepSeek-V3: eight copies of each token, 7,168 wide.
TEST(Execution, ExpertOutputsStayForTheirScores) {
  const ModelSpec model = load_model("deepseek-v3");
  Layout layout;
  layout.precision = Precision::bf16;
  const auto kept = [&](bool keeps) {
    layout.execution.edit().kept.keeps_expert_outputs = keeps;
    return saved_bytes(layer_program(model, model.layers.count() - 1, layout, 4096), Recompute::none);
  };
  EXPECT_EQ(kept(true) - kept(false), 2 * 4096 * 8 * model.hidden);
}

// silu(gate) * up as two kernels keeps silu(gate) besides both halves.
TEST(Execution, EagerGatesKeepTheirActivation) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  const auto kept = [&](ElementwiseKernels kernels) {
    layout.execution.edit().kernels.elementwise = kernels;
    return saved_bytes(layer_program(model, 0, layout, 4096), Recompute::none);
  };
  EXPECT_EQ(kept(ElementwiseKernels::eager) - kept(ElementwiseKernels::fused),
            2 * 4096 * model.mlp().ffn_hidden);
}

// torchtitan (parallelize_llama.py): of queries, keys, values, output, gate, its other half and the way down
// the first, third, fifth and seventh stay; the layer's input and what the attention core puts out, too.
TEST(Execution, EverySecondProductStays) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.edit().kept.keeps_every_second_product = layout.execution.edit().kept.keeps_core_output =
      true;
  const int64_t tokens = 4096, hidden = 4096, keys = 1024, ffn = 14336, heads = 32;
  const LayerProgram with_core = layer_program(model, 0, layout, tokens);
  const int64_t products = hidden + keys + ffn + hidden;
  EXPECT_EQ(saved_bytes(with_core, Recompute::selective),
            2 * tokens * (hidden + products + hidden) + 4 * tokens * heads);
  const auto again = [&](const LayerProgram& program, const std::string& name) {
    for (const Operator& op : program.operators)
      if (op.name == name) return op.selective_share;
    return -1.0;
  };
  EXPECT_NEAR(again(with_core, "attention.qkv"), double(keys) / double(hidden + 2 * keys), 1e-12);
  EXPECT_EQ(again(with_core, "attention.output"), 1.0);
  EXPECT_EQ(again(with_core, "mlp.up"), 0.5);
  EXPECT_EQ(again(with_core, "mlp.down"), 0.0);
  EXPECT_EQ(again(with_core, "attention.core"), 0.0);
  EXPECT_EQ(again(with_core, "mlp.norm"), 1.0);
  layout.execution.edit().kept.keeps_core_output = false;
  const LayerProgram without = layer_program(model, 0, layout, tokens);
  EXPECT_EQ(saved_bytes(without, Recompute::selective), 2 * tokens * (hidden + products));
  EXPECT_EQ(again(without, "attention.core"), 1.0);
  EXPECT_EQ(saved_bytes(without, Recompute::none), saved_bytes(with_core, Recompute::none));
}

// mpt.verify with torchtitan 0.3.0, whose queries, keys and values are one product (fuse_qkv): 6,144 columns
// of it, 14,336 of the gate and 4,096 of the way down stay, beside the layer's input and what the core puts
// out.
TEST(Execution, OneProductOfQueriesKeysAndValuesStaysAsAWhole) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution = load_framework("torchtitan", "test");
  const int64_t tokens = 4096, heads = 32;
  const auto kept = [&](const ModelSpec& m) {
    return saved_bytes(layer_program(m, 0, layout, tokens), Recompute::selective);
  };
  EXPECT_EQ(kept(model), 2 * tokens * (4096 + 6144 + 14336 + 4096 + 4096) + 4 * tokens * heads);
  EXPECT_EQ(kept(load_model("qwen3-32b")),
            2 * tokens * (5120 + 10240 + 25600 + 5120 + 8192) + 4 * tokens * 64);
  layout.execution.edit().kept.one_product_of_queries_keys_values = false;
  EXPECT_EQ(kept(model), 2 * tokens * (4096 + 4096 + 1024 + 14336 + 4096 + 4096) + 4 * tokens * heads);
}

// LlamaRMSNorm of huggingface/transformers: squares and products read the input in fp32, the scale reads the
// normalized tokens in 16 bits. One layer norm is one kernel everywhere.
TEST(Execution, RmsNormsOfSingleOperatorsKeepMore) {
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.edit().kernels.elementwise = ElementwiseKernels::eager;
  const auto kept = [&](const char* name, int64_t bytes) {
    layout.execution.edit().kept.rms_norm_bytes = bytes;
    return saved_bytes(layer_program(load_model(name), 0, layout, 1024), Recompute::none);
  };
  EXPECT_EQ(kept("llama3-8b", 4) - kept("llama3-8b", 0), 2 * 4 * 1024 * 4096);
  EXPECT_EQ(kept("gpt3-175b", 4), kept("gpt3-175b", 0));
  layout.execution.edit().kernels.elementwise = ElementwiseKernels::compiled;
  EXPECT_EQ(kept("llama3-8b", 4), kept("llama3-8b", 0));
}

// What arrives is the first layer's input: no slot of its own, but for what is on its way.
TEST(Execution, ReceivedTensorsNeedNoSlots) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = two_stages({});
  layout.pipeline = 4;
  layout.layers_per_stage = {8, 8, 8, 8};
  const auto middle = [&](bool in_place) {
    layout.execution.edit().kept.receives_in_place = in_place;
    return stage_footprints(model, layout, {8, 4096})[1];
  };
  const StageFootprint slots = middle(false), in_place = middle(true);
  const int64_t boundary = 2 * 4096 * model.hidden;
  EXPECT_EQ(slots.slot_bytes(), boundary);
  EXPECT_EQ(in_place.slot_bytes(), 0);
  EXPECT_EQ(in_place.saved_bytes, slots.saved_bytes);
  EXPECT_EQ(in_place.forward_workspace_bytes, slots.forward_workspace_bytes + 2 * boundary);
}

// Both orders of each weight whose product is in 8 bits, and a factor; other frameworks have their own rules.
TEST(Execution, ThisRuntimeKeepsWeightsInEightBits) {
  const ModelSpec model = load_model("llama3.2-1b");
  Layout layout;
  layout.data = layout.shard = 2;
  layout.layers_per_stage = {16};
  const auto more = [&](int64_t zero, int64_t sequence) {
    layout.zero = zero;
    int64_t bytes[2] = {};
    for (const Precision precision : {Precision::bf16, Precision::fp8}) {
      layout.precision = precision;
      const StageFootprint f = stage_footprints(model, layout, {8, sequence}).front();
      bytes[precision == Precision::fp8] = f.parameter_bytes;
    }
    return bytes[1] - bytes[0];
  };
  const int64_t weights = model.hidden * (3072 + model.hidden + 3 * 8192), factors = 4 * kAllocationUnit;
  for (const int64_t zero : {0, 1, 2}) EXPECT_EQ(more(zero, 4096), 16 * (2 * weights + factors)) << zero;
  EXPECT_EQ(more(3, 4096), 0) << "gathered for each use, and narrowed again";
  EXPECT_EQ(more(0, 4097), 0) << "rows are not whole packs: products are in 16 bits";
}

// Qi et al. 2023 (arXiv:2401.10241), section 2.1: behind the input gradient 32 s b h of a GPT layer's bytes
// wait for the weight gradient.
TEST(Execution, WeightGradientsWaitWithTheirOperandsAlone) {
  const ModelSpec model = load_model("gpt3-175b");
  Execution execution;
  execution.kept.frees_after_input_gradient = true;
  Layout layout;
  layout.pipeline = 3;
  layout.precision = Precision::fp16;
  layout.layers_per_stage = {32, 32, 32};
  layout.execution = execution;
  const auto middle = stage_footprints(model, layout, {8, 2048})[1];
  EXPECT_NEAR(double(middle.saved_for_weight_bytes) / (32.0 * 32.0 * 2048.0 * double(model.hidden)), 1.0,
              1e-6);
}

// mpt.verify with torchtitan 0.3.0 and zb-v: PyTorch's stage_backward_input retains the graph, and beside the
// saved 656 MiB of a layer 396 MiB of gradients wait for the weights' half, and 32 MiB of the stage's result.
TEST(Execution, PyTorchsWeightGradientsWaitWithAllThatWasSaved) {
  const ModelSpec model = load_model("llama3-8b");
  for (const char* framework : {"torchtitan", "pytorch", "automodel"}) {
    Layout layout = two_stages(load_framework(framework, "test"));
    layout.schedule = "zb-h1";
    layout.execution.edit().kernels.elementwise = ElementwiseKernels::eager;
    const StageFootprint first = stage_footprints(model, layout, {8, 4096}).front();
    const double layers = 16.0 * double(kMiB);
    EXPECT_NEAR(double(first.saved_bytes) / layers / 656, 1.0, 0.03) << framework;
    EXPECT_NEAR(double(first.saved_for_weight_bytes - first.saved_bytes) / layers / 398, 1.0, 0.03)
        << framework;
  }
}

// torchtitan, models/common/moe_sharding.py: one gather for router, routed and shared experts. With sequence
// parallelism each of both outputs is scattered; without it one sum follows their addition.
TEST(Execution, TorchtitansSharedExpertsAreGatheredWithTheRoutedOnes) {
  const ModelSpec model = load_model("deepseek-v2-lite");
  const LayerKind& kind = *model.layers.first([](const LayerKind& k) { return k.moe.has_value(); });
  // Collectives of products of experts: forward, then backward.
  const auto counted = [&](const char* framework, bool sequence_parallel, int64_t expert) {
    Layout layout;
    layout.tensor = layout.data = 2;
    layout.expert = expert;
    layout.sequence_parallel = sequence_parallel;
    layout.precision = Precision::bf16;
    layout.layers_per_stage = {model.layers.count()};
    layout.execution = load_framework(framework, "test");
    std::array<int, 2> all{};
    for (const Operator& op : layer_program(model, kind, layout, 4096).operators) {
      if (op.name.find("mlp.shared") == std::string_view::npos) continue;
      for (const Collective& c : op.forward_collectives) all[0] += c.beside ? 0 : 1;
      for (const Collective& c : op.backward_collectives) all[1] += c.beside ? 0 : 1;
    }
    return all;
  };
  EXPECT_EQ(counted("torchtitan", true, 1), (std::array{1, 1})) << "its output alone, and its gradient";
  EXPECT_EQ(counted("torchtitan", false, 1), (std::array{0, 0}));
  EXPECT_EQ(counted("torchtitan", true, 2), (std::array{2, 2}));
  EXPECT_EQ(counted("megatron-core", true, 1), (std::array{2, 2}));
}

// Each switch by which other frameworks differ from this project's runtime.
TEST(Execution, EverySwitchChangesProgramsOrMemoryOfSomeModel) {
  const std::vector<std::pair<const char*, void (*)(Execution&)>> switches{
      {"epilogue_activations", [](Execution& e) { e.kernels.epilogue_activations = false; }},
      {"narrows_apart", [](Execution& e) { e.kernels.narrows_apart = false; }},
      {"splits_next_token_projection", [](Execution& e) { e.kernels.splits_next_token_projection = false; }},
      {"one_adapter_per_product", [](Execution& e) { e.kernels.one_adapter_per_product = true; }},
      {"one_product_of_mlp_halves", [](Execution& e) { e.kernels.one_product_of_mlp_halves = true; }},
      {"shares_norm_output", [](Execution& e) { e.kept.shares_norm_output = false; }},
      {"keeps_whole_projection", [](Execution& e) { e.kept.keeps_whole_projection = false; }},
      {"sends_to_expert_parts", [](Execution& e) { e.traffic.sends_to_expert_parts = false; }},
      {"exchanges_shared_heads", [](Execution& e) { e.traffic.exchanges_shared_heads = false; }},
      {"counts_each_buffer", [](Execution& e) { e.allocator.counts_each_buffer = false; }}};
  Layout split;
  split.tensor = split.expert = split.expert_tensor = split.data = 2;
  split.precision = Precision::bf16;
  Layout adapted = split, narrow = split;
  adapted.training.edit().adapter_rank = 8;
  adapted.training.edit().adapter_targets = {AdapterTarget::qkv, AdapterTarget::up};
  narrow.precision = Precision::fp8;
  std::map<std::string, int> changed;
  for (const std::string& name : zoo_names()) {
    const ModelSpec model = load_model(name);
    for (Layout layout : {split, adapted, narrow}) {
      layout.layers_per_stage = {model.layers.count()};
      const auto outcome = [&] {
        std::vector<Operator> all = last_stage_program(model, layout, 2048).operators;
        for (const auto& [kind, value] : model.layers.kinds) {
          const LayerProgram layer = layer_program(model, value, layout, 2048);
          all.insert(all.end(), layer.operators.begin(), layer.operators.end());
        }
        return std::pair(all, stage_footprints(model, layout, {8, 2048}).front().static_bytes());
      };
      const auto before = outcome();
      for (const auto& [which, change] : switches) {
        layout.execution = {};
        change(layout.execution.edit());
        changed[which] += outcome() == before ? 0 : 1;
      }
    }
  }
  for (const auto& [which, change] : switches) EXPECT_GT(changed[which], 0) << which;
}

}  // namespace
}  // namespace mpt::models
