// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/kernel_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/profile.h"
#include "tests/support/make_plan.h"

namespace mpt::profiler {
namespace {

class KernelProfileTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = ::testing::TempDir() + "kernel_profile_test.txt"; }
  void TearDown() override { std::remove(file_.c_str()); }
  KernelProfile import(const std::string& text, const LogHints& hints = {}) {
    write_file_atomically(file_, text);
    KernelProfile profile;
    profile.device = "test";
    import_times(profile, file_, hints);
    return profile;
  }
  std::string file_;
};

const std::string kHeader =
    "# Collective test starting: all_gather_perf\n#  Rank  0 Group  0 Pid  1 on  a device  0\n"
    "#  Rank  1 Group  0 Pid  1 on  a device  1\n";

TEST_F(KernelProfileTest, NcclTestsNameTheirCollectiveAndTheirRanks) {
  const KernelProfile p =
      import(kHeader +
             "  1048576   131072  float  none  -1   30.91  33.92  16.96  0   29.80  35.19  17.59  0\n"
             "  1048576   131072  float  none  -1   28.00  33.92  16.96  0   29.80  35.19  17.59  0\n"
             "        0        0  float  none  -1    1.00   0.00   0.00  0    1.00   0.00   0.00  0\n");
  ASSERT_EQ(p.collectives.size(), 1u) << "the shorter of two, and no empty message";
  EXPECT_EQ(p.collectives[0], (CollectiveTime{"all_gather", 2, 1048576, p.collectives[0].seconds}));
  EXPECT_NEAR(p.collectives[0].seconds, 28e-6, 1e-12);
  EXPECT_EQ(p.sources, std::vector<std::string>{"kernel_profile_test.txt"});
}

const std::string kRow =
    "  1048576   131072  float  none  -1   30.91  33.92  16.96  0   29.80  35.19  17.59  0\n";

TEST_F(KernelProfileTest, LaunchersPrefixesChangeNothing) {
  const KernelProfile plain = import(kHeader + kRow);
  for (const std::string prefix : {"[0] ", "0: ", "[1,0]<stdout>:", "node1: ", "[default0]:", "\x1b[36m"}) {
    std::string text;
    const std::string whole = kHeader + kRow;
    for (size_t begin = 0; begin < whole.size();) {
      const size_t end = whole.find('\n', begin);
      text += prefix + whole.substr(begin, end - begin + 1);
      begin = end + 1;
    }
    EXPECT_EQ(import(text).collectives, plain.collectives) << prefix;
  }
}

// Two GPUs in one node are not one in each of two.
TEST_F(KernelProfileTest, TheHeaderSaysOnHowManyHosts) {
  const std::string two_hosts =
      "# Collective test starting: all_reduce_perf\n"
      "#  Rank  0 Group  0 Pid 100 on  node00 device  0 [0x18] NVIDIA H100 80GB HBM3\n"
      "#  Rank  1 Group  0 Pid 101 on  node01 device  0 [0x18] NVIDIA H100 80GB HBM3\n";
  EXPECT_EQ(import(kHeader + kRow).collectives.at(0).hosts, 1);
  EXPECT_EQ(import(two_hosts + kRow).collectives.at(0).hosts, 2);
  EXPECT_EQ(json_text(to_json(import(kHeader + kRow))).find("hosts"), std::string::npos)
      << "and no other digest than before";
  EXPECT_EQ(import(kRow, {"all_reduce", 16, 2}).collectives.at(0).hosts, 2);
  EXPECT_THROW(
      import(two_hosts + "#  Rank  2 Group  0 Pid 101 on  node01 device  1 [0x18] NVIDIA H100\n" + kRow),
      UserError)
      << "another number on each";
  EXPECT_THROW(import(kRow, {"all_reduce", 9, 2}), UserError);
}

TEST_F(KernelProfileTest, ATestThatSplitsItsRanksTimesGroups) {
  std::string text = "# Collective test starting: all_gather_perf\n";
  for (int rank = 0; rank < 8; ++rank)
    text += fmt::format("#  Rank  {} Group  {} Pid 1 on  node{} device  {}\n", rank, rank % 4, rank / 4,
                        rank % 4);
  const KernelProfile p = import(text + kRow);
  EXPECT_EQ(p.collectives.at(0).ranks, 2);
  EXPECT_EQ(p.collectives.at(0).hosts, 2);
}

TEST_F(KernelProfileTest, TestsInOneFileKeepTheirNamesAndRanks) {
  const std::string next =
      "# Collective test starting: all_reduce_perf\n# Using devices\n#  Rank  0 Group  0 Pid  1 on  a device "
      " 0\n"
      "#  Rank  1 Group  0 Pid  1 on  a device  1\n#  Rank  2 Group  0 Pid  1 on  a device  2\n";
  const KernelProfile p = import(kHeader + kRow + next + kRow);
  ASSERT_EQ(p.collectives.size(), 2u);
  EXPECT_EQ(p.collectives[0].operation, "all_gather");
  EXPECT_EQ(p.collectives[1].operation, "all_reduce");
  EXPECT_EQ(p.collectives[1].ranks, 3);
}

// nccl-tests without MPI: each process prints a test of its own.
TEST_F(KernelProfileTest, ProcessesThatTestAloneAreRefused) {
  std::string text;
  for (const char* rank : {"0: ", "1: "})
    text += fmt::format(
        "{0}# Collective test starting: all_reduce_perf\n{0}#  Rank  0 Group  0 Pid  1 on  a device 0\n"
        "{0}{1}",
        rank, kRow);
  EXPECT_THROW(import(text), UserError);
}

