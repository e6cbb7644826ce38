// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/catalog.h"

#include <gtest/gtest.h>

#include "core/error.h"

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

}  // namespace
}  // namespace mpt::profiler
