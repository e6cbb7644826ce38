// SPDX-License-Identifier: Apache-2.0
#include "frameworks/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/ranges.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

Imported megatron(const std::string& flags) {
  const std::string file = testing::TempDir() + "/import.sh";
  write_file_atomically(file, flags);
  return import_megatron_core(file);
}

// `parallelism`: arguments of ParallelismConfig; `more`: of Trainer.Config.
Imported torchtitan(const std::string& parallelism, const std::string& more = "",
                    const std::string& family = "llama3", const std::string& flavor = "8B") {
  const std::string file = testing::TempDir() + "/import.py";
  write_file_atomically(file, fmt::format("from torchtitan.models.{} import model_registry\n"
                                          "from torchtitan.trainer import Trainer\n\n\n"
                                          "def one() -> Trainer.Config:\n"
                                          "    return Trainer.Config(model_spec=model_registry(\"{}\"),\n"
                                          "        parallelism=ParallelismConfig({}), {})\n",
                                          family, flavor, parallelism, more));
  return import_torchtitan(file);
}

const char* const kSmall = "--num-layers 32 --hidden-size 512 --num-attention-heads 8 --seq-length 2048 ";

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Import, VirtualStagesByTheirLayers) {
  const Imported in = megatron(std::string(kSmall) +
                               "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4");
  EXPECT_EQ(in.layout.chunks, 2);
  EXPECT_EQ(in.layout.layers_per_stage, std::vector<int64_t>(8, 4));
  EXPECT_EQ(in.layout.schedule, "interleaved");
}

TEST(Import, WhatIsLeftOutAndCannotBeIsNamed) {
  EXPECT_NE(error_of([] {
              megatron("--num-layers 2 --hidden-size 4 --num-attention-heads 8");
            }).find("--kv-channels: left out, which means 0 here"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              megatron("--num-layers 2 --hidden-size 8 --num-attention-heads 8 --swiglu");
            }).find("--ffn-hidden-size: left out, which means 0 here"),
            std::string::npos);
}

TEST(Import, TorchtitansDeterminismHasNoPrice) {
  const auto is_told = [](const Imported& in) {
    return std::count(in.notes.begin(), in.notes.end(),
                      "debug.deterministic: what it costs is not known, and not in the plan") == 1;
  };
  EXPECT_FALSE(is_told(torchtitan("")));
  EXPECT_TRUE(is_told(torchtitan("", "debug=DebugConfig(deterministic=True)")));
}

TEST(Import, ProductsOfDegreesAreNoMoreThanAClusterHas) {
  EXPECT_NE(error_of([] {
              megatron(std::string(kSmall) +
                       "--tensor-model-parallel-size 10000000 --context-parallel-size 10000000");
            }).find("more than 10000000 ranks"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              torchtitan("data_parallel_replicate_degree=10000000, data_parallel_shard_degree=10000000");
            }).find("data_parallel_shard_degree: 10000000 x 10000000"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              megatron(std::string(kSmall) +
                       "--pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 100000");
            }).find("800000 stages for 32 layers"),
            std::string::npos);
}

TEST(Import, MinusOneLeavesTorchtitansDegreesOpen) {
  const Imported in =
      torchtitan("data_parallel_shard_degree=-1", "training=TrainingConfig(global_batch_size=-1)");
  EXPECT_EQ(in.layout.data, 0);
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.workload.global_batch, 0);
}

// torchtitan/config/configs.py: -1 takes the ranks that are left over, also beside replicas.
TEST(Import, ReplicasBesideOpenShardsAreGroups) {
  EXPECT_EQ(torchtitan("data_parallel_replicate_degree=2").shard_groups, 2);
  EXPECT_EQ(torchtitan("data_parallel_replicate_degree=2, data_parallel_shard_degree=4").shard_groups, 2);
  EXPECT_EQ(torchtitan("data_parallel_shard_degree=-1").shard_groups, 1);
}

