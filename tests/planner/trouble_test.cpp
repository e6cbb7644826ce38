// SPDX-License-Identifier: Apache-2.0

// Lines that explain why a run is slow or stops, as programs write them, and lines like them that mean
// nothing.

#include "planner/diagnose/trouble.h"

#include <gtest/gtest.h>

#include "planner/diagnose/run_log.h"
#include "tests/support/make_plan.h"

namespace mpt::planner {
namespace {

struct Line {
  const char *text, *finding, *change;
};
// Two forms of each sign. `finding` and `change` are parts of what is said.
constexpr Line kLines[] = {
    {"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "A host ran out of memory",
     "data workers"},
    {"Out of memory: Killed process 4242 (python) total-vm:90000000kB", "A host ran out of memory",
     "offload"},
    {"corona:927:927 [0] init.cc:140 NCCL WARN NUMA auto balancing enabled which can lead to variability in "
     "the RCCL performance! Disable by \"sudo sysctl kernel.numa_balancing=0\"",
     "not bound", "numa_balancing=0"},
    {"[rank3]: libnuma: Warning: cpu argument 91-103,195-207 is out of range", "not bound", "--numa-binding"},
    {"set_mempolicy: Operation not permitted", "not bound", "SYS_NICE"},
    {"            HW Thermal Slowdown           : Active", "lower clocks", "nvidia-smi -q -d PERFORMANCE"},
    {"clocks_event_reasons.hw_power_brake_slowdown: Active", "lower clocks", "power"},
    {"kernel: mce: CPU12: Package temperature is above threshold, cpu clock is throttled (total events = 1)",
     "processor runs at lower clocks", "fans"},
    {"CPU0: Core temperature above threshold, cpu clock throttled (total events = 9)",
     "processor runs at lower clocks", "governor"},
    {"[Mon May 25 12:34:56 2026] NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.", "(Xid 79)",
     "take that host out"},
    {"NVRM: GPU at PCI:0000:18:00.0 has fallen off the bus.", "(Xid 79)", "restart it without power"},
    {"kernel: NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, NVLink: fatal error detected on link 6(0x10000)",
     "NVLink (Xid 74)", "nvidia-smi nvlink -e"},
    {"NVRM: Xid (PCI:0000:3b:00): 74, NVLink: fatal error detected on link 1", "NVLink (Xid 74)", "replace"},
    {"NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, DBE (double bit error) 5 (0x5)", "errors of its memory",
     "ROW_REMAPPER"},
    {"NVRM: Xid (PCI:0000:3b:00): 94, pid=7194, Contained: SM (0x1).", "errors of its memory", "reset"},
    {"NVRM: Xid (PCI:0000:03:00): 31, pid='1234', name='python3', Ch 00000008", "error of a GPU (Xid)",
     "often the program's"},
    {"NVRM: Xid (PCI:0000:07:00): 119, pid=999, Timeout waiting for RPC from GSP!", "error of a GPU (Xid)",
     "list of Xid errors"},
    {"  moe_router_force_load_balancing ................. True", "by force", "benchmarks"},
    {"+ torchrun pretrain_gpt.py --num-experts 8 --moe-router-force-load-balancing --bf16", "by force",
     "loss"},
    {"node1:123:456 [0] NCCL INFO Using network Socket", "TCP sockets", "NCCL_IB_DISABLE"},
    {"A800:6801:6839 [1] NCCL INFO Assigned NET plugin Socket to comm", "TCP sockets", "ibv_devinfo"},
    {"hostA:31842:31905 [5] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 5 'mlx5_5'",
     "through their memory", "nvidia-peermem"},
    {"NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)", "through their memory",
     "DMA-BUF"},
    {"[titan] 2026-02-24 19:41:01,031 - root - WARNING - 9 CUDA memory allocation retries.",
     "asked for memory again", "expandable_segments"},
    {"[2023-03-20 20:38:19,874] [WARNING] [stage3.py:1939:step] 13 pytorch allocator cache flushes since "
     "last "
     "step. this happens when there is high memory pressure",
     "asked for memory again", "mpt-plan doctor"},
    {"UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of "
     "worker "
     "in current system is 8, which is smaller",
     "more data workers than processors", "--cpus-per-task"},
    {"UserWarning: ... Our suggested max number of worker in current system is 1", "more data workers",
     "lower"},
    {"RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
     "CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[4])",
     "different collectives", "uneven splits"},
    {"RuntimeError: Detected mismatch between collectives on ranks. Rank 12: _REDUCE_SCATTER_BASE",
     "different collectives", "branch"},
    {"  fp8 ............................................. hybrid", "fp8, and the plan is in bf16", "bf16"},
    {"[titan] - root - INFO - Swapped to Float8Linear layers with enable_fsdp_float8_all_gather=True",
     "fp8, and the plan is in bf16", "recipe"},
};

constexpr const char* kHarmless[] = {
    "            HW Thermal Slowdown           : Not Active",
    "        SW Power Cap                      : Active",
    "        Sync Boost                        : Not Active",
    "  moe_router_force_load_balancing ................. False",
    "Namespace(moe_router_force_load_balancing=False, moe_permute_fusion=True)",
    "hostA:1:2 [0] NCCL INFO Using network IB",
    "hostA:1:2 [0] NCCL INFO Assigned NET plugin Libfabric to comm",
    "hostA:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
    "hostA:1:2 [0] NCCL INFO Setting affinity for GPU 0 to ffff",
    "node1: available: 2 nodes (0-1)",
    "  fp8 ............................................. None",
    "  fp8_recipe ...................................... delayed",
    "  num_workers ..................................... 2",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01",
};

class TroubleTest : public ::testing::Test {
 protected:
  TroubleTest() {
    test::WantedPlan wanted{test::little_gpt(), {8, 16}};
    wanted.data = 2;
    wanted.precision = Precision::bf16;
    plan_ = test::make_plan(wanted);
    plan_.cluster.devices_per_node = 1;
  }
  std::vector<Trouble> signs(const std::string& text, bool not_finite = true) const {
    return find_signs({"log", log_lines(text)}, plan_, not_finite);
  }
  std::vector<Trouble> speeds(const std::string& text) const {
    return falling_speed({"log", log_lines(text)});
  }

