// SPDX-License-Identifier: Apache-2.0

// Flags of Megatron-LM as people have them: in scripts, with underscores, in YAML and in Python.

#include "frameworks/megatron-core/flags.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/registry.h"
#include "tests/support/layer_traits.h"

namespace mpt::frameworks {
namespace {

const std::string kFew =
    "--num-layers 32 --hidden-size 512 --num-attention-heads 8 --seq-length 2048 --vocab-size 1000 ";

Imported of(const std::string& text, const char* ending = ".sh") {
  const std::filesystem::path file = testing::TempDir() + "/flags" + ending;
  write_file_atomically(file, text);
  return import_megatron_core(file);
}
Imported few(const std::string& flags) { return of(kFew + flags); }

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}
bool notes(const Imported& in, const std::string& words) {
  return fmt::format("{}", fmt::join(in.notes, "\n")).find(words) != std::string::npos;
}
bool changes(const Imported& in, const std::string& field) {
  return std::find(in.execution.begin(), in.execution.end(), field) != in.execution.end();
}

TEST(MegatronFlags, ScriptsWithDefaultsAndArithmetic) {
  const Imported in = of(
      "TP=${TP:-4}\nPP_SIZE=${WORLD_SIZE:-2}\nHIDDEN=$((128*4))\nSHARDING=${SHARDING:-optim_grads_params}\n"
      "MODEL_ARGS=(--num-layers 32 --hidden-size $HIDDEN --num-attention-heads 8)\n"
      "OPTIONS=\" --tensor-model-parallel-size ${TP} \\\n  --pipeline-model-parallel-size $PP_SIZE "
      "--use-megatron-fsdp \"\n"
      "torchrun --nproc_per_node 8 pretrain_gpt.py ${MODEL_ARGS[@]} $OPTIONS --seq-length 2048 --vocab-size "
      "1000 \\\n"
      "  --data-parallel-sharding-strategy ${SHARDING} $EXTRA_ARGS \"$@\"\n");
  EXPECT_EQ(in.layout.tensor, 4);
  EXPECT_EQ(in.layout.pipeline, 2);
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.model->hidden, 512);
  EXPECT_TRUE(notes(in, "what $EXTRA_ARGS adds"));
}

TEST(MegatronFlags, ValuesThatOnlyAShellKnowsAreErrors) {
  const std::string why = refusal([] { few("--tensor-model-parallel-size $1"); });
  EXPECT_NE(why.find("--tensor-model-parallel-size"), std::string::npos) << why;
  EXPECT_NE(refusal([] {
              of("run pretrain_gpt.py " + kFew + "--use-megatron-fsdp --data-parallel-sharding-strategy $S");
            }).find("put in the values of shell variables"),
            std::string::npos);
}

TEST(MegatronFlags, LinesThatStartWhatAHereDocumentHolds) {
  const std::string start =
      "EOT\nmpirun -np 16 python pretrain_gpt.py $MODEL --tensor-model-parallel-size 4\n";
  for (const std::string before :
       {"read -r -d '' MODEL <<'EOT' || true\n", "MODEL=$(cat args)\ncat > args <<EOT\n"}) {
    const Imported in = of(fmt::format("{}{}--global-batch-size 64\n{}", before, kFew, start));
    EXPECT_EQ(in.layout.tensor, 4) << before;
    EXPECT_EQ(in.ranks, 16) << before;
    EXPECT_EQ(in.workload.global_batch, 64) << before;
  }
}

TEST(MegatronFlags, LaunchersSayHowManyRanksTheyStart) {
  for (const auto& [launcher, ranks] : {std::pair{"mpirun -np 16 python", 16},
                                        {"srun -n 16 python", 16},
                                        {"srun -N 2 --ntasks-per-node 8 python", 16},
                                        {"srun --ntasks=32 --nodes=4 python", 32},
                                        {"srun -N 2 -n 2 torchrun --nnodes 2 --nproc_per_node 8", 16},
                                        {"deepspeed --num_nodes 2 --num_gpus 8", 16},
                                        {"torchrun --nproc-per-node=8", 8},
                                        {"python", 0}})
    EXPECT_EQ(of(std::string(launcher) + " pretrain_gpt.py " + kFew + "\n").ranks, ranks) << launcher;
}