// torchtitan/trainer.py, train_step: the pipeline runs once for each local batch of the step.
TEST(Import, PipelinesTakeALocalBatchAtOnce) {
  const std::string pipeline = "pipeline_parallel_degree=4, pipeline_parallel_microbatch_size=2";
  const Imported open = torchtitan(pipeline, "training=TrainingConfig(local_batch_size=16)");
  EXPECT_EQ(open.accumulated, 8);
  EXPECT_EQ(open.at_once, 0) << "a step is one local batch";
  const Imported again =
      torchtitan(pipeline, "training=TrainingConfig(local_batch_size=8, global_batch_size=128)");
  EXPECT_EQ(again.at_once, 4);
  EXPECT_NE(joined(again.notes, "").find("fills and drains for every 4 micro-batches"), std::string::npos);
  const Imported known = torchtitan(pipeline + ", data_parallel_shard_degree=2",
                                    "training=TrainingConfig(local_batch_size=8, global_batch_size=128)");
  EXPECT_NE(joined(known.notes, "").find("a step has 8 runs"), std::string::npos)
      << "of 2 ranks of 8 sequences";
  EXPECT_EQ(torchtitan("tensor_parallel_degree=2",
                       "training=TrainingConfig(local_batch_size=8, global_batch_size=128)")
                .at_once,
            0);
  const std::string file = testing::TempDir() + "/at_once.yaml";
  write_file_atomically(file,
                        "step_scheduler:\n  global_batch_size: 512\n  local_batch_size: 4\nmodel:\n"
                        "  pretrained_model_name_or_path: Qwen/Qwen3-8B\ndistributed:\n  pp_size: 4\n");
  EXPECT_EQ(import_automodel(file).at_once, 4);
}

TEST(Import, TorchtitansTensorRanksShareSequencesUnlessThatIsSwitchedOff) {
  const std::string compiled = "compile=CompileConfig(enable=True, enable_async_tensor_parallel=True)";
  const Layout usual = torchtitan("tensor_parallel_degree=2", compiled).layout;
  EXPECT_TRUE(usual.sequence_parallel && usual.overlap_tensor);
  const Imported whole = torchtitan("tensor_parallel_degree=2, enable_sequence_parallel=False", compiled);
  EXPECT_FALSE(whole.layout.sequence_parallel || whole.layout.overlap_tensor);
  EXPECT_FALSE(whole.refused.has_value());
  EXPECT_FALSE(torchtitan("enable_sequence_parallel=True").layout.sequence_parallel) << "one tensor rank";
}

// torchtitan/distributed/pipeline_parallel.py: embedding and head count as layers.
TEST(Import, TorchtitansOwnStages) {
  EXPECT_EQ(torchtitan("pipeline_parallel_degree=4").layout.layers_per_stage,
            (std::vector<int64_t>{8, 9, 8, 7}));
  const std::string interleaved =
      "pipeline_parallel_degree=4, pipeline_parallel_schedule='Interleaved1F1B', ";
  EXPECT_EQ(torchtitan(interleaved + "pipeline_parallel_layers_per_stage=3").layout.chunks, 3);
  EXPECT_NE(error_of([&] {
              torchtitan(interleaved + "pipeline_parallel_layers_per_stage=4");
            }).find("9 stages of 4 layers"),
            std::string::npos);
  const Imported named = torchtitan("pipeline_parallel_degree=1, data_parallel_shard_degree=8");
  EXPECT_EQ(named.layout.layers_per_stage, std::vector<int64_t>{32});
}

TEST(Import, TorchtitansSchedulesAreReadByNameOrRefused) {
  const auto schedule = [](const std::string& name) {
    return torchtitan("pipeline_parallel_degree=4, pipeline_parallel_schedule='" + name + "'",
                      "training=TrainingConfig(disable_cuda_graphs=True)")
        .layout.schedule;
  };
  EXPECT_EQ(schedule("InterleavedZeroBubble"), "zb-interleaved");
  EXPECT_EQ(schedule("Interleaved1F1B"), "interleaved");
  EXPECT_EQ(schedule("ZBVZeroBubble"), "zb-v");
  EXPECT_EQ(schedule("DualPipeV"), "dualpipe-v");
  const std::string told = error_of([&] { schedule("LoopedBFS"); });
  EXPECT_NE(told.find("schedule \"LoopedBFS\""), std::string::npos) << told;
  EXPECT_NE(told.find("one that MPT plans: GPipe, 1F1B, Interleaved1F1B, InterleavedZeroBubble"),
            std::string::npos)
      << told;
  EXPECT_NE(error_of([&] { schedule("PipelineScheduleSingle"); }).find("pipeline_parallel.py:322"),
            std::string::npos)
      << "torchtitan wants a CSV file with it";
}

