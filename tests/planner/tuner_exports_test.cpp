// SPDX-License-Identifier: Apache-2.0

// Recipes of fine-tuners: what is written of a plan is read back as that plan. Their own packages judge the
// files in tests/frameworks/tuner_judge.py.

#include <gtest/gtest.h>

#include <fstream>

#include "base/ranges.h"
#include "frameworks/export_targets.h"
#include "frameworks/registry.h"
#include "planner/api.h"

namespace mpt::planner {
namespace {

struct Written {
  Plan plan;
  frameworks::Exported exported;
  std::filesystem::path folder;
};

PlanRequest tuning(const std::string& framework, int64_t gpus) {
  PlanRequest r;
  r.model.name = "Qwen/Qwen3-8B";
  r.cluster.name = "dgx-h100:1";
  r.gpus = gpus;
  r.global_batch = 16;
  r.sequence = 4096;
  r.framework = framework;
  r.threads = 1;
  return r;
}

Written written(const PlanRequest& request, const std::string& target) {
  Written w{plan(request), {}, std::filesystem::path(testing::TempDir()) / ("tuner_" + target)};
  w.plan.layout.recomputed_layers.clear();  // LLaMA-Factory and axolotl recompute all layers or none
  w.exported = frameworks::find_export_target(target).write(w.plan);
  std::filesystem::create_directories(w.folder);
  for (const frameworks::ExportedFile& file : w.exported.files)
    std::ofstream(w.folder / file.name) << file.text;
  return w;
}

std::string text_of(const Written& w, const std::string& name) {
  const auto file = find_if(w.exported.files, [&](const auto& f) { return f.name == name; });
  return file == w.exported.files.end() ? "" : file->text;
}

void expect_same(const Written& w, const frameworks::Imported& in, const std::string& where) {
  const Layout& l = w.plan.layout;
  if (where != "fsdp lora llamafactory" &&
      where != "fsdp recompute llamafactory") {  // accelerate.yaml says it
    EXPECT_EQ(in.framework, l.execution->framework) << where;
  }
  EXPECT_EQ(in.layout.micro_batch, l.micro_batch) << where;
  EXPECT_EQ(in.accumulated, micro_batches(l, w.plan.workload)) << where;
  EXPECT_EQ(in.workload.sequence, w.plan.workload.sequence) << where;
  EXPECT_EQ(in.layout.precision, l.precision) << where;
  if (where != "fsdp lora llamafactory" && where != "fsdp recompute llamafactory") {
    EXPECT_EQ(in.layout.recompute, l.recompute) << where;
  }
  EXPECT_EQ(in.layout.training->adapter_rank, l.training->adapter_rank) << where;
  EXPECT_EQ(in.layout.training->adapter_targets, l.training->adapter_targets) << where;
  EXPECT_EQ(in.layout.training->frozen_format, l.training->frozen_format) << where;
  EXPECT_EQ(in.layout.training->optimizer, l.training->optimizer) << where;
  EXPECT_EQ(in.model->layers.count(), w.plan.model.layers.count()) << where;
  EXPECT_TRUE(in.unknown.empty()) << where << " " << (in.unknown.empty() ? "" : in.unknown.front());
}

std::vector<std::pair<std::string, PlanRequest>> requests() {
  std::vector<std::pair<std::string, PlanRequest>> all{{"fsdp lora", tuning("transformers-fsdp", 8)},
                                                       {"ddp lora", tuning("transformers-ddp", 2)},
                                                       {"one qlora", tuning("transformers-ddp", 1)},
                                                       {"fsdp recompute", tuning("transformers-fsdp", 8)},
                                                       {"deepspeed", tuning("transformers-deepspeed", 8)}};
  all[0].second.lora = all[1].second.lora = 16;
  all[2].second.lora = 8;
  all[2].second.frozen_weights = FrozenFormat::nf4;
  all[3].second.bounds.recomputes = {Recompute::full};
  all[3].second.optimizer = OptimizerKind::adamw8;
  all[4].second.bounds.context = {1};
  all[4].second.bounds.zero = {3};
  return all;
}

TEST(TunerExports, AreReadBackAsThePlan) {
  for (const auto& [name, request] : requests()) {
    for (const char* target : {"llamafactory", "axolotl"}) {
      const Written w = written(request, target);
      // axolotl has no fp32 weights there.
      const bool narrow = name == "fsdp recompute" && std::string(target) == "axolotl";
      EXPECT_EQ(w.exported.warnings.size(), narrow ? 1u : 0u) << name << target;
      if (narrow) continue;
      const auto in = frameworks::import_transformers(w.folder / "recipe.yaml");
      expect_same(w, in, name + " " + target);
      if (request.framework == "transformers-fsdp" && std::string(target) == "axolotl") {
        EXPECT_EQ(in.layout.zero, w.plan.layout.zero) << name;
      }
    }
    const Written trl = written(request, "trl");
    expect_same(trl, frameworks::import_megatron_core(trl.folder / "run_trl.sh"), name + " trl");
  }
}

TEST(TunerExports, SayAdaptersAndFourBits) {
  PlanRequest r = tuning("transformers-ddp", 1);
  r.lora = 8;
  r.frozen_weights = FrozenFormat::nf4;
  const std::string recipe = text_of(written(r, "trl"), "sft.yaml");
  for (const char* line :
       {"use_peft: true\n", "lora_r: 8\n", "load_in_4bit: true\n", "max_length: 4096\n",
        "lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]\n"})
    EXPECT_NE(recipe.find(line), std::string::npos) << line << recipe;
  EXPECT_EQ(recipe.find("bnb_4bit_quant_storage"), std::string::npos) << "FSDP alone shards by it";
}

// A recipe without an optimizer is trained by AdamW.
TEST(TunerExports, SayTheOptimizerOrAreRefused) {
  for (const char* target : {"trl", "llamafactory", "axolotl"})
    for (const auto& [optimizer, name] : EnumNames<OptimizerKind>::table()) {
      PlanRequest r = tuning("transformers-ddp", 1);
      r.lora = 16;
      r.optimizer = optimizer;
      if (frameworks::cannot_run(frameworks::find_export_target(target), plan(r))) {
        EXPECT_EQ(optimizer, OptimizerKind::muon) << target << name;
        continue;
      }
      const Written w = written(r, target);
      const std::string file = std::string(target) == "trl" ? "sft.yaml" : "recipe.yaml";
      EXPECT_EQ(frameworks::find_importer("", (w.folder / file).string())
                    .importer.read(w.folder / file)
                    .layout.training->optimizer,
                optimizer)
          << target << name;
    }
}

TEST(TunerExports, SayModulesThatAreTrainedWhole) {
  PlanRequest r = tuning("transformers-ddp", 1);
  r.lora = 8;
  Plan adapted = plan(r);
  const auto recipe_of = [&](const char* target, std::vector<FrozenPart> further) {
    std::vector<FrozenPart>& frozen = adapted.layout.training.edit().frozen;
    frozen = {FrozenPart::mixers, FrozenPart::mlps, FrozenPart::experts};
    frozen.insert(frozen.end(), further.begin(), further.end());
    std::string all;
    for (const auto& file : frameworks::find_export_target(target).write(adapted).files) all += file.text;
    return all;
  };
  for (const char* target : {"axolotl", "trl"}) {
    EXPECT_NE(recipe_of(target, {}).find("lora_modules_to_save: [embed_tokens, lm_head]\n"),
              std::string::npos);
    EXPECT_NE(recipe_of(target, {FrozenPart::embedding}).find("lora_modules_to_save: [lm_head]\n"),
              std::string::npos);
    EXPECT_EQ(recipe_of(target, {FrozenPart::embedding, FrozenPart::head}).find("lora_modules_to_save"),
              std::string::npos);
  }
  EXPECT_NE(recipe_of("llamafactory", {FrozenPart::head}).find("additional_target: embed_tokens\n"),
            std::string::npos);
}

// TRL's loss sums no gradient of such a head (findings/trl_deals_parts_of_the_head_to_single_ranks.sh).
TEST(TunerExports, TrlTrainsNoHeadBesideAdaptersOnFsdp) {
  const auto refused = [](const std::string& framework, int64_t gpus, std::vector<FrozenPart> frozen) {
    PlanRequest r = tuning(framework, gpus);
    r.lora = 8;
    Plan adapted = plan(r);
    adapted.layout.training.edit().frozen = std::move(frozen);
    const auto why = frameworks::cannot_run(frameworks::find_export_target("trl"), adapted);
    return why && why->reason.find("one rank's samples") != std::string::npos;
  };
  const std::vector<FrozenPart> layers{FrozenPart::mixers, FrozenPart::mlps, FrozenPart::experts};
  const std::vector<FrozenPart> and_head{FrozenPart::mixers, FrozenPart::mlps, FrozenPart::experts,
                                         FrozenPart::head};
  EXPECT_TRUE(refused("transformers-fsdp", 8, layers));
  EXPECT_FALSE(refused("transformers-fsdp", 8, and_head)) << "the embedding alone";
  EXPECT_FALSE(refused("transformers-fsdp", 8, {}));
  EXPECT_FALSE(refused("transformers-ddp", 8, layers));
  EXPECT_FALSE(refused("transformers-ddp", 1, layers));
}

// findings/gpt_oss_mixes_packed_documents_without_a_cache_too.sh: their masks have no bounds of documents.
TEST(TunerExports, PackedSequencesOfSomeModelsNeedFlashAttention) {
  const auto refused = [](const char* model, double packed, AttentionKernel attention) {
    PlanRequest r = tuning("transformers-fsdp", 8);
    r.model.name = model;
    r.lora = 8;
    Plan adapted = plan(r);
    Training& training = adapted.layout.training.edit();
    training.packed_length = packed;
    training.frozen.push_back(FrozenPart::head);
    adapted.layout.execution.edit().kernels.attention = attention;
    const auto why = frameworks::cannot_run(frameworks::find_export_target("trl"), adapted);
    return why && why->reason.find("see each other") != std::string::npos;
  };
  for (const char* model : {"gpt-oss-20b", "trinity-nano"}) {
    EXPECT_TRUE(refused(model, 512.0, AttentionKernel::plain)) << model;
    EXPECT_FALSE(refused(model, 512.0, AttentionKernel::flash2)) << model;
    EXPECT_FALSE(refused(model, 0.0, AttentionKernel::plain)) << model;
  }
  EXPECT_FALSE(refused("Qwen/Qwen3-8B", 512.0, AttentionKernel::plain));
  EXPECT_FALSE(refused("mixtral-8x7b", 512.0, AttentionKernel::plain));
}

// findings/reentrant_checkpointing_drops_the_balance_loss.sh: LLaMA-Factory 0.9.5 is reentrant unless told,
// but for FSDP2.
TEST(TunerExports, LlamaFactorysRecomputeKeepsTheBalanceLoss) {
  const auto tells = [](const std::string& framework, Recompute recompute) {
    PlanRequest r = tuning(framework, 8);
    r.model.name = "llama3.2-1b";
    Plan adapted = plan(r);
    adapted.layout.recompute = recompute;
    adapted.layout.recomputed_layers.clear();
    const auto files = frameworks::find_export_target("llamafactory").write(adapted).files;
    return any_of(files,
                  [](const auto& f) { return f.text.find("use_reentrant_gc: false") != std::string::npos; });
  };
  EXPECT_TRUE(tells("transformers-ddp", Recompute::full));
  EXPECT_FALSE(tells("transformers-ddp", Recompute::none));
  EXPECT_FALSE(tells("transformers-deepspeed", Recompute::full)) << "its default stays";
}

TEST(TunerExports, NextNamesATunerWhereItAloneSaysThePlan) {
  PlanRequest r = tuning("transformers-ddp", 2);
  r.model.name = "llama3.2-1b";
  EXPECT_STREQ(frameworks::usual_target(plan(r))->name, "transformers-ddp");
  r.lora = 16;
  const Plan adapted = plan(r);
  EXPECT_STREQ(frameworks::usual_target(adapted)->name, "trl");
  EXPECT_STREQ(frameworks::usual_target(adapted, "axolotl")->name, "axolotl");
  EXPECT_TRUE(adapted.verdict) << "the Trainer's own arguments do not say it";
}

TEST(TunerExports, NextSkipsATunerThatCannotSayThePlan) {
  PlanRequest r = tuning("transformers-fsdp", 8);
  r.bounds.context = {2};
  r.lora = 16;
  Plan split = plan(r);
  split.layout.recomputed_layers.clear();  // of which LLaMA-Factory recomputes all or none
  EXPECT_STREQ(frameworks::usual_target(split, "llamafactory")->name, "trl");
  EXPECT_STREQ(frameworks::usual_target(split, "axolotl")->name, "axolotl");
  const auto refused = frameworks::cannot_run(frameworks::find_export_target("llamafactory"), split);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->reason.find("context ranks"), std::string::npos);
}

TEST(TunerExports, SayThatSequencesArePackedAndWhatAttentionTakes) {
  PlanRequest r = tuning("transformers-ddp", 1);
  r.lora = 8;
  const std::pair<const char*, const char*> packed[] = {{"trl", "\npacking: true"},
                                                        {"llamafactory", "\nneat_packing: true"},
                                                        {"axolotl", "\nsample_packing: true"}};
  for (const auto& [target, line] : packed) {
    const std::string file = std::string(target) == "trl" ? "sft.yaml" : "recipe.yaml";
    r.precision = Precision::bf16;
    r.lengths = {"900:2048"};
    EXPECT_NE(text_of(written(r, target), file).find(line), std::string::npos) << target;
    r.lengths.clear();
    r.precision = Precision::fp32;
    const std::string wide = text_of(written(r, target), file);
    EXPECT_EQ(wide.find(line), std::string::npos) << target;
    EXPECT_NE(wide.find(": sdpa\n"), std::string::npos) << target << ": flash attention has no fp32";
  }
}

TEST(TunerExports, ContextRanksOfDeepSpeedAreNotWrittenForTuners) {
  PlanRequest r = tuning("transformers-deepspeed", 8);
  r.bounds.context = {2};
  r.bounds.zero = {3};
  const Plan split = plan(r);
  for (const char* target : {"trl", "axolotl", "llamafactory"})
    EXPECT_TRUE(frameworks::cannot_run(frameworks::find_export_target(target), split)) << target;
}

TEST(TunerExports, RefuseWhatTheTrainerDoesNotRun) {
  PlanRequest r = tuning("pytorch", 8);
  r.bounds.tensor = {2};
  const auto refused = frameworks::cannot_run(frameworks::find_export_target("trl"), plan(r));
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->reason.find("tensor"), std::string::npos) << refused->reason;
}

