// SPDX-License-Identifier: Apache-2.0
#include "frameworks/rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

TEST(Rules, ConditionsMeanWhatPythonMeans) {
  const SettingValues values{{"tp", 4},        {"heads", 30},     {"none", nullptr},        {"on", true},
                             {"name", "ring"}, {"items", {1, 2}}, {"empty", Json::array()}, {"a.b", 3}};
  const std::vector<std::pair<const char*, Json>> known{
      {"heads tp % 0 ==", false},
      {"heads tp % 2 == on and", true},
      {"none not empty not and", true},
      {"none None == tp None != and", true},
      {"name 'ring' 'all' list2 in", true},
      {"'in' name in", true},
      {"name 'ring' list1 in not", false},
      {"0 tp < tp 4 <= and 4 heads < and", true},
      {"0 tp < tp 4 < and", false},
      {"-7 2 // -4 == 7 -2 % -1 == and", true},
      {"on int none None == int + 1 <=", false},
      {"name none or bool True ==", true},
      {"items len 2 == items 1 [] 2 == and", true},
      {"items is_list name is_str and tp is_int and", true},
      {"items 1 list1 - 2 list1 == items 1 5 list2 & 1 list1 == and", true},
      {"none None == 1 2 if", 1.0},
      {"a.b 3 !=", false},
      {"unknown none and", false},
      {"unknown on or", true},
  };
  for (const auto& [text, expected] : known) EXPECT_EQ(condition_value(text, values), expected) << text;
  for (const char* open : {"unknown", "unknown 1 ==", "unknown not", "unknown on and", "none unknown or",
                           "heads unknown % 0 ==", "heads 0 %", "none 3 <", "items 9 []", "unknown 1 2 if"})
    EXPECT_EQ(condition_value(open, values), std::nullopt) << open;
}

TEST(Rules, AConditionIsNotDeniedTwice) {
  const char* const rules = R"([[1, "if", "layers pp % 0 == not", [[2, "refuse"]]]])";
  const auto found =
      broken_rule({{"framework 1.0, file.py", parse_json(rules, "rules")}}, {{"layers", 5}, {"pp", 2}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->condition, "((layers % pp) == 0)");
}

TEST(Rules, OnlyWhatIsCertainRefuses) {
  const auto broken = [](const char* rules, const SettingValues& values) {
    const auto found = broken_rule({{"framework 1.0, file.py", parse_json(rules, "rules")}}, values);
    return found ? found->place + " " + found->condition : "";
  };
  const char* const rules = R"([
    [1, "if", "size None ==", [[2, "set", "size", "2 tp *"]]],
    [3, "if", "size 4 >", [[4, "refuse"]], [["other.py:5", "assert", "tp 1 !="]]],
    [6, "set", "tp", "unknown"],
    [7, "assert", "tp 3 =="]])";
  EXPECT_EQ(broken(rules, {{"size", nullptr}, {"tp", 2}}), "");
  EXPECT_EQ(broken(rules, {{"size", nullptr}, {"tp", 4}}), "framework 1.0, file.py:4 not (size > 4)");
  EXPECT_EQ(broken(rules, {{"size", nullptr}, {"tp", 1}}), "framework 1.0, other.py:5 (tp != 1)");
  EXPECT_EQ(broken(rules, {{"size", 9}}), "framework 1.0, file.py:4 not (size > 4)");
  EXPECT_EQ(broken(rules, {{"tp", 1}}), "") << "size is not known";
}

constexpr const char* kModel =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention "
    "--num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size "
    "128256 "
    "--tokenizer-type NullTokenizer --mock-data --lr 1e-4 --train-iters 10";
constexpr const char* kLayout =
    "--bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 "
    "--global-batch-size 64";

// "file:line", or the reason of a refusal while it is read; empty: nothing refuses it.
std::string refusal_of(const std::filesystem::path& file, const FrameworkCode& code) {
  try {
    const Imported in = code.importer.read(file);
    return in.refused ? in.refused->found : in.unknown.empty() ? "" : "unknown " + in.unknown.front();
  } catch (const FrameworkRefusal& refusal) {
    return refusal.problems().front().where + ": " + refusal.problems().front().found;
  } catch (const UserError& error) {
    return "not read: " + error.problems().front().where + ": " + error.problems().front().found;
  }
}

