// SPDX-License-Identifier: Apache-2.0

// Conformance test 2: the real layers on a recording device execute the operators of the LayerProgram, with
// its shapes, collectives and saved bytes, in its order.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/footprint.h"
#include "models/layer_program.h"
#include "runtime/nn/stage.h"
#include "tests/support/make_plan.h"
#include "tests/support/recording_device.h"

namespace mpt::runtime {
namespace {

// One line an operator, so that a difference can be read.
std::vector<std::string> lines(const std::vector<models::OperatorShape>& shapes) {
  std::vector<std::string> out;
  for (const models::OperatorShape& s : shapes) {
    out.push_back(fmt::format("{} [{}, {}, {}] b{} s{} a{} k{} d{} {}{}{}{}", enum_name(s.kind), s.rows,
                              s.columns, s.inner, s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim,
                              s.value_head_dim, s.gated ? " gated" : "", s.scaled ? " scaled" : "",
                              s.capped ? " capped" : ""));
  }
  return out;
}

struct Described {
  std::vector<models::OperatorShape> forward;
  std::vector<models::Collective> collectives;
};

// What the descriptions say a whole model on one pipeline rank does: forward through all pieces, then back.
Described describe(const ModelSpec& model, const Layout& layout, int64_t sequence) {
  std::vector<models::LayerProgram> pieces{models::embedding_program(model, layout, sequence)};
  for (int64_t l = 0; l < model.layers.count(); ++l)
    pieces.push_back(models::layer_program(model, l, layout, sequence));
  pieces.push_back(models::last_stage_program(model, layout, sequence));
  Described out;
  for (const auto& piece : pieces) {
    for (const models::Operator& op : piece.operators) {
      out.forward.push_back(op.shape);
      if (op.shape.kind == models::OperatorKind::residual_add) {
        out.forward.back().rows *= op.shape.columns;
        out.forward.back().columns = 1;
      }
      out.collectives.insert(out.collectives.end(), op.forward_collectives.begin(),
                             op.forward_collectives.end());
    }
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    for (auto op = piece->operators.rbegin(); op != piece->operators.rend(); ++op) {
      out.collectives.insert(out.collectives.end(), op->backward_collectives.begin(),
                             op->backward_collectives.end());
    }
  }
  return out;
}

// A line a message. With sequence parallelism weight gradients, which gather, run behind all input gradients
// of a layer, so that only the messages themselves are compared, not their order.
std::vector<std::string> messages(const std::vector<models::Collective>& collectives, const Layout& layout) {
  std::vector<std::string> out;
  for (const models::Collective& c : collectives) out.push_back(fmt::format("{} {}", int(c.kind), c.bytes));
  if (layout.sequence_parallel) std::sort(out.begin(), out.end());
  return out;
}

struct Recorded {
  test::Record record;
  std::vector<models::OperatorShape> forward;  // of the forward pass alone
  int64_t saved_bytes = 0;                     // between forward and backward
  int64_t left_bytes = 0;                      // after backward
};

Recorded record(const ModelSpec& model, const Layout& layout, int64_t sequence) {
  Recorded out;
  const auto device = test::make_recording_device(out.record);
  const auto group = test::make_recording_communicator(out.record, int(layout.tensor));
  const auto single = test::make_recording_communicator(out.record, 1);
  Stage stage({model, layout, sequence, DataType::float32, 1}, 0, {0, model.layers.count(), true, true},
              *device, {{group.get(), single.get(), single.get()}, {}});
  const int64_t before = device->in_use_bytes();
  const std::vector<int32_t> tokens(size_t((1 + model.next_token_layers) * layout.micro_batch * sequence), 1);
  stage.forward(0, tokens.data(), tokens.data(), nullptr, nullptr);
  out.forward = out.record.forward;
  out.saved_bytes = device->in_use_bytes() - before;
  stage.backward(0, nullptr, nullptr);
  out.left_bytes = device->in_use_bytes() - before;
  return out;
}

std::vector<std::pair<ModelSpec, Layout>> cases() {
  std::vector<std::pair<ModelSpec, Layout>> all;
  ModelSpec qwen = test::little_llama(3);
  qwen.layers.change([](LayerKind& k) { k.attention->qkv_bias = true; });
  ModelSpec untied = test::little_gpt(2);
  untied.tied_embeddings = false;
  ModelSpec predicting = test::little_llama(2);
  predicting.next_token_layers = 2;
  ModelSpec gated = test::little_llama(2);
  gated.layers.change([](LayerKind& k) { k.attention->output_gate = OutputGate::elementwise; });
  for (const ModelSpec& model :
       {test::little_gpt(3), test::little_llama(3), qwen, untied, test::little_gemma(3), test::little_olmo(3),
        predicting, test::little_hybrid(), gated}) {
    for (const int64_t tensor : {1, 2, 4}) {
      for (const int64_t micro_batch : {1, 3}) {
        Layout layout;
        layout.tensor = tensor;
        layout.micro_batch = micro_batch;
        layout.layers_per_stage = {model.layers.count()};
        all.emplace_back(model, layout);
        if (tensor == 1) continue;
        layout.sequence_parallel = true;
        all.emplace_back(model, layout);
      }
    }
  }
  return all;
}

TEST(OperatorConformance, LayersExecuteTheirDescription) {
  for (const auto& [model, layout] : cases()) {
    const Recorded real = record(model, layout, 12);
    const Described described = describe(model, layout, 12);
    EXPECT_EQ(lines(real.forward), lines(described.forward)) << model.name << " tp" << layout.tensor;
    EXPECT_EQ(messages(real.record.collectives, layout), messages(described.collectives, layout))
        << model.name << " tp" << layout.tensor;
  }
}

TEST(OperatorConformance, LayersKeepWhatTheDescriptionSaysAndGiveItBack) {
  for (auto [model, layout] : cases()) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      layout.recompute = recompute;
      const Recorded real = record(model, layout, 12);
      EXPECT_EQ(real.saved_bytes,
                models::stage_footprints(model, layout, {layout.micro_batch, 12}).front().saved_bytes)
          << model.name << " tp" << layout.tensor << " " << enum_name(recompute);
      EXPECT_EQ(real.left_bytes, 0);
    }
  }
}

