// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/allocation.h"
#include "base/error.h"
#include "core/layout.h"
#include "frameworks/framework.h"
#include "models/footprint.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

using frameworks::load_framework;

Layout two_stages(const Execution& execution) {
  Layout layout;
  layout.pipeline = 2;
  layout.precision = Precision::bf16;
  layout.layers_per_stage = {16, 16};
  layout.execution = execution;
  return layout;
}

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
  layout.execution.kernels.fp8_head = true;
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
    layout.execution.kernels.elementwise = kernels;
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
  layout.execution.kernels.attention = AttentionKernel::unfused;
  layout.execution.kernels.dropout = layout.execution.kept.keeps_core_output = true;
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
    layout.execution.kept.empty_gradients = empty;
    return stage_footprints(model, layout, {8, 4096});
  };
  const auto without = stages(false), with = stages(true);
  const int64_t shapes = 2 * 8192 * (10240 + 8192 + 2 * 28672 + 28672) / 4, head = 2 * 8192 * (128256 / 4);
  EXPECT_EQ(with[0].forward_workspace_bytes - without[0].forward_workspace_bytes, shapes);
  EXPECT_EQ(with[0].backward_workspace_bytes - without[0].backward_workspace_bytes, shapes);
  const auto backward = [&](bool empty) {
    layout.execution.kept.empty_gradients = empty;
    int64_t sum = 0;
    for (const Operator& op : head_program(model, layout, 4096).operators) sum += op.backward_workspace_bytes;
    return sum;
  };
  EXPECT_EQ(backward(true) - backward(false), head);
  EXPECT_EQ(with[0].static_bytes(), without[0].static_bytes());
}

// Megatron-LM's cross entropy casts once and computes in place
// (megatron/core/tensor_parallel/cross_entropy.py): 2 and 4 bytes per logit. With two copies there are 4 more
// on the way there and back.
TEST(Execution, LogitsAreCastAsOftenAsItSays) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.kernels.loss = LossKernel::fp32;
  const auto loss = [&](int64_t copies) {
    layout.execution.kept.logit_copies = copies;
    return head_program(model, layout, 4096).operators.back();
  };
  const int64_t logits = 4096 * model.vocab;
  EXPECT_EQ(loss(1).saved_bytes, 6 * logits);
  EXPECT_EQ(loss(1).backward_workspace_bytes, 0);
  EXPECT_EQ(loss(2).forward_workspace_bytes - loss(1).forward_workspace_bytes, 4 * logits);
  EXPECT_EQ(loss(2).backward_workspace_bytes, 4 * logits);
}

// torch 2.15.0's loss_parallel() holds one fp32 copy more than the loss of one rank; compiled,
// log-probabilities in fp32.
TEST(Execution, ALossOverTensorRanksHoldsMoreCopies) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.kernels.loss = LossKernel::fp32;
  layout.execution.kept.logit_copies = 3;
  const auto more = [&](int64_t tensor, int64_t Operator::*bytes) {
    layout.tensor = tensor;
    layout.execution.kept.split_logit_copies = 0;
    const int64_t before = head_program(model, layout, 4096).operators.back().*bytes;
    layout.execution.kept.split_logit_copies = 1;
    return head_program(model, layout, 4096).operators.back().*bytes - before;
  };
  const int64_t logits = 4096 * model.vocab;
  EXPECT_EQ(more(8, &Operator::forward_workspace_bytes), 4 * logits / 8);
  EXPECT_EQ(more(2, &Operator::forward_workspace_bytes), 4 * logits / 2);
  EXPECT_EQ(more(1, &Operator::forward_workspace_bytes), 0);
  layout.execution.kernels.loss = LossKernel::fused;
  layout.execution.kernels.elementwise = ElementwiseKernels::compiled;
  EXPECT_EQ(more(8, &Operator::backward_workspace_bytes), 2 * logits / 8);
}

