// SPDX-License-Identifier: Apache-2.0

// Kinds of layers against a count, and pieces that are taken from a split beside against pieces of one's own.

#include "models/piece_programs.h"

#include <gtest/gtest.h>

#include "core/layout.h"
#include "frameworks/framework.h"
#include "models/footprint.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

TEST(PiecePrograms, AreMadeAgainAsTheyWere) {
  const ModelSpec model = load_model("deepseek-v3");
  Layout layout;
  layout.tensor = layout.expert = 4;
  PiecePrograms programs(model, layout, 4096);
  const std::vector<Operator> embedding = programs.embedding().operators,
                              last = programs.last_stage().operators;
  const std::vector<Operator> experts = programs.layer(1).operators;
  programs.forget();
  EXPECT_EQ(programs.layer(1).operators, experts);
  EXPECT_EQ(programs.last_stage().operators, last);
  EXPECT_EQ(programs.embedding().operators, embedding);
  EXPECT_EQ(programs.layer(0).operators, layer_program(model, 0, layout, 4096).operators);
}

TEST(StagePieces, TakenFromASplitBesideAreThoseOfTheirOwn) {
  ModelSpec predicts = load_model("deepseek-v3");
  ModelSpec plain = predicts;
  plain.next_token_layers = 0;
  ModelSpec tied = load_model("qwen3-30b-a3b");
  tied.tied_embeddings = true;
  int compared = 0;
  for (const ModelSpec& model : {predicts, plain, tied, load_model("mixtral-8x7b")}) {
    for (const char* framework : {"mpt", "megatron-core"}) {
      Layout beside;
      beside.tensor = 4;
      beside.data = 8;
      beside.pipeline = 2;
      beside.sequence_parallel = true;
      beside.precision = Precision::bf16;
      if (std::string(framework) != "mpt") beside.execution = frameworks::load_framework(framework, "test");
      PiecePrograms programs_beside(model, beside, 4096);
      const StagePieces alike(programs_beside);
      for (const int64_t expert : {1, 2, 8}) {
        for (const int64_t split : {1, 4}) {
          Layout layout = beside;
          layout.expert = expert;
          layout.expert_tensor = split;
          layout.layers_per_stage = {model.layers.count() / 2,
                                     model.layers.count() - model.layers.count() / 2};
          PiecePrograms programs(model, layout, 4096);
          const StagePieces taken(programs, &alike), own(model, layout, 4096);
          for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
            layout.recompute = recompute;
            EXPECT_EQ(stage_footprints(taken, model, layout), stage_footprints(own, model, layout))
                << model.name << " " << framework << " ep" << expert << " etp" << split;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 4 * 2 * 6 * 3);
}

TEST(StagePieces, FrameworksWorkWithTheHeadAndItsModulesAtOnce) {
  const ModelSpec model = load_model("deepseek-v3");
  ASSERT_EQ(model.next_token_layers, 1);
  Layout layout;
  layout.pipeline = 2;
  layout.precision = Precision::bf16;
  layout.layers_per_stage = {model.layers.count(), 0};
  const auto sum = [&](const LayerProgram& program) {
    int64_t bytes = 0;
    for (const Operator& op : program.operators) bytes += op.backward_workspace_bytes;
    return bytes;
  };
  const auto last_stage = [&] {
    PiecePrograms programs(model, layout, 4096);
    return stage_footprints(StagePieces(programs), model, layout).back();
  };
  const auto all_pieces = [&] { return sum(PiecePrograms(model, layout, 4096).last_stage()); };
  EXPECT_LT(last_stage().backward_workspace_bytes, all_pieces()) << "our runtime frees between pieces";
  layout.execution = frameworks::load_framework("megatron-core", "test");
  layout.execution.edit().kept.empty_gradients = false;
  const StageFootprint last = last_stage();
  EXPECT_EQ(last.backward_workspace_bytes, all_pieces() + last.boundary_bytes) << "with what was received";
}

}  // namespace
}  // namespace mpt::models
