// SPDX-License-Identifier: Apache-2.0

// Same seed, same data, any layout: the same loss curve as one rank. The test of every parallel feature.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tests/support/parity.h"

namespace mpt::runtime {
namespace {

using namespace test::parity;
using test::WantedPlan;

// Every degree of 1, 2, 4 and their mixes, each schedule, each recompute; sequence parallel, ZeRO and uneven
// stages with each of them.
const NamedLayout kLayouts[] = {
    {"tp2", 2, 1, 1, 1, 1, "1f1b", kNone},
    {"tp4", 4, 1, 1, 1, 2, "1f1b", kNone},
    {"pp2", 1, 2, 1, 1, 1, "1f1b", kNone},
    {"pp4", 1, 4, 1, 1, 1, "1f1b", kNone},
    {"pp2 gpipe", 1, 2, 1, 1, 2, "gpipe", kNone},
    {"pp4 gpipe", 1, 4, 1, 1, 1, "gpipe", kFull},
    {"pp2 interleaved", 1, 2, 1, 2, 1, "interleaved", kNone},
    {"pp4 zb-h1", 1, 4, 1, 1, 1, "zb-h1", kNone},
    {"pp2 dp2 zb-h2", 1, 2, 2, 1, 1, "zb-h2", kFull},
    {"pp2 zb-v", 1, 2, 1, 2, 1, "zb-v", kNone},
    {"tp2 pp2 v-half", 2, 2, 1, 2, 1, "v-half", kSelective},
    {"pp2 v-min", 1, 2, 1, 2, 2, "v-min", kFull},
    {"pp2 dp2 dualpipe-v", 1, 2, 2, 2, 1, "dualpipe-v", kNone},
    {"pp4 generated", 1, 4, 1, 1, 1, "generated", kNone},
    {"tp2 pp2 generated", 2, 2, 1, 2, 1, "generated", kFull},
    {"dp2", 1, 1, 2, 1, 1, "1f1b", kNone},
    {"dp4", 1, 1, 4, 1, 2, "1f1b", kNone},
    {"dp8", 1, 1, 8, 1, 1, "1f1b", kNone},
    {"tp2 pp2", 2, 2, 1, 1, 1, "1f1b", kNone},
    {"tp2 dp2", 2, 1, 2, 1, 1, "1f1b", kSelective},
    {"pp2 dp2", 1, 2, 2, 1, 1, "1f1b", kNone},
    {"tp2 pp2 dp2", 2, 2, 2, 1, 1, "1f1b", kNone},
    {"tp2 pp2 interleaved", 2, 2, 1, 2, 1, "interleaved", kFull},
    {"pp2 dp2 interleaved", 1, 2, 2, 2, 1, "interleaved", kNone},
    {"one rank, full recompute", 1, 1, 1, 1, 4, "1f1b", kFull},
    {"one rank, micro-batch 8", 1, 1, 1, 1, 8, "1f1b", kNone},
    {"tp2 sp", 2, 1, 1, 1, 1, "1f1b", kNone, true},
    {"tp4 sp, full recompute", 4, 1, 1, 1, 2, "1f1b", kFull, true},
    {"tp2 sp pp2 zb-h1", 2, 2, 1, 1, 1, "zb-h1", kSelective, true},
    {"tp2 sp pp2 zb-v", 2, 2, 1, 2, 1, "zb-v", kNone, true},
    {"dp2 zero1", 1, 1, 2, 1, 1, "1f1b", kNone, false, 1},
    {"dp4 zero1/2", 1, 1, 4, 1, 1, "1f1b", kNone, false, 1, 2},
    {"dp4 zero2", 1, 1, 4, 1, 1, "1f1b", kSelective, false, 2},
    {"dp8 zero3", 1, 1, 8, 1, 1, "1f1b", kNone, false, 3},
    {"dp4 zero3/2, full recompute", 1, 1, 4, 1, 2, "1f1b", kFull, false, 3, 2},
    {"pp2 dp2 zero1 dp outermost", 1, 2, 2, 1, 1, "1f1b", kNone, false, 1, 0, kOuter},
    {"pp2 dp2 zero2 zb-h1", 1, 2, 2, 1, 1, "zb-h1", kNone, false, 2},
    {"pp2 dp2 zero3 zb-v", 1, 2, 2, 2, 1, "zb-v", kNone, false, 3},
    {"tp2 sp dp2 zero1", 2, 1, 2, 1, 1, "1f1b", kNone, true, 1},
    {"tp2 sp pp2 dp2 zero3", 2, 2, 2, 1, 1, "1f1b", kFull, true, 3},
    {"pp2 uneven", 1, 2, 1, 1, 1, "1f1b", kNone, false, 0, 0, kInner, {3, 1}},
    {"pp2, recompute 2 and 0", 1, 2, 1, 1, 1, "1f1b", kFull, false, 0, 0, kInner, {2, 2}, {2, 0}},
    {"tp2 sp pp3 uneven zb-h2", 2, 3, 1, 1, 1, "zb-h2", kFull, true, 0, 0, kInner, {2, 1, 1}, {1, 1, 0}},
};

// Experts beside every other way to split.
const NamedLayout kExpertLayouts[] = {
    {"tp2", 2, 1, 1, 1, 1, "1f1b", kNone},
    {"tp4 sp", 4, 1, 1, 1, 2, "1f1b", kFull, true},
    {"pp2 zb-v", 1, 2, 1, 2, 1, "zb-v", kNone},
    {"dp4", 1, 1, 4, 1, 1, "1f1b", kSelective},
    {"dp4 ep4", 1, 1, 4, 1, 1, "1f1b", kNone, false, 0, 0, kInner, {}, {}, 4},
    {"dp4 ep2", 1, 1, 4, 1, 2, "1f1b", kFull, false, 0, 0, kInner, {}, {}, 2},
    {"dp4 ep2 zero1", 1, 1, 4, 1, 1, "1f1b", kNone, false, 1, 0, kInner, {}, {}, 2},
    {"dp4 ep2 zero3", 1, 1, 4, 1, 1, "1f1b", kNone, false, 3, 0, kInner, {}, {}, 2},
    {"pp2 dp2 ep2 zb-h1", 1, 2, 2, 1, 1, "zb-h1", kNone, false, 0, 0, kInner, {}, {}, 2},
    {"tp2 sp dp2 ep4", 2, 1, 2, 1, 1, "1f1b", kNone, true, 0, 0, kInner, {}, {}, 4},
    {"tp2 sp dp2 ep2 zero2", 2, 1, 2, 1, 1, "1f1b", kNone, true, 2, 0, kInner, {}, {}, 2},
    {"tp2 sp pp2 dp2 ep4 zero1", 2, 2, 2, 1, 1, "1f1b", kSelective, true, 1, 0, kInner, {}, {}, 4},
    // Experts split by width, too, with replicas and without.
    {"tp2 sp dp2 ep2 etp2", 2, 1, 2, 1, 1, "1f1b", kNone, true, 0, 0, kInner, {}, {}, 2, 1, kRing, 2},
    {"tp2 sp dp4 ep2 etp2 zero1", 2, 1, 4, 1, 1, "1f1b", kFull, true, 1, 0, kInner, {}, {}, 2, 1, kRing, 2},
    {"tp4 sp dp2 ep2 etp4 zero3", 4, 1, 2, 1, 1, "1f1b", kNone, true, 3, 0, kInner, {}, {}, 2, 1, kRing, 4},
    {"tp2 sp pp2 dp2 ep2 etp2 zb-h1",
     2,
     2,
     2,
     1,
     1,
     "zb-h1",
     kSelective,
     true,
     0,
     0,
     kInner,
     {},
     {},
     2,
     1,
     kRing,
     2},
};

// Sequences over context ranks, by ring and by exchange of heads.
const NamedLayout kContextLayouts[] = {
    {"cp2 ring", 1, 1, 1, 1, 1, "1f1b", kNone, false, 0, 0, kInner, {}, {}, 1, 2, kRing},
    {"cp4 ring, recompute", 1, 1, 1, 1, 2, "1f1b", kFull, false, 0, 0, kInner, {}, {}, 1, 4, kRing},
    {"cp2 a2a", 1, 1, 1, 1, 2, "1f1b", kNone, false, 0, 0, kInner, {}, {}, 1, 2, kAllToAll},
    {"cp4 a2a, selective", 1, 1, 1, 1, 1, "1f1b", kSelective, false, 0, 0, kInner, {}, {}, 1, 4, kAllToAll},
    {"tp2 sp cp2 ring", 2, 1, 1, 1, 1, "1f1b", kSelective, true, 0, 0, kInner, {}, {}, 1, 2, kRing},
    {"tp2 cp2 a2a pp2 zb-h1", 2, 2, 1, 1, 1, "zb-h1", kNone, false, 0, 0, kInner, {}, {}, 1, 2, kAllToAll},
    {"cp2 dp2 ring zero1", 1, 1, 2, 1, 1, "1f1b", kNone, false, 1, 0, kInner, {}, {}, 1, 2, kRing},
    {"cp2 dp2 ring zero3", 1, 1, 2, 1, 1, "1f1b", kNone, false, 3, 0, kInner, {}, {}, 1, 2, kRing},
    {"cp2 pp2 ring zb-v", 1, 2, 1, 2, 1, "zb-v", kFull, false, 0, 0, kInner, {}, {}, 1, 2, kRing},
};

// Norms of heads: every tensor rank has a part of their gradient.
const NamedLayout kQwenLayouts[] = {
    {"tp2", 2, 1, 1, 1, 1, "1f1b", kNone},
    {"tp4 sp zero3", 4, 1, 2, 1, 1, "1f1b", kFull, true, 3},
    {"tp2 pp2 dp2 zb-h1", 2, 2, 2, 1, 1, "zb-h1", kSelective},
    {"pp2 dp2 zb-v zero2", 1, 2, 2, 2, 1, "zb-v", kNone, false, 2},
};

TEST(ExpertParity, EveryLayoutFollowsTheSingleRank) { check_follows(test::little_mixtral(), kExpertLayouts); }
// The first and the last two of them: experts of other ranks, and of the own.
TEST(ExpertParity, ARouterLimitedToGroupsFollowsTheSingleRank) {
  const std::span all(kExpertLayouts);
  check_follows(test::little_grouped(), all.first(1));
  check_follows(test::little_grouped(), all.last(2));
}
TEST(ContextParity, EveryLayoutFollowsTheSingleRank) {
  check_follows(test::little_gpt(), kContextLayouts);
  check_follows(test::little_llama(), kContextLayouts);
  const NamedLayout experts[] = {
      {"cp2 ring", 1, 1, 1, 1, 1, "1f1b", kNone, false, 0, 0, kInner, {}, {}, 1, 2, kRing},
      {"tp2 sp cp2 ring ep4", 2, 1, 1, 1, 1, "1f1b", kNone, true, 0, 0, kInner, {}, {}, 4, 2, kRing}};
  check_follows(test::little_mixtral(), experts);
}
TEST(HeadNormParity, EveryLayoutFollowsTheSingleRank) { check_follows(test::little_qwen(), kQwenLayouts); }

// What runs beside compute runs in another order of time, not of sums: not a bit differs. Of the two kinds of
// traffic both run beside it, and one alone, layouts in turn.
void check_overlap_changes_nothing(const ModelSpec& model, std::span<const NamedLayout> layouts) {
  size_t number = 0;
  for (const NamedLayout& layout : layouts) {
    if (layout.data * layout.context == 1) continue;
    WantedPlan request = request_for(model, layout);
    const Curve waiting = run(request, DataType::float32, 3);
    const std::pair<bool, bool> both{true, true},
        either = number++ % 2 == 0 ? std::pair{true, false} : std::pair{false, true};
    for (const auto& [reduce, gather] : {both, either}) {
      request.overlap_gradient_reduce = reduce;
      request.overlap_parameter_gather = gather;
      const Curve beside = run(request, DataType::float32, 3);
      EXPECT_EQ(waiting.loss, beside.loss) << layout.name << ", reduce " << reduce << ", gather " << gather;
      EXPECT_EQ(waiting.norm, beside.norm) << layout.name << ", reduce " << reduce << ", gather " << gather;
    }
  }
}

TEST(OverlapParity, EachStageOfZeroFollowsThoseThatWait) {
  const NamedLayout stages[] = {{"dp2", 1, 1, 2, 1, 1, "1f1b", kNone},
                                {"dp2 zero1", 1, 1, 2, 1, 1, "1f1b", kNone, false, 1},
                                {"pp2 dp2 zero2 zb-v", 1, 2, 2, 2, 1, "zb-v", kNone, false, 2},
                                {"pp2 dp2 zero3", 1, 2, 2, 1, 1, "1f1b", kFull, false, 3}};
  check_overlap_changes_nothing(test::little_gpt(), stages);
}
TEST(OverlapParity, EveryLayoutOfReplicasFollowsThoseThatWait) {
  check_overlap_changes_nothing(test::little_gpt(), kLayouts);
  check_overlap_changes_nothing(test::little_llama(), kLayouts);
  check_overlap_changes_nothing(test::little_mixtral(), kExpertLayouts);
  check_overlap_changes_nothing(test::little_gpt(), kContextLayouts);
  check_overlap_changes_nothing(test::little_qwen(), kQwenLayouts);
}

// The same arithmetic in another memory: not a bit differs, with what runs beside compute and in every
// precision, layouts in turn.
void check_offload_changes_nothing(const ModelSpec& model, std::span<const NamedLayout> layouts) {
  const Curve reference = run({model}, DataType::float32, 3);
  const std::pair<Precision, DataType> types[] = {{Precision::fp32, DataType::float32},
                                                  {Precision::bf16, DataType::bfloat16},
                                                  {Precision::fp16, DataType::float16},
                                                  {Precision::fp8, DataType::bfloat16}};
  for (size_t l = 0; l < layouts.size(); ++l) {
    WantedPlan request = request_for(model, layouts[l]);
    request.overlap_gradient_reduce = request.overlap_parameter_gather = l % 3 == 1;
    const auto& [precision, type] = types[l % 4];
    request.precision = precision;
    request.offload_optimizer = false;
    const Curve inside = run(request, type, 3);
    request.offload_optimizer = true;
    const Curve offloaded = run(request, type, 3);
    EXPECT_EQ(inside.loss, offloaded.loss) << layouts[l].name << " in " << enum_name(precision);
    EXPECT_EQ(inside.norm, offloaded.norm) << layouts[l].name << " in " << enum_name(precision);
    if (precision == Precision::fp32) {
      EXPECT_LT(worst_difference(reference, offloaded), 1e-5) << layouts[l].name;
    }
  }
}

TEST(OffloadParity, EachPrecisionFollowsThatWithout) {
  const NamedLayout shardings[] = {{"dp2", 1, 1, 2, 1, 1, "1f1b", kNone},
                                   {"dp2 zero1", 1, 1, 2, 1, 1, "1f1b", kNone, false, 1},
                                   {"tp2 zero2", 2, 1, 2, 1, 1, "1f1b", kNone, false, 2},
                                   {"pp2 dp2 zero3", 1, 2, 2, 1, 1, "1f1b", kFull, false, 3}};
  check_offload_changes_nothing(test::little_llama(), shardings);
}
TEST(OffloadParity, EveryDenseLayoutFollowsThoseWithout) {
  check_offload_changes_nothing(test::little_llama(), kLayouts);
  check_offload_changes_nothing(test::little_qwen(), kQwenLayouts);
}
TEST(OffloadParity, EveryLayoutOfExpertsAndContextFollowsThoseWithout) {
  check_offload_changes_nothing(test::little_mixtral(), kExpertLayouts);
  check_offload_changes_nothing(test::little_gpt(), kContextLayouts);
}

// In parts, products round otherwise; sums over ranks are the same.
void check_tensor_overlap(const ModelSpec& model, std::span<const NamedLayout> layouts) {
  const Curve reference = run({model}, DataType::float32, 4), exact = run({model}, DataType::float64, 3);
  for (const NamedLayout& layout : layouts) {
    WantedPlan request = request_for(model, layout);
    request.overlap_tensor = true;
    EXPECT_LT(worst_difference(exact, run(request, DataType::float64, 3)), 1e-12)
        << model.name << ", " << layout.name;
    const Curve once = run(request, DataType::float32, 4);
    EXPECT_LT(worst_difference(reference, once), 1e-5) << model.name << ", " << layout.name;
    const Curve again = run(request, DataType::float32, 2);
    EXPECT_TRUE(std::equal(again.loss.begin(), again.loss.end(), once.loss.begin()) &&
                std::equal(again.norm.begin(), again.norm.end(), once.norm.begin()))
        << model.name << ", " << layout.name << " differs from run to run";
  }
}

// Whole backwards, where weight gradients run beside sums, and split ones; tokens that ranks do not divide.
const NamedLayout kTensorLayouts[] = {
    {"tp2", 2, 1, 1, 1, 1, "1f1b", kNone},
    {"tp4, selective", 4, 1, 1, 1, 2, "1f1b", kSelective},
    {"tp2 pp2 zb-h1", 2, 2, 1, 1, 1, "zb-h1", kFull},
    {"tp2 dp2 zero3", 2, 1, 2, 1, 1, "1f1b", kNone, false, 3},
    {"tp2 sp", 2, 1, 1, 1, 1, "1f1b", kNone, true},
    {"tp4 sp, full recompute", 4, 1, 1, 1, 2, "1f1b", kFull, true},
    {"tp2 sp pp2 interleaved", 2, 2, 1, 2, 1, "interleaved", kSelective, true},
    {"tp2 sp pp2 zb-v", 2, 2, 1, 2, 1, "zb-v", kNone, true},
    {"tp4 sp pp2 generated", 4, 2, 1, 1, 1, "generated", kFull, true},
    {"tp2 sp dp2 zero1", 2, 1, 2, 1, 1, "1f1b", kNone, true, 1},
    {"tp2 sp pp2 dp2 zero2", 2, 2, 2, 1, 1, "1f1b", kFull, true, 2},
    {"tp2 sp cp2 ring", 2, 1, 1, 1, 1, "1f1b", kSelective, true, 0, 0, kInner, {}, {}, 1, 2, kRing},
};
TEST(TensorOverlapParity, DenseLayoutsFollowTheSingleRank) {
  check_tensor_overlap(test::little_gpt(), kTensorLayouts);
  check_tensor_overlap(test::little_llama(), kTensorLayouts);
  check_tensor_overlap(test::little_qwen(), kQwenLayouts);
}
TEST(TensorOverlapParity, LayoutsOfExpertsFollowTheSingleRank) {
  check_tensor_overlap(test::little_mixtral(), kTensorLayouts);
  const NamedLayout spread[] = {
      {"tp2 sp dp2 ep4", 2, 1, 2, 1, 1, "1f1b", kNone, true, 0, 0, kInner, {}, {}, 4},
      {"tp4 sp pp2 ep4 zb-h1", 4, 2, 1, 1, 1, "zb-h1", kSelective, true, 0, 0, kInner, {}, {}, 4}};
  check_tensor_overlap(test::little_mixtral(), spread);
}
// Of what the parts of a product round otherwise the sums themselves are free.
TEST(TensorOverlapParity, OddNumbersOfTokensAreCutSomehow) {
  WantedPlan request{test::little_llama(), {6, 13}};
  const Curve reference = run(request, DataType::float64, 6);
  request.tensor = 4;
  request.overlap_tensor = true;
  EXPECT_LT(worst_difference(reference, run(request, DataType::float64, 6)), 1e-12);
}

class Parity : public testing::TestWithParam<const char*> {
 protected:
  ModelSpec model() const {
    return std::string(GetParam()) == "gpt" ? test::little_gpt() : test::little_llama();
  }
};

TEST_P(Parity, EveryLayoutFollowsTheSingleRankInFp32) {
  const Curve reference = run({model()}, DataType::float32);
  ASSERT_EQ(reference.loss.size(), 20u);
  EXPECT_LT(reference.loss.back(), reference.loss.front() - 0.5) << "the loss falls";
  EXPECT_NEAR(reference.loss.front(), std::log(256.0), 0.1) << "an untrained model knows nothing";
  for (const NamedLayout& layout : kLayouts) {
    const double difference =
        worst_difference(reference, run(request_for(model(), layout), DataType::float32));
    EXPECT_LT(difference, 1e-5) << layout.name;
  }
}

// bf16 with fp32 master weights: rounding of 2^-9 in every activation, at random, moves a loss by far less.
TEST_P(Parity, EveryLayoutFollowsTheSingleRankInBf16AndFp16) {
  constexpr int64_t kSteps = 8;  // the learning rate is at its height after 5
  const Curve reference = run({model()}, DataType::float32, kSteps);
  for (size_t l = 0; l < std::size(kLayouts); ++l) {
    const bool half = l % 5 == 0;  // in fp16 now and then: the paths are those of bf16
    WantedPlan request = request_for(model(), kLayouts[l]);
    request.precision = half ? Precision::fp16 : Precision::bf16;
    const DataType type = half ? DataType::float16 : DataType::bfloat16;
    EXPECT_LT(worst_difference(reference, run(request, type, kSteps)), 2e-2) << kLayouts[l].name;
  }
}

// Products of numbers of 8 bits, each within 2^-4 of what it was, each rank's part with its own scale.
TEST_P(Parity, LayoutsFollowTheSingleRankInFp8) {
  const Curve reference = run({model()}, DataType::float32);
  for (size_t l = 0; l < std::size(kLayouts); l += 12) {
    WantedPlan request = request_for(model(), kLayouts[l]);
    request.precision = Precision::fp8;
    const Curve curve = run(request, DataType::bfloat16);
    EXPECT_LT(worst_difference(reference, curve), 2e-2) << kLayouts[l].name;
    request.precision = Precision::bf16;
    EXPECT_NE(run(request, DataType::bfloat16, 2).loss.back(), curve.loss[1]) << "products are in 8 bits";
  }
}

// In double the same layouts agree to rounding, so what fp32 shows is rounding too.
TEST_P(Parity, EveryLayoutFollowsTheSingleRankInFp64ToRounding) {
  const Curve reference = run({model()}, DataType::float64, 6);
  for (const NamedLayout& layout : kLayouts) {
    const double difference =
        worst_difference(reference, run(request_for(model(), layout), DataType::float64, 6));
    EXPECT_LT(difference, 1e-12) << layout.name;
  }
}

TEST_P(Parity, TheSameLayoutTwiceIsBitwiseEqual) {
  bool narrow = false;  // every second one in 16 bits
  for (const NamedLayout& layout : kLayouts) {
    WantedPlan request = request_for(model(), layout);
    request.precision = narrow ? Precision::bf16 : Precision::fp32;
    const DataType type = narrow ? DataType::bfloat16 : DataType::float32;
    const Curve first = run(request, type, 3), second = run(request, type, 3);
    EXPECT_EQ(first.loss, second.loss) << layout.name << " in " << enum_name(request.precision);
    EXPECT_EQ(first.norm, second.norm) << layout.name << " in " << enum_name(request.precision);
    narrow = !narrow;
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, Parity, testing::Values("gpt", "llama"));

// A vocabulary that the tensor degree does not divide is padded, and the padding must not show.
TEST(VocabularyPadding, DoesNotChangeTheLoss) {
  ModelSpec model = test::little_gpt();
  model.vocab = 259;
  WantedPlan request{model};
  const Curve reference = run(request, DataType::float64, 6);
  request.tensor = 4;
  EXPECT_LT(worst_difference(reference, run(request, DataType::float64, 6)), 1e-12);
}

}  // namespace
}  // namespace mpt::runtime
