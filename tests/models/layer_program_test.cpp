// SPDX-License-Identifier: Apache-2.0
#include "models/layer_program.h"

#include <gtest/gtest.h>

#include <map>

#include "frameworks/framework.h"
#include "models/footprint.h"
#include "models/parameter_count.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

Layout layout_of(int64_t tensor, int64_t micro_batch = 1, Precision precision = Precision::fp32) {
  Layout layout;
  layout.tensor = tensor;
  layout.micro_batch = micro_batch;
  layout.precision = precision;
  return layout;
}

// Narayanan et al. 2021 (arXiv:2104.04473), appendix: a step of batch B with full recompute costs
// 96 B s l h^2 (1 + s / 6h + V / 16 l h); without recompute 3/4 of it; the term s / 6h is attention over the
// full square, of which causal attention computes (s + 1) / 2s.
TEST(LayerProgram, FlopPerTokenEqualsTheFormulaOfTheLiterature) {
  for (const char* name : {"gpt2-124m", "gpt2-1.5b", "gpt3-175b"}) {
    const ModelSpec m = load_model(name);
    for (const int64_t s : {1, 128, 1024}) {
      const double l = double(m.layers.count()), h = double(m.hidden), v = double(m.vocab);
      const double causal = (double(s) + 1) / (2 * double(s));
      const double expected = 72 * l * h * h * (1 + double(s) / (6 * h) * causal + v / (12 * l * h));
      EXPECT_NEAR(model_flop_per_token(m, s) / expected, 1.0, 1e-12) << name << " s " << s;
    }
  }
}

// 6 N plus attention, N without embedding and vectors, for a grouped, gated model (arXiv:2204.02311, appendix
// B).
TEST(LayerProgram, FlopPerTokenOfLlamaIsSixPerMatrixWeightPlusAttention) {
  const ModelSpec m = load_model("llama3-8b");
  const double h = double(m.hidden), kv = double(m.attention().kv_heads * m.attention().head_dim);
  const double weights =
      double(m.layers.count()) * (h * (h + 2 * kv) + h * h + 3 * h * double(m.mlp().ffn_hidden)) +
      h * double(m.vocab);
  for (const int64_t s : {1, 4096, 8192}) {
    const double attention = 3.0 * 4.0 * double(m.layers.count()) * h * (double(s) + 1) / 2;
    EXPECT_NEAR(model_flop_per_token(m, s) / (6 * weights + attention), 1.0, 1e-12);
  }
}

TEST(LayerProgram, AWindowLimitsTheAttentionThatIsCounted) {
  ModelSpec m = load_model("mistral-7b");
  const double windowed = model_flop_per_token(m, 32768);
  m.layers.change([](LayerKind& k) { k.attention->window.reset(); });
  EXPECT_LT(windowed, model_flop_per_token(m, 32768));
  m.layers.change([](LayerKind& k) { k.attention->window = 32768; });
  const double wide = model_flop_per_token(m, 32768);
  m.layers.change([](LayerKind& k) { k.attention->window.reset(); });
  EXPECT_DOUBLE_EQ(wide, model_flop_per_token(m, 32768));
}

// Tensor-parallel ranks together do the work of one rank and hold its matrices once.
TEST(LayerProgram, TensorRanksShareWorkAndWeights) {
  for (const char* name : {"gpt2-124m", "llama3-8b", "mixtral-8x7b", "tiny-llama"}) {
    const ModelSpec m = load_model(name);
    const LayerProgram whole = layer_program(m, 0, layout_of(1), 64);
    const LayerProgram half = layer_program(m, 0, layout_of(2), 64);
    ASSERT_EQ(whole.operators.size(), half.operators.size());
    for (size_t i = 0; i < whole.operators.size(); ++i) {
      const Operator& w = whole.operators[i];
      const Operator& s = half.operators[i];
      EXPECT_EQ(w.name, s.name);
      const bool replicated = w.name == "mlp.router";
      EXPECT_DOUBLE_EQ(forward_flop(w.shape), forward_flop(s.shape) * (replicated ? 1 : 2))
          << name << " " << w.name;
      EXPECT_TRUE(w.forward_collectives.empty() && w.backward_collectives.empty());
    }
  }
}