std::string megatron_refusal(const std::string& flags, const std::string& model = kModel,
                             const std::string& program = "pretrain_gpt.py") {
  const std::filesystem::path file = testing::TempDir() + "/run.sh";
  write_file_atomically(
      file, fmt::format("export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc_per_node 8 --nnodes 1 "
                        "{} {} {}\n",
                        program, model, flags));
  return refusal_of(file, find_importer("megatron-core", ""));
}

// Each is refused by the parser or the configuration classes of megatron-core 0.19.2.
TEST(Rules, ScriptsThatMegatronRefuses) {
  EXPECT_EQ(megatron_refusal(kLayout), "");
  const std::vector<std::pair<const char*, const char*>> faults{
      {"--overlap-grad-reduce --overlap-param-gather", "arguments.py:991"},
      {"--use-distributed-optimizer --overlap-param-gather", "arguments.py:994"},
      {"--tp-comm-overlap", "arguments.py:1402"},
      {"--recompute-granularity selective --recompute-method uniform", "arguments.py:1386"},
      {"--recompute-granularity full", "transformer_config.py:17"},
      {"--recompute-granularity full --recompute-method uniform", "transformer_config.py:17"},
      {"--recompute-granularity selective --recompute-modules layernom", "transformer_config.py:1779"},
      {"--recompute-granularity selective --recompute-modules moe_act", "transformer_config.py:1785"},
      {"--recompute-granularity selective --recompute-modules layernorm --fp8-format hybrid --fp8-recipe "
       "delayed",
       "transformer_config.py:18"},
      {"--fp16", "arguments.py:1173"},
      {"--fp8-format hybrid --fp4-format e2m1", "arguments.py:1066"},
      {"--fp8-param-gather", "arguments.py:1061"},
      {"--fp8-output-proj", "transformer_config.py"},
      {"--use-megatron-fsdp --ckpt-format fsdp_dtensor --no-gradient-accumulation-fusion",
       "arguments.py:1143"},
      {"--use-torch-fsdp2", "arguments.py:1000"},
      {"--optimizer-cpu-offload", "arguments.py:1804"},
      {"--use-precision-aware-optimizer", "optimizer_config.py:434"},
      {"--main-params-dtype fp16", "optimizer_config.py:473"},
      {"--exp-avg-dtype fp8", "optimizer_config.py:476"},
      {"--mtp-num-layers 1 --pipeline-model-parallel-layout 'Et*16|t*16L'",
       "pipeline_parallel_layer_layout.py:111"},
      {"--pipeline-model-parallel-layout 'Et*16|t*15L'", "pipeline_parallel_layer_layout.py:106"},
      {"--mtp-num-layers 1 --position-embedding-type learned_absolute", "arguments.py:857"},
      {"--num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication", "arguments.py:972"},
      {"--num-layers-per-virtual-pipeline-stage 5", "arguments.py:938"},
      {"--pipeline-model-parallel-size 3 --tensor-model-parallel-size 1", "arguments.py:430"},
      {"--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --num-query-groups 3",
       "transformer_config.py:13"},
      {"--context-parallel-size 2 --seq-length 4094", "arguments.py:1296"},
      {"--seq-length 8192", "arguments.py:1314"},
      {"--expert-model-parallel-size 2", "arguments.py:1601"},
      {"--num-experts 6 --expert-model-parallel-size 4", "arguments.py:1602"},
      {"--num-experts 8 --moe-shared-expert-overlap --moe-shared-expert-intermediate-size 512",
       "transformer_config.py:1"},
      {"--multi-latent-attention", "arguments.py:1893"},
      {"--distribute-saved-activations", "arguments.py:1374"},
      {"--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "arguments.py:1642"},
      {"--save out", "arguments.py:1322"},
      {"--lr-warmup-fraction 0.1 --lr-warmup-iters 10", "arguments.py:1246"},
      {"--train-samples 100", "arguments.py:1239"},
      {"--fp32-residual-connection --bf16 false", "arguments.py:1335"},
      {"--mla-down-proj-fusion", "arguments.py:1896"},
      {"--ckpt-format torch_dcp", "arguments.py:1613"},
      {"--decoder-first-pipeline-num-layers 40", "-8 layers for 1 pipeline ranks"},
      {"--tensor-model-paralel-size 4",
       "at --tensor-model-paralel-size: not known to megatron-core 0.19.2; did you mean"},
      {"--position-embedding-type alibi", "at --position-embedding-type: \"alibi\""},
      {"--normalization rmsnorm", "at --normalization: \"rmsnorm\""},
      {"--recompute-granularity some", "at --recompute-granularity: \"some\""},
      {"--micro-batch-size two", "at --micro-batch-size: \"two\""},
  };
  for (const auto& [flags, expected] : faults) {
    const std::string found = megatron_refusal(fmt::format("{} {}", kLayout, flags));
    EXPECT_NE(found.find(expected), std::string::npos) << flags << "\n  " << found;
  }
  EXPECT_NE(megatron_refusal("--bf16 --global-batch-size 64").find("arguments.py:675"), std::string::npos);
}

TEST(Rules, TheProgramDecidesWhoseFlagsTheyAre) {
  EXPECT_EQ(megatron_refusal("--bf16 --micro-batch-size 1 --rollout-num-gpus 8", kModel, "train.py"),
            "unknown --rollout-num-gpus");
  const std::string other = megatron_refusal("--bf16 --micro-batch-size 1 --deepspeed --zero-stage 3");
  EXPECT_NE(other.find("Megatron-DeepSpeed"), std::string::npos) << other;
  EXPECT_EQ(other.find("not read"), 0u);
}

TEST(Rules, SizeOfAScript) {
  const std::filesystem::path file = testing::TempDir() + "/size.sh";
  write_file_atomically(
      file, fmt::format("GPUS=8\ntorchrun --nproc-per-node=$GPUS --nnodes 4 pretrain_gpt.py {} {}\n", kModel,
                        kLayout));
  EXPECT_EQ(import_megatron_core(file).ranks, 32);
  write_file_atomically(
      file, fmt::format("torchrun --nproc-per-node 8 --nnodes $N pretrain_gpt.py {} {}\n", kModel, kLayout));
  EXPECT_EQ(import_megatron_core(file).ranks, 0);
}

// A file of flags may be a part of them: what it lacks is no fault.
TEST(Rules, PartsOfAList) {
  const std::filesystem::path file = testing::TempDir() + "/flags.txt";
  write_file_atomically(file, "--num-layers 4\n--hidden-size 64\n--num-attention-heads 4\n--bf16\n");
  EXPECT_EQ(import_megatron_core(file).refused, std::nullopt);
  write_file_atomically(file, "--num-layers 4\n--hidden-size 64\n--num-attention-heads 4\n--bf16\n--fp16\n");
  EXPECT_NE(import_megatron_core(file).refused, std::nullopt);
}

constexpr const char* kBridge = R"py(from megatron.bridge.recipes.common import _pretrain_common


def apply(config):
    config.model.num_layers = 16
    config.model.hidden_size = 2048
    config.model.ffn_hidden_size = 8192
    config.model.num_attention_heads = 32
    config.model.num_query_groups = 8
    config.model.seq_length = 4096
    config.model.vocab_size = 128256
    config.model.position_embedding_type = "rope"
    config.model.tensor_model_parallel_size = 1
    config.model.pipeline_model_parallel_size = 2
    config.model.context_parallel_size = 1
    config.train.global_batch_size = 64
    config.train.micro_batch_size = 2
    config.mixed_precision = "bf16_mixed"
)py";