TEST(MegatronFlags, PartsOfScriptsAndCommandsInOneWord) {
  EXPECT_EQ(of("A=(" + kFew + ")\n").model->layers.count(), 32);
  EXPECT_EQ(of("OPTIONS=\"" + kFew +
               "--tensor-model-parallel-size 2\"\nsrun sh -c \"python -u pretrain_gpt.py ${OPTIONS}\"\n")
                .layout.tensor,
            2);
  EXPECT_TRUE(notes(of("if [ $X = 1 ]; then TP=1; else TP=2; fi\nrun pretrain_gpt.py " + kFew +
                       "--tensor-model-parallel-size $TP\n"),
                    "sets TP in more than one way"));
}

TEST(MegatronFlags, UnderscoresAndYaml) {
  EXPECT_EQ(few("--tensor_model_parallel_size 2 --sequence_parallel true").layout.sequence_parallel, true);
  EXPECT_EQ(few("--tensor_model_parallel_size 2 --sequence_parallel false").layout.sequence_parallel, false);
  const Imported in = of(
      "ENV_VARS:\n  X: 1\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n"
      "  --pipeline-model-parallel-size: 2\n  --pipeline-model-parallel-layout: Et*5|t*7L\n"
      "  --seq-length: 1024\n  --use-distributed-optimizer: true\n  --tensor-model-parallel-size: 2\n",
      ".yaml");
  EXPECT_EQ(in.model->layers.count(), 12);
  EXPECT_EQ(in.layout.layers_per_stage, (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(in.layout.tensor, 2);
  EXPECT_EQ(in.layout.zero, 1);
}

TEST(MegatronFlags, OtherModelsAreRefusedByName) {
  for (const char* flag : {"--hybrid-layer-pattern MX", "--hybrid-layer-pattern MG",
                           "--experimental-attention-variant mla", "--heterogeneous-layers-config-path x",
                           "--yaml-cfg x", "--moe-latent-size 64", "--position-embedding-type mrope"})
    EXPECT_NE(refusal([&] { few(flag); }).find(std::string(flag).substr(0, std::string(flag).find(' '))),
              std::string::npos)
        << flag;
  EXPECT_NE(refusal([] { of("torchrun examples/multimodal/train.py " + kFew); }).find("multimodal/train.py"),
            std::string::npos);
  EXPECT_NE(refusal([] { of("torchrun pretrain_bert.py " + kFew); }).find("pretrain_bert.py"),
            std::string::npos);
}

// megatron/core/models/hybrid/hybrid_layer_allocation.py: a layer has a mixer or an MLP alone.
TEST(MegatronFlags, PatternsOfHybridLayers) {
  const Imported in =
      few("--hybrid-layer-pattern ME*-/*E/*E --num-experts 8 --mamba-num-heads 16 --mamba-state-dim 64 "
          "--position-embedding-type none");
  const LayerList& layers = in.model->layers;
  ASSERT_EQ(layers.count(), 4);
  ASSERT_TRUE(layers[0].linear && !layers[0].attention && !layers[0].mlp && !layers[0].moe);
  EXPECT_EQ(layers[0].linear->kind, LinearKind::mamba2);
  EXPECT_EQ(layers[0].linear->heads, 16);
  EXPECT_EQ(layers[0].linear->key_heads, 8) << "--mamba-num-groups by default";
  EXPECT_EQ(layers[0].linear->key_dim, 64);
  EXPECT_TRUE(layers[1].moe && !layers[1].attention && !layers[1].linear);
  EXPECT_TRUE(layers[2].attention && !layers[2].mlp);
  EXPECT_TRUE(layers[3].mlp && !layers[3].attention);
  EXPECT_EQ(in.model->next_token_layers, 2);

  const Imported cut = few("--hybrid-layer-pattern M-*|-M|--|M-/M --pipeline-model-parallel-size 2");
  EXPECT_EQ(cut.layout.chunks, 2);
  EXPECT_EQ(cut.layout.layers_per_stage, (std::vector<int64_t>{3, 2, 2, 2}));
  EXPECT_EQ(cut.model->layers[0].linear->heads, 2 * cut.model->hidden / 64) << "by default";
}

TEST(MegatronFlags, VariantsOfAttention) {
  const Imported delta =
      few("--experimental-attention-variant gated_delta_net --linear-attention-freq 4 "
          "--linear-num-value-heads 8 --linear-num-key-heads 4 "
          "--attention-output-gate");
  for (int64_t l = 0; l < 32; ++l) EXPECT_EQ(delta.model->layers[l].linear.has_value(), l % 4 != 3) << l;
  EXPECT_EQ(delta.model->layers[0].linear->kind, LinearKind::gated_delta);
  EXPECT_EQ(delta.model->layers[0].linear->heads, 8);
  EXPECT_EQ(delta.model->layers[0].linear->head_dim, 128);
  EXPECT_EQ(delta.model->layers[3].attention->output_gate, OutputGate::elementwise);
  const std::string sparse =
      "--multi-latent-attention --experimental-attention-variant dsa --dsa-indexer-n-heads 4 "
      "--dsa-indexer-head-dim 32 --dsa-indexer-loss-coeff 0.01 ";
  const Imported index = few(sparse + "--dsa-indexer-topk 512");
  ASSERT_TRUE(index.model->attention().index);
  EXPECT_EQ(index.model->attention().index->chosen, 512);
  EXPECT_TRUE(notes(index, "--dsa-indexer-loss-coeff is not taken over"));
  EXPECT_NE(refusal([&] { few(sparse); }).find("--dsa-indexer-topk"), std::string::npos);
}

TEST(MegatronFlags, WorkBesideATrainingIsNotJudged) {
  for (const char* flag : {"--perform-rl-step: true", "--export-kd-teacher-load: x"})
    EXPECT_THROW(of(std::string("MODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 64\n"
                                "  --num-attention-heads: 4\n  --seq-length: 8\n  ") +
                        flag + "\n",
                    ".yaml"),
                 NotJudged)
        << flag;
}

// Every pattern: DeepSeek's dense layers first, Llama 4's alternation, and the first of every four layers.
TEST(MegatronFlags, ExpertsInSomeLayers) {
  const auto layers = [](const std::string& pattern) {
    std::string text;
    const std::string flags = fmt::format("{}--num-experts 8 --moe-layer-freq '{}'", kFew, pattern);
    for (const bool experts : test::expert_layers(*of("run pretrain_gpt.py " + flags).model))
      text += experts ? '1' : '0';
    return text;
  };
  const std::string ones(29, '1');
  EXPECT_EQ(layers("([0]*3+[1]*29)"), "000" + ones);
  EXPECT_EQ(layers("([0,1]*16)").substr(0, 4), "0101");
  EXPECT_EQ(layers("([1,1,0,1]*8)").substr(0, 8), "11011101");
  EXPECT_EQ(layers("4").substr(0, 8), "10001000");
  EXPECT_NE(refusal([&] { layers("([0]*3+[1]*28)"); }).find("--moe-layer-freq"), std::string::npos);
  EXPECT_NE(refusal([&] { layers("([0]*32)"); }).find("--moe-layer-freq"), std::string::npos);
}

TEST(MegatronFlags, WindowsInSomeLayers) {
  const auto layers = [](const std::string& skipped) {
    std::string text;
    for (const bool window :
         test::windowed_layers(*few("--window-size 127,0 --window-attn-skip-freq " + skipped).model))
      text += window ? '1' : '0';
    return text.substr(0, 6);
  };
  EXPECT_EQ(layers("2"), "101010");
  EXPECT_EQ(layers("3"), "110110");
  EXPECT_EQ(layers("'([0,1,1,1]*8)'"), "011101");
  EXPECT_NE(refusal([&] { layers("'[1,0]'"); }).find("--window-attn-skip-freq"), std::string::npos);
}

TEST(MegatronFlags, WhatChangesTheModel) {
  EXPECT_EQ(few("--use-rotary-position-embeddings").model->position, PositionKind::rotary);
  EXPECT_EQ(few("--squared-relu").model->mlp().activation, ActivationKind::squared_relu);
  EXPECT_EQ(few("--position-embedding-type yarn --rotary-scaling-factor 8 --yarn-beta-fast 16 "
                "--yarn-original-max-position-embeddings 2048 --no-yarn-correction-range-round-to-int")
                .model->attention()
                .rotation()
                .scaling,
            (RotaryScaling{.kind = RotaryScalingKind::yarn,
                           .factor = 8.0,
                           .original_positions = 2048,
                           .beta_fast = 16.0,
                           .whole_dimensions = false}));
  EXPECT_EQ(few("--multi-latent-attention").model->attention().latent->key_value_rank, 32);
  EXPECT_EQ(few("--num-experts 8 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4")
                .model->moe()
                ->balance_loss,
            1e-4);
  EXPECT_TRUE(
      notes(of("--num-layers 2 --hidden-size 8 --num-attention-heads 1 --seq-length 8"), "no --vocab-size"));
}

TEST(MegatronFlags, WhatChangesMemoryOrTime) {
  const Imported in =
      few("--grad-reduce-in-bf16 --fp8-format hybrid --fp8-param-gather --moe-router-force-load-balancing "
          "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
  for (const char* field :
       {"gradient_bytes=2", "fp8_weight_bytes=2", "balanced_experts=true", "optimizer_bytes=8"})
    EXPECT_TRUE(changes(in, field)) << field;
  EXPECT_TRUE(changes(few(""), "dropout=true")) << "Megatron-LM drops a tenth by default";
  EXPECT_FALSE(changes(few("--attention-dropout 0 --hidden-dropout 0.0"), "dropout=true"));
  EXPECT_TRUE(changes(few("--cuda-graph-impl full_iteration"), "graphs=true"));
  EXPECT_TRUE(notes(few("--context-parallel-size 4 --cp-comm-type a2a+p2p"), "a2a+p2p"));
  EXPECT_TRUE(notes(few("--distribute-saved-activations"), "--distribute-saved-activations"));
  const Imported selective = few("--recompute-granularity selective --recompute-modules layernorm moe_act");
  EXPECT_EQ(selective.layout.selective,
            (SelectiveRecompute{.core = false, .norms = true, .expert_activation = true}));
  EXPECT_EQ(few("--use-megatron-fsdp").layout.zero, 0) << "no_shard is its default";
}

TEST(MegatronFlags, StagesAsItDividesThem) {
  const Imported in =
      of("--num-layers 22 --hidden-size 512 --num-attention-heads 8 --seq-length 8 "
         "--pipeline-model-parallel-size "
         "4 --num-layers-per-virtual-pipeline-stage 3 --account-for-embedding-in-pipeline-split "
         "--account-for-loss-in-pipeline-split");
  EXPECT_EQ(in.layout.chunks, 2);
  EXPECT_EQ(in.layout.layers_per_stage, (std::vector<int64_t>{2, 3, 3, 3, 3, 3, 3, 2}));
  EXPECT_NE(refusal([] { few("--pipeline-model-parallel-size 5"); }).find("32 layers for 5 pipeline ranks"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              few("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3");
            }).find("8 layers of a rank in 3 virtual stages"),
            std::string::npos);
}

}  // namespace
}  // namespace mpt::frameworks
