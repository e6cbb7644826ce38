// SPDX-License-Identifier: Apache-2.0

// Layers of other kinds than GPT's and Llama's: the same loss curve in layouts that split them as on one
// rank.

#include <gtest/gtest.h>

#include "tests/support/parity.h"

namespace mpt::runtime {
namespace {

using namespace test::parity;
using test::WantedPlan;

const NamedLayout kDenseKinds[] = {
    {"tp2", 2, 1, 1, 1, 1, "1f1b", kNone},
    {"tp4 sp, full recompute", 4, 1, 1, 1, 2, "1f1b", kFull, true},
    {"pp2 zb-v", 1, 2, 1, 2, 1, "zb-v", kNone},
    {"tp2 sp pp2 dp2 zero1 zb-h1", 2, 2, 2, 1, 1, "zb-h1", kSelective, true, 1},
    {"dp2 zero3", 1, 1, 2, 1, 1, "1f1b", kNone, false, 3},
    {"cp2 ring", 1, 1, 1, 1, 1, "1f1b", kNone, false, 0, 0, kInner, {}, {}, 1, 2, kRing},
    {"tp2 sp cp2 ring", 2, 1, 1, 1, 1, "1f1b", kFull, true, 0, 0, kInner, {}, {}, 1, 2, kRing},
    {"cp2 a2a, selective", 1, 1, 1, 1, 2, "1f1b", kSelective, false, 0, 0, kInner, {}, {}, 1, 2, kAllToAll},
};
const NamedLayout kSpreadKinds[] = {
    {"dp4 ep4", 1, 1, 4, 1, 1, "1f1b", kNone, false, 0, 0, kInner, {}, {}, 4},
    {"tp2 sp dp2 ep2 zero2", 2, 1, 2, 1, 1, "1f1b", kNone, true, 2, 0, kInner, {}, {}, 2},
    {"tp2 sp dp2 ep2 etp2", 2, 1, 2, 1, 1, "1f1b", kFull, true, 0, 0, kInner, {}, {}, 2, 1, kRing, 2},
    {"tp2 sp pp2 dp2 ep4 zb-h1", 2, 2, 2, 1, 1, "zb-h1", kNone, true, 1, 0, kInner, {}, {}, 4},
};

// Where the token table lies on both ends of a pipeline, which may be one rank.
const NamedLayout kEnds[] = {
    {"pp2 dp2 zero2", 1, 2, 2, 1, 1, "1f1b", kNone, false, 2},
    {"pp2 dp2 zero3", 1, 2, 2, 1, 1, "1f1b", kFull, false, 3},
    {"tp2 pp2 interleaved", 2, 2, 1, 2, 1, "interleaved", kSelective},
    {"tp2 sp pp2 dualpipe-v", 2, 2, 1, 2, 1, "dualpipe-v", kNone, true},
};

TEST(KindsParity, NormsOnBothSidesWindowsAndCaps) { check_follows(test::little_gemma(), kDenseKinds); }
TEST(KindsParity, NormsBehindAndOverAllHeads) { check_follows(test::little_olmo(), kDenseKinds); }
TEST(KindsParity, AttentionAndMlpSideBySide) { check_follows(test::little_parallel(), kDenseKinds); }
TEST(KindsParity, FactorsOnResidualsAndLogits) {
  ModelSpec model = test::little_llama();
  model.embedding_scale = 3.0;
  model.residual_scale = 0.7;
  model.logit_scale = 1.3;
  check_follows(model, kDenseKinds);
}
TEST(KindsParity, SinksAndExpertsWithBiases) {
  check_follows(test::little_oss(), kDenseKinds);
  check_follows(test::little_oss(), kSpreadKinds);
}
TEST(KindsParity, LatentsSharedExpertsAndABiasThatMovesTheChoice) {
  check_follows(test::little_deepseek(), kDenseKinds);
  check_follows(test::little_deepseek(), kSpreadKinds);
}

TEST(KindsParity, NextTokenModules) {
  check_follows(test::little_predicting(), kDenseKinds);
  check_follows(test::little_predicting(), kSpreadKinds);
  check_follows(test::little_predicting(), kEnds);
  ModelSpec tied = test::little_llama();
  tied.tied_embeddings = true;
  tied.next_token_layers = 2;
  check_follows(tied, kEnds);
}

// Modules work with weights of other pieces, which are gathered and reduced beside compute.
TEST(KindsParity, NextTokenModulesBesideCompute) {
  ModelSpec model = test::little_llama(2);
  model.next_token_layers = 2;
  for (const bool tied : {false, true}) {
    model.tied_embeddings = tied;
    const Curve exact = run({model}, DataType::float64, 3);
    for (const int64_t pipeline : {1, 2}) {
      for (const int64_t zero : {0, 1, 2, 3}) {
        WantedPlan request =
            request_for(model, NamedLayout{"", 1, pipeline, 2, 1, 1, "1f1b", kNone, false, zero});
        request.overlap_gradient_reduce = request.overlap_parameter_gather = true;
        EXPECT_LT(worst_difference(exact, run(request, DataType::float64, 3)), 1e-12)
            << "tied " << tied << " pp" << pipeline << " zero" << zero;
      }
    }
  }
}

// Context ranks exchange heads for tokens. In a ring they would have to hand on states: such layouts are
// refused when a plan is made.
const NamedLayout kLinearMixers[] = {
    {"tp2", 2, 1, 1, 1, 1, "1f1b", kNone},
    {"tp4 sp, full recompute", 4, 1, 1, 1, 2, "1f1b", kFull, true},
    {"pp2 zb-v", 1, 2, 1, 2, 1, "zb-v", kNone},
    {"tp2 sp pp2 dp2 zero1 zb-h1", 2, 2, 2, 1, 1, "zb-h1", kSelective, true, 1},
    {"dp2 zero3", 1, 1, 2, 1, 1, "1f1b", kNone, false, 3},
    {"cp2 a2a, selective", 1, 1, 1, 1, 2, "1f1b", kSelective, false, 0, 0, kInner, {}, {}, 1, 2, kAllToAll},
    {"tp2 sp cp2 a2a", 2, 1, 1, 1, 2, "1f1b", kFull, true, 0, 0, kInner, {}, {}, 1, 2, kAllToAll},
};
TEST(KindsParity, GatedDeltaNetBesideAttention) { check_follows(test::little_hybrid(), kLinearMixers); }
TEST(KindsParity, GatedDeltaNetWithGatesAndExperts) {
  check_follows(test::little_next(), kLinearMixers);
  check_follows(test::little_next(), kSpreadKinds);
}
TEST(KindsParity, GatesOnAttention) {
  ModelSpec model = test::little_llama();
  model.layers.change([](LayerKind& kind) { kind.attention->output_gate = OutputGate::per_head; });
  check_follows(model, kDenseKinds);
}

// What runs beside compute, and an optimizer on the host, change no sums.
TEST(KindsParity, TensorOverlapAndOffloadFollowTheSingleRank) {
  for (const ModelSpec& model : {test::little_gemma(), test::little_oss(), test::little_deepseek(),
                                 test::little_predicting(), test::little_next()}) {
    const Curve exact = run({model}, DataType::float64, 3);
    WantedPlan request = request_for(model, NamedLayout{"", 2, 1, 2, 1, 1, "1f1b", kNone, true, 1});
    request.overlap_tensor = true;
    EXPECT_LT(worst_difference(exact, run(request, DataType::float64, 3)), 1e-12) << model.name;
    request.overlap_tensor = false;
    request.offload_optimizer = true;
    EXPECT_LT(worst_difference(exact, run(request, DataType::float64, 3)), 1e-12) << model.name;
  }
}

// The bias moves by its rate in every step, against the load, and by nothing else.
TEST(KindsParity, TheBiasOfTheChoiceEvensTheLoad) {
  ModelSpec still = test::little_deepseek(), moving = still;
  still.layers.change([](LayerKind& kind) {
    if (kind.moe) kind.moe->bias_rate = 0.0;
  });
  const Curve without = run({still}, DataType::float64, 4), with = run({moving}, DataType::float64, 4);
  EXPECT_EQ(without.loss[0], with.loss[0]);
  EXPECT_NE(without.loss[3], with.loss[3]);
}

void expect_near_in_bf16(const ModelSpec& model, const NamedLayout& layout, const Curve& reference) {
  WantedPlan request = request_for(model, layout);
  request.precision = Precision::bf16;
  EXPECT_LT(worst_difference(reference, run(request, DataType::bfloat16, 6)), 2e-2)
      << model.name << " " << layout.name;
}

// In 16 bits, as of other kinds.
TEST(KindsParity, LayoutsFollowTheSingleRankInBf16) {
  for (const ModelSpec& model : {test::little_gemma(), test::little_olmo(), test::little_oss()}) {
    const Curve reference = run({model}, DataType::float32, 6);
    for (const NamedLayout& layout : kDenseKinds) expect_near_in_bf16(model, layout, reference);
  }
  const ModelSpec hybrid = test::little_hybrid();
  const Curve reference = run({hybrid}, DataType::float32, 6);
  for (const NamedLayout& layout : kLinearMixers) expect_near_in_bf16(hybrid, layout, reference);
}

}  // namespace
}  // namespace mpt::runtime