std::string bridge_refusal(const std::string& lines) {
  const std::filesystem::path file = testing::TempDir() + "/bridge.py";
  std::istringstream text(lines);
  std::string all = kBridge;
  for (std::string line; std::getline(text, line, ';');) all += fmt::format("    config.{}\n", line);
  write_file_atomically(file, all + "    return config\n");
  return refusal_of(file, find_importer("megatron-bridge", ""));
}

// Each is refused by runtime_config_update() of Megatron-Bridge 0.6.2 on megatron-core 0.19.2.
TEST(Rules, ConfigurationsThatMegatronBridgeRefuses) {
  EXPECT_EQ(bridge_refusal("model.sequence_parallel = True"), "") << "taken back with one tensor rank";
  EXPECT_EQ(bridge_refusal("model.recompute_granularity = 'full'"), "") << "the recipe may say the method";
  EXPECT_EQ(bridge_refusal("mixed_precision = None;model.bf16 = True;optimizer.bf16 = True"), "");
  for (const auto& [lines, expected] : std::vector<std::pair<const char*, const char*>>{
           {"model.num_attention_heads = 36;model.num_query_groups = 4;model.tensor_model_parallel_size = 8",
            "transformer_config.py:1324"},
           {"model.seq_length = 4094;model.context_parallel_size = 4", "bridge/training/config.py:1436"},
           {"dataset.enable_offline_packing = True", "bridge/training/config.py:1467"},
           {"dataset.enable_offline_packing = True;dataset.enable_in_batch_packing = True",
            "bridge/training/config.py:1156"},
           {"model.recompute_granularity = 'full';model.recompute_method = None",
            "transformer_config.py:1737"},
           {"model.recompute_granularity = 'partial'", "transformer_config.py:1726"},
           {"model.recompute_granularity = 'selective';model.recompute_modules = ['layernom']",
            "transformer_config.py:1779"},
           {"model.recompute_granularity = 'selective';model.recompute_modules = "
            "['layernorm'];mixed_precision = "
            "'bf16_with_fp8_delayed_scaling_mixed'",
            "transformer_config.py:1824"},
           {"model.expert_model_parallel_size = 8", "transformer_config.py:1469"},
           {"model.context_parallel_size = 4;model.cp_comm_type = 'a2a+p2p';"
            "model.hierarchical_context_parallel_sizes = None",
            "bridge/training/config.py:1544"},
           {"model.context_parallel_size = 4;model.cp_comm_type = ['p2p', 'a2a']",
            "bridge/training/config.py:1534"},
           {"mixed_precision = 'bf16_mixd'", "bf16_mixd"},
           {"mixed_precision = bf16_with_mxfp8_mixed();mixed_precision.fp4 = 'e2m1'",
            "mixed_precision.py:108"},
           {"mixed_precision = None;model.bf16 = True;model.fp16 = True", "transformer_config.py:1315"},
           {"optimizer.use_distributed_optimizer = False;optimizer.use_precision_aware_optimizer = True",
            "optimizer_config.py:434"},
           {"dist.use_megatron_fsdp = True;dist.use_torch_fsdp2 = True", "bridge/training/config.py:1343"},
           {"ddp.use_megatron_fsdp = True;dist.use_tp_pp_dp_mapping = True",
            "bridge/training/config.py:1116"},
           {"model.cpu_offloading = True;model.cpu_offloading_num_layers = 4", "transformer_config.py:1715"},
           {"model.pipeline_model_parallel_size = 1;model.defer_embedding_wgrad_compute = True",
            "model_parallel_config.py:546"},
           {"model.fine_grained_activation_offloading = True;model.offload_modules = ['attnn']",
            "transformer_config.py:1864"}}) {
    const std::string found = bridge_refusal(lines);
    EXPECT_NE(found.find(expected), std::string::npos) << lines << "\n  " << found;
  }
}

