// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/cluster_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/quantity.h"
#include "profiler/hardware/catalog.h"

namespace mpt::profiler {
namespace {

class ClusterFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::string file = testing::TempDir() + "/two-racks.json";
    write_file_atomically(file, text);
    return file;
  }
  ClusterSpec read(const std::string& text, const std::string& count = "") {
    return load_cluster(write(text) + count, std::nullopt);
  }
  std::string error(const std::string& text, const std::string& count = "") {
    try {
      read(text, count);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  void expect_error(const std::string& text, const std::vector<std::string>& parts,
                    const std::string& count = "") {
    const std::string found = error(text, count);
    for (const std::string& part : parts)
      EXPECT_NE(found.find(part), std::string::npos) << part << "\nin " << found;
  }
};

TEST_F(ClusterFile, LikeANodeOfTheCatalogIsThatNode) {
  ClusterSpec cluster = read(R"({"like": "dgx-a100-40gb", "nodes": 16})");
  EXPECT_EQ(cluster.name, "two-racks");
  cluster.name = "dgx-a100-40gb:16";
  EXPECT_EQ(cluster, load_cluster("dgx-a100-40gb:16", std::nullopt));
}

TEST_F(ClusterFile, ACountReplacesTheFilesNodes) {
  EXPECT_EQ(read(R"({"like": "dgx-h100", "nodes": 16})", ":2").devices, 16);
  EXPECT_EQ(read(R"({"like": "dgx-h100"})").devices, 8);
  // Of the full form, too.
  const ClusterSpec full = load_cluster("dgx-h100:4", std::nullopt);
  ClusterSpec two = read(to_json(full).dump(), ":2");
  EXPECT_EQ(read(to_json(full).dump()), full);
  two.name = "dgx-h100:2";
  EXPECT_EQ(two, load_cluster("dgx-h100:2", std::nullopt));
  const ClusterSpec one = load_cluster("dgx-h100:1", std::nullopt);
  expect_error(to_json(one).dump(), {"2 nodes of a cluster without a level between nodes"}, ":2");
}

TEST_F(ClusterFile, ANetworkInWordsIsPortsOfANodeAtWhatMessagesGet) {
  const LinkLevel ethernet =
      read(R"({"like": "dgx-a100-40gb", "nodes": 2, "network": "100Gb/s ethernet"})").levels.back();
  EXPECT_EQ(ethernet.name, "ethernet");
  EXPECT_DOUBLE_EQ(ethernet.bandwidth_bytes_per_s, 0.675 * 12.5e9);
  EXPECT_EQ(ethernet.rails, 1);
  const LinkLevel infiniband =
      read(R"({"like": "dgx-h100", "nodes": 2, "network": "4 x 400Gbit/s infiniband"})").levels.back();
  EXPECT_DOUBLE_EQ(infiniband.bandwidth_bytes_per_s, 45e9);
  EXPECT_EQ(infiniband.rails, 4);
  EXPECT_EQ(infiniband.latency_s, 1e-5);
  // As many ports as GPUs: none is shared.
  EXPECT_EQ(read(R"({"like": "dgx-h100", "nodes": 2, "network": "8 x 400Gb/s infiniband"})").levels,
            load_cluster("dgx-h100:2", std::nullopt).levels);
  expect_error(R"({"like": "dgx-h100", "network": "400G"})", {"/network", "write 400Gbit/s"});
  expect_error(R"({"like": "dgx-h100", "network": "0 x 400Gb/s"})", {"/network", "8 x 400Gb/s"});
  expect_error(R"({"like": "dgx-h100", "network": "some x 400Gb/s"})", {"/network", "12.5GB/s"});
  EXPECT_EQ(
      read(R"({"like": "dgx-h100", "nodes": 2, "network": "8x400Gb/s infiniband"})").levels.back().rails, 0);
}

TEST_F(ClusterFile, ANetworkInFullHasLatencyAndOversubscription) {
  const LinkLevel level = read(R"({"like": "dgx-h100", "nodes": 32, "network":
      {"name": "roce", "ports_per_node": 8, "line_rate": "200Gb/s", "latency_s": "20us", "oversubscription": 2}})")
                              .levels.back();
  EXPECT_DOUBLE_EQ(level.bandwidth_bytes_per_s, 0.675 * 25e9);
  EXPECT_DOUBLE_EQ(level.latency_s, 2e-5);
  EXPECT_EQ(level.rails, 0);
  EXPECT_EQ(level.oversubscription, 2.0);
  EXPECT_DOUBLE_EQ(
      read(R"({"like": "dgx-h100", "nodes": 2, "network": {"bandwidth_bytes_per_s": "11.5GB/s"}})")
          .levels.back()
          .bandwidth_bytes_per_s,
      11.5e9);
  expect_error(R"({"like": "dgx-h100", "network": {"ports_per_node": 8}})", {"/network", "line_rate"});
  expect_error(R"({"like": "dgx-h100", "network": {"line_rte": "100Gb/s"}})",
               {"/network/line_rte", "line_rate"});
}

TEST_F(ClusterFile, LevelsChangeByName) {
  const ClusterSpec cluster =
      read(R"({"like": "dgx-h100", "nodes": 2, "levels": {"nvlink": {"bandwidth_bytes_per_s": "160GB/s"}}})");
  EXPECT_DOUBLE_EQ(cluster.levels.front().bandwidth_bytes_per_s, 160e9);
  EXPECT_EQ(cluster.levels.back(), load_cluster("dgx-h100:2", std::nullopt).levels.back());
  expect_error(R"({"like": "dgx-h100", "levels": []})", {"/levels", "a list; expected an object"});
  expect_error(R"({"like": "dgx-h100", "levels": {"nvlnk": {}}})",
               {"/levels/nvlnk", "did you mean \"nvlink\"?"});
}

TEST_F(ClusterFile, WhatAnyoneWouldWriteFirstIsUnderstood) {
  const ClusterSpec cluster = read(
      R"({"name": "mine", "nodes": 2, "gpus_per_node": 4, "device": "a100-sxm-40gb", "network": "100Gb/s"})");
  EXPECT_EQ(cluster.name, "mine");
  EXPECT_EQ(cluster.devices, 8);
  EXPECT_EQ(cluster.device, load_cluster("dgx-a100-40gb:1", std::nullopt).device);
  EXPECT_EQ(cluster.levels.front().group_size, 4);
  EXPECT_EQ(cluster.levels.back().rails, 1);
}

TEST_F(ClusterFile, HostsHaveTheMemoryOfTheirNodeOrOfTheFile) {
  EXPECT_EQ(load_cluster("dgx-h100:2", std::nullopt).host_memory_bytes, 2'000'000'000'000);
  EXPECT_EQ(load_cluster("mi300x:2", std::nullopt).host_memory_bytes, 0) << "unknown";
  EXPECT_EQ(read(R"({"like": "dgx-h100"})").host_memory_bytes, 2'000'000'000'000);
  EXPECT_EQ(read(R"({"like": "dgx-h100", "host_memory_bytes": "512GiB"})").host_memory_bytes, 512LL << 30);
  EXPECT_EQ(load_cluster("dgx-h100:1+dgx-a100-40gb:1", std::nullopt).host_memory_bytes, 1'000'000'000'000);
  EXPECT_EQ(load_cluster("gb200-nvl72:1", std::nullopt).ranks_of_host(72), 4);
}

TEST_F(ClusterFile, AGpuLikeAnotherKeepsItsMeasuredKernels) {
  // NVLink of the H800 and the name are all that differ from the H100.
  const ClusterSpec h800 = read(R"({"like": "dgx-h100", "nodes": 4, "device": {"name": "h800-sxm-80gb"},
      "levels": {"nvlink": {"bandwidth_bytes_per_s": "160GB/s"}}})");
  ClusterSpec known = load_cluster("hgx-h800:4", std::nullopt);
  known.name = h800.name;
  known.host_memory_bytes = h800.host_memory_bytes;  // of the DGX H100; nobody says that of the HGX H800
  EXPECT_EQ(h800, known);
  const DeviceSpec half =
      read(
          R"({"like": "dgx-h100", "device": {"like": "h100-sxm-80gb", "name": "half", "bf16_flop_per_s": 494.5e12}})")
          .device;
  EXPECT_EQ(half.kernels, "h100-sxm-80gb");
  EXPECT_DOUBLE_EQ(half.kernel_rate, 0.5);
  // Where the other one borrows its kernels itself, so does this one.
  EXPECT_EQ(read(R"({"like": "dgx-a100", "device": {"like": "a100-sxm-40gb", "name": "x"}})").device.kernels,
            "a100-sxm-80gb");
  expect_error(R"({"like": "dgx-h100", "device": {"like": "h100-sxm-80g"}})",
               {"/device/like", "did you mean \"h100-sxm-80gb\"?"});
  expect_error(R"({"like": "dgx-h100", "device": {"memory_byte": "80GiB"}})", {"/device/memory_byte"});
}