TEST(Import, ListsOfModulesAreTorchtitansStages) {
  std::string lists = "module_fqns_per_model_part=[";
  const std::vector<int64_t> layers{7, 8, 9, 8};
  int64_t next = 0;
  for (const int64_t n : layers) {
    lists += "[\"tok_embeddings\"";
    for (int64_t i = 0; i < n; ++i) lists += fmt::format(", \"layers.{}\"", next++);
    lists += "],\n";
  }
  const Imported in = torchtitan(
      "pipeline_parallel_degree=2, pipeline_parallel_schedule='Interleaved1F1B', "
      "pipeline_parallel_schedule_csv='mine.csv', " +
      lists + "]");
  EXPECT_EQ(in.layout.chunks, 2);
  EXPECT_EQ(in.layout.layers_per_stage, layers);
  ASSERT_EQ(in.notes.size(), 1);
  EXPECT_NE(in.notes.front().find("pipeline_parallel_schedule_csv"), std::string::npos);
}

TEST(Import, TorchtitansTomlIsRefusedWithARemedy) {
  const std::string file = testing::TempDir() + "/import.toml";
  write_file_atomically(file, "[model]\nname = \"llama3\"\nflavor = \"8B\"\n");
  EXPECT_NE(error_of([&] { import_torchtitan(file); }).find("mpt-plan estimate --framework torchtitan"),
            std::string::npos);
}

TEST(Import, TorchtitansDeepSeekHasNoNextTokenLayers) {
  const Imported in = torchtitan("", "", "deepseek_v3", "671B");
  ASSERT_TRUE(in.model);
  EXPECT_EQ(in.model->next_token_layers, 0);
  EXPECT_FALSE(in.notes.empty());
}

// torchtitan's own default compiles nothing, and its configurations compute the loss by chunks.
TEST(Import, TorchtitanCompilesAndCutsItsLossAsTheFileSays) {
  using Words = std::vector<std::string>;
  const auto execution = [](const std::string& more) { return torchtitan("", more).execution; };
  const std::string chunks = "loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config())";
  EXPECT_EQ(execution(""), Words{"elementwise=eager"});
  EXPECT_EQ(execution(chunks), Words{"elementwise=eager"});
  EXPECT_EQ(execution(chunks + ", compile=CompileConfig(enable=True)"), Words{});
  EXPECT_EQ(execution(chunks + ", compile=CompileConfig(enable=True, components=['loss'])"),
            Words{"elementwise=eager"});
  EXPECT_EQ(execution("loss=CrossEntropyLoss.Config()"), (Words{"elementwise=eager", "loss=fp32"}));
  EXPECT_EQ(execution("loss=CrossEntropyLoss.Config(), compile=CompileConfig(enable=True)"),
            Words{"loss=fused"});
}

// As in torchtitan's own config_registry.py, where functions change what others return.
TEST(Import, TorchtitansFunctionsInPython) {
  const std::filesystem::path folder = testing::TempDir() + "/llama3";
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "config_registry.py",
                        R"py(from torchtitan.trainer import Trainer
from . import model_registry


def llama3_8b() -> Trainer.Config:
    """A docstring."""
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=1, seq_len=8 * 1024, steps=1_000),
        parallelism=ParallelismConfig(data_parallel_shard_degree=-1),
        activation_checkpoint=FullAC.Config(),
    )


def llama3_8b_tp() -> Trainer.Config:
    config = llama3_8b()
    config.parallelism.tensor_parallel_degree = 2  # changed
    for name in names:
        config.update(name)
    return config
)py");
  const Imported in = import_torchtitan(folder / "config_registry.py");
  ASSERT_TRUE(in.model);
  EXPECT_EQ(in.model->layers.count(), 32);
  EXPECT_EQ(in.layout.tensor, 2);
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.layout.data, 0) << "open";
  EXPECT_EQ(in.layout.recompute, Recompute::full);
  EXPECT_EQ(in.workload.sequence, 8192);
  ASSERT_FALSE(in.notes.empty());
  EXPECT_NE(in.notes.front().find("for name in names"), std::string::npos) << in.notes.front();
}