std::string titan_refusal(const std::string& training, const std::string& parallelism,
                          const std::string& compile,
                          const std::string& spec = "model_spec=model_registry(\"8B\")",
                          const std::string& family = "llama3") {
  const std::filesystem::path file = testing::TempDir() + "/titan.py";
  write_file_atomically(
      file, fmt::format("from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig\n"
                        "from torchtitan.models.{} import model_registry\n"
                        "from torchtitan.trainer import Trainer\n\n\n"
                        "def one() -> Trainer.Config:\n"
                        "    return Trainer.Config({},\n"
                        "        training=TrainingConfig(local_batch_size=4, {}),\n"
                        "        parallelism=ParallelismConfig({}), compile=CompileConfig({}))\n",
                        family, spec, training, parallelism, compile));
  return refusal_of(file, find_importer("torchtitan", ""));
}

TEST(Rules, ConfigurationsThatTorchtitanRefuses) {
  EXPECT_EQ(titan_refusal("disable_cuda_graphs=True", "pipeline_parallel_degree=2", "enable=True"), "");
  for (const auto& [training, parallelism, compile, expected] : std::vector<std::array<const char*, 4>>{
           {"", "tensor_parallel_degree=2", "enable=False, enable_async_tensor_parallel=True",
            "configs.py:307"},
           {"", "tensor_parallel_degree=2",
            "enable=True, enable_async_tensor_parallel=True, components=['loss']", "configs.py:307"},
           {"", "data_parallel_shard_degre=-1", "",
            "data_parallel_shard_degre: not known to torchtitan 0.3.0"},
           {"", "pipeline_parallel_degree=2, pipeline_parallel_schedule='1F1', ", "", "\"1F1\""},
           {"", "pipeline_parallel_degree=2", "", "trainer.py"},
           {"disable_cuda_graphs=True", "pipeline_parallel_degree=2, pipeline_parallel_microbatch_size=3", "",
            "trainer.py"},
           {"disable_cuda_graphs=True", "pipeline_parallel_microbatch_size=0", "", "trainer.py"},
           {"", "spmd_backend='none'", "", "\"none\""},
           {"mixed_precision_param='float16'", "", "", "\"float16\""},
           {"", "fsdp_reshard_after_forward='sometimes'", "", "\"sometimes\""}}) {
    const std::string found = titan_refusal(training, parallelism, compile);
    EXPECT_NE(found.find(expected), std::string::npos) << expected << "\n  " << found;
  }
}

