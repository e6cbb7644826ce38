// SPDX-License-Identifier: Apache-2.0

// Every file that the programs read, damaged at random: it is refused with a UserError or read, and nothing
// else happens. MPT_FUZZ_ROUNDS=1000000 makes a soak of it, best under the sanitizers; MPT_FUZZ_SEED another
// one.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "core/plan.h"
#include "frameworks/registry.h"
#include "models/hf_config.h"
#include "models/hf_weights.h"
#include "planner/diagnose/run_log.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/hugging_face.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/dataset.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/support/little_profile.h"
#include "tests/support/make_plan.h"

namespace mpt {
namespace {

using test::contents;
using test::Damage;
using test::fuzz;
using test::number;
using test::path_of;
using test::put;

TEST(Fuzz, Plans) {
  test::WantedPlan request{test::little_mixtral(), {8, 16}};
  request.pipeline = request.data = 2;
  request.schedule = "zb-h1";
  fuzz(plan_to_text(test::make_plan(request)), 1500,
       [](const std::string& text) { plan_from_text(text, "plan.json"); });
}

// Uses an imported layout as mpt-plan import does.
void use(frameworks::Imported in) {
  Layout& l = in.layout;
  l.data = std::max<int64_t>(1, l.data);
  l.shard = l.zero == 0 ? 1 : std::max<int64_t>(1, l.replicas() / in.shard_groups);
  if (in.model && !check_layout(*in.model, l, in.workload)) stage_contents(*in.model, l);
}

TEST(Fuzz, MegatronArguments) {
  const std::string file = path_of("megatron.sh");
  const std::string good =
      "LAYERS=32\ntorchrun pretrain_gpt.py --num-layers=$LAYERS --hidden-size=512 "
      "\\\n--num-attention-heads=8 \\\n"
      "--group-query-attention \\\n--num-query-groups=4 \\\n--ffn-hidden-size=1024 \\\n--seq-length=2048 \\\n"
      "--max-position-embeddings=4096 \\\n--vocab-size=32000 \\\n--rotary-base=500000 "
      "\\\n--norm-epsilon=1e-5 \\\n"
      "--num-experts=8 \\\n--moe-router-topk=2 \\\n--moe-ffn-hidden-size=512 \\\n--moe-layer-freq=1 \\\n"
      "--moe-router-num-groups=2 \\\n--moe-router-group-topk=1 \\\n--tensor-model-parallel-size=2 \\\n"
      "--pipeline-model-parallel-size=4 \\\n--num-layers-per-virtual-pipeline-stage=4 \\\n"
      "--context-parallel-size=2 \\\n--expert-model-parallel-size=4 \\\n--expert-tensor-parallel-size=1 \\\n"
      "--micro-batch-size=1 \\\n--global-batch-size=64 \\\n--use-distributed-optimizer \\\n"
      "--num-distributed-optimizer-instances=2 \\\n--recompute-granularity=full \\\n--recompute-method=block "
      "\\\n"
      "--recompute-num-layers=2 \\\n--window-size=127,0 \\\n--mtp-num-layers=1 \\\n--sequence-parallel\n";
  fuzz(good, 3000, [&](const std::string& text) {
    put(file, text);
    use(frameworks::import_megatron_core(file));
  });
}

TEST(Fuzz, TorchtitanConfigurations) {
  const std::string file = path_of("titan.py");
  const std::string good =
      "from torchtitan.models.llama3 import model_registry\n"
      "def one() -> Trainer.Config:\n    return Trainer.Config(model_spec=model_registry(\"8B\"),\n"
      "training=TrainingConfig(local_batch_size=8, global_batch_size=64, seq_len=8192),\n"
      "parallelism=ParallelismConfig(data_parallel_replicate_degree=2, data_parallel_shard_degree=4,\n"
      "tensor_parallel_degree=2, context_parallel_degree=2, pipeline_parallel_degree=4,\n"
      "pipeline_parallel_schedule=\"Interleaved1F1B\", pipeline_parallel_layers_per_stage=3,\n"
      "pipeline_parallel_microbatch_size=2, expert_parallel_degree=1),\n"
      "activation_checkpoint=FullAC.Config())\n";
  fuzz(good, 3000, [&](const std::string& text) {
    put(file, text);
    use(frameworks::import_torchtitan(file));
  });
}

TEST(Fuzz, LogsOfRuns) {
  const std::string file = path_of("run.jsonl");
  test::WantedPlan request{test::little_gpt(), {8, 16}};
  request.pipeline = request.data = 2;
  const Plan plan = test::make_plan(request);
  const std::string good =
      "{\"format\":\"mpt-run-log\"}\n"
      "{\"step\":1,\"step_time_s\":0.1,\"ranks\":[{\"rank\":0,\"compute_s\":0.1}],"
      "\"instructions\":[{\"kind\":\"forward\",\"stage\":0,\"seconds\":0.1}]}\n"
      "{\"step\":2,\"step_time_s\":0.1}\n";
  fuzz(good, 1500, [&](const std::string& text) {
    put(file, text);
    planner::read_run_log(read_file(file), file, plan);
  });
}

// A few lines of each framework whose log is read, with its settings, timers and errors.
TEST(Fuzz, LogsOfFrameworks) {
  const std::string file = path_of("run.log");
  test::WantedPlan request{test::little_gpt(), {8, 16}};
  request.pipeline = request.data = 2;
  const Plan plan = test::make_plan(request);
  const std::string errors =
      "[rank3]:[E1218 20:27:21.42 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation "
      "timeout: "
      "WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, Timeout(ms)=600000) ran for 600081 milliseconds\n"
      "[rank3]: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB\n"
      "time (ms) | forward: 659.86 | backward: 2164.69 | optimizer: 1172.51\n"
      "    optimizer ......................................: (80.00, 125.00)\n";
  const char* const logs[] = {
      "0: using world size: 4, data-parallel size: 2\n0:  [2026-01-01 10:00:00] iteration 1/ 100 | elapsed "
      "time per "
      "iteration (ms): 1250.5 | throughput per GPU (TFLOP/s/GPU): 231.9 | global batch size: 8 | lm loss: "
      "nan | "
      "number of skipped iterations: 1 | number of nan iterations: 1 |\n",
      " samples/sec: 1.950 | iteration 34/ 10000 | elapsed time per iteration (ms): 4103.1 | approx flops "
      "per GPU: "
      "112.9TFLOPS | number of skipped iterations: 0 |\n",
      "Training epoch 0, iteration 1/29 | global_batch_size: 8 | global_step: 1 | max_memory_allocated: "
      "53900000000 | "
      "reduced_train_loss: 10.2 | train_step_timing in s: 26.8\n",
      "[rank0]:[titan] 2026-01-01 10:00:01,000 - root - INFO - \x1b[31mstep: 1 loss: 8.1 memory: "
      "2.00GiB(0.86%) tps: "
      "1,024 tflops: 0.41\n",
      "[2026-01-01 10:00:00,985] [INFO] [timer.py:215:stop] epoch=0/micro_step=40/global_step=10, "
      "CurrSamplesPerSec=16.0, MaxMemAllocated=64.0GB\n[Rank 0] step=20, skipped=5, lr=[5e-05]\n",
      "  Total optimization steps = 500\n{'loss': 1.2, 'grad_norm': nan}\n  0%|1   | 2/500 [00:11<42:53,  "
      "5.25s/it]\n"
      "{'train_runtime': 1000.0, 'train_steps_per_second': 0.5}\n"};
  for (const char* const log : logs) {
    std::string good;
    for (int line = 0; line < 4; ++line) good += log + errors;
    fuzz(good, 1000, [&](const std::string& text) {
      put(file, text);
      planner::read_run_log(read_file(file), file, plan);
    });
  }
}

TEST(Fuzz, Profiles) {
  const std::string file = path_of("profile.json");
  fuzz(profiler::profile_to_text(test::little_profile()), 1500, [&](const std::string& text) {
    put(file, text);
    profiler::load_profile(file);
  });
}

TEST(Fuzz, HuggingFaceConfigs) {
  for (const ModelSpec& model : {test::little_gpt(), test::little_qwen(), test::little_mixtral()}) {
    fuzz(models::hugging_face_config(model), 1500, [](const std::string& text) {
      const ModelSpec read = models::import_hugging_face(parse_json(text, "config.json"), "config.json");
      validate_model(read, "config.json");
    });
  }
}

TEST(Fuzz, CheckpointDescriptions) {
  runtime::CheckpointInfo info;
  info.model = test::little_gpt();
  info.data_digest = "0123456789abcdef";
  info.files = {{"rank-00000.safetensors", 100, 12345}};
  const std::string folder = path_of("checkpoint");
  std::filesystem::create_directories(folder);
  Damage damage(3);
  const std::string good = to_json(info).dump(1);
  for (int64_t round = 0; round < number("MPT_FUZZ_ROUNDS", 500); ++round) {
    put(folder + "/checkpoint.json", damage.of(good));
    EXPECT_THROW(runtime::Checkpoint{folder}, UserError);  // its files are not there in any case
  }
}

TEST(Fuzz, SafetensorsHeaders) {
  const std::string file = path_of("good.safetensors"), damaged = path_of("damaged.safetensors");
  {
    const std::vector<float> data(100, 1.5f);
    runtime::SafetensorsWriter writer(
        file,
        {{"value/layers.0.mlp.up.weight@0,0", runtime::DataType::float32, {8, 8}},
         {"value/head.norm.scale@0,0", runtime::DataType::float32, {36, 1}}},
        {{"format", "pt"}});
    writer.append(data.data(), 400);
    writer.finish();
  }
  fuzz(contents(file), 1500, [&](const std::string& bytes) {
    put(damaged, bytes);
    const runtime::SafetensorsFile read(damaged);
    for (const auto& [name, entry] : read.entries()) {
      std::vector<double> values(static_cast<size_t>(entry.count()));
      runtime::read_elements(read, entry, 0, entry.count(), values.data());
    }
  });
}

class Zeros final : public runtime::TensorSource {
 public:
  void read(runtime::TensorKind, const std::string&, const runtime::ShardBlock& block,
            double* out) const override {
    std::fill_n(out, block.count(), 0.0);
  }
};

TEST(Fuzz, IndicesOfShardedWeights) {
  const std::string folder = path_of("weights"), index = folder + "/model.safetensors.index.json";
  std::filesystem::remove_all(folder);
  const ModelSpec model = test::little_gpt();
  runtime::export_hugging_face(Zeros(), model, folder, {runtime::DataType::float32, 100'000});
  fuzz(contents(index), 500, [&](const std::string& text) {
    put(index, text);
    runtime::HuggingFaceWeights(folder, model);
  });
}

TEST(Fuzz, IndexedDatasets) {
  std::string index("MMIDIDX\0\0", 9);
  const auto add = [&](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  add(uint64_t{1});
  add(uint8_t{8});
  add(uint64_t{2});
  add(uint64_t{3});
  for (const int32_t length : {40, 60}) add(length);
  for (const int64_t pointer : {0, 80}) add(pointer);
  for (const int64_t document : {0, 1, 2}) add(document);
  const std::string path = path_of("dataset");
  put(path + ".bin", std::string(200, '\1'));
  fuzz(index, 1500, [&](const std::string& bytes) {
    put(path + ".idx", bytes);
    runtime::DatasetOptions options;
    options.parts = {{1.0, {path}}};
    options.format = runtime::DataFormat::megatron;
    options.sequence = 8;
    options.vocab = 65536;
    const runtime::Dataset data(options, runtime::DataSplit::training);
    std::vector<int32_t> tokens(8), targets(8);
    for (int64_t n = 0; n < 20; ++n) data.sample(n, tokens.data(), targets.data());
  });
}

}  // namespace
}  // namespace mpt
