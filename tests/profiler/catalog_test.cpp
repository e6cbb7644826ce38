// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "profiler/hardware/nodes.h"

namespace mpt::profiler {
namespace {

TEST(Catalog, EveryNodeLoadsWithOneAndManyOfIt) {
  EXPECT_GE(node_names().size(), 8u);
  for (const std::string& name : node_names()) {
    const ClusterSpec one = load_cluster(name, std::nullopt), many = load_cluster(name + ":16", std::nullopt);
    EXPECT_EQ(many.devices, 16 * one.devices) << name;
    EXPECT_GT(one.device.bf16_flop_per_s, 1e13) << name;
    EXPECT_GE(many.levels.back().group_size, many.devices) << "the outermost level reaches everybody";
    EXPECT_LT(many.levels.back().bandwidth_bytes_per_s, many.levels.front().bandwidth_bytes_per_s);
  }
}

TEST(Catalog, ACountIsNodesAndForThisMachineRanks) {
  EXPECT_EQ(load_cluster("dgx-h100:8", std::nullopt).devices, 64);
  const ClusterSpec here = load_cluster("this-machine:4", std::nullopt);
  EXPECT_EQ(here.devices, 4);
  EXPECT_EQ(here.device.kind, DeviceKind::cpu);
  EXPECT_GT(here.device.memory_bytes, 0);
}

TEST(Catalog, BadNamesAndCountsAreUserErrors) {
  for (const char* bad : {"dgx-h100:0", "dgx-h100:-3", "dgx-h100:x", "dgx-h100:99999999", "dgx-h100:2000000",
                          "nothing", "", ":4", "/no/file.json"}) {
    EXPECT_THROW(load_cluster(bad, std::nullopt), UserError) << bad;
  }
}

TEST(Catalog, AVariantIsItsNodeWithChanges) {
  const ClusterSpec plain = load_cluster("dgx-b200:2", {}), dated = load_cluster("dgx-b200@2025:2", {});
  EXPECT_EQ(dated.name, "dgx-b200@2025:2");
  EXPECT_EQ(dated.device.kernel_rate, 0.93);
  EXPECT_EQ(dated.device.name, plain.device.name);
  EXPECT_EQ(dated.device.bf16_flop_per_s, plain.device.bf16_flop_per_s);
  EXPECT_EQ(dated.devices, plain.devices);
  EXPECT_EQ(dated.levels.size(), plain.levels.size());
  EXPECT_EQ(load_cluster("dgx-b200@power-limited", {}, 16).devices, 16);
  for (const char* mixed : {"dgx-b200@2025:2+dgx-h100:1@50GB/s@5ms", "dgx-h100+dgx-b200@2025@50GB/s",
                            "dgx-h100:1+dgx-b200@2025:1"}) {
    const ClusterSpec two = load_cluster(mixed, {});
    EXPECT_TRUE(two.mixed()) << mixed;
    EXPECT_NE(two.name.find("dgx-b200@2025"), std::string::npos) << two.name;
    EXPECT_EQ(load_cluster(two.name, {}).name, two.name);
  }
  EXPECT_THROW(load_cluster("dgx-b200@2031:2", {}), UserError);
}

TEST(Catalog, ANodeMayHaveAnotherNumberOfGpus) {
  const ClusterSpec one = load_cluster("rtx4090:1x8", {}), two = load_cluster("rtx4090:2x8", {});
  EXPECT_EQ(one.name, "rtx4090:1x8");
  EXPECT_EQ(one.devices, 8);
  EXPECT_EQ(one.devices_per_node, 8);
  ASSERT_EQ(one.levels.size(), 1u);
  EXPECT_EQ(one.levels.front().name, "pcie");
  EXPECT_EQ(one.levels.front().group_size, 8);
  EXPECT_EQ(two.devices, 16);
  ASSERT_EQ(two.levels.size(), 2u);
  EXPECT_EQ(two.levels.front().group_size, 8);
  EXPECT_EQ(two.levels.back().group_size, 16);
  EXPECT_EQ(load_cluster("rtx4090:8", {}).devices_per_node, 1);
  EXPECT_EQ(load_cluster("dgx-h100:2x4", {}).levels.front().group_size, 4);
  for (const char* wrong : {"rtx4090:x8", "rtx4090:2x", "rtx4090:2x0", "rtx4090:2x8x2", "this-machine:2x4"})
    EXPECT_THROW(load_cluster(wrong, {}), UserError) << wrong;
}

// What drivers call their devices.
// Racks are filled by trays of four GPUs: jobs get as many of each rack.
TEST(Catalog, GpusThatFillNoWholeNodesAreEqualPartsOfThem) {
  const ClusterSpec racks = load_cluster("gb200-nvl72", {}, 256);
  EXPECT_EQ(racks.name, "gb200-nvl72:4x64");
  EXPECT_EQ(racks.devices, 256);
  EXPECT_EQ(racks.devices_per_node, 64);
  EXPECT_EQ(racks, load_cluster("gb200-nvl72:4x64", {}, 0));
  EXPECT_EQ(load_cluster("gb200-nvl72", {}, 144).name, "gb200-nvl72:2");
  EXPECT_EQ(load_cluster("gb200-nvl72", {}, 4).name, "gb200-nvl72:1");
  EXPECT_THROW(load_cluster("dgx-h100", {}, 13), UserError);
}

TEST(Catalog, KnowsReportedDevices) {
  const std::pair<const char*, const char*> names[] = {
      {"NVIDIA H200", "h200-sxm-141gb"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm-80gb"},
      {"NVIDIA H100 PCIe", "h100-pcie-80gb"},
      {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
      {"NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
      {"Tesla V100-SXM2-32GB", "v100-sxm-32gb"},
      {"NVIDIA B200", "b200-sxm-180gb"},
      {"NVIDIA GB200", "gb200-186gb"},
      {"NVIDIA GH200 480GB", "gh200-96gb"},
      {"NVIDIA L40S", "l40s-48gb"},
      {"NVIDIA A10G", "a10g-24gb"},
      {"NVIDIA GeForce RTX 4090", "rtx4090-24gb"},
      {"NVIDIA RTX A6000", "rtx-a6000-48gb"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"},
      {"my-own-chip", "my-own-chip"},
  };
  for (const auto& [reported, name] : names) {
    EXPECT_TRUE(means_device(reported, name)) << reported;
    EXPECT_FALSE(means_device(reported, "mi300x-192gb")) << reported;
  }
  EXPECT_FALSE(means_device("NVIDIA RTX 6000 Ada Generation", "rtx-a6000-48gb"));
  EXPECT_FALSE(means_device("NVIDIA GeForce RTX 3060", "rtx3090-24gb"));
}

TEST(Catalog, ANodeIsFoundByItsDeviceAsAmongAll) {
  EXPECT_EQ(node_names().size(), catalog_nodes().size());
  for (const NodeEntry& node : catalog_nodes()) {
    EXPECT_EQ(node_named(node.name)->device, node.device) << node.name;
    const auto first =
        std::find_if(catalog_nodes().begin(), catalog_nodes().end(),
                     [&](const NodeEntry& other) { return other.device.name == node.device.name; });
    ASSERT_NE(node_with_device(node.device.name), nullptr) << node.device.name;
    EXPECT_EQ(node_with_device(node.device.name)->name, first->name);
    EXPECT_EQ(nearest_node(node.device.name)->device.name, node.device.name);
  }
  EXPECT_EQ(node_with_device("nvlink"), nullptr) << "a link's name is no device's";
  EXPECT_EQ(node_named("h100-sxm-80gb"), nullptr);
}

// What people type, and the nodes and GPUs that they mean.
TEST(Catalog, GpusAndCloudsMachinesHaveTheNamesThatPeopleUse) {
  struct Row {
    const char *typed, *cluster;
    int64_t devices, devices_per_node;
  };
  for (const auto& [typed, name, devices, devices_per_node] :
       {Row{"h100", "dgx-h100:1", 8, 8},
        {"h100:12", "dgx-h100:2x6", 12, 6},
        {"8xh100", "dgx-h100:1", 8, 8},
        {"h100:16", "dgx-h100:2", 16, 8},
        {"h100:4", "dgx-h100:1x4", 4, 4},
        {"24xA100", "dgx-a100:3", 24, 8},
        {"a100-40gb:8", "dgx-a100-40gb:1", 8, 8},
        {"a100-80gb:4", "dgx-a100:1x4", 4, 4},
        {"a100-pcie-80gb:4", "a100-pcie:1x4", 4, 4},
        {"gh200:128", "gh200-quad:32", 128, 4},
        {"gh200:6", "gh200-quad:2x3", 6, 3},
        {"h100:2x4", "dgx-h100:2x4", 8, 4},
        {"2x5090", "rtx5090-pcie:1x2", 2, 2},
        {"rtx5090:2", "rtx5090-pcie:1x2", 2, 2},
        {"2x4090", "rtx4090:1x2", 2, 2},
        {"16x4090", "rtx4090:2x8", 16, 8},
        {"1xl4", "aws-g6:1x1", 1, 1},
        {"h100-nvl:4", "h100-nvl-pcie:1x4", 4, 4},
        {"gb200:144", "gb200-nvl72:2", 144, 72},
        {"p5.48xlarge", "dgx-h100@aws-p5:1", 8, 8},
        {"p5.48xlarge:4", "dgx-h100@aws-p5:4", 32, 8},
        {"a3-megagpu-8g:2", "dgx-h100@gcp-a3-mega:2", 16, 8},
        {"nd_h100_v5", "dgx-h100:1", 8, 8},
        {"8 x H100", "dgx-h100:1", 8, 8},
        {"H100x8", "dgx-h100:1", 8, 8},
        {"H100 x 16", "dgx-h100:2", 16, 8},
        {"3090x2", "rtx3090:1x2", 2, 2},
        {"rtx4090x8", "rtx4090:1x8", 8, 8},
        {"8x3090", "rtx3090:1", 8, 8},
        {"h100nvl:2", "h100-nvl-pcie:1x2", 2, 2},
        {"h100sxm5:8", "dgx-h100:1", 8, 8},
        {"rtxpro6000", "rtx-pro-6000-server:1", 8, 8},
        {"2xrtxpro6000", "rtx-pro-6000-server:1x2", 2, 2},
        {"g5.12xlarge", "aws-g5@12xlarge:1", 4, 4},
        {"g6.24xlarge:2", "aws-g6@24xlarge:2", 8, 4},
        {"ND96asr_v4", "dgx-a100-40gb:1", 8, 8},
        {"ND96amsr_A100_v4:2", "dgx-a100:2", 16, 8},
        {"a2-ultragpu-8g", "dgx-a100@gcp-a2-ultra:1", 8, 8},
        {"a2-highgpu-8g:2", "dgx-a100-40gb@gcp-a2-high:2", 16, 8},
        {"dgx-h100:2", "dgx-h100:2", 16, 8}}) {
    const ClusterSpec cluster = load_cluster(typed, {});
    EXPECT_EQ(cluster.name, name) << typed;
    EXPECT_EQ(cluster.devices, devices) << typed;
    EXPECT_EQ(cluster.devices_per_node, devices_per_node) << typed;
  }
  for (const char* wrong : {"h100-99gb", "8xh101", "x8", "h100:13", "0xh100", "5091", "2xh100:4"})
    EXPECT_THROW(load_cluster(wrong, {}), UserError) << wrong;
  EXPECT_EQ(load_cluster("h100", {}, 32).name, "dgx-h100:4") << "with --gpus 32";
}

TEST(Catalog, ThisMachinesGpusHaveTheCatalogsLinksAndTheirOwnMemory) {
  Profile profile;
  profile.machine = {"NVIDIA H200", DeviceKind::gpu, "system", 96, int64_t{140} << 30};
  const ClusterSpec cluster = load_cluster("this-machine:4", profile);
  EXPECT_EQ(cluster.devices, 4);
  EXPECT_EQ(cluster.devices_per_node, 4);
  EXPECT_EQ(cluster.device.kind, DeviceKind::gpu);
  EXPECT_EQ(cluster.device.name, "h200-sxm-141gb");
  EXPECT_EQ(cluster.device.memory_bytes, int64_t{140} << 30);
  EXPECT_EQ(cluster.levels.size(), 1u);
  EXPECT_EQ(cluster.levels.front().bandwidth_bytes_per_s,
            load_cluster("dgx-h200:1", {}).levels.front().bandwidth_bytes_per_s);
  profile.machine.device = "NVIDIA H900";
  EXPECT_THROW(load_cluster("this-machine:4", profile), UserError);
}

}  // namespace
}  // namespace mpt::profiler
