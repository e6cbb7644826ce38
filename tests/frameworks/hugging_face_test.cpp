// SPDX-License-Identifier: Apache-2.0
#include "frameworks/transformers/hugging_face.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "models/zoo.h"
#include "tests/support/make_plan.h"

namespace mpt::frameworks {
namespace {

// Every model of the zoo has an id on the hub or a config.json, and is read back from it.
TEST(HuggingFace, EveryModelOfTheZooComesBack) {
  const std::filesystem::path folder = testing::TempDir() + "/hugging_face";
  std::filesystem::create_directories(folder);
  for (const std::string& name : models::zoo_names()) {
    ModelSpec model = models::load_model(name);
    Exported exported;
    const std::string reference = add_hugging_face_model(model, "transformers-fsdp", exported);
    EXPECT_TRUE(exported.warnings.empty()) << name;
    for (const ExportedFile& file : exported.files) write_file_atomically(folder / file.name, file.text);
    Imported back;
    set_hugging_face_model(back, reference, folder);
    ASSERT_TRUE(back.model) << name;
    back.model->max_positions = model.max_positions;
    EXPECT_TRUE(same_model(*back.model, model)) << name << " as " << reference;
  }
}

TEST(HuggingFace, OtherSizesGetAConfigAndOthersAWarning) {
  for (const ModelSpec& model :
       {test::little_llama(), test::little_gpt(), test::little_qwen(), test::little_mixtral()})
    EXPECT_NE(models::written_type(model), "") << model.name;
  ModelSpec odd = test::little_llama();
  odd.embedding_norm = true;
  Exported exported;
  add_hugging_face_model(odd, "transformers-fsdp", exported);
  EXPECT_EQ(exported.warnings.size(), 1);
}

// A plan may have any text as the id: none is taken for a path.
TEST(HuggingFace, AnIdIsOfTheZooAndOfTheSameModel) {
  ModelSpec model = models::load_model("Qwen/Qwen2.5-7B");
  EXPECT_EQ(hub_id(model), "Qwen/Qwen2.5-7B");
  model.hub_id = std::string(MPT_SOURCE_DIR) + "/models/zoo/qwen2.5-7b.json";
  EXPECT_EQ(hub_id(model), "");
  model.hub_id = "Qwen/Qwen3-8B";
  EXPECT_EQ(hub_id(model), "") << "another model";
}

// AutoModelForCausalLM of transformers 5.24.0 takes the class of some files with towers, and not of others.
TEST(HuggingFace, NamesAnIdWhoseClassIsACausalModel) {
  const auto named = [](const char* id) {
    Exported exported;
    const auto found = models::model_of_id(id);
    return add_hugging_face_model(found->model, "transformers-fsdp", exported);
  };
  EXPECT_EQ(named("google/gemma-3-4b-it"), "google/gemma-3-4b-it");
  EXPECT_EQ(named("Qwen/Qwen3-8B"), "Qwen/Qwen3-8B");
  EXPECT_EQ(named("Qwen/Qwen3-VL-8B-Instruct"), "config.json");
  EXPECT_EQ(named("mistralai/Ministral-3-8B-Instruct-2512"), "config.json");
}

// Plans have no dropout; classes that have it by default are told.
TEST(HuggingFace, DropoutIsSwitchedOffInAConfigOfItsOwn) {
  for (const char* name : {"gpt2-124m", "gpt2-1.5b", "opt-30b"}) {
    Exported exported;
    EXPECT_EQ(add_hugging_face_model(models::load_model(name), "transformers-fsdp", exported), "config.json")
        << name;
    ASSERT_EQ(exported.files.size(), 1) << name;
    const Json config = parse_json(exported.files.front().text, "config.json");
    const bool opt = config.at("model_type") == "opt";
    for (const char* key : opt ? std::vector{"dropout", "attention_dropout", "layerdrop"}
                               : std::vector{"attn_pdrop", "embd_pdrop", "resid_pdrop"})
      EXPECT_EQ(config.at(key), 0.0) << name << ": " << key;
  }
}

// Ministral3Attention multiplies by llama_4_scaling_beta, and has no default for it (transformers 5.24.0).
TEST(HuggingFace, MinistralHasTheScaleThatItsClassReads) {
  ModelSpec model = models::load_model("devstral-2-123b");
  model.hub_id.clear();
  for (const bool yarn : {true, false}) {
    if (!yarn) model.layers.change([](LayerKind& k) { k.attention->rotary->scaling.reset(); });
    Exported exported;
    add_hugging_face_model(model, "transformers-fsdp", exported);
    const Json scaling = parse_json(exported.files.front().text, "config.json").at("rope_scaling");
    EXPECT_EQ(scaling.at("llama_4_scaling_beta"), 0.0);
    EXPECT_EQ(scaling.at("original_max_position_embeddings"), yarn ? 4096 : 16384);
  }
}

// transformers adds the loss of router_aux_loss_coef only where output_router_logits is on.
TEST(HuggingFace, ABalanceLossIsSwitchedOnInAConfigOfItsOwn) {
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-20b"}) {
    Exported exported;
    const ModelSpec model = models::load_model(name);
    EXPECT_EQ(add_hugging_face_model(model, "transformers-fsdp", exported, BalanceLoss::trained),
              "config.json")
        << name;
    ASSERT_EQ(exported.files.size(), 1) << name;
    const Json config = parse_json(exported.files.front().text, "config.json");
    EXPECT_EQ(config.at("output_router_logits"), true) << name;
    EXPECT_EQ(config.at("router_aux_loss_coef"), model.moe()->balance_loss) << name;
  }
  Exported dense;
  EXPECT_NE(add_hugging_face_model(models::load_model("llama3-8b"), "transformers-fsdp", dense,
                                   BalanceLoss::trained),
            "config.json");
  ModelSpec without = models::load_model("mixtral-8x7b");
  without.layers.change([](LayerKind& k) { k.moe->balance_loss = 0.0; });
  Exported silent;
  add_hugging_face_model(without, "transformers-fsdp", silent, BalanceLoss::trained);
  ASSERT_EQ(silent.files.size(), 1);
  EXPECT_FALSE(parse_json(silent.files.front().text, "config.json").contains("output_router_logits"));
}

}  // namespace
}  // namespace mpt::frameworks
