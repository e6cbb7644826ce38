// SPDX-License-Identifier: Apache-2.0

// What logs of frameworks say of their steps. The lines have the form of public logs.

#include "frameworks/log.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "core/plan.h"

namespace mpt::frameworks {
namespace {

// 8 sequences of 1024 tokens on 4 ranks.
Plan small_plan() {
  Plan plan;
  plan.layout.data = 4;
  plan.workload = {8, 1024};
  return plan;
}

using ReadLog = LoggedRun (*)(const LogFile&, const Plan&);

LoggedRun read(ReadLog reader, const std::string& text) {
  const std::string plain = without_colours(text);
  return reader({"run.log", log_lines(plain)}, small_plan());
}

std::vector<double> seconds(const LoggedRun& run) {
  std::vector<double> all;
  for (const LoggedStep& step : run.steps) all.push_back(step.seconds);
  return all;
}

// The reader that takes a log, as mpt-plan asks them.
std::string taken_by(const std::string& text) {
  for (const LogReader& reader : log_readers()) {
    if (!read(reader.read, text).steps.empty()) return reader.title;
  }
  return "";
}

const std::string kMegatron =
    "using world size: 4, data-parallel size: 4, context-parallel size: 1, tensor-model-parallel size: 1\n"
    "  global_batch_size ............................... 8\n"
    "  seq_length ...................................... 1024\n"
    " [2026-01-01 10:00:00] iteration        1/     100 | consumed samples:            8 | elapsed time per "
    "iteration (ms): 1250.5 | throughput per GPU (TFLOP/s/GPU): 231.9 | learning rate: 4.0E-07 | global "
    "batch "
    "size:     8 | lm loss: 2.0E+00 | loss scale: 1.0 | grad norm: 6.8 | number of skipped iterations:   1 | "
    "number of nan iterations:   0 |\n"
    "[Rank 1] (after 1 iterations) memory (MB) | allocated: 54250.9 | max allocated: 55296.0 | reserved: "
    "61480.0 "
    "| max reserved: 61480.0\n"
    "(min, max) time across ranks (ms):\n"
    "    forward-backward ...............................: (900.10, 1000.25)\n"
    "    optimizer ......................................: (80.00, 125.00)\n"
    "    optimizer-inner-step ...........................: (60.00, 70.00)\n"
    " [2026-01-01 10:00:02] iteration        2/     100 | consumed samples:           16 | elapsed time per "
    "iteration (ms): 500 | learning rate: 4.0E-07 | global batch size:     8 | lm loss: nan | number of "
    "skipped "
    "iterations:   0 | number of nan iterations:   3 |\n";

TEST(Log, MegatronLmWritesStepsSettingsTimersAndMemory) {
  const LoggedRun run = read(read_megatron_log, kMegatron);
  EXPECT_EQ(seconds(run), (std::vector<double>{1.2505, 0.5}));
  EXPECT_EQ(run.steps[0].step, 1);
  EXPECT_EQ(run.steps[0].global_batch, 8);
  EXPECT_EQ(run.steps[0].skipped, 1);
  EXPECT_EQ(run.steps[1].not_finite, 3);
  EXPECT_NEAR(run.steps[0].flop_per_s, 231.9e12, 1e6);
  EXPECT_EQ(run.ranks->value, 4);
  EXPECT_EQ(run.global_batch->value, 8);
  EXPECT_EQ(run.sequence->value, 1024);
  EXPECT_EQ(run.peak_bytes, int64_t{54} << 30);
  EXPECT_EQ(run.seconds_of(StepPart::forward_backward), std::vector<double>{1.00025});
  EXPECT_EQ(run.seconds_of(StepPart::optimizer), std::vector<double>{0.125});
  EXPECT_EQ(taken_by(kMegatron), "Megatron-LM");
}

// Whatever a launcher writes before the lines.
TEST(Log, PrefixesChangeNothing) {
  const LoggedRun plain = read(read_megatron_log, kMegatron);
  for (const std::string prefix : {"0: ", "[rank3]:", "node1: [0]:", "[1,0]<stdout>:", "[default7]:",
                                   "2026-01-01T10:00:00.123456Z ", "\x1b[32m", "train/0 "}) {
    std::string text;
    for (size_t begin = 0; begin < kMegatron.size();) {
      const size_t end = kMegatron.find('\n', begin);
      text += prefix + kMegatron.substr(begin, end - begin + 1);
      begin = end + 1;
    }
    const LoggedRun run = read(read_megatron_log, text);
    EXPECT_EQ(run.steps, plain.steps) << prefix;
    EXPECT_EQ(run.parts, plain.parts) << prefix;
    EXPECT_EQ(run.peak_bytes, plain.peak_bytes) << prefix;
    ASSERT_TRUE(run.ranks) << prefix;
    EXPECT_EQ(run.ranks->value, 4) << prefix;
  }
}

TEST(Log, GptNeoxWritesSamplesAndTimers) {
  const std::string text =
      "[2026-01-01 10:00:00,269] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward: 652.41 "
      "| "
      "backward: 2164.52 | step: 1172.13\n"
      " samples/sec: 1.950 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 | "
      "learning "
      "rate: 2.1E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.1E+01 | number of skipped iterations:  "
      " 0 "
      "| number of nan iterations:   0 |\n"
      "time (ms) | forward: 659.86 | backward: 2164.69 | backward-allreduce: 0.00 | optimizer: 1172.51 | "
      "batch "
      "generator: 0.83\n";
  const LoggedRun run = read(read_neox_log, text);
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_EQ(run.steps[0].step, 34);
  EXPECT_NEAR(run.steps[0].seconds, 4.1031, 1e-12);
  EXPECT_EQ(run.steps[0].global_batch, 8);
  EXPECT_NEAR(run.steps[0].flop_per_s, 112.9e12, 1e6);
  EXPECT_EQ(run.seconds_of(StepPart::forward), std::vector<double>{0.65986});
  EXPECT_EQ(run.seconds_of(StepPart::optimizer), std::vector<double>{1.17251});
  EXPECT_EQ(run.seconds_of(StepPart::data).size(), 1u);
  EXPECT_EQ(taken_by(text), "GPT-NeoX");
}

TEST(Log, NemoWritesSecondsAndMemory) {
  const std::string text =
      "All distributed processes registered. Starting with 4 processes\n"
      "Training epoch 0, iteration 1/29 | lr: 5.0e-06 | global_batch_size: 8 | global_step: 1 | "
      "max_memory_allocated: 53900000000 | reduced_train_loss: 10.2 | train_step_timing in s: 26.8\n"
      "Training epoch 0, iteration 2/29 | lr: 5.0e-06 | global_batch_size: 8 | global_step: 2 | "
      "max_memory_allocated: 53900000001 | reduced_train_loss: nan | train_step_timing in s: 25\n";
  const LoggedRun run = read(read_nemo_log, text);
  EXPECT_EQ(seconds(run), (std::vector<double>{26.8, 25.0}));
  EXPECT_EQ(run.steps[1].not_finite, 1);
  EXPECT_EQ(run.steps[0].global_batch, 8);
  EXPECT_EQ(run.peak_bytes, 53900000001);
  EXPECT_EQ(run.ranks->value, 4);
  EXPECT_EQ(taken_by(text), "NeMo");
}

TEST(Log, NemosProgressBarRedrawsAStep) {
  const LoggedRun run = read(read_nemo_log,
                             "Epoch 0: :  1%| | 1/9 [00:03<00:30, reduced_train_loss=9.1, global_step=1.000, "
                             "train_step_timing in s=3.2]\r"
                             "Epoch 0: :  1%| | 1/9 [00:03<00:30, reduced_train_loss=9.1, global_step=1.000, "
                             "train_step_timing in s=3.1]\r"
                             "Epoch 0: :  2%| | 2/9 [00:06<00:30, reduced_train_loss=9.0, global_step=2.000, "
                             "train_step_timing in s=3.0]");
  EXPECT_EQ(seconds(run), (std::vector<double>{3.1, 3.0}));
}

TEST(Log, MegatronBridgesOwnLineHasAStep) {
  const LoggedRun run =
      read(read_nemo_log, "ain_fp8_mx/0 Step Time : 9.09s GPU utilization: 663.5MODEL_TFLOP/s/GPU\n");
  EXPECT_EQ(seconds(run), std::vector<double>{9.09});
  EXPECT_NEAR(run.steps[0].flop_per_s, 663.5e12, 1e6);
}

TEST(Log, TorchtitanWritesTokensPerSecondAndGpu) {
  const std::string text =
      "[rank0]:[titan] 2026-01-01 10:00:00,831 - root - INFO - Building device mesh with parallelism: pp=1, "
      "dp_replicate=1, dp_shard=2, cp=1, tp=2, ep=1\n"
      "[rank0]:[titan] 2026-01-01 10:00:00,838 - root - INFO - Trainer is initialized with local batch size "
      "4, "
      "global batch size 8, gradient accumulation steps 1, sequence length 1024, total steps 10\n"
      "[rank0]:[titan] 2026-01-01 10:00:01,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.1  "
      "\x1b[33mmemory:  2.00GiB(0.86%)  \x1b[34mtps: 1,024  \x1b[36mtflops: 0.41  \x1b[35mmfu: "
      "0.04%\x1b[39m\n"
      "[rank1]:[titan] 2026-01-01 10:00:01,000 - root - INFO - step:  1  loss:  8.1  tps: 1,024\n"
      "[rank0]:[titan] 2026-01-01 10:00:02,000 - root - INFO - validate step:  1  loss:  8.1  tps: 9,999\n"
      "[rank0]:[titan] 2026-01-01 10:00:02,000 - root - INFO - step:  2  loss:  nan  tps: 2048\n";
  const LoggedRun run = read(read_torchtitan_log, text);
  EXPECT_EQ(seconds(run), (std::vector<double>{2.0, 1.0}));
  EXPECT_EQ(run.steps[1].not_finite, 1);
  EXPECT_NEAR(run.steps[0].flop_per_s, 0.41e12, 1e3);
  EXPECT_EQ(run.peak_bytes, int64_t{2} << 30);
  EXPECT_EQ(run.ranks->value, 4);
  EXPECT_EQ(run.global_batch->value, 8);
  EXPECT_EQ(run.sequence->value, 1024);
  EXPECT_EQ(taken_by(text), "torchtitan");
  EXPECT_TRUE(
      read(read_torchtitan_log, "step: 1 tps: none\nelapsed time per iteration (ms): 3").steps.empty());
}

TEST(Log, DeepSpeedWritesSamplesPerSecond) {
  const std::string text =
      "[2026-01-01 10:00:00,965] [INFO] [config.py:1000:print]   train_batch_size ............. 8\n"
      "[2026-01-01 10:00:00,965] [INFO] [config.py:1000:print]   world_size ................... 4\n"
      "[2026-01-01 10:00:00,985] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=2, lr=[5e-05], "
      "mom=[[0.9]]\n"
      "[2026-01-01 10:00:00,985] [INFO] [timer.py:215:stop] epoch=0/micro_step=40/global_step=10, "
      "RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=16.0, MemAllocated=59.65GB, MaxMemAllocated=64.0GB\n"
      "[2026-01-01 10:00:00,985] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 100.0 | bwd: "
      "300.0 | "
      "bwd_inner: 250.0 | bwd_allreduce: 50.0 | step: 80.0\n"
      "[2026-01-01 10:00:00,985] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=5, lr=[5e-05], "
      "mom=[[0.9]]\n"
      "[2026-01-01 10:00:00,985] [INFO] [timer.py:189:stop] 0/20, SamplesPerSec=8.0, MemAllocated=0.26GB, "
      "MaxMemAllocated=9.02GB\n";
  const LoggedRun run = read(read_deepspeed_log, text);
  EXPECT_EQ(seconds(run), (std::vector<double>{0.5, 1.0}));
  EXPECT_EQ(run.steps[0].step, 10);
  EXPECT_EQ(run.steps[1].step, 20);
  EXPECT_EQ(run.steps[0].skipped, 2);
  EXPECT_EQ(run.steps[1].skipped, 3) << "of those so far, the new ones";
  EXPECT_EQ(run.peak_bytes, int64_t{64} << 30);
  EXPECT_EQ(run.seconds_of(StepPart::backward), std::vector<double>{0.3});
  EXPECT_EQ(run.ranks->value, 4);
  EXPECT_EQ(run.global_batch->value, 8);
  EXPECT_EQ(taken_by(text), "DeepSpeed");
}

TEST(Log, TheTrainerHasABarAndASummary) {
  const std::string text =
      "***** Running training *****\n  Num examples = 346,940\n  Total train batch size (w. parallel, "
      "distributed & "
      "accumulation) = 8\n  Total optimization steps = 500\n"
      "Loading checkpoint shards: 100%|####| 500/500 [00:10<00:00,  9.9s/it]\n"
      "  0%|          | 0/500 [00:00<?, ?it/s]\r  0%|1         | 1/500 [00:06<50:00,  6.00s/it]\r"
      "  0%|1         | 2/500 [00:11<42:53,  5.25s/it]\n"
      "                                              \n{'loss': 1.2, 'grad_norm': nan, 'learning_rate': "
      "1e-05}\n"
      "100%|##########| 10/10 [00:01<00:00,  9.9it/s]\r"
      "  1%|1         | 3/500 [00:16<42:53,  2.00it/s]\n";
  const LoggedRun run = read(read_trainer_log, text);
  EXPECT_EQ(seconds(run), (std::vector<double>{6.0, 5.25, 0.5}));
  EXPECT_EQ(run.steps[2].step, 3);
  EXPECT_EQ(run.global_batch->value, 8);
  int64_t not_finite = 0;
  for (const LoggedStep& step : run.steps) not_finite += step.not_finite;
  EXPECT_EQ(not_finite, 1);
  EXPECT_EQ(taken_by(text), "the Hugging Face Trainer");
  const std::string summary =
      "{'train_runtime': 1000.0, 'train_samples_per_second': 4.0, 'train_steps_per_second': 0.5, 'epoch': "
      "1.0}\n";
  EXPECT_EQ(seconds(read(read_trainer_log, summary)), std::vector<double>{2.0});
  EXPECT_EQ(seconds(read(read_trainer_log, "  Total optimization steps = 400\n" + summary)),
            std::vector<double>{2.5});
  EXPECT_TRUE(read(read_trainer_log, "  0%|1  | 1/500 [00:06<50:00,  6.00s/it]\n").steps.empty())
      << "no training";
}

TEST(Log, NumbersThatCannotBeAreRefusedWithTheirLine) {
  for (const char* value : {"-5", "0", "1e300", "nan", "inf"}) {
    try {
      read(read_megatron_log,
           std::string("\n iteration 1/ 9 | elapsed time per iteration (ms): ") + value + " |");
      ADD_FAILURE() << value;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("run.log at line 2"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read(read_torchtitan_log, "step: 1 tps: 0"), UserError);
  EXPECT_THROW(read(read_deepspeed_log, "0/1, SamplesPerSec=-3"), UserError);
}

TEST(Log, NumbersStandBehindTheirKeys) {
  EXPECT_EQ(number_behind("tps: 5,850  tflops", "tps:"), 5850.0);
  EXPECT_EQ(number_behind("  world_size ........ 8", " world_size .."), 8.0);
  EXPECT_EQ(number_behind("{'loss': '1.5'}", "'loss'"), 1.5);
  EXPECT_FALSE(number_behind("tps: none", "tps:"));
  EXPECT_FALSE(number_behind("tps:", "tps:"));
}

}  // namespace
}  // namespace mpt::frameworks