// Each is refused by what Trainer of torchtitan 0.3.0 does before it allocates.
TEST(Rules, ModelsThatTorchtitanRefusesForTheirLayout) {
  constexpr const char* kExperts = "model_spec=model_registry(\"30B-A3B\")";
  EXPECT_EQ(titan_refusal("", "expert_parallel_degree=8", "", "model_spec=model_registry('8B')"), "")
      << "has no effect on a dense model";
  EXPECT_EQ(titan_refusal("disable_cuda_graphs=True", "expert_parallel_degree=8", "", kExperts, "qwen3"), "");
  EXPECT_EQ(titan_refusal("", "context_parallel_load_balancer=None, context_parallel_degree=2", ""), "");
  for (const auto& [training, parallelism, spec, family, expected] : std::vector<std::array<const char*, 5>>{
           {"", "expert_parallel_degree=8", kExperts, "qwen3", "trainer.py:204"},
           {"", "context_parallel_degree=2", "model_spec=model_registry('8B', attn_backend='varlen')",
            "llama3", "llama3/model.py:80"},
           {"", "context_parallel_degree=2", "model_spec=model_registry('8B', attn_backend='varlen')",
            "qwen3", "qwen3/model.py:96"},
           {"", "", "model_spec=model_registry('8B', attn_backend='sdpa')", "llama3", "config_utils.py:99"},
           {"", "", "model_spec=model_registry('8B', attn_backend='flash')", "llama3", "config_utils.py:103"},
           {"", "context_parallel_degree=2", "model_spec=model_registry('16B', num_mtp_layers=1)",
            "deepseek_v3", "mtp.py:208"},
           {"", "context_parallel_degree=2, context_parallel_load_balancer='zigzag'",
            "model_spec=model_registry('8B')", "llama3", "context_parallel/api.py:219"},
           {"disable_cuda_graphs=True",
            "pipeline_parallel_degree=2, pipeline_parallel_schedule='PipelineScheduleSingle'",
            "model_spec=model_registry('8B')", "llama3", "pipeline_parallel.py:322"},
           {"", "", "model_spec=model_registry('8B'), activation_checkpoint=MemoryBudgetAC.Config()",
            "llama3", "trainer.py:173"},
           {"", "", "model_spec=model_registry('8B'), activation_checkpointing=FullAC.Config()", "llama3",
            "activation_checkpointing: not known to torchtitan 0.3.0"}}) {
    const std::string found = titan_refusal(training, parallelism, "", spec, family);
    EXPECT_NE(found.find(expected), std::string::npos) << expected << "\n  " << found;
  }
}

