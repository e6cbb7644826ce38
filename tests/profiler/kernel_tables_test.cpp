// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/kernel_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "profiler/hardware/catalog.h"

namespace mpt::profiler {
namespace {

const std::vector<std::pair<double, double>> kFlat{{0, 0}, {0, 0}}, kWork{{1, 1}, {1, 1}};

TEST(LogGrid, IsExactAtItsPointsAndFollowsPowersBetweenThem) {
  const auto value = [](double a, double b) { return 3.0 * std::pow(a, 0.7) * std::pow(b, 1.2); };
  const std::vector<double> a{1, 3, 10}, b{2, 64};
  std::vector<double> values;
  for (const double x : a) {
    for (const double y : b) values.push_back(value(x, y));
  }
  const LogGrid grid({a, b}, values, kFlat, kWork);
  for (const double x : {1.0, 1.5, 3.0, 7.0, 10.0}) {
    for (const double y : {2.0, 5.0, 64.0})
      EXPECT_NEAR(grid.at({x, y, 1}) / value(x, y), 1.0, 1e-12) << x << " " << y;
  }
}

TEST(LogGrid, BeyondItsEndsItGoesOnWithinTheSlopesItIsGiven) {
  const LogGrid grid({{1, 2, 4}}, {10, 20, 80}, {{0, 0.5}}, {{0, 1}});
  EXPECT_NEAR(grid.at({0.25, 1, 1}), 10 * std::pow(0.25, 0.5), 1e-9) << "slope 1 below is held to 0.5";
  EXPECT_NEAR(grid.at({16, 1, 1}), 80 * 4.0, 1e-9) << "slope 2 above is held to 1";
  const LogGrid flat({{1, 2}, {1, 2}}, {5, 6, 7, 8}, kFlat, kFlat);
  EXPECT_NEAR(flat.at({9, 9, 1}), 8, 1e-12);
  EXPECT_NEAR(flat.at({1e-9, 9, 1}), 6, 1e-12);
  const LogGrid one({{3}}, {7}, kFlat, kFlat);
  EXPECT_NEAR(one.at({100, 1, 1}), 7, 1e-12);
}

TEST(KernelTables, EveryFileReadsAndNamesItsSource) {
  EXPECT_GE(kernel_table_names().size(), 10u);
  for (const std::string& name : kernel_table_names()) {
    const KernelTables* tables = kernel_tables(name);
    ASSERT_NE(tables, nullptr) << name;
    EXPECT_EQ(tables->device, name);
    EXPECT_GT(tables->source.size(), 20u);
    EXPECT_EQ(kernel_tables(name), tables) << "read once";
  }
  EXPECT_EQ(kernel_tables("no-such-device"), nullptr);
}

// Points of the source: kernels/<gpu>/gemm.csv and collective.csv.
TEST(KernelTables, PublishedPointsComeBackExactly) {
  const KernelTables& a100 = *kernel_tables("a100-sxm-80gb");
  const double flop = 2.0 * 8192 * 8192 * 8192;
  EXPECT_NEAR(flop / *a100.gemm_s(false, 8192, 8192, 8192) / 1e12, 257, 1.5);
  EXPECT_FALSE(a100.gemm_s(true, 4096, 4096, 4096)) << "A100 has no fp8";
  const double bytes = 512.0 * (1 << 20);
  EXPECT_NEAR(2.0 * 7 / 8 * bytes / *a100.collective_s("all_reduce", 8, bytes) / 1e9, 222, 1.5);
  EXPECT_NEAR(
      2.0 * 7 / 8 * bytes / *kernel_tables("h100-sxm-80gb")->collective_s("all_reduce", 8, bytes) / 1e9, 445,
      2);
  EXPECT_FALSE(a100.collective_s("all_reduce", 16, bytes)) << "beyond the measured ranks";
}

TEST(KernelTables, LargerProductsNeverTakeLessAndRatesStayBelowThePeak) {
  for (const std::string& name : kernel_table_names()) {
    const KernelTables& t = *kernel_tables(name);
    for (const bool fp8 : {false, true}) {
      for (double m = 128; m <= 32768; m *= 2) {
        for (double n = 128; n <= 65536; n *= 3) {
          const auto s = t.gemm_s(fp8, m, n, 4096), longer = t.gemm_s(fp8, m, n, 8192),
                     wider = t.gemm_s(fp8, m, 2 * n, 4096);
          if (!s) continue;
          EXPECT_LE(*s, *longer * 1.001) << name << " " << m << " " << n;
          EXPECT_LE(*s, *wider * 1.001) << name << " " << m << " " << n;
          EXPECT_LT(2.0 * m * n * 4096 / *s, 6e15) << name;
        }
      }
    }
  }
}

// The source has GB300's products under B300's name (scripts/build_kernel_tables).
TEST(KernelTables, ProductsOfB300AreToGb300sAsB200sAreToGb200s) {
  const auto slower = [](const char* board, const char* superchip, bool fp8) {
    double logarithms = 0.0, products = 0.0;
    for (double m = 1024; m <= 32768; m *= 2) {
      for (const double n : {2048.0, 4096.0, 7168.0, 12288.0}) {
        for (const double k : {2048.0, 4096.0, 7168.0, 12288.0}) {
          logarithms += std::log(*kernel_tables(board)->gemm_s(fp8, m, n, k) /
                                 *kernel_tables(superchip)->gemm_s(fp8, m, n, k));
          products += 1.0;
        }
      }
    }
    return std::exp(logarithms / products);
  };
  for (const bool fp8 : {false, true}) {
    EXPECT_NEAR(slower("b300-sxm", "gb300", fp8), slower("b200-sxm-180gb", "gb200", fp8), 0.01) << fp8;
    EXPECT_GT(slower("b300-sxm", "gb300", fp8), 1.05) << fp8;
  }
}

TEST(KernelTables, SaneFarOutside) {
  for (const std::string& name : kernel_table_names()) {
    const KernelTables& t = *kernel_tables(name);
    for (const double size : {1.0, 1e3, 1e6, 1e9}) {
      if (const auto s = t.gemm_s(false, size, size, size)) {
        EXPECT_TRUE(std::isfinite(*s) && *s > 0.0) << name << size;
      }
      if (const auto r = t.attention_flop_per_s(size, size, size)) {
        EXPECT_GT(*r, 0.0) << name << " " << size;
        EXPECT_LT(*r, 4e15) << name << " " << size;
      }
      EXPECT_LT(t.grouped_flop_per_s(size, size).value_or(1.0), 4e15) << name;
      EXPECT_GT(t.collective_s("all_gather", 2, size).value_or(1.0), 0.0) << name;
    }
  }
}

// Their blocks of queries fill the chip as those of more heads do.
TEST(KernelTables, AttentionBeyondTheLongestSequenceIsAsOfMoreHeads) {
  const KernelTables& t = *kernel_tables("a100-sxm-80gb");
  EXPECT_DOUBLE_EQ(*t.attention_flop_per_s(128, 131072, 4), *t.attention_flop_per_s(128, 16384, 32));
  EXPECT_GT(*t.attention_flop_per_s(128, 131072, 4), 1.2 * *t.attention_flop_per_s(128, 16384, 4));
}

TEST(Catalog, AMeshOfFewerSharesTheSameLinksOutAndMoreDevicesNeedASwitch) {
  const auto inside = [](int64_t devices, int64_t per_node) {
    return cluster_of_device("v100-sxm-32gb", {devices, per_node, per_node})->levels.front();
  };
  EXPECT_EQ(inside(16, 8).mesh, 8);
  EXPECT_EQ(inside(2, 8).mesh, 8) << "two of a node of eight";
  EXPECT_EQ(inside(16, 4).mesh, 4);
  EXPECT_EQ(inside(4, 4).bandwidth_among_bytes_per_s(2), inside(8, 8).bandwidth_bytes_per_s / 3);
  EXPECT_EQ(inside(32, 16).mesh, 0) << "DGX-2";
}

TEST(Catalog, DevicesOfPublishedRunsAreFoundByTheirOwnNames) {
  for (const char* name :
       {"a100-sxm-80gb", "a100-sxm-40gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm",
        "gb200", "gb300", "l40s-48gb", "rtx-pro-6000-server", "v100-sxm-32gb", "a800-sxm-80gb"}) {
    const auto cluster = cluster_of_device(name, {64, 8, 8, 100e9});
    ASSERT_TRUE(cluster) << name;
    EXPECT_EQ(cluster->devices, 64);
    EXPECT_GT(cluster->device.power_w, 0.0) << name;
    EXPECT_NEAR(cluster->levels.back().bandwidth_bytes_per_s, 12.5e9, 1.0)
        << "the record's network, not the catalog's";
  }
  EXPECT_FALSE(cluster_of_device("abacus", {8, 8, 8, 0.0}));
  EXPECT_FALSE(cluster_of_device("", {8, 8, 8, 0.0}));
  const auto pcie = cluster_of_device("a100-pcie-40gb", {8, 8, 8, 0.0});
  EXPECT_EQ(pcie->device.name, "a100-pcie-80gb");
  EXPECT_EQ(pcie->device.memory_bytes, int64_t{40} << 30);
  EXPECT_EQ(cluster_of_device("V100", {8, 8, 8, 0.0})->device.name.substr(0, 4), "v100");
  EXPECT_EQ(cluster_of_device("rtx-4090-24gb", {8, 8, 8, 0.0})->device.name.substr(0, 7), "rtx4090");
  EXPECT_EQ(cluster_of_device("a6000-48gb", {8, 8, 8, 0.0})->device.name, "rtx-a6000-48gb");
  EXPECT_EQ(cluster_of_device("h100", {8, 8, 8, 0.0})->device.name, "h100-sxm-80gb");
  EXPECT_EQ(cluster_of_device("h100-sxm5-80gb", {8, 8, 8, 0.0})->device.name, "h100-sxm-80gb");
  EXPECT_EQ(cluster_of_device("gb200", {64, 4, 72, 0.0})->levels.size(), 1u) << "one NVLink domain";
}

}  // namespace
}  // namespace mpt::profiler
