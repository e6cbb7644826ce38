// SPDX-License-Identifier: Apache-2.0

// The machine that a record names, in the catalog's words.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/error.h"
#include "planner/validate/run_layout.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

struct NodeNetwork {
  double bytes_per_s = 0.0;  // out of one node, at 90 % of the lines' rate, which NCCL reaches; 0: not named
  int64_t ports = 0;         // 0: one for each GPU
};

// What Ethernet (RoCE, EFA) and Omni-Path sustain of their lines in training against InfiniBand, where paths
// adapt to load: runs that name their network choose it (docs/validation.md).
constexpr double kOffInfiniBand = 0.75;
// By the words for it, or the name of a machine that has it: NVIDIA's Eos and Selene, vTrain's cluster.
bool is_infiniband(const std::string& text) {
  return mentions_one(text, {"InfiniBand", "Infiniband", "NDR", "HDR", "EDR", "Eos", "Selene", "vTrain"});
}

// "4 x 100 Gb/s per node", "1600 Gbps node-node", "RDMA 400 Gb/s per GPU". A node's sum comes out of ports of
// 200 Gb/s or less; a rate of neither is an adapter's, of which nodes with such have one for each GPU.
NodeNetwork node_network(const std::string& text, int64_t gpus_per_node) {
  static const std::regex many(R"((\d{1,3})\s*x\s*(\d{1,4})\s*Gb)"), one(R"((\d{2,5})\s*Gb)"),
      of_node(R"(Gb\S* (per node|node-node))");
  std::smatch found;
  NodeNetwork network;
  double gigabit = 0.0;
  if (finds(text, found, many)) {
    network.ports = std::stoll(found[1]);
    gigabit = double(network.ports) * std::stod(found[2]);
  } else if (finds(text, found, one)) {
    gigabit = std::stod(found[1]);
    if (mentions(text, "per GPU") || (gigabit <= 400.0 && !finds(text, of_node))) {
      gigabit *= double(gpus_per_node);
    } else {
      network.ports = std::max<int64_t>(1, std::llround(gigabit / 200.0));
    }
  }
  // No run shows more than 400 Gb/s for each of its GPUs (profiler/hardware/catalog/dgx-b300.json).
  gigabit = std::min(gigabit, 400.0 * double(gpus_per_node));
  network.bytes_per_s = gigabit * 1e9 / 8.0 * 0.9 * (is_infiniband(text) ? 1.0 : kOffInfiniBand);
  return network;
}

// BigScience's table of 25 February 2022 says that PCI Express and NUMA of its nodes "was improved today",
// that all are 1 to 5 % faster, and not to compare with the day before (bigscience-workshop/bigscience,
// train/tr11-176B-ml/chronicles-prequel.md, "GBS Variations").
constexpr double kRateBeforeNumaFix = 0.95;
bool is_before_numa_fix(const RunRecord& run) {
  static const std::regex day(R"(\bdate 02-2[0-4])");
  return mentions(run.framework, "BigScience") && finds(run.notes, day);
}

// The kernel tables were measured with libraries of 2026 (ai-dynamo/aiconfigurator: sglang 0.5.14, NCCL
// 2.29). On B200 and GB200, which were new in 2025, those of that year were slower: one layout of Llama 3.1
// 405B took 6.55 s on B200 with NeMo's container 25.02 and 6.17 with 25.09, another 60.5 s on GB200 with
// Megatron-Bridge's 25.11 and 56.9 with 26.04.01. B300 and GB300 came to them, Hopper was two years old.
constexpr double kRateOfFirstYear = 0.93;
bool is_of_first_year(const RunRecord& run) {
  return mentions(run.gpu, "b200") && released_before(run, {2026, 1});
}

}  // namespace

ClusterSpec cluster_of(const RunRecord& run, std::vector<std::string>& filled) {
  const NodeNetwork network = node_network(run.inter_node, run.gpus_per_node);
  // The catalog has such a device where its rate is known from runs.
  const std::string gpu = run.gpu + (mentions(run.notes, "Power-limited") ? "-limited" : "");
  const auto cluster = profiler::cluster_of_device(
      gpu, {run.gpus, run.gpus_per_node, run.fast_links, network.bytes_per_s, network.ports});
  if (!cluster)
    throw UserError(
        Problem{"hardware/gpu", fmt::format("\"{}\"", run.gpu.substr(0, 80)), "a device of the catalog", ""});
  ClusterSpec c = *cluster;
  if (!c.device.name.starts_with(run.gpu) || gpu != run.gpu)
    filled.push_back("hardware.gpu = " + c.device.name);
  // "kernels/b200-simumax" names a node whose kernels were measured themselves.
  if (run.profile.rfind('/') != std::string::npos && run.profile.size() < 200)
    c.device.kernels = run.profile.substr(run.profile.rfind('/') + 1);
  if (is_of_first_year(run)) {
    c.device.kernel_rate *= kRateOfFirstYear;
    filled.push_back(
        fmt::format("hardware: {} of its rate, with libraries of its first year", kRateOfFirstYear));
  }
  if (is_before_numa_fix(run)) {
    c.device.kernel_rate *= kRateBeforeNumaFix;
    filled.push_back(
        fmt::format("hardware: {} of its rate, before its PCI Express was mended", kRateBeforeNumaFix));
  }
  return c;
}

}  // namespace mpt::planner