// `lines` of the section `distributed`, with pipelines of 8 sequences; sections behind ";".
std::string automodel_refusal(const std::string& lines,
                              const std::string& model = "meta-llama/Llama-3.1-8B") {
  const std::filesystem::path file = testing::TempDir() + "/recipe.yaml";
  const size_t more = std::min(lines.find(';'), lines.size());
  write_file_atomically(
      file, fmt::format("model: {{pretrained_model_name_or_path: {}}}\ndistributed: {{{}}}\n{}\n"
                        "step_scheduler: {{global_batch_size: 32, local_batch_size: 8}}\n",
                        model, lines.substr(0, more), lines.substr(std::min(more + 1, lines.size()))));
  return refusal_of(file, find_importer("automodel", ""));
}

// Each is refused by the recipe of NeMo AutoModel 0.7.0, up to its model on the ranks.
TEST(Rules, RecipesThatAutoModelRefuses) {
  for (const char* fine :
       {"strategy: fsdp2, tp_size: 2, sequence_parallel: true", "strategy: mfsdp, zero_dp_strategy: 3",
        "activation_checkpointing: 'Yes'", "pp_size: 2, pipeline: {}", "dp_replicate_size: 1",
        "pp_size: 1, pipeline: {pp_recv_buffer_pool_slack: -1}",
        "strategy: ddp, activation_checkpointing: selective", "mp_policy: {param_dtype: torch.float32}",
        "activation_checkpointing_scope: [language, vision]"})
    EXPECT_EQ(automodel_refusal(fine), "") << fine;
  EXPECT_EQ(automodel_refusal("ep_size: 8", "Qwen/Qwen3-30B-A3B"), "");
  for (const auto& [lines, expected] : std::vector<std::pair<const char*, const char*>>{
           {"strategy: fsdp3", "distributed/config.py:508"},
           {"activation_checkpointing: sometimes", "_dist_utils.py:71"},
           {"strategy: mfsdp, activation_checkpointing: selective", "_dist_utils.py:185"},
           {"activation_checkpointing_scope: langage", "distributed/config.py:90"},
           {"pp_size: 2", "_dist_utils.py:216"},
           {"pp_size: 16, pipeline: {pp_schedule: 1f1b}", "train_ft.py:675"},
           {"pp_size: 2, pipeline: {pp_microbatch_size: 3}", "autopipeline.py:97"},
           {"pp_size: 2, pipeline: {pp_recv_buffer_pool_slack: -1}", "pipelining/config.py:117"},
           {"pp_size: 2, pipeline: {pp_schedule: interleaved_1f1b}", "interleaved_1f1b"},
           {"pp_size: 2, pipeline: {pp_schedule: interleaved1f1b, layers_per_stage: 5, "
            "round_virtual_stages_to_pp_multiple: upp}",
            "7 stages of 5 layers"},
           {"strategy: ddp, tp_size: 2", "mesh_utils.py:96"},
           {"strategy: ddp, cp_size: 2", "mesh_utils.py:98"},
           {"strategy: megatron_fsdp, pp_size: 2, pipeline: {}", "mesh_utils.py:86"},
           {"strategy: megatron_fsdp, dp_replicate_size: 2", "mesh_utils.py:76"},
           {"dp_size: 8, dp_replicate_size: 3", "mesh_utils.py:309"},
           {"dp_size: 8, dp_replicate_size: 8", "mesh_utils.py:312"},
           {"strategy: fsdp2, zero_dp_strategy: 3", "distributed/config.py:513"},
           {"strategy: ddp, sequence_parallel: true", "distributed/config.py:513"},
           {"ep_size: 8", "capabilities.py:518"},
           {"mp_policy: {param_dtype: float17}", "shared/utils.py:70"},
           {"mp_policy: {parm_dtype: float32}", "unknown distributed.mp_policy.parm_dtype"},
           {"ep_size: 8, moe: {reshard_after_fwd: true}", "capabilities.py:518"},
           {"tp_sise: 2", "unknown distributed.tp_sise"},
           {";peft: {target_modules: ['*_proj'], exclude_modules: [lm_head]}", "module_matcher.py:125"},
           {";peft: {target_modules: ['*_proj'], match_all_linear: true}", "module_matcher.py:129"},
           {";fp8: {enabled: true, recipe_name: tensorwize}", "quantization/fp8.py:202"}}) {
    const std::string found = automodel_refusal(lines);
    EXPECT_NE(found.find(expected), std::string::npos) << lines << "\n  " << found;
  }
}