TEST_F(ClusterFile, LikeAlsoServesTheFullForm) {
  Json full = to_json(load_cluster("dgx-h100:4", std::nullopt));
  full["device"] = {{"like", "h100-sxm-80gb"}, {"name", "mine"}, {"memory_bytes", "96GiB"}};
  const DeviceSpec device = read(full.dump()).device;
  EXPECT_EQ(device.memory_bytes, 96 * kGiB);
  EXPECT_EQ(device.kernels, "h100-sxm-80gb");
}

TEST_F(ClusterFile, MisspeltKernelsAreAnError) {
  Json full = to_json(load_cluster("dgx-h100:4", std::nullopt));
  full["device"]["kernels"] = "h100-sxm-80g";
  expect_error(full.dump(), {"/device/kernels", "did you mean \"h100-sxm-80gb\"?"});
  expect_error(R"({"like": "dgx-h100", "device": {"kernels": "h800x"}})",
               {"/device/kernels", "one of a100-sxm-80gb"});
}

TEST_F(ClusterFile, PartsAreGenerationsJoinedByANetwork) {
  const ClusterSpec cluster = read(R"({"name": "old and new", "parts": [{"like": "dgx-a100", "nodes": 4},
      {"like": "dgx-h100", "nodes": 2}], "network": {"bandwidth_bytes_per_s": "12.5GB/s", "latency_s": "5ms"}})");
  ASSERT_EQ(cluster.groups.size(), 2u);
  EXPECT_EQ(cluster.devices, 48);
  ClusterSpec named = load_cluster("dgx-a100:4+dgx-h100:2@12.5GB/s@5ms", std::nullopt);
  EXPECT_EQ(cluster.levels.back().bandwidth_bytes_per_s, named.levels.back().bandwidth_bytes_per_s);
  EXPECT_EQ(cluster.levels.back().latency_s, named.levels.back().latency_s);
  EXPECT_EQ(cluster.levels.back().rails, named.levels.back().rails);
  expect_error(R"({"parts": [{"like": "dgx-a100"}]})", {"/parts", "2 to 4 clusters"});
  expect_error(R"({"parts": [{"like": "dgx-a100"}, {"like": "dgx-h10"}]})",
               {"part 2 at /like", "did you mean"});
}