// torch.distributed.all_gather: one buffer for all ranks' logits, and the pieces of the others.
TEST(Execution, GatheredLogitsArriveBesideThemselves) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = 4;
  layout.execution.kernels.loss = LossKernel::fp32;
  const auto loss = [&](bool gathers) {
    layout.execution.kernels.gathers_logits = gathers;
    return head_program(model, layout, 4096).operators.back();
  };
  const int64_t logits = 4096 * model.vocab;
  EXPECT_EQ(loss(true).saved_bytes, 6 * logits);
  EXPECT_EQ(loss(false).saved_bytes, 6 * logits / 4);
  EXPECT_EQ(loss(true).forward_workspace_bytes - loss(false).forward_workspace_bytes,
            2 * logits + 2 * logits * 3 / 4);
}

// PyTorch's own attention, with dropout: 5 bytes per score stay as in a fused one, and the sequence's mask;
// on the way there the scores' copy comes on top, on the way back a third gradient.
TEST(Execution, PlainAttentionCopiesItsScores) {
  const ModelSpec model = load_model("gpt3-175b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = 8;
  layout.micro_batch = 2;
  layout.execution.kernels.dropout = true;
  const auto core = [&](AttentionKernel kernel) {
    layout.execution.kernels.attention = kernel;
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
    layout.execution.kept.keeps_expert_outputs = keeps;
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
    layout.execution.kernels.elementwise = kernels;
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
  layout.execution.kept.keeps_every_second_product = layout.execution.kept.keeps_core_output = true;
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
  layout.execution.kept.keeps_core_output = false;
  const LayerProgram without = layer_program(model, 0, layout, tokens);
  EXPECT_EQ(saved_bytes(without, Recompute::selective), 2 * tokens * (hidden + products));
  EXPECT_EQ(again(without, "attention.core"), 1.0);
  EXPECT_EQ(saved_bytes(without, Recompute::none), saved_bytes(with_core, Recompute::none));
}

// LlamaRMSNorm of huggingface/transformers: squares and products read the input in fp32, the scale reads the
// normalized tokens in 16 bits. One layer norm is one kernel everywhere.
TEST(Execution, RmsNormsOfSingleOperatorsKeepMore) {
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution.kernels.elementwise = ElementwiseKernels::eager;
  const auto kept = [&](const char* name, int64_t bytes) {
    layout.execution.kept.rms_norm_bytes = bytes;
    return saved_bytes(layer_program(load_model(name), 0, layout, 1024), Recompute::none);
  };
  EXPECT_EQ(kept("llama3-8b", 4) - kept("llama3-8b", 0), 2 * 4 * 1024 * 4096);
  EXPECT_EQ(kept("gpt3-175b", 4), kept("gpt3-175b", 0));
  layout.execution.kernels.elementwise = ElementwiseKernels::compiled;
  EXPECT_EQ(kept("llama3-8b", 4), kept("llama3-8b", 0));
}

// What arrives is the first layer's input: no slot of its own, but for what is on its way.
TEST(Execution, ReceivedTensorsNeedNoSlots) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = two_stages({});
  layout.pipeline = 4;
  layout.layers_per_stage = {8, 8, 8, 8};
  const auto middle = [&](bool in_place) {
    layout.execution.kept.receives_in_place = in_place;
    return stage_footprints(model, layout, {8, 4096})[1];
  };
  const StageFootprint slots = middle(false), in_place = middle(true);
  const int64_t boundary = 2 * 4096 * model.hidden;
  EXPECT_EQ(slots.slot_bytes(), boundary);
  EXPECT_EQ(in_place.slot_bytes(), 0);
  EXPECT_EQ(in_place.saved_bytes, slots.saved_bytes);
  EXPECT_EQ(in_place.forward_workspace_bytes, slots.forward_workspace_bytes + 2 * boundary);
}

// Fully sharded weights are cast to 16 bits before they are gathered.
TEST(Execution, MastersAreGatheredInSixteenBits) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.layers_per_stage = {32};
  layout.data = layout.shard = 8;
  layout.zero = 3;
  layout.execution.states.weight_bytes = 4;
  const auto bytes = double(stage_footprints(model, layout, {8, 4096}).front().parameter_bytes);
  const double parameters = 8.03e9, head = double(model.vocab * model.hidden);
  EXPECT_NEAR(bytes / (4 * parameters / 8 + 2 * head), 1.0, 1e-3);
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

// Between the micro-batches of a pipeline PyTorch keeps the weights of its stage whole, in 16 bits beside the
// masters' share, and whole gradients in fp32.
TEST(Execution, InAPipelineWhatIsShardedMayStayWhole) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = two_stages(load_framework("torchtitan", "test"));
  layout.data = layout.shard = 8;
  layout.zero = 3;
  const StageFootprint kept = stage_footprints(model, layout, {64, 4096}).front();
  const double parameters = 32.0 / 2 * 218'112'000 + double(model.vocab * model.hidden);
  EXPECT_NEAR(double(kept.parameter_bytes) / (parameters * (4.0 / 8 + 2)), 1.0, 1e-3);
  EXPECT_NEAR(double(kept.gradient_bytes) / (parameters * 4), 1.0, 1e-3);
  layout.execution.traffic.keeps_gathered_in_pipeline = false;
  const StageFootprint sharded = stage_footprints(model, layout, {64, 4096}).front();
  EXPECT_LT(sharded.parameter_bytes, kept.parameter_bytes / 2);
  EXPECT_LT(sharded.gradient_bytes, kept.gradient_bytes / 2);
  EXPECT_EQ(sharded.optimizer_bytes, kept.optimizer_bytes);
}