TEST(Rules, WordsThatAutoModelReads) {
  const auto layout = [](const std::string& distributed) {
    const std::filesystem::path file = testing::TempDir() + "/words.yaml";
    write_file_atomically(file, "model: {pretrained_model_name_or_path: Qwen/Qwen3-8B}\ndistributed: {" +
                                    distributed + "}\nstep_scheduler: {global_batch_size: 32}\n");
    return find_importer("automodel", "").importer.read(file).layout;
  };
  EXPECT_EQ(layout("activation_checkpointing: 'Enabled'").recompute, Recompute::full);
  EXPECT_EQ(layout("activation_checkpointing: 'off'").recompute, Recompute::none);
  EXPECT_EQ(layout("activation_checkpointing: Selective").recompute, Recompute::selective);
  EXPECT_EQ(layout("mp_policy: {param_dtype: float16}").precision, Precision::fp16);
  EXPECT_EQ(layout("mp_policy: {param_dtype: torch.float32}").precision, Precision::fp32);
}

std::string planted_refusal(const Json& config, const char* framework, const char* name) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / name;
  write_file_atomically(file, config.dump());
  return refusal_of(file, find_importer(framework, ""));
}

// tests/frameworks/planted_test.py asks the frameworks' own code about the same files.
void expect_planted(const char* planted, const char* framework, const char* name) {
  const Json rows =
      load_json(fmt::format("{}/tests/frameworks/planted/{}", MPT_SOURCE_DIR, planted), 1 << 20);
  ASSERT_FALSE(rows["refused"].empty() || rows["sound"].empty());
  for (const Json& row : rows["refused"]) {
    const std::string found = planted_refusal(row["config"], framework, name);
    EXPECT_NE(found.find(row["said"].get<std::string>()), std::string::npos)
        << row["fault"] << "\n  " << found;
    EXPECT_EQ(found.find("not read"), std::string::npos) << row["fault"] << "\n  " << found;
  }
  for (const Json& row : rows["sound"])
    EXPECT_EQ(planted_refusal(row["config"], framework, name), "") << row["what"];
}

TEST(Rules, FilesThatAccelerateRefuses) {
  write_file_atomically(std::filesystem::path(testing::TempDir()) / "ds.json",  // that two of them name
                        R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})");
  expect_planted("accelerate.json", "transformers-fsdp", "planted.yaml");
}

TEST(Rules, FilesThatDeepSpeedRefuses) {
  expect_planted("deepspeed.json", "deepspeed", "planted.json");
  const auto refusal = [](const Json& config) {
    return planted_refusal(config, "deepspeed", "planted.json");
  };
  EXPECT_EQ(refusal({{"train_micro_batch_size_per_gpu", 1}, {"zero_optimisation", {{"stage", 3}}}}),
            "unknown zero_optimisation")
      << "DeepSpeed does not look at it";
}