TEST_F(ClusterFile, NumbersInAnotherUnitThanTheKeysAreRefused) {
  expect_error(R"({"like": "dgx-h100", "nodes": 2, "network": {"bandwidth_bytes_per_s": 12.5}})",
               {"/levels/1/bandwidth_bytes_per_s", "12.5 bytes/s", "\"12.5GB/s\""});
  expect_error(R"({"like": "dgx-h100", "device": {"memory_bytes": 80}})", {"/device/memory_bytes"});
  expect_error(R"({"like": "dgx-h100", "device": {"memory_bytes": "80Gb"}})",
               {"/device/memory_bytes", "80GiB or 80GB"});
}

TEST_F(ClusterFile, WhatIsMissingIsNamedWithARemedy) {
  expect_error(R"({"nodes": 2})", {"\"like\"", "docs/clusters.md"});
  expect_error(R"({"like": "dgx-h10"})", {"/like", "did you mean \"dgx-h100\"?"});
  expect_error(R"({"like": "dgx-h100", "node": 2})", {"/node", "did you mean \"nodes\"?"});
  expect_error(R"({"like": "dgx-h100", "nodes": 0})", {"/nodes", "between 1 and"});
  expect_error(R"({"like": 7})", {"/like", "a name"});
  expect_error("[]", {"an object"});
}

TEST(ClusterName, GpusMakeTheNodesWhereThereIsNoCount) {
  EXPECT_EQ(load_cluster("dgx-h100", std::nullopt, 512), load_cluster("dgx-h100:64", std::nullopt));
  EXPECT_EQ(load_cluster("dgx-h100", std::nullopt), load_cluster("dgx-h100:1", std::nullopt));
  EXPECT_EQ(load_cluster("dgx-h100", std::nullopt, 4), load_cluster("dgx-h100:1", std::nullopt));
  EXPECT_EQ(load_cluster("dgx-h100", std::nullopt, 12).devices,
            load_cluster("dgx-h100:2x6", std::nullopt).devices);
  EXPECT_EQ(load_cluster("dgx-h100:2", std::nullopt, 8).devices, 16) << "the count holds";
  EXPECT_EQ(load_cluster("this-machine", std::nullopt, 3).devices, 3);
  try {
    load_cluster("dgx-h100", std::nullopt, 13);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--gpus 8 or 16"), std::string::npos) << error.what();
  }
}

TEST(ClusterName, OfAnUnknownGpuNamesANodeWithOneLikeIt) {
  for (const auto& [gpu, node] : {std::pair{"h100-99gb:2", "dgx-h100"}, {"H200-80gb", "dgx-h200"}}) {
    try {
      load_cluster(gpu, std::nullopt);
      FAIL() << gpu;
    } catch (const UserError& error) {
      const std::string wanted = std::string("did you mean \"") + node + "\"?";
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
  }
}

TEST(ClusterName, ALargerOneHasAsManyDevices) {
  EXPECT_EQ(larger_cluster("dgx-h100:1", 20), "--cluster dgx-h100:3");
  EXPECT_EQ(larger_cluster("rtx4090:1x2", 4), "--cluster rtx4090:1x4");
  EXPECT_EQ(larger_cluster("this-machine:2", 8), "--cluster this-machine:8");
  EXPECT_EQ(larger_cluster("racks.json", 8), "a larger --cluster");
}

TEST(ClusterName, OfJoinedOnesSaysWhatWasUnderstood) {
  const ClusterSpec cluster = load_cluster("dgx-a100:1+dgx-a100:1@100Gb/s@5ms", std::nullopt);
  EXPECT_EQ(cluster.name, "dgx-a100:1+dgx-a100:1@12.5GB/s@5ms");
  EXPECT_DOUBLE_EQ(cluster.levels.back().bandwidth_bytes_per_s, 12.5e9);
  EXPECT_THROW(load_cluster("dgx-a100:1+dgx-a100:1@100gb/s", std::nullopt), UserError);
}

}  // namespace
}  // namespace mpt::profiler