// FSDP2 without a reduction for each micro-batch (torch 2.15.0: 4 bytes a weight in fp32, 2 in bf16).
TEST(Execution, DeferredSumsOfGradientsStayWholeInTheirOwnType) {
  const ModelSpec model = load_model("llama3-8b");
  for (const auto& [framework, bytes] : {std::pair{"automodel", 4.0}, {"transformers-fsdp", 2.0}}) {
    Layout layout;
    layout.precision = Precision::bf16;
    layout.execution = load_framework(framework, "test");
    layout.data = layout.shard = 8;
    layout.zero = 3;
    layout.layers_per_stage = {32};
    const StageFootprint shared = stage_footprints(model, layout, {64, 4096}).front();
    layout.execution.traffic.defers_gradient_sums = true;
    const StageFootprint whole = stage_footprints(model, layout, {64, 4096}).front();
    EXPECT_NEAR(double(whole.gradient_bytes) / (8.03e9 * bytes), 1.0, 1e-3) << framework;
    EXPECT_LT(shared.gradient_bytes, whole.gradient_bytes / 2) << framework;
    EXPECT_EQ(shared.parameter_bytes, whole.parameter_bytes) << framework;
  }
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

TEST(Execution, LogitsInFp32CostFourBytesEachMore) {
  const ModelSpec model = load_model("llama3-8b");
  const auto kept = [&](LossKernel loss) {
    Layout layout;
    layout.precision = Precision::bf16;
    layout.layers_per_stage = {32};
    layout.execution.kernels.loss = loss;
    return saved_bytes(head_program(model, layout, 4096), Recompute::none);
  };
  EXPECT_EQ(kept(LossKernel::fp32) - kept(LossKernel::own), 4 * 4096 * model.vocab);
  EXPECT_EQ(kept(LossKernel::fused), kept(LossKernel::own));
  EXPECT_EQ(kept(LossKernel::own) - kept(LossKernel::chunked), 2 * 4096 * model.vocab) << "no logits";
}

// FSDP2 cuts the first dimension of each weight (torch 2.15.0, _fsdp_param.py, padded_sharded_size): rows of
// the weights of a dense model with gates, as transformers has them, summed up here.
TEST(Execution, SharesOfWholeRowsArePadded) {
  const auto share = [](const ModelSpec& model, int64_t shards) {
    const auto part = [&](int64_t rows, int64_t columns) { return (rows + shards - 1) / shards * columns; };
    const Attention& a = model.attention();
    const int64_t hidden = model.hidden, ffn = model.mlp().ffn_hidden, queries = a.heads * a.head_dim;
    const int64_t layer = part(queries, hidden) + 2 * part(a.kv_heads * a.head_dim, hidden) +
                          part(hidden, queries) + 2 * part(ffn, hidden) + part(hidden, ffn) +
                          2 * part(hidden, 1);
    return model.layers.count() * layer + part(hidden, 1) +
           (model.tied_embeddings ? 1 : 2) * part(model.vocab, hidden);
  };
  const auto moments = [](const ModelSpec& model, int64_t shards, bool whole_rows) {
    Layout layout;
    layout.layers_per_stage = {model.layers.count()};
    layout.data = layout.shard = shards;
    layout.zero = 3;
    layout.execution.states.shards_whole_rows = whole_rows;
    return double(stage_footprints(model, layout, {shards, 128}).front().optimizer_bytes);
  };
  for (const char* name : {"llama3-8b", "llama3.2-1b", "mistral-7b"}) {
    const ModelSpec model = load_model(name);
    for (const int64_t shards : {8, 24, 96, 768, 1536}) {
      EXPECT_NEAR(moments(model, shards, true), double(8 * share(model, shards)), 4096) << name << shards;
    }
  }
  // 1,024 rows of keys over 1,536 ranks are as many rows of one rank as over 1,024.
  const ModelSpec model = load_model("llama3-8b");
  EXPECT_GT(moments(model, 1536, true), 1.09 * moments(model, 1536, false));
  EXPECT_EQ(moments(model, 256, true), moments(model, 256, false));
}

TEST(Execution, PaddingOfRowsIsMovedToo) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.layers_per_stage = {32};
  layout.data = layout.shard = 768;
  layout.zero = 3;
  layout.execution.states.shards_whole_rows = true;
  const StagePieces pieces(model, layout, 128);
  const StageContent all{0, 32, true, true};
  const KindCounts layers = pieces.kinds().count(0, 32);
  const ParameterShare share = pieces.parameters(all);
  const int64_t each = (1536 - 1024) * 4096 * 2 + (4608 - 4096) * 4096 * 2 + (14592 - 14336) * 4096 * 2 +
                       (4608 - 4096) * 14336 + 2 * (4608 - 4096);
  const int64_t ends = 2 * (128256 % 768 == 0 ? 0 : 4096 * (768 - 128256 % 768)) + (4608 - 4096);
  EXPECT_EQ(pieces.padded(share, layout, layers, true, true).dense - share.dense, 32 * each + ends);
  layout.shard = 256;
  EXPECT_EQ(pieces.padded(share, layout, layers, true, true).dense - share.dense, 0);
}

