// SPDX-License-Identifier: Apache-2.0

// Bytes of a step's collectives as they are priced, compared with those that the frameworks' own code sends
// in a step (mpt.verify: torch 2.15.0, transformers 5.24.0, accelerate 1.15.0, torchtitan 0.3.0,
// nemo-automodel 0.7.0).

#include <gtest/gtest.h>

#include "models/zoo.h"
#include "planner/api.h"
#include "planner/explain/operators.h"

namespace mpt::planner {
namespace {

using Words = std::vector<std::pair<std::string, std::string>>;

// Llama 3 8B, or another model, of four layers on eight H100, with sequences of 1,024 tokens.
Plan plan_of(const std::string& framework, const Words& words, const std::string& name = "llama3-8b") {
  PlanRequest request;
  ModelSpec model = models::load_model(name);
  model.layers = LayerList(4, model.layers[0]);
  request.model.value = std::move(model);
  request.cluster.name = "dgx-h100:1";
  request.framework = framework;
  Words all{{"seq", "1024"}, {"micro-batch", "1"}};
  all.insert(all.end(), words.begin(), words.end());
  for (const auto& [option, word] : all) set_option(request, option, word);
  return estimate(request).plan;
}

int64_t bytes_of(const RankTraffic& rank, std::initializer_list<CommunicationKind> kinds) {
  return sum_of<int64_t>(kinds, [&](CommunicationKind kind) { return rank[size_t(kind)]; });
}
int64_t of_weights(const Plan& plan, size_t rank = 0) {
  return bytes_of(traffic_of_ranks(plan).at(rank),
                  {CommunicationKind::sharding, CommunicationKind::gradients});
}
int64_t of_tensor_ranks(const Plan& plan) {
  return bytes_of(traffic_of_ranks(plan).front(), {CommunicationKind::tensor});
}

// Bytes of a gathered layer, of the table, and of the head with the last norm, in 16 bits.
constexpr int64_t kLayer = 436'224'000, kTable = 1'050'673'152, kHead = 1'050'681'344;
// The norms of a root group are not in kHead; the frameworks gather them, too.
constexpr double kNearly = 1e-4;

void expect_near(int64_t priced, int64_t seen) { EXPECT_NEAR(double(priced) / double(seen), 1.0, kNearly); }

TEST(Traffic, WeightsAreGatheredAsOftenAsFsdpFreesThem) {
  const Words three{{"dp", "8"}, {"zero", "3"}, {"global-batch", "16"}};
  const Words two{{"dp", "8"}, {"zero", "2"}, {"global-batch", "16"}};
  // Two micro-batches. All are gathered twice, in our file; the root's and the last group once.
  expect_near(of_weights(plan_of("pytorch", three)), 2 * (4 * kLayer + kTable + kHead) * (2 + 2));
  expect_near(of_weights(plan_of("transformers-fsdp", three)), 2 * ((4 * kLayer + kTable) * 3 + kHead * 2));
  expect_near(of_weights(plan_of("automodel", three)), 2 * ((4 * kLayer + kTable) * 4 + kHead * 3));
  // Without freeing after a forward FSDP2 still gathers in each micro-batch.
  expect_near(of_weights(plan_of("pytorch", two)), 2 * (4 * kLayer + kTable + kHead) * (1 + 2));
  // DeepSpeed's ZeRO 2 gathers once, after the step.
  const Plan deepspeed = plan_of("transformers-deepspeed", two);
  EXPECT_EQ(deepspeed.layout.gathers_after_step(), true);
}

// mpt-run runs plans for any framework. It gathers updated weights once a step.
TEST(Traffic, ProgramsGatherUpdatedWeightsWhateverTheFrameworkDoes) {
  for (const char* framework : {"pytorch", "automodel", "megatron-core", "mpt"})
    for (const char* zero : {"1", "2"}) {
      if (framework == std::string("megatron-core") && zero == std::string("2")) continue;
      const Plan plan = plan_of(framework, {{"dp", "8"}, {"zero", zero}, {"global-batch", "16"}});
      const StepProgram program = program_of(plan);
      EXPECT_EQ(
          std::count_if(program.instructions.begin(), program.instructions.end(),
                        [](const Instruction& i) { return i.kind == InstructionKind::gather_parameters; }),
          1)
          << framework << " ZeRO " << zero;
    }
}

TEST(Traffic, TwoWeightsOfOneTableMoveTwice) {
  const Words three{{"dp", "8"}, {"zero", "3"}, {"global-batch", "16"}};
  const int64_t layer = 121'643'008, table = 525'340'672;
  expect_near(of_weights(plan_of("transformers-fsdp", three, "llama3.2-1b")),
              2 * (4 * layer * 3 + table * 2));
  expect_near(of_weights(plan_of("torchtitan", three, "llama3.2-1b")),
              2 * (4 * layer * 4 + 2 * table * 4 + 2 * table));  // and again for a loss by chunks
}

TEST(Traffic, ALossByChunksMovesTheHeadInEachMicroBatch) {
  const Plan plan = plan_of("torchtitan", {{"dp", "4"},
                                           {"pp", "2"},
                                           {"zero", "2"},
                                           {"schedule", "1f1b"},
                                           {"global-batch", "16"},
                                           {"execution", "loss=chunked"}});
  // Four micro-batches; layers are gathered and reduced once. A step finds the head sharded.
  expect_near(of_weights(plan, 1), 2 * kLayer * (1 + 2) + kHead + 4 * kHead * (2 + 2));
  expect_near(of_weights(plan, 0), (2 * kLayer + kTable) * (1 + 2));
  EXPECT_EQ(bytes_of(traffic_of_ranks(plan).front(), {CommunicationKind::transfer}), 4 * 8'388'608);
  // For the last norm, the loss and the backward, though layers stay gathered after a forward.
  const Words two{{"dp", "8"}, {"zero", "2"}, {"global-batch", "16"}, {"execution", "loss=chunked"}};
  expect_near(of_weights(plan_of("torchtitan", two)), 2 * (4 * kLayer * 3 + kTable * 3 + kHead * (3 + 2)));
}

TEST(Traffic, TensorRanksRepeatWhatTheirCheckpointsHold) {
  const auto words = [](const std::string& sp, const std::string& recompute) {
    return Words{{"dp", "4"},          {"tp", "2"}, {"zero", "3"}, {"sp", sp}, {"recompute", recompute},
                 {"global-batch", "4"}};
  };
  constexpr int64_t tokens = 8'388'608, logits = 525'336'576, few = 12'288;
  // 4 layers with 8 gathers and scatters each, and 2 at each end. torchtitan's selective recompute repeats
  // the 4 of a forward.
  expect_near(of_tensor_ranks(plan_of("torchtitan", words("on", "none"))), 36 * tokens + few);
  expect_near(of_tensor_ranks(plan_of("torchtitan", words("on", "selective"))), 52 * tokens + few);
  expect_near(of_tensor_ranks(plan_of("torchtitan", words("off", "selective"))), 26 * tokens + few);
  // AutoModel recomputes blocks within their collectives, and gathers logits of 32 bits.
  expect_near(of_tensor_ranks(plan_of("automodel", words("on", "none"))), 36 * tokens + logits);
  expect_near(of_tensor_ranks(plan_of("automodel", words("on", "full"))), 36 * tokens + logits);
  // Queries, keys and values have a sum each, and so have the two halves of a gated MLP.
  expect_near(of_tensor_ranks(plan_of("automodel", words("off", "none"))), (18 + 4 * 3) * tokens + logits);
}

}  // namespace
}  // namespace mpt::planner