TEST(LayerProgram, ADenseLayerHasTwoReductionsEachWay) {
  const ModelSpec m = load_model("llama3-8b");
  const LayerProgram program = layer_program(m, 0, layout_of(8, 2, Precision::bf16), 4096);
  std::vector<Collective> forward, backward;
  for (const Operator& op : program.operators) {
    forward.insert(forward.end(), op.forward_collectives.begin(), op.forward_collectives.end());
    backward.insert(backward.end(), op.backward_collectives.begin(), op.backward_collectives.end());
  }
  const Collective expected{CollectiveKind::all_reduce, CollectiveGroup::tensor, 2 * 4096 * 4096 * 2};
  EXPECT_EQ(forward, (std::vector<Collective>{expected, expected}));
  EXPECT_EQ(backward, (std::vector<Collective>{expected, expected}));
}

// Ranks that share a key-value head hold a part of its matrix, gather the product and attend with the whole
// head.
TEST(LayerProgram, MoreTensorRanksThanKeyValueHeadsGatherTheProduct) {
  const ModelSpec m = load_model("llama3-8b");  // 32 heads of 128, 8 for keys and values
  const LayerProgram whole = layer_program(m, 0, layout_of(1), 64);
  const LayerProgram shared = layer_program(m, 0, layout_of(16), 64);
  ASSERT_EQ(whole.operators.size(), shared.operators.size());
  const int64_t columns = (32 + 2 * 8) * 128;
  for (size_t i = 0; i < whole.operators.size(); ++i) {
    const Operator& w = whole.operators[i];
    const Operator& s = shared.operators[i];
    EXPECT_DOUBLE_EQ(forward_flop(w.shape), forward_flop(s.shape) * 16) << w.name;
    if (w.name == "attention.core") {
      EXPECT_EQ(s.shape.kv_heads, 1);
    }
    if (w.name != "attention.qkv") continue;
    EXPECT_EQ(w.parameters, s.parameters * 16);
    const auto listed = [](const Collectives& c) { return std::vector<Collective>(c.begin(), c.end()); };
    const int64_t bytes = 64 * columns * 4, input = 64 * 4096 * 4;
    EXPECT_EQ(listed(s.forward_collectives),
              (std::vector<Collective>{{CollectiveKind::all_gather, CollectiveGroup::tensor, bytes}}));
    EXPECT_EQ(listed(s.backward_collectives),
              (std::vector<Collective>{{CollectiveKind::all_reduce, CollectiveGroup::tensor, input},
                                       {CollectiveKind::reduce_scatter, CollectiveGroup::tensor, bytes}}));
  }
}

TEST(LayerProgram, WhatIsKeptInEightBitsIsGatheredInEight) {
  const ModelSpec m = load_model("llama3-8b");
  Layout layout = layout_of(4, 1, Precision::bf16);
  layout.sequence_parallel = true;
  const auto bytes = [&](Precision precision, const char* framework) {
    layout.precision = precision;
    layout.execution = frameworks::load_framework(framework, "test");
    std::vector<std::pair<int64_t, int64_t>> gathered_and_scattered;
    for (const Operator& op : layer_program(m, 0, layout, 4096).operators) {
      auto& [gathered, scattered] = gathered_and_scattered.emplace_back();
      for (const auto* list : {&op.forward_collectives, &op.backward_collectives}) {
        for (const Collective& c : *list)
          (c.kind == CollectiveKind::all_gather ? gathered : scattered) += c.bytes;
      }
    }
    return gathered_and_scattered;
  };
  const auto wide = bytes(Precision::bf16, "megatron-core"), narrow = bytes(Precision::fp8, "megatron-core");
  int64_t all = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(2 * narrow[i].first, wide[i].first) << i;
    EXPECT_EQ(narrow[i].second, wide[i].second) << i;
    all += wide[i].first;
  }
  EXPECT_EQ(all, 6 * 4096 * 4096 * 2) << "two inputs twice, two gradients of outputs";
  EXPECT_EQ(bytes(Precision::fp8, "mpt"), bytes(Precision::bf16, "mpt"));
}