TEST(Import, AcceleratesYamlAsItsQuestionnaireWritesIt) {
  const std::filesystem::path folder = testing::TempDir() + "/accelerate";
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "train.json",
                        R"({"model_name_or_path": "meta-llama/Llama-3.1-8B", "block_size": 4096,
                            "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})");
  write_file_atomically(folder / "fsdp.yaml", R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_reshard_after_forward: false
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
)");
  const FrameworkCode& code = find_importer("", folder / "fsdp.yaml");
  EXPECT_STREQ(code.framework, "transformers-fsdp");
  const Imported in = code.importer.read(folder / "fsdp.yaml");
  ASSERT_TRUE(in.model);
  EXPECT_EQ(in.layout.data, 16);
  EXPECT_EQ(in.layout.zero, 2);
  EXPECT_EQ(in.layout.recompute, Recompute::full);
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_EQ(in.workload.global_batch, 16 * 2 * 4);
  EXPECT_EQ(in.workload.sequence, 4096);
  // findings/efficient_loading_reads_a_checkpoint_in_each_process.sh
  const std::vector<std::string> each{"host_build_bytes=0", "process_build_bytes=4"};
  EXPECT_EQ(in.execution, each);
  write_file_atomically(folder / "train.json",
                        R"({"config_name": "meta-llama/Llama-3.1-8B", "block_size": 4096})");
  EXPECT_EQ(code.importer.read(folder / "fsdp.yaml").execution, std::vector<std::string>{})
      << "one process of a host has weights that are in no file";
  const std::string yaml = "distributed_type: FSDP\nnum_processes: 16\nfsdp_config:\n  fsdp_version: 2\n";
  write_file_atomically(folder / "fsdp.yaml", yaml + "  fsdp_cpu_ram_efficient_loading: false\n");
  EXPECT_EQ(code.importer.read(folder / "fsdp.yaml").execution, each);
}

// Without a file of DeepSpeed's: accelerate makes it of its own section, and the Trainer's words come first.
TEST(Import, AcceleratesOwnSectionOfDeepSpeed) {
  const std::filesystem::path folder = testing::TempDir() + "/accelerate_deepspeed";
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& kind, const std::string& more, const std::string& words) {
    write_file_atomically(folder / "train.json", R"({"model_name_or_path": "meta-llama/Llama-3.1-8B",
        "block_size": 4096, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4)" +
                                                     words + "}");
    write_file_atomically(folder / "ds.yaml",
                          "distributed_type: " + kind + "\nnum_processes: 16\nnum_machines: 2\n" + more);
    return find_importer("", folder / "ds.yaml").importer.read(folder / "ds.yaml");
  };
  const std::string section =
      "deepspeed_config:\n  gradient_accumulation_steps: 4\n  gradient_clipping: 1.0\n  "
      "offload_optimizer_device: cpu\n  offload_param_device: none\n  zero3_init_flag: true\n  zero_stage: "
      "3\n";
  const Imported in = read("DEEPSPEED", "mixed_precision: bf16\n" + section, R"(, "bf16": true)");
  EXPECT_EQ(in.refused, std::nullopt);
  EXPECT_EQ(in.unknown, std::vector<std::string>{});
  EXPECT_EQ(in.framework, "transformers-deepspeed");
  EXPECT_EQ(in.layout.data, 16);
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_TRUE(in.layout.offload_optimizer);
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_EQ(in.workload.global_batch, 16 * 2 * 4);
  EXPECT_EQ(read("DEEPSPEED", section, R"(, "fp16": true)").layout.precision, Precision::fp16);
  EXPECT_TRUE(read("DEEPSPEED", "mixed_precision: bf16\n" + section, "").refused);  // the Trainer's is fp32
  EXPECT_EQ(read("DEEPSPEED", section, "").layout.precision, Precision::fp32);
  EXPECT_EQ(read("DEEPSPEED", "deepspeed_config: {}\n", "").layout.zero, 2);
  EXPECT_EQ(read("DEEPSPEED", "deepspeed_config:\n  zero_stages: 3\n", "").unknown,
            std::vector<std::string>{"deepspeed_config.zero_stages"});
  EXPECT_EQ(read("FSDP", "mixed_precision: fp8\nfsdp_config:\n  fsdp_version: 2\n", "").layout.precision,
            Precision::fp8);
  EXPECT_EQ(read("FSDP", "mixed_precision: fp8\nfsdp_config:\n  fsdp_version: 2\n", R"(, "bf16": true)")
                .layout.precision,
            Precision::bf16);
  const Imported plain = read("MULTI_GPU", "", R"(, "bf16": true)");
  EXPECT_EQ(plain.layout.zero, 0);
  EXPECT_EQ(plain.layout.data, 16);
  EXPECT_EQ(plain.layout.precision, Precision::bf16);
}