// Each switch by which other frameworks differ from this project's runtime.
TEST(Execution, EverySwitchChangesProgramsOrMemoryOfSomeModel) {
  const std::vector<std::pair<const char*, void (*)(Execution&)>> switches{
      {"epilogue_activations", [](Execution& e) { e.kernels.epilogue_activations = false; }},
      {"narrows_apart", [](Execution& e) { e.kernels.narrows_apart = false; }},
      {"splits_next_token_projection", [](Execution& e) { e.kernels.splits_next_token_projection = false; }},
      {"one_adapter_per_product", [](Execution& e) { e.kernels.one_adapter_per_product = true; }},
      {"shares_norm_output", [](Execution& e) { e.kept.shares_norm_output = false; }},
      {"keeps_whole_projection", [](Execution& e) { e.kept.keeps_whole_projection = false; }},
      {"sends_to_expert_parts", [](Execution& e) { e.traffic.sends_to_expert_parts = false; }},
      {"exchanges_shared_heads", [](Execution& e) { e.traffic.exchanges_shared_heads = false; }},
      {"counts_each_buffer", [](Execution& e) { e.allocator.counts_each_buffer = false; }}};
  Layout split;
  split.tensor = split.expert = split.expert_tensor = split.data = 2;
  split.precision = Precision::bf16;
  Layout adapted = split, narrow = split;
  adapted.training.adapter_rank = 8;
  adapted.training.adapter_targets = {AdapterTarget::qkv};
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
        change(layout.execution);
        changed[which] += outcome() == before ? 0 : 1;
      }
    }
  }
  for (const auto& [which, change] : switches) EXPECT_GT(changed[which], 0) << which;
}

}  // namespace
}  // namespace mpt::models