// Korthikanti et al. 2022 (arXiv:2205.05198), eq. 1: a layer keeps s b h (34 + 5 a s / h) bytes in 16 bit.
// Flash attention drops the 5 a s / h; there is no dropout here (masks: 1 byte twice on [s b h], and on the
// attention output); what is kept twice there (attention's and MLP's input, dropout's) differs by the terms
// below.
TEST(LayerProgram, KeptActivationsEqualThePapersUpToNamedTerms) {
  const ModelSpec m = load_model("gpt3-175b");
  const int64_t s = 2048, b = 1, h = m.hidden;
  const LayerProgram program = layer_program(m, 0, layout_of(1, b, Precision::bf16), s);
  const int64_t sbh = s * b * h;
  const int64_t paper = 34 * sbh;
  const int64_t dropout_masks = 2 * sbh;  // two masks on the residual
  const int64_t statistics =
      4 * (2 * 2 * s * b);  // mean and deviation of two norms in fp32, which the paper neglects
  const int64_t log_sum_exp = 4 * s * b * m.attention().heads;  // flash attention's, not in the paper
  EXPECT_EQ(saved_bytes(program, Recompute::none), paper - dropout_masks + statistics + log_sum_exp);
}

// Korthikanti et al. 2022 (arXiv:2205.05198), table 2 and section 5: bytes per layer of what training keeps
// in 16 bits with unfused attention and dropout, up to the norms' statistics and the roundings of
// allocations.
TEST(LayerProgram, KeptActivationsOfTheSequenceParallelismPaper) {
  const ModelSpec m = load_model("gpt3-175b");
  for (const int64_t tensor : {1, 8}) {
    for (const int64_t sequence : {1024, 2048}) {
      Layout layout = layout_of(tensor, 2, Precision::fp16);
      layout.execution.edit().kernels.attention = AttentionKernel::unfused;
      layout.execution.edit().kernels.dropout = true;
      const double sbh = double(sequence * 2 * m.hidden), t = double(tensor);
      const double scores = 5.0 * double(m.attention().heads) * double(sequence) / double(m.hidden);
      const auto kept = [&](Recompute recompute) {
        return double(saved_bytes(layer_program(m, 0, layout, sequence), recompute));
      };
      EXPECT_NEAR(kept(Recompute::none) / (sbh * (10 + 24 / t + scores / t)), 1.0, 0.002) << tensor;
      EXPECT_NEAR(kept(Recompute::selective) / (sbh * (10 + 24 / t)), 1.0, 0.08) << tensor;
      EXPECT_NEAR(kept(Recompute::full) / (sbh * 2), 1.0, 1e-6) << tensor;
      if (tensor == 1) continue;
      layout.sequence_parallel = true;
      EXPECT_NEAR(kept(Recompute::none) / (sbh / t * (34 + scores)), 1.0, 0.002) << tensor;
    }
  }
}

// The same paper, section 5: the attention core is 3 % of the FLOP of GPT-3 and holds 70 % of the
// activations.
TEST(LayerProgram, SelectiveRecomputeSavesSeventyPercentOfGpt3ForThreePercentOfItsWork) {
  const ModelSpec m = load_model("gpt3-175b");
  Layout layout = layout_of(8, 1, Precision::fp16);
  layout.sequence_parallel = true;
  layout.execution.edit().kernels.attention = AttentionKernel::unfused;
  layout.execution.edit().kernels.dropout = true;
  const LayerProgram layer = layer_program(m, 0, layout, 2048);
  const double saved =
      1.0 - double(saved_bytes(layer, Recompute::selective)) / double(saved_bytes(layer, Recompute::none));
  EXPECT_NEAR(saved, 0.70, 0.03);
  double core = 0.0, all = 0.0;
  for (const Operator& op : layer.operators) {
    const double flop = forward_flop(op.shape);
    // The paper counts the whole square.
    const double counted = op.shape.kind == OperatorKind::attention ? 2.0 * flop : flop;
    all += 3.0 * counted;
    if (op.shape.kind == OperatorKind::attention) core += counted;
  }
  EXPECT_NEAR(core / all, 0.0089, 0.002);  // 1 / 3 of the core's share of 2.7 %
}

// DeepSeek-V3 in bf16, one token: the residual before each norm and each norm's output once (4 h, 4 norms'
// statistics in all), the compressed queries and key-values before and after their norm, queries, keys,
// values and output of the core with its log-sum-exp; router scores, the copies for 8 experts, and per expert
// copy and for the shared expert gate, up and product (3 f). Rounded up to 64 bytes each, hence many tokens.
TEST(LayerProgram, LatentAttentionAndExpertsKeepEachTensorOnce) {
  const ModelSpec m = load_model("deepseek-v3");
  const int64_t tokens = 4096, h = 7168, heads = 128, f = 2048, top = 8;
  const int64_t attention = 2 * (1536 + 512) + heads * (2 * 192 + 128) + heads * 128;
  const int64_t experts = top * (h + 3 * f) + 3 * f;
  const int64_t in_fp32 = 4 + heads + 256;  // statistics, log-sum-exp and the router's probabilities
  const int64_t expected = tokens * (2 * (4 * h + attention + experts) + 4 * in_fp32);
  const LayerProgram program = layer_program(m, 60, layout_of(1, 1, Precision::bf16), tokens);
  EXPECT_EQ(saved_bytes(program, Recompute::none), expected);
}