// deepspeed/comm/config.py and monitor/config.py read comms_logger, tensorboard, wandb, csv_monitor and
// comet.
TEST(Import, SectionsThatDeepSpeedReadsNowhereAreNoted) {
  const std::string file = testing::TempDir() + "/unread.json";
  const auto read = [&](const char* more) {
    write_file_atomically(file, std::string("{\"train_micro_batch_size_per_gpu\": 1, "
                                            "\"zero_optimization\": {\"stage\": 3}") +
                                    more + "}");
    return import_deepspeed(file);
  };
  const Imported in = read(R"(, "comms_config": {"verbose": false}, "monitor_config": {"enabled": true})");
  EXPECT_EQ(in.unknown, std::vector<std::string>{});
  EXPECT_TRUE(contains(in.notes, std::string("not taken over: comms_config, monitor_config")));
  EXPECT_EQ(read(R"(, "comms_confg": {"verbose": false})").unknown, std::vector<std::string>{"comms_confg"});
  EXPECT_EQ(read(R"(, "comms_logger": {"enabled": true})").unknown, std::vector<std::string>{});
}

TEST(Import, NumbersBeyondTheirRangeNameTheirKey) {
  const std::string file = testing::TempDir() + "/range.json";
  write_file_atomically(file, R"({"train_micro_batch_size_per_gpu": 0, "zero_optimization": {"stage": 2}})");
  EXPECT_NE(error_of([&] { import_deepspeed(file); }).find("config.py:598 refuses it"), std::string::npos);
  write_file_atomically(file, R"({"zero_optimization": {"stage": 4}})");
  EXPECT_NE(error_of([&] { import_deepspeed(file); }).find("zero/config.py:95 refuses it"),
            std::string::npos);
}

TEST(Import, AutoModelNamesTheLengthOfSequencesInThreeWays) {
  const std::string file = testing::TempDir() + "/recipe.yaml";
  const auto sequence = [&](const std::string& text) {
    write_file_atomically(file, "step_scheduler:\n  global_batch_size: 32\n" + text);
    const Imported in = import_automodel(file);
    return std::pair{in.workload.sequence, size_t(in.length_note.empty() ? 0 : 1)};
  };
  EXPECT_EQ(sequence("dataset:\n  seq_len: 4096\n"), (std::pair{int64_t{4096}, size_t{0}}));
  EXPECT_EQ(sequence("dataset:\n  seq_length: 1024\npacked_sequence:\n  packed_sequence_size: 0\n"),
            (std::pair{int64_t{1024}, size_t{0}}));
  EXPECT_EQ(sequence("dataset:\n  seq_length: 1024\npacked_sequence:\n  packed_sequence_size: 8192\n").first,
            8192);
  EXPECT_EQ(sequence("dataset:\n  name: squad\n"), (std::pair{int64_t{2048}, size_t{1}}));
}

TEST(Import, AutoModelsAdaptersAndOptimizerAreRead) {
  const std::string file = testing::TempDir() + "/peft.yaml";
  const auto training = [&](const std::string& text) {
    write_file_atomically(file, "step_scheduler:\n  global_batch_size: 32\ndataset:\n  seq_len: 64\n" + text);
    return import_automodel(file).layout.training;
  };
  using A = AdapterTarget;
  const std::vector<A> all{A::qkv, A::output, A::up, A::down};
  EXPECT_EQ(training("")->adapter_rank, 0);
  EXPECT_EQ(training("peft:\n  target_modules: '*_proj'\n")->adapter_rank, 8);
  EXPECT_EQ(training("peft:\n  target_modules: '*_proj'\n  dim: 16\n")->adapter_targets, all);
  EXPECT_EQ(training("peft:\n  match_all_linear: True\n  dim: 16\n")->adapter_targets, all);
  EXPECT_EQ(training("peft:\n  exclude_modules: ['*.o_proj', down_proj]\n")->adapter_targets,
            (std::vector<A>{A::qkv, A::up}));
  EXPECT_EQ(training("peft:\n  target_modules: [q_proj, v_proj]\n")->adapter_targets, std::vector<A>{A::qkv});
  EXPECT_EQ(training("peft:\n  dim: 4\nquantization:\n  load_in_4bit: true\n")->frozen_format,
            FrozenFormat::nf4);
  EXPECT_NE(
      error_of([&] {
        training("peft:\n  dim: 4\nquantization:\n  load_in_4bit: true\n  bnb_4bit_quant_storage: uint8\n");
      }).find("FSDP leaves 4-bit weights of another type whole"),
      std::string::npos);
  EXPECT_EQ(training("optimizer:\n  _target_: torch.optim.SGD\n")->optimizer, OptimizerKind::sgd);
  EXPECT_EQ(training("optimizer:\n  _target_: torchao.optim.AdamW8bit\n")->optimizer, OptimizerKind::adamw8);
  EXPECT_NE(error_of([&] {
              training("peft:\n  target_modules: conv\n");
            }).find("which no linear layer of this decoder is"),
            std::string::npos);
}