  Plan plan_;
};

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(TroubleTest, EachKindIsSaidWithItsLine) {
  for (const Line& line : kLines) {
    const std::vector<Trouble> found = signs(std::string("hello\n") + line.text + "\n" + line.text + "\n");
    ASSERT_EQ(found.size(), 1u) << line.text;
    EXPECT_TRUE(says(found[0].finding, line.finding)) << found[0].finding;
    EXPECT_TRUE(says(found[0].finding, "(line 2 and 1 more: \"")) << found[0].finding;
    EXPECT_TRUE(says(found[0].change, line.change)) << found[0].change;
  }
}

TEST_F(TroubleTest, LinesLikeThemMeanNothing) {
  for (const char* line : kHarmless) EXPECT_TRUE(signs(line).empty()) << signs(line)[0].finding;
}

TEST_F(TroubleTest, SocketsAndFp8MatterWhereTheyCanBeTheReason) {
  const char* fp8 = "  fp8 ............................................. e4m3";
  EXPECT_TRUE(signs(fp8, false).empty()) << "the steps are finite";
  plan_.cluster.devices_per_node = 2;
  EXPECT_TRUE(signs("NCCL INFO Using network Socket").empty()) << "all ranks are on one host";
}

TEST_F(TroubleTest, ASpeedThatFallsWithNodesIsSaid) {
  for (const char* list :
       {"nodes 1: 9500 tokens/s/GPU\nnodes 2: 8900 tokens/s/GPU\nnodes 8: 3,800 tokens/s/GPU\n",
        "nnodes=1 throughput 390 TFLOP/s/GPU\nnnodes=8 throughput 156 TFLOPS/s\n",
        "| 1 node | 1.0k tok/s |\n| 8 nodes | 3.2k tok/s |\n",
        "8 nodes x 8 GPUs: 40 samples per second\n1 node: 12.5 samples per second\n"}) {
    const std::vector<Trouble> found = speeds(list);
    ASSERT_EQ(found.size(), 1u) << list;
    EXPECT_TRUE(says(found[0].finding, "on 8 nodes (line ")) << found[0].finding;
    EXPECT_TRUE(says(found[0].finding, "it is 40.0% of that on 1 (line ")) << found[0].finding;
    EXPECT_TRUE(says(found[0].change, "all_reduce_perf")) << found[0].change;
  }
  for (const char* list :
       {"1 node: 9500 tokens/s/GPU\n8 nodes: 9400 tokens/s/GPU\n", "1 node: 100 tok/s\n8 nodes: 790 tok/s\n",
        "4 nodes: 100 tok/s\n", "0 nodes: 9 tok/s\n", "there are 4 nodes\nthere are 8 nodes\n", ""})
    EXPECT_TRUE(speeds(list).empty()) << list;
}

TEST_F(TroubleTest, SignsStandBesideSteps) {
  const std::string log =
      "NCCL INFO Using network Socket\n"
      " iteration 1/ 100 | elapsed time per iteration (ms): 2000 | global batch size: 8 |\n";
  const MeasuredRun run = read_run_log(log, "log", plan_);
  EXPECT_DOUBLE_EQ(run.step_time_s, 2.0);
  EXPECT_EQ(run.troubles.size(), 1u);
  EXPECT_EQ(read_run_log("1 node: 100 tok/s\n8 nodes: 400 tok/s\n", "log", plan_).troubles.size(), 1u);
}

}  // namespace
}  // namespace mpt::planner