// DeepSeek-V3 (arXiv:2412.19437, section 2.2 and its published checkpoint): its one next-token layer has 11.5
// billion parameters of its own beside 0.9 billion each of the embedding and the head that it shares.
TEST(LayerProgram, NextTokenLayersComeBehindTheHead) {
  const ModelSpec m = load_model("deepseek-v3");
  Layout layout = layout_of(1, 1, Precision::bf16);
  const auto added = [&] {
    return parameters(last_stage_program(m, layout, 4096)) - parameters(head_program(m, layout, 4096));
  };
  EXPECT_NEAR(double(added()) / 11.6e9, 1.0, 0.01);
  const int64_t together = added();
  layout.pipeline = 2;
  EXPECT_EQ(added() - together, m.vocab * m.hidden) << "the embedding is on the first stage";
  const double head = double(saved_bytes(head_program(m, layout, 4096), Recompute::none));
  const double layer = double(saved_bytes(layer_program(m, 60, layout, 4096), Recompute::none));
  EXPECT_NEAR(double(saved_bytes(last_stage_program(m, layout, 4096), Recompute::none)) / (2 * head + layer),
              1.0, 0.1);
}

// The runtime sends each copy to both halves of its expert; Megatron Core sends it once and gathers it there.
// What arrives is the same.
TEST(LayerProgram, CopiesReachEveryPartOfASplitExpert) {
  const ModelSpec m = load_model("mixtral-8x7b");
  Layout layout = layout_of(2);
  layout.sequence_parallel = true;
  layout.data = layout.expert = layout.expert_tensor = 2;
  const int64_t sequence = 64, own = sequence / 2 * m.moe()->experts_per_token * m.hidden * 4;
  const auto collectives = [&] {
    Collectives found;
    for (const Operator& op : layer_program(m, 0, layout, sequence).operators) {
      if (op.name == "mlp.experts_up") found = op.forward_collectives;
    }
    return found;
  };
  EXPECT_TRUE(sends_to_parts(layout));
  const Collective to_parts{CollectiveKind::all_to_all, CollectiveGroup::expert, 2 * own};
  EXPECT_EQ(collectives(), Collectives{to_parts});
  layout.execution = frameworks::load_framework("megatron-core", "test");
  const Collective exchange{CollectiveKind::all_to_all, CollectiveGroup::expert, own};
  const Collective gather{CollectiveKind::all_gather, CollectiveGroup::expert_tensor, 2 * own};
  EXPECT_EQ(collectives(), (Collectives{exchange, gather}));
}

TEST(LayerProgram, AHigherLoadOfSpreadExpertsIsMoreOfTheirRowsAlone) {
  const ModelSpec model = load_model("mixtral-8x7b");
  Layout layout;
  layout.data = layout.expert = 8;
  const LayerProgram even = layer_program(model, 0, layout, 4096);
  layout.execution.edit().traffic.expert_load = 1.25;
  const LayerProgram loaded = layer_program(model, 0, layout, 4096);
  for (size_t i = 0; i < even.operators.size(); ++i) {
    const Operator &a = even.operators[i], &b = loaded.operators[i];
    const bool experts =
        a.name == "mlp.experts_up" || a.name == "mlp.experts_activation" || a.name == "mlp.experts_down";
    EXPECT_EQ(b.shape.rows, experts ? a.shape.rows * 5 / 4 : a.shape.rows) << a.name;
    const bool product = a.shape.kind == OperatorKind::expert_linear;
    EXPECT_EQ(a.shape.copy_width, product ? model.hidden : 0) << a.name;
    EXPECT_EQ(b.saved_bytes, experts ? a.saved_bytes * 5 / 4 : a.saved_bytes) << a.name;
    EXPECT_EQ(b.parameters, a.parameters) << a.name;
  }
  layout.data = layout.expert = 1;
  const auto rows = [&] {
    std::vector<int64_t> found;
    for (const Operator& op : layer_program(model, 0, layout, 4096).operators) found.push_back(op.shape.rows);
    return found;
  };
  const std::vector<int64_t> together = rows();
  layout.execution.edit().traffic.expert_load = 1.0;
  EXPECT_EQ(together, rows()) << "all experts are on one rank";
}