TEST(Import, AutoModelsCompilerAndLossSayWhatIsKept) {
  const std::string file = testing::TempDir() + "/kept.yaml";
  const auto execution = [&](const std::string& text) {
    write_file_atomically(file, "step_scheduler:\n  global_batch_size: 32\n" + text);
    return import_automodel(file).execution;
  };
  const std::string loss = "loss_fn:\n  _target_: nemo_automodel.components.loss.";
  using Words = std::vector<std::string>;
  EXPECT_EQ(execution("compile:\n  enabled: false\n" + loss + "masked_ce.MaskedCrossEntropy\n"), Words{});
  EXPECT_EQ(execution("compile:\n  enabled: true\n"), (Words{"elementwise=compiled"}));
  EXPECT_EQ(execution(loss + "linear_ce.FusedLinearCrossEntropy\n"), Words{"loss=chunked"});
  EXPECT_EQ(execution(loss + "te_parallel_ce.TEParallelCrossEntropy\nmodel:\n  dtype: float32\n"),
            (Words{"loss=fused", "weight_bytes=4", "gradient_bytes=4", "optimizer_bytes=8"}));
}

TEST(Import, AutoModelsConfigurationsHaveSizesOrChangeThoseOfAnId) {
  const std::string file = testing::TempDir() + "/config.yaml";
  const auto read = [&](const std::string& config) {
    write_file_atomically(file, "step_scheduler:\n  global_batch_size: 32\nmodel:\n  config:\n" + config);
    return import_automodel(file);
  };
  const std::string sizes =
      "    _target_: transformers.Qwen3MoeConfig\n    hidden_size: 64\n    num_hidden_layers: 2\n"
      "    num_attention_heads: 4\n    num_key_value_heads: 2\n    vocab_size: 256\n    num_experts: 4\n"
      "    num_experts_per_tok: 2\n    intermediate_size: 128\n    moe_intermediate_size: 32\n"
      "    max_position_embeddings: 256\n";
  const Imported own = read(sizes + "    architectures: [Qwen3MoeForCausalLM]\n");
  ASSERT_TRUE(own.model);
  EXPECT_EQ(own.model->type, "qwen3_moe");
  EXPECT_EQ(own.model->moe()->experts, 4);
  EXPECT_EQ(own.workload.sequence, 256) << "its longest";
  EXPECT_NE(error_of([&] { read(sizes); }).find("model.config at /model_type: missing"), std::string::npos);
  const Imported eight = read("    pretrained_model_name_or_path: Qwen/Qwen3-8B\n    num_hidden_layers: 8\n");
  EXPECT_EQ(eight.model->layers.count(), 8);
  EXPECT_EQ(eight.model->hub_id, "") << "no longer that model";
}

TEST(Import, AutoModelsSchedulesAreReadByNameOrRefused) {
  const std::string file = testing::TempDir() + "/schedules.yaml";
  const auto schedule = [&](const std::string& name) {
    write_file_atomically(file,
                          "step_scheduler:\n  global_batch_size: 32\ndistributed:\n  dp_size: 2\n  pp_size: "
                          "4\n  pipeline:\n    pp_schedule: " +
                              name + "\n");
    return import_automodel(file).layout.schedule;
  };
  EXPECT_EQ(schedule("InterleavedZeroBubble"), "zb-interleaved");
  EXPECT_EQ(schedule("interleaved1f1b"), "interleaved") << "get_schedule_class() takes any case";
  EXPECT_EQ(schedule("ZBVZeroBubble"), "zb-v");
  for (const char* name : {"DualPipeV", "LoopedBFS", "Interleaved"}) {
    const std::string told = error_of([&] { schedule(name); });
    EXPECT_NE(told.find(fmt::format("schedule \"{}\"", name)), std::string::npos) << told;
    EXPECT_EQ(told.find("DualPipeV,"), std::string::npos) << "AutoModel does not place its stages";
  }
}