// Of the Trainer's arguments alone, and beside DeepSpeed's file: `row` has both.
std::string trainer_refusal(const Json& row) {
  const std::filesystem::path folder = testing::TempDir() + "/trainer";
  std::filesystem::create_directories(folder);
  const bool deepspeed = row.contains("deepspeed");
  write_file_atomically(folder / "train.json", row["train"].dump());
  if (deepspeed) write_file_atomically(folder / "ds.json", row["deepspeed"].dump());
  write_file_atomically(folder / "accelerate.yaml",
                        deepspeed
                            ? "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  "
                              "deepspeed_config_file: ds.json\n"
                            : "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
                              "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n");
  return refusal_of(folder / "accelerate.yaml",
                    find_importer(deepspeed ? "transformers-deepspeed" : "transformers-fsdp", ""));
}

TEST(Rules, ArgumentsThatTheTrainerRefuses) {
  const Json rows = load_json(MPT_SOURCE_DIR "/tests/frameworks/planted/trainer.json", 1 << 20);
  for (const Json& row : rows["refused"])
    EXPECT_NE(trainer_refusal(row["config"]).find(row["said"].get<std::string>()), std::string::npos)
        << row["fault"] << "\n  " << trainer_refusal(row["config"]);
  for (const Json& row : rows["sound"]) EXPECT_EQ(trainer_refusal(row["config"]), "") << row["what"];
}

// Programs over the Trainer hand it their settings; those that they give other names are their own.
TEST(Rules, TunersThatTheTrainerRefuses) {
  const auto refusal = [](const std::string& yaml) {
    const std::filesystem::path file = testing::TempDir() + "/tuner.yaml";
    write_file_atomically(file, yaml);
    return refusal_of(file, find_importer("transformers-fsdp", ""));
  };
  const std::string factory = "model_name_or_path: meta-llama/Llama-3.1-8B\ncutoff_len: 2048\n";
  const std::string axolotl = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\n";
  EXPECT_EQ(refusal(factory + "bf16: true\nlr_scheduler_type: cosine\noptim: adamw_torch\n"), "");
  EXPECT_NE(refusal(factory + "bf16: true\nfp16: true\n").find("training_args.py:1785"), std::string::npos);
  EXPECT_NE(refusal(factory + "optim: adamw_hf\n").find("training_args.py:1563"), std::string::npos);
  EXPECT_EQ(refusal(axolotl + "bf16: auto\noptimizer: muon\nlr_scheduler: cosine\n"), "");
  write_file_atomically(testing::TempDir() + "/zero3_bf16.json", R"({"zero_optimization": {"stage": 3},
      "bf16": {"enabled": true}, "gradient_accumulation_steps": "auto", "train_micro_batch_size_per_gpu": "auto",
      "train_batch_size": "auto", "gradient_clipping": "auto"})");
  for (const char* word : {"auto", "full", "true"})
    EXPECT_EQ(refusal(axolotl + "deepspeed: zero3_bf16.json\nbf16: " + word + "\n"), "") << word;
  EXPECT_NE(refusal(axolotl + "deepspeed: zero3_bf16.json\nbf16: false\n").find("deepspeed.py:132"),
            std::string::npos);
  EXPECT_NE(refusal(axolotl + "bf16: true\nfp16: true\n").find("training_args.py:1785"), std::string::npos);
}

// The Trainer and accelerate fill in what DeepSpeed's file lacks, but they start a number of ranks.
TEST(Rules, BatchesOfDeepSpeedForOtherRanks) {
  const std::filesystem::path folder = testing::TempDir() + "/ranks";
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "ds.json", R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
      "gradient_accumulation_steps": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})");
  const auto refusal = [&](int ranks) {
    write_file_atomically(folder / "accelerate.yaml",
                          fmt::format("distributed_type: DEEPSPEED\nnum_processes: {}\ndeepspeed_config:\n  "
                                      "deepspeed_config_file: ds.json\n",
                                      ranks));
    return refusal_of(folder / "accelerate.yaml", find_importer("transformers-deepspeed", ""));
  };
  EXPECT_NE(refusal(8).find("config.py:602"), std::string::npos) << refusal(8);
  EXPECT_EQ(refusal(4), "");
  EXPECT_EQ(import_deepspeed(folder / "ds.json").ranks, 4);
}

}  // namespace
}  // namespace mpt::frameworks