// gpt-oss in Megatron-LM: the clamped halves are a copy beside what the first product gives, and the second
// one's bias is added in fp32.
TEST(LayerProgram, WhatHasItsOwnKernelsTakesRoomOfItsOwn) {
  const ModelSpec m = load_model("gpt-oss-20b");
  Layout together = layout_of(1, 1, Precision::bf16);
  Layout apart = together;
  apart.execution.edit().kernels.extras_apart = true;
  const auto operators_of = [&](const Layout& layout) {
    const LayerProgram p = layer_program(m, 0, layout, 4096);
    std::map<std::string, Operator> by_name;
    for (const Operator& op : p.operators) by_name[std::string(op.name)] = op;
    return by_name;
  };
  auto with = operators_of(apart), without = operators_of(together);
  const int64_t results = 4096 * 4 * 2880;
  const auto more = [&](const std::string& name, int64_t Operator::*bytes) {
    return with.at(name).*bytes - without.at(name).*bytes;
  };
  EXPECT_EQ(more("mlp.experts_activation", &Operator::saved_bytes), 2 * results * 2);
  EXPECT_EQ(more("mlp.experts_activation", &Operator::saved_bytes_selective), 2 * results * 2);
  EXPECT_EQ(more("mlp.experts_down", &Operator::forward_workspace_bytes), results * 8);
  EXPECT_EQ(more("mlp.experts_down", &Operator::backward_workspace_bytes), results * 6);
  EXPECT_EQ(more("mlp.experts_up", &Operator::forward_workspace_bytes), 0);
  EXPECT_TRUE(with.at("attention.rotary").shape.extra);
  apart.execution.edit().kernels.fuses_experts = true;
  with = operators_of(apart);
  EXPECT_EQ(more("mlp.experts_activation", &Operator::saved_bytes), 0);
  EXPECT_EQ(more("mlp.experts_down", &Operator::forward_workspace_bytes), 0);
}

TEST(LayerProgram, FullRecomputeKeepsTheInputAlone) {
  const ModelSpec m = load_model("gpt2-124m");
  const LayerProgram program = layer_program(m, 0, layout_of(1, 4), 256);
  EXPECT_EQ(saved_bytes(program, Recompute::full), 4 * 256 * 768 * 4);
  EXPECT_LT(saved_bytes(program, Recompute::selective), saved_bytes(program, Recompute::none));
}

TEST(Footprint, StagesAddUpToTheModel) {
  for (const char* name : {"gpt2-124m", "llama3-8b", "deepseek-v3"}) {
    const ModelSpec m = load_model(name);
    Layout layout = layout_of(1);
    layout.pipeline = 4;
    layout.layers_per_stage = even_stages(m.layers.count(), 4);
    const auto stages = stage_footprints(m, layout, {1, 128});
    int64_t bytes = 0;
    for (const StageFootprint& stage : stages) bytes += stage.parameter_bytes;
    // What predicts further tokens is not counted as the model's.
    bytes -= 4 * (parameters(last_stage_program(m, layout, 128)) - parameters(head_program(m, layout, 128)));
    // A tied table stands on both ends; each stage's buffer is rounded up.
    const int64_t copies = m.tied_embeddings ? m.vocab * m.hidden : 0;
    EXPECT_NEAR(double(bytes), double((count_parameters(m).total + copies) * 4), 4 * 64.0) << name;
    const bool shared = m.tied_embeddings || m.next_token_layers > 0;
    EXPECT_EQ(stages.front().tied_embedding_bytes, shared ? m.vocab * m.hidden * 4 : 0);
    EXPECT_EQ(stages[1].tied_embedding_bytes, 0);
  }
}

TEST(Footprint, Bf16CostsEighteenBytesAParameter) {
  const ModelSpec m = load_model("llama2-7b");
  Layout layout = layout_of(1, 1, Precision::bf16);
  layout.layers_per_stage = {m.layers.count()};
  const StageFootprint f = stage_footprints(m, layout, {1, 128}).front();
  EXPECT_NEAR(double(f.static_bytes()), 18.0 * double(count_parameters(m).total), 6 * 64.0);
}

}  // namespace
}  // namespace mpt::models