TEST_F(KernelProfileTest, TimesThatCannotBeAreRefused) {
  EXPECT_THROW(import(kHeader + "  1048576   131072  float  none  -1   99999999999.0  33.92  16.96  0\n"),
               UserError);
}

TEST_F(KernelProfileTest, HintsStandInForWhatALogDoesNotSay) {
  const std::string rows =
      "  8388608  2097152  float  sum  -1  107.51  78.03  117.04  0  106.87  78.49  117.74  0\n";
  EXPECT_THROW(import(rows), UserError);
  EXPECT_THROW(import(rows, {"all_reduce", 0}), UserError);
  EXPECT_EQ(import(rows, {"all_reduce", 8}).collectives[0].ranks, 8);
}

TEST_F(KernelProfileTest, TablesHoldJustWhatWasMeasured) {
  KernelProfile profile;
  profile.products = {{ProductPass::forward, 4, 5, 6, 1e-3}, {ProductPass::any, 7, 8, 9, 2e-3}};
  profile.collectives = {{"all_reduce", 4, 1000, 1e-5}, {"all_reduce", 4, 4000, 2e-5}};
  const KernelTables t = tables_of(profile);
  EXPECT_EQ(t.exact_product_s("forward", 4, 5, 6), 1e-3);
  EXPECT_FALSE(t.exact_product_s("weight_gradient", 4, 5, 6));
  EXPECT_EQ(t.exact_product_s("weight_gradient", 7, 8, 9), 2e-3) << "any pass";
  EXPECT_NEAR(*t.collective_s("all_reduce", 4, 2000), std::sqrt(1e-5 * 2e-5), 1e-12);
  EXPECT_NEAR(*t.collective_s("all_reduce", 4, 8000), 4e-5, 1e-12);
  EXPECT_FALSE(t.collective_s("all_reduce", 8, 1000)) << "another number of ranks";
  EXPECT_FALSE(t.gemm_s(false, 4, 5, 6));
}

// Products by the shape that each pass runs them in, attention of one sequence, no messages between two.
TEST_F(KernelProfileTest, AGpusOwnProfileBecomesKernelTimes) {
  Profile own;
  own.machine = {"NVIDIA H200", DeviceKind::gpu, "system", 8, int64_t{140} << 30};
  own.model = test::little_gpt();
  own.sequence = 32;
  own.precision = Precision::bf16;
  own.memory_bandwidth_bytes_per_s = own.matmul_flop_per_s = 1e12;
  own.rate_by_active_ranks = {1.0};
  models::OperatorShape linear, attention;
  linear.rows = 64, linear.columns = 96, linear.inner = 32;
  attention.kind = models::OperatorKind::attention;
  attention.batch = 4, attention.sequence = 32, attention.heads = 8, attention.kv_heads = 2;
  attention.head_dim = attention.value_head_dim = 64;
  own.operators = {{linear, Phase::forward, 1e-5, 0.0},
                   {linear, Phase::input_gradient, 2e-5, 0.0},
                   {linear, Phase::weight_gradient, 3e-5, 0.0},
                   {attention, Phase::forward, 4e-5, 0.0},
                   {attention, Phase::backward, 8e-5, 0.0}};
  own.transport = {{TransportOperation::all_gather, 8, 1 << 20, 1e-4, 0.0},
                   {TransportOperation::send_receive, 2, 1 << 20, 1e-4, 0.0}};
  own.pieces = {{Piece::layer, Phase::forward, 1, 1, Recompute::none, 1e-3, 0.0}};
  write_file_atomically(file_, profile_to_text(own));
  KernelProfile profile;
  profile.device = "h200-sxm-141gb";
  import_times(profile, file_, {});
  ASSERT_EQ(profile.collectives.size(), 1u);
  EXPECT_EQ(profile.collectives[0], (CollectiveTime{"all_gather", 8, 1 << 20, 1e-4}));
  const KernelTables t = tables_of(profile);
  EXPECT_EQ(t.exact_product_s("forward", 64, 96, 32), 1e-5);
  EXPECT_EQ(t.exact_product_s("input_gradient", 64, 32, 96), 2e-5);
  EXPECT_EQ(t.exact_product_s("weight_gradient", 96, 32, 64), 3e-5);
  EXPECT_EQ(t.exact(t.attention_seconds, "forward", {32, 8, 2, 64}), 1e-5);
  EXPECT_EQ(t.exact(t.attention_seconds, "backward", {32, 8, 2, 64}), 2e-5);
  EXPECT_FALSE(t.exact(t.attention_seconds, "forward", {64, 8, 2, 64}));
  profile.device = "h100-sxm-80gb";
  EXPECT_THROW(import_times(profile, file_, {}), UserError);
}

// Whatever the file holds, it is taken over or refused.
TEST_F(KernelProfileTest, RandomTextIsTakenOverOrRefused) {
  std::mt19937 random(11);
  const std::string whole =
      kHeader + "  1048576  131072  float  none  -1  30.91  33.92  16.96  0  29.80  35.19  17.59  0\n" +
      R"({"traceEvents":[{"cat":"cpu_op","name":"aten::mm","args":{"External id":7,"Input Dims":[[4,8],[8,2]]}}]})";
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = whole.substr(random() % whole.size());
    for (int changes = int(random() % 4); changes > 0 && !text.empty(); --changes)
      text[random() % text.size()] = char(random() % 256);
    try {
      import(text, {i % 2 == 0 ? "all_reduce" : "", int64_t(random() % 9)});
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace mpt::profiler