// nemo-automodel 0.7.0 looks for "pp" in a mesh that never has it: layers of pipelines reshard unless told.
TEST(Import, AutoModelsPipelinesReshardUntold) {
  const std::string file = testing::TempDir() + "/reshards.yaml";
  const auto read = [&](const std::string& distributed) {
    write_file_atomically(
        file, "step_scheduler:\n  global_batch_size: 32\ndistributed:\n  dp_size: 4\n" + distributed);
    return import_automodel(file);
  };
  const std::string pipeline = "  pp_size: 2\n  pipeline:\n    pp_schedule: 1f1b\n";
  const Imported untold = read(pipeline);
  EXPECT_EQ(untold.layout.zero, 3);
  EXPECT_TRUE(
      any_of(untold.notes, [](const std::string& n) { return n.find("ZeRO 3") != std::string::npos; }));
  EXPECT_EQ(read(pipeline + "  reshard_after_forward: false\n").layout.zero, 2);
  EXPECT_EQ(read(pipeline + "  reshard_after_forward: none\n").layout.zero, 3);
  EXPECT_EQ(read("  ep_size: 4\n").layout.zero, 2) << "expert ranks have a default of their own";
  EXPECT_EQ(read("  ep_size: 4\n  moe:\n    reshard_after_forward: true\n").layout.zero, 3);
}

// FSDP2 leaves gradients whole between micro-batches, unless a recipe reduces each.
TEST(Import, GradientsStayWholeWhileTheyAccumulate) {
  const std::string file = testing::TempDir() + "/defers.yaml";
  const auto defers = [&](const std::string& distributed) {
    write_file_atomically(file, "step_scheduler:\n  global_batch_size: 32\ndistributed:\n" + distributed);
    return import_automodel(file).defers_gradient_sums;
  };
  EXPECT_TRUE(defers("  dp_size: 8\n"));
  EXPECT_FALSE(defers("  dp_size: 8\n  defer_fsdp_grad_sync: false\n"));
  EXPECT_FALSE(defers("  strategy: ddp\n  dp_size: 8\n"));
  const std::filesystem::path folder = testing::TempDir() + "/defers";
  std::filesystem::create_directories(folder);
  const auto trainer = [&](const std::string& more, const std::string& kind) {
    write_file_atomically(folder / "train.json", R"({"config_name": "meta-llama/Llama-3.1-8B",
        "block_size": 4096, "per_device_train_batch_size": 1)" +
                                                     more + "}");
    write_file_atomically(folder / "run.yaml",
                          "distributed_type: " + kind + "\nnum_processes: 8\n" +
                              (kind == "FSDP" ? "fsdp_config:\n  fsdp_version: 2\n" : ""));
    return find_importer("", folder / "run.yaml").importer.read(folder / "run.yaml");
  };
  const std::string four = R"(, "gradient_accumulation_steps": 4)";
  EXPECT_TRUE(trainer(four, "FSDP").defers_gradient_sums);
  EXPECT_FALSE(trainer("", "FSDP").defers_gradient_sums) << "one micro-batch";
  const std::string each =
      R"(, "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": true}})";
  EXPECT_FALSE(trainer(four + each, "FSDP").defers_gradient_sums);
  EXPECT_FALSE(trainer(four, "DEEPSPEED").defers_gradient_sums);
  // The Trainer's names of version 5, and a loss that keeps no logits.
  EXPECT_EQ(trainer(R"(, "activation_checkpointing": true)", "FSDP").layout.recompute, Recompute::full);
  const auto every = [&](const std::string& name, int n) {
    return trainer(fmt::format(R"(, "{0}": true, "{0}_kwargs": {{"every_n_layers": {1}}})", name, n), "FSDP")
        .layout;
  };
  EXPECT_EQ(every("activation_checkpointing", 3).recomputed_layers, std::vector<int64_t>{11}) << "of 32";
  EXPECT_EQ(every("gradient_checkpointing", 5).recomputed_layers, std::vector<int64_t>{7});
  EXPECT_EQ(every("activation_checkpointing", 1).recomputed_layers, std::vector<int64_t>{});
  EXPECT_EQ(trainer(R"(, "use_liger_kernel": true)", "FSDP").execution,
            (std::vector<std::string>{"loss=chunked"}));
  EXPECT_EQ(trainer(R"(, "torch_compile": true)", "FSDP").execution,
            (std::vector<std::string>{"elementwise=compiled"}));
  EXPECT_EQ(trainer(R"(, "torch_compile": false)", "FSDP").execution, std::vector<std::string>{});
}

