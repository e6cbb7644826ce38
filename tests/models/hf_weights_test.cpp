// SPDX-License-Identifier: Apache-2.0
#include "models/hf_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "models/hf_config.h"
#include "models/layer_program.h"
#include "models/parameter_count.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

ModelSpec without_next_token(const std::string& name) {
  ModelSpec m = load_model(name);
  m.next_token_layers = 0;
  return m;
}

std::vector<ModelSpec> models_with_weights() {
  std::vector<ModelSpec> all;
  for (const char* name : {"gpt2-124m", "llama3.2-1b", "mistral-7b", "qwen2-7b", "qwen3-8b", "mixtral-8x7b",
                           "qwen3-30b-a3b", "gemma-7b", "gemma2-27b", "gpt-oss-20b", "deepseek-v2"})
    all.push_back(load_model(name));
  for (const char* name : {"deepseek-v3", "qwen3.5-27b", "qwen3.5-397b-a17b"}) {
    all.push_back(without_next_token(name));
    all.push_back(load_model(name));
  }
  return all;
}

TEST(HuggingFaceWeights, ItsConfigurationIsReadAsTheSameModel) {
  for (const ModelSpec& model : models_with_weights()) {
    const ModelSpec read =
        import_hugging_face(parse_json(hugging_face_config(model), "config.json"), "config.json");
    EXPECT_TRUE(same_model(read, with_usual_training(model))) << model.name;
    EXPECT_EQ(read.type, model.type) << model.name;
  }
}

// Every element of a source is one of ours, and all of them are as many as the model has parameters.
TEST(HuggingFaceWeights, TensorsAreCoveredOnceAndAreAllParameters) {
  for (const ModelSpec& model : models_with_weights()) {
    std::map<std::string, int64_t> of_source, covered;
    // Those of next-token modules are not counted with the model.
    const Layout whole;
    int64_t elements =
        parameters(head_program(model, whole, 1)) - parameters(last_stage_program(model, whole, 1));
    for (const HuggingFaceTensor& t : hugging_face_tensors(model)) {
      if (t.copy) continue;
      of_source[t.source] = t.count();
      covered[t.source] += t.rows * t.columns;
      EXPECT_LT(t.element(t.rows - 1, t.columns - 1), t.count()) << model.name << " " << t.source;
      elements += t.rows * t.columns;
    }
    EXPECT_EQ(of_source, covered) << model.name;
    EXPECT_EQ(elements, count_parameters(model).total) << model.name;
  }
}

TEST(HuggingFaceWeights, BiasesOfMlpsAreTensors) {
  ModelSpec model = load_model("llama3-8b");
  model.layers.change([](LayerKind& kind) { kind.mlp->bias = true; });
  int biases = 0;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(model))
    biases +=
        tensor.source.find("mlp.") != std::string::npos && tensor.source.ends_with("_proj.bias") ? 1 : 0;
  EXPECT_EQ(biases, 3 * 32);
}

// Classes that turn neighbouring pairs of a head, as modeling_ernie4_5.py of transformers 5.24.0 says.
TEST(HuggingFaceWeights, ModelsThatRotatePairsAreRefused) {
  EXPECT_THROW(hugging_face_tensors(load_model("ernie-4.5-0.3b")), UserError);
  EXPECT_THROW(hugging_face_tensors(load_model("glm4-9b")), UserError);
}

TEST(HuggingFaceWeights, OtherModelsAreRefusedByWhatTheyHave) {
  for (const char* name : {"bloom-176b", "falcon-7b", "gpt-neox-20b"})
    EXPECT_THROW(hugging_face_tensors(load_model(name)), UserError) << name;
  ModelSpec predicting = load_model("gemma-7b");
  predicting.next_token_layers = 1;
  EXPECT_THROW(hugging_face_tensors(predicting), UserError);
  ModelSpec mixed = load_model("qwen3-8b");
  const LayerKind layer = mixed.layers[0];
  mixed.layers = LayerList::of(mixed.layers.count(), [&](int64_t l) {
    LayerKind kind = layer;
    if (l == 3) kind.mlp->ffn_hidden *= 2;
    return kind;
  });
  try {
    hugging_face_tensors(mixed);
    FAIL() << "layers of two widths";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("layers that differ"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace mpt::models
