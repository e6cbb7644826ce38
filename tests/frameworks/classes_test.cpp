// SPDX-License-Identifier: Apache-2.0

// Bytes that layers of transformers' classes keep for their backward: counted, and seen.

#include <gtest/gtest.h>

#include "frameworks/transformers/classes.h"
#include "models/layer_program.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

struct SeenLayer {
  const char *framework, *model;
  bool adapters;
  double bytes;  // of a token in a layer of the last kind
  double tolerance = 0.0005;
};

// benchmarks/verified.py layers, with transformers 5.24.0, accelerate 1.15.0 and torch 2.15.0 in bf16: what
// one layer more keeps after a forward of 2,048 tokens. Positions that each layer casts anew and numbers of
// chosen experts are not counted by MPT: up to 0.6 %. DDP's with the copies of weights in 16 bits.
const SeenLayer kSeenLayers[] = {
    {"transformers-fsdp", "llama3-8b", false, 200840},
    {"transformers-fsdp", "llama3-8b", true, 184680},
    {"transformers-ddp", "llama3-8b", false, 454792},
    {"transformers-ddp", "llama3-8b", true, 218728, 0.002},
    {"transformers-fsdp", "qwen3-8b", false, 215336},
    {"transformers-fsdp", "qwen3-8b", true, 188936},
    {"transformers-ddp", "qwen3-8b", true, 222888, 0.002},
    {"transformers-fsdp", "phi4", false, 274088},
    {"transformers-ddp", "phi4", false, 627368},
    {"transformers-fsdp", "gemma-7b", false, 290900},
    {"transformers-fsdp", "gemma-7b", true, 266548},
    {"transformers-fsdp", "olmo2-7b", false, 268944, 0.002},
    {"transformers-fsdp", "olmo2-7b", true, 203632, 0.002},
    {"transformers-fsdp", "phi-1.5", false, 110724},
    {"transformers-fsdp", "stablelm-2-1.6b", false, 82056},
    {"transformers-fsdp", "nemotron-mini-4b", false, 84078},
    {"transformers-fsdp", "opt-30b", false, 172264},
    {"transformers-fsdp", "glm-4.6v-flash", false, 250256, 0.002},
    {"transformers-fsdp", "glm4-9b", false, 201096, 0.002},
    {"transformers-ddp", "glm4-9b", true, 202450, 0.002},
    {"transformers-fsdp", "gpt-j-6b", false, 213572, 0.003},
    {"transformers-ddp", "gpt-j-6b", false, 443464, 0.003},
    {"transformers-ddp", "olmo2-7b", false, 490640, 0.001},
    // Its layer norm is several operators. Two norms of one input keep it once.
    {"transformers-fsdp", "command-r7b", false, 192652},
    {"transformers-fsdp", "command-r7b", true, 176492},
    {"transformers-ddp", "command-r7b", false, 438404},
    {"transformers-fsdp", "pythia-1.4b", false, 73800},
    {"transformers-ddp", "pythia-1.4b", false, 127056},
    {"transformers-fsdp", "deepseek-v2-lite", false, 213796, 0.003},
    {"transformers-fsdp", "glm-4.5-air", false, 394444, 0.004},
    {"transformers-fsdp", "ernie-4.5-21b-a3b", false, 224900, 0.007},
    {"transformers-fsdp", "qwen3-30b-a3b", false, 194892, 0.004},
    {"transformers-fsdp", "minimax-m2.5", false, 331796, 0.003},
    // gelu of config.json, not gelu_new.
    {"transformers-fsdp", "cerebras-gpt-1.3b", false, 65608},
    // Attention of its own keeps scores.
    {"transformers-fsdp", "mpt-7b", false, 524296},
    // Keys and values that are repeated for each head are not counted.
    {"transformers-fsdp", "gpt-oss-20b", false, 560760, 0.03},
    {"transformers-fsdp", "mimo-v2-flash", false, 683980, 0.03},
    // xIELU of several operators.
    {"transformers-fsdp", "apertus-8b", false, 353576},
};

class ClassesOfTransformers : public testing::TestWithParam<SeenLayer> {};

TEST_P(ClassesOfTransformers, KeepWhatTheyWereSeenToKeep) {
  const SeenLayer& seen = GetParam();
  const ModelSpec model = models::load_model(seen.model);
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution =
      as_class_of(model, framework_named(seen.framework, "test"), load_framework(seen.framework, "test"));
  if (seen.adapters) {
    layout.training.edit().adapter_rank = 16;
    layout.training.edit().adapter_targets = {AdapterTarget::qkv, AdapterTarget::output, AdapterTarget::up,
                                              AdapterTarget::down};
  }
  const models::LayerProgram layer = models::layer_program(model, model.layers.count() - 1, layout, 2048);
  EXPECT_NEAR(double(models::saved_bytes(layer, Recompute::none)) / 2048 / seen.bytes, 1.0, seen.tolerance);
}

INSTANTIATE_TEST_SUITE_P(OfRuns, ClassesOfTransformers, testing::ValuesIn(kSeenLayers));

TEST(TransformersClasses, CountForFrameworksThatRunThemAlone) {
  const auto bytes = [](const char* framework, const char* model) {
    const Execution execution = load_framework(framework, "test");
    return as_class_of(models::load_model(model), framework_named(framework, "test"), execution)
               .kept.rms_norm_bytes -
           execution.kept.rms_norm_bytes;
  };
  EXPECT_EQ(bytes("transformers-deepspeed", "olmo2-7b"), 2);
  EXPECT_EQ(bytes("automodel", "olmo2-7b"), 6);  // from none: its own classes have norms of one kernel
  EXPECT_EQ(bytes("automodel", "llama3-8b"), 0);
  EXPECT_EQ(bytes("pytorch", "olmo2-7b"), 0);
  EXPECT_EQ(bytes("torchtitan", "qwen3-next-80b-a3b"), 0);
}

// The text model of one with images is written as Qwen3, and a model without an id as the type that has it.
TEST(TransformersClasses, AreThoseOfTheConfigurationThatIsWritten) {
  ModelSpec model = models::load_model("qwen3-vl-2b");
  EXPECT_EQ(class_type(model, "automodel"), "qwen3");
  model = models::load_model("kimi-k2.5");
  model.hub_id.clear();
  EXPECT_EQ(class_type(model, "transformers-fsdp"), "deepseek_v3");
  model = models::load_model("glm4-9b");
  EXPECT_EQ(class_type(model, "transformers-fsdp"), "glm");
  model.hub_id.clear();
  EXPECT_EQ(class_type(model, "transformers-fsdp"), "glm");
}

// Norms in fp32 make no wider copy, and autocast narrows nothing.
TEST(TransformersClasses, KeepNoCopiesInFp32) {
  for (const char* name : {"llama3-8b", "olmo2-7b"}) {
    const ModelSpec model = models::load_model(name);
    const auto kept = [&](const char* framework) {
      Layout layout;
      layout.precision = Precision::fp32;
      layout.execution =
          as_class_of(model, framework_named(framework, "test"), load_framework(framework, "test"));
      return models::saved_bytes(models::layer_program(model, 0, layout, 512), Recompute::none);
    };
    EXPECT_EQ(kept("transformers-ddp"), kept("transformers-fsdp")) << name;
  }
}

}  // namespace
}  // namespace mpt::frameworks