// Classes without SDPA, and without FlashAttention of the package flash-attn (transformers 5.24.0,
// modeling_gpt_oss.py:380 and 391, modeling_gemma2.py:353). Weights come from the hub, sizes alone do not do.
TEST(TunerExports, AttentionIsOneThatTheClassHas) {
  for (const auto& [model, kernel, target, line] :
       std::vector<std::tuple<std::string, std::string, std::string, std::string>>{
           {"gpt-oss-20b", "", "trl", "attn_implementation: eager"},
           {"gpt-oss-20b", "flash2", "trl", "attn_implementation: kernels-community/vllm-flash-attn3"},
           {"gpt-oss-20b", "flash2", "axolotl", "attn_implementation: kernels-community/vllm-flash-attn3"},
           {"gpt-oss-20b", "flash2", "llamafactory", "flash_attn: fa3"},
           {"gemma2-9b", "", "axolotl", "attn_implementation: eager"},
           {"gemma2-9b", "", "llamafactory", "flash_attn: disabled"},
           {"gemma2-9b", "flash2", "trl", "attn_implementation: flash_attention_2"},
           {"llama3-8b", "", "trl", "attn_implementation: sdpa"},
           {"llama3-8b", "flash2", "llamafactory", "flash_attn: fa2"}}) {
    PlanRequest r = tuning("transformers-fsdp", 8);
    r.model.name = model;
    r.lora = 16;
    if (!kernel.empty()) r.execution = {"attention=" + kernel};
    const Written w = written(r, target);
    const std::string text = text_of(w, target == "trl" ? "sft.yaml" : "recipe.yaml");
    EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << model << " " << target << "\n" << text;
    EXPECT_EQ(text.find("config.json"), std::string::npos) << model << " " << target;
  }
}

}  // namespace
}  // namespace mpt::planner