// Recomputation runs a layer's forward again, short of what its backward does not need.
TEST(OperatorConformance, FullRecomputeRepeatsEachLayerButItsLastTwoOperators) {
  const ModelSpec model = test::little_gpt(2);
  Layout layout;
  layout.layers_per_stage = {2};
  const size_t once = record(model, layout, 8).record.forward.size();
  const size_t per_layer = models::layer_program(model, 0, layout, 8).operators.size();
  layout.recompute = Recompute::full;
  EXPECT_EQ(record(model, layout, 8).record.forward.size(), once + 2 * (per_layer - 2));
  layout.recompute = Recompute::selective;
  EXPECT_EQ(record(model, layout, 8).record.forward.size(), once + 2);
}

// The balance loss is the same for all tokens of a sequence, and costs nothing where it has no weight.
TEST(OperatorConformance, BalanceOfExpertsIsSentBySequenceAndOnlyIfWanted) {
  ModelSpec model = test::little_mixtral(2);
  Layout layout;
  layout.micro_batch = 3;
  layout.layers_per_stage = {2};
  const int64_t with = record(model, layout, 8).record.uploaded;
  model.layers.change([](LayerKind& k) { k.moe->balance_loss = 0.0; });
  EXPECT_EQ(with - record(model, layout, 8).record.uploaded, 2 * 3 * model.moe()->experts);
}

// The comparison is not blind: a description of another model differs in operators and in bytes.
TEST(OperatorConformance, ADifferentDescriptionIsNoticed) {
  Layout layout;
  layout.tensor = 2;
  layout.layers_per_stage = {3};
  const ModelSpec model = test::little_llama(3);
  const Recorded real = record(model, layout, 12);
  ModelSpec other = model;
  other.layers.change([](LayerKind& k) { k.mlp->ffn_hidden += 8; });
  EXPECT_NE(lines(real.forward), lines(describe(other, layout, 12).forward));
  other = model;
  other.layers.change([](LayerKind& k) { k.attention->rotary.reset(); });
  EXPECT_NE(lines(real.forward), lines(describe(other, layout, 12).forward));
  layout.tensor = 1;
  EXPECT_FALSE(real.record.collectives == describe(model, layout, 12).collectives);
}

}  // namespace
}  // namespace mpt::runtime