// The section has settings of deepspeed.checkpointing, which a model's code calls.
TEST(Import, ASectionOfDeepSpeedRecomputesNothingByItself) {
  const std::string file = testing::TempDir() + "/ds_again.json";
  write_file_atomically(file, R"({"train_micro_batch_size_per_gpu": 1, "train_batch_size": 8,
                                  "activation_checkpointing": {"partition_activations": true}})");
  const Imported in = import_deepspeed(file);
  EXPECT_EQ(in.layout.recompute, Recompute::none);
  EXPECT_NE(joined(in.notes, "").find("where the model's code calls it"), std::string::npos);
}

// It sums micro-batches in the weights' type unless data_types says fp32.
TEST(Import, DeepSpeedSumsGradientsIn16BitsUntold) {
  const std::string file = testing::TempDir() + "/ds_sums.json";
  const auto narrow = [&](const std::string& more) {
    write_file_atomically(file,
                          R"({"train_micro_batch_size_per_gpu": 1, "train_batch_size": 8)" + more + "}");
    return contains(import_deepspeed(file).execution, std::string("gradient_bytes=2"));
  };
  const std::string bf16 = R"(, "bf16": {"enabled": true})";
  EXPECT_TRUE(narrow(bf16));
  EXPECT_TRUE(narrow(R"(, "fp16": {"enabled": true})"));
  EXPECT_FALSE(narrow(bf16 + R"(, "data_types": {"grad_accum_dtype": "fp32"})"));
  EXPECT_FALSE(narrow(""));
}

// findings/deepspeed_zero2_all_reduces_gradients.sh: without it each part is reduced to its rank.
TEST(Import, DeepSpeedsAllReduceOfBucketsIsRead) {
  const std::string file = testing::TempDir() + "/ds_buckets.json";
  const auto scatters = [&](const std::string& zero) {
    write_file_atomically(file, R"({"train_micro_batch_size_per_gpu": 1, "train_batch_size": 8,
                                    "zero_optimization": {"stage": 2)" +
                                    zero + "}}");
    return contains(import_deepspeed(file).execution, std::string("all_reduces_gradients=false"));
  };
  EXPECT_TRUE(scatters(R"(, "use_multi_rank_bucket_allreduce": false)"));
  EXPECT_FALSE(scatters(R"(, "use_multi_rank_bucket_allreduce": true)"));
  EXPECT_FALSE(scatters(R"(, "reduce_scatter": true)"));
}

TEST(Import, AutoModelReadsNoneAsAbsent) {
  const std::string file = testing::TempDir() + "/none.yaml";
  write_file_atomically(
      file, "step_scheduler:\n  global_batch_size: 32\ndistributed:\n  dp_size: none\n  tp_size: 2\n");
  const Imported in = import_automodel(file);
  EXPECT_EQ(in.layout.data, 0) << "what the ranks leave";
  EXPECT_EQ(in.layout.tensor, 2);
}

TEST(Import, AChangedConfigurationIsKnownAsMegatronBridges) {
  const std::string file = testing::TempDir() + "/change.py";
  write_file_atomically(file, "cfg.model.num_layers = 4\n");
  EXPECT_STREQ(find_importer("", file).framework, "megatron-bridge");
  ASSERT_NE(find_recipe_importer(file, "cfg.model.num_layers = 4\n"), nullptr);
  EXPECT_STREQ(find_recipe_importer(file, "cfg.model.num_layers = 4\n")->framework, "megatron-bridge");
}

TEST(Import, YamlThatIsTooDeepOrNoneIsRefused) {
  const std::string file = testing::TempDir() + "/deep.yaml";
  write_file_atomically(file, "a: " + std::string(100, '[') + std::string(100, ']') + "\n");
  EXPECT_NE(error_of([&] { import_automodel(file); }).find("nesting deeper than 32 levels"),
            std::string::npos);
  write_file_atomically(file, "a: [1\nb: }");
  EXPECT_NE(error_of([&] { import_automodel(file); }).find("in YAML"), std::string::npos);
}

}  // namespace
}  // namespace mpt::frameworks
