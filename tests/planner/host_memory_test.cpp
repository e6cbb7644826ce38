// SPDX-License-Identifier: Apache-2.0

// What a host holds: a model that is built there, and an offloaded optimizer; and what buffers of exchanges
// take of a GPU.

#include <gtest/gtest.h>

#include "base/error.h"
#include "core/short_form.h"
#include "models/zoo.h"
#include "planner/api.h"
#include "planner/explain/screen.h"
#include "planner/memory/memory_model.h"
#include "planner/request/resolve.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

PlanRequest host_request(const std::string& model = "llama3-8b", const std::string& cluster = "dgx-h100:1") {
  PlanRequest r;
  r.model.name = model;
  r.cluster.name = cluster;
  r.global_batch = 64;
  return r;
}

std::string host_error(const PlanRequest& r) {
  try {
    resolve(r);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

// transformers-fsdp builds the model once on each host; other settings build it in each process.
TEST(HostMemory, RefusesModelsThatAHostCannotBuild) {
  PlanRequest r = host_request("llama3-70b");
  r.framework = "transformers-fsdp";
  EXPECT_EQ(host_error(r), "accepted");
  r.execution = {"host_build_bytes=0", "process_build_bytes=4"};
  const std::string refused = host_error(r);  // 8 x 4 x 70.55e9 bytes of 2 TB
  EXPECT_NE(refused.find("2.05 TiB in the memory of each host"), std::string::npos) << refused;
  EXPECT_NE(refused.find("state_dict=weights) on local rank 0"), std::string::npos) << refused;
  r.cluster.name = "dgx-h100:2x4";
  EXPECT_EQ(host_error(r), "accepted") << "four processes on a host";
  r.cluster.name = "dgx-h100:1";
  r.lora = 16;
  EXPECT_EQ(host_error(r), "accepted") << "processes share the mapped file of frozen weights";
  r.lora = 0;
  r.model.name = "llama3-8b";
  EXPECT_EQ(host_error(r), "accepted");
  // Without FSDP each process builds the whole model whatever is set.
  r = host_request("qwen3-235b-a22b");
  r.framework = "transformers-ddp";
  const std::string replicas = host_error(r);
  EXPECT_NE(replicas.find("6.84 TiB in the memory of each host"), std::string::npos) << replicas;
  EXPECT_EQ(replicas.find("fsdp_cpu_ram_efficient_loading"), std::string::npos) << replicas;
}

// findings/efficient_loading_reads_a_checkpoint_in_each_process.sh: recipes begin with trained weights.
TEST(HostMemory, TunersReadACheckpointInEachProcess) {
  for (const auto& [framework, processes] :
       {std::pair{"trl", 8}, {"llamafactory", 8}, {"transformers-fsdp", 1}, {"axolotl", 1}}) {
    PlanRequest r = host_request("llama3-70b", "dgx-h100:2");
    r.framework = framework;
    r.cluster.value = resolve(host_request("llama3-8b", "dgx-h100:2"))->problem.cluster;
    for (const auto& [host, enough] :
         {std::pair{4.0 * 70.6e9 * processes, true}, {3.9 * 70.6e9 * processes, false}}) {
      r.cluster.value->host_memory_bytes = int64_t(host);
      EXPECT_EQ(host_error(r) == "accepted", enough) << framework;
    }
  }
}

// transformers loads weights for bitsandbytes one by one onto the GPU of the process (xtuner issue 88: 70B in
// 4 bits with DDP on 8 x 80 GB).
TEST(HostMemory, WeightsInFewBitsAreNotBuiltThere) {
  PlanRequest r = host_request("llama2-70b", "dgx-a100-40gb:1");
  r.framework = "transformers-ddp";
  EXPECT_NE(host_error(r).find("in the memory of each host"), std::string::npos) << host_error(r);
  r.lora = 16;
  for (const FrozenFormat format : {FrozenFormat::nf4, FrozenFormat::int8}) {
    r.frozen_weights = format;
    EXPECT_EQ(host_error(r), "accepted");
  }
}

TEST(HostMemory, RefusesModelsThatAreTooLargeForOneProcessOfAHost) {
  PlanRequest r = host_request("deepseek-v3", "dgx-h100:16");
  r.framework = "transformers-fsdp";
  EXPECT_NE(host_error(r).find("2.44 TiB in the memory of each host"), std::string::npos) << host_error(r);
  r.cluster.value = resolve(host_request("llama3-8b", "dgx-h100:16"))->problem.cluster;
  r.cluster.value->host_memory_bytes = 4'000'000'000'000;
  EXPECT_EQ(host_error(r), "accepted");
  r.cluster.value->host_memory_bytes = 0;
  EXPECT_EQ(host_error(r), "accepted") << "unknown";
}

TEST(HostMemory, AnOptimizerWithoutMomentsTakesNone) {
  PlanRequest r = host_request("tiny-llama", "this-machine:4");
  r.optimizer = OptimizerKind::adafactor;
  r.beyond_framework = true;
  EXPECT_EQ(estimate(r).plan.layout.training->optimizer, OptimizerKind::adafactor);
  EXPECT_GT(plan(r).prediction.step_time_s, 0.0) << "offload is among the layouts";
}

// Bytes that the host of an offloaded optimizer has not: no likelihood of fitting a GPU speaks against it.
TEST(HostMemory, AnOptimizerThatHostsCannotHoldDoesNotFit) {
  PlanRequest r = host_request("llama3-8b", "dgx-h200:1");
  r.framework = "mpt";
  r.bounds = parse_short_form("tp1 pp1 dp8 zero1 mbs1 offload", "test").bounds;
  r.cluster.value = resolve(r)->problem.cluster;
  const Estimated roomy = estimate(r);
  EXPECT_TRUE(roomy.fits());
  r.cluster.value->host_memory_bytes = 50'000'000'000;
  const Estimated tight = estimate(r);
  ASSERT_TRUE(tight.lacks());
  EXPECT_EQ(tight.lacks()->constraint, "host memory");
  EXPECT_EQ(tight.lacks()->available, 5e10);
  EXPECT_GT(tight.lacks()->needed, 8e9 * 12) << "moments and master weights of 8 billion weights";
  EXPECT_NE(describe_verdict(tight.plan, tight.lacks()).find("DOES NOT FIT by"), std::string::npos);
  EXPECT_NE(describe_verdict(tight.plan, tight.lacks()).find("per host, there are 46.6 GiB"),
            std::string::npos)
      << describe_verdict(tight.plan, tight.lacks());
  try {
    plan(r);
    ADD_FAILURE() << "planned";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("per host on 8 GPUs; there are 46.6 GiB"), std::string::npos)
        << error.what();
  }
}

// NCCL 2.28.9 opens 32 channels of 12 MiB to each peer of an all-to-all in a domain of fast links
// (NVIDIA/nccl issue 1685); context_gib has those of a node of 8. HybridEP has a place for every token of its
// group.
TEST(CommunicatorBytes, GrowWithThePeersOfADomain) {
  const ModelSpec model = models::load_model("qwen3-30b-a3b");
  const ClusterSpec rack = profiler::load_cluster("gb200-nvl72:1", {});
  const ClusterSpec nodes = profiler::load_cluster("dgx-h100:8", {});
  Layout l;
  l.data = 64;
  l.execution.edit().allocator.counts_each_buffer = false;
  const auto held = [&](const ClusterSpec& cluster, int64_t expert, bool once) {
    l.expert = expert;
    l.execution.edit().traffic.deduplicates_dispatch = once;
    return communicator_bytes(model, cluster, l, 4096).front();
  };
  constexpr int64_t kPeer = 32 * 12 << 20;
  EXPECT_EQ(held(rack, 64, false), 56 * kPeer);
  EXPECT_EQ(held(rack, 16, false), 8 * kPeer);
  EXPECT_EQ(held(rack, 8, false), 0);
  EXPECT_EQ(held(nodes, 64, false), 0) << "8 of a node's GPUs";
  EXPECT_EQ(held(rack, 64, true), 4096 * 64 * (2 * 2048 + 4 * 2 * 64 + 4 * 16));
  l.expert_tensor = 2;
  EXPECT_EQ(held(rack, 32, false), 24 * kPeer);
}

}  // namespace
}  // namespace mpt::planner
