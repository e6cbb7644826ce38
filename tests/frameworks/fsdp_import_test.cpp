// SPDX-License-Identifier: Apache-2.0

// How accelerate's files say that FSDP shares out weights: its version, strategies and groups.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/ranges.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

// By name or number (accelerate 1.15.0, utils/constants.py:38); FSDP2 has a switch alone.
TEST(FsdpImport, StrategiesOfFsdp1) {
  const std::filesystem::path folder = testing::TempDir() + "/strategies";
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& more, const std::string& adapters = "") {
    write_file_atomically(
        folder / "train.json",
        R"({"model_name_or_path": "meta-llama/Llama-3.1-8B", "block_size": 4096)" + adapters + "}");
    write_file_atomically(folder / "fsdp.yaml",
                          "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nfsdp_config:\n"
                          "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n" +
                              more);
    return import_transformers(folder / "fsdp.yaml");
  };
  using Keys = std::vector<std::string>;
  for (const auto& [more, zero, groups] :
       {std::tuple{"", 3, 1},
        {"  fsdp_sharding_strategy: FULL_SHARD\n", 3, 1},
        {"  fsdp_sharding_strategy: 2\n", 2, 1},
        {"  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", 3, 1},
        {"  fsdp_sharding_strategy: shard_grad_op\n", 2, 1},
        {"  fsdp_sharding_strategy: HYBRID_SHARD\n", 3, 2},
        {"  fsdp_sharding_strategy: '5'\n", 2, 2},
        {"  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n", 3, 1}}) {
    const Imported in = read(more);
    EXPECT_EQ(in.unknown, Keys{}) << more;
    EXPECT_EQ(in.layout.zero, zero) << more;
    EXPECT_EQ(in.shard_groups, groups) << more;
    EXPECT_EQ(in.layout.data, 16) << more;
  }
  EXPECT_EQ(
      read("  fsdp_sharding_strategy: NO_SHARD\n").unknown,
      Keys{"fsdp_config.fsdp_sharding_strategy no_shard (distributed_type: MULTI_GPU keeps weights whole)"});
  const std::string lora = R"(, "adapter": "lora", "lora_r": 8, "lora_target_modules": "all-linear")";
  const std::string original = "  fsdp_use_orig_params: true\n";
  EXPECT_EQ(read(original).unknown, Keys{});
  EXPECT_EQ(read("  fsdp_use_orig_params: false\n", lora).unknown, Keys{});
  EXPECT_EQ(read("  fsdp_version: 2\n" + original, lora).unknown, Keys{});
  EXPECT_EQ(read(original, lora).unknown.size(), 1u) << "gradients of frozen weights";
}

// accelerate 1.15.0; findings/accelerate_loses_the_sharding_strategy_it_asked_for.sh
TEST(FsdpImport, EachFsdpReadsItsOwnKeyOfTheStrategy) {
  const auto read = [](const std::string& fsdp) {
    const std::string file = testing::TempDir() + "/strategy.yaml";
    write_file_atomically(
        file,
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
        "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n" +
            fsdp);
    return find_importer("", file).importer.read(file);
  };
  const auto notes = [](const Imported& in, const std::string& part) {
    return std::count_if(in.notes.begin(), in.notes.end(),
                         [&](const std::string& n) { return n.find(part) != std::string::npos; });
  };
  for (const auto& [fsdp, zero, groups, unread] : std::vector<std::tuple<std::string, int64_t, int64_t, int>>{
           {"  fsdp_version: 2\n", 3, 1, 0},
           {"  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", 2, 1, 0},
           {"  fsdp_version: 2\n  fsdp_reshard_after_forward: 'false'\n", 2, 1, 0},
           {"  fsdp_version: 2\n  fsdp_sharding_strategy: HYBRID_SHARD\n", 3, 1, 1},
           {"  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n", 3, 1, 1},
           {"  fsdp_sharding_strategy: FULL_SHARD\n", 3, 1, 0},
           {"  fsdp_sharding_strategy: SHARD_GRAD_OP\n", 2, 1, 0},
           {"  fsdp_sharding_strategy: HYBRID_SHARD\n", 3, 2, 0},
           {"  fsdp_version: 1\n  fsdp_sharding_strategy: 4\n", 3, 2, 0},
           {"  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n", 2, 2, 0},
           {"  fsdp_sharding_strategy: 2\n", 2, 1, 0},
           {"  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", 3, 1, 1},
       }) {
    const Imported in = read(fsdp);
    EXPECT_EQ(in.layout.zero, zero) << fsdp;
    EXPECT_EQ(in.layout.data, 16) << fsdp;
    EXPECT_EQ(std::max<int64_t>(1, in.shard_groups), groups) << fsdp;
    EXPECT_EQ(notes(in, "does not read it"), unread) << fsdp;
    EXPECT_EQ(notes(in, "priced as FSDP 2"), fsdp.find("version: 2") == std::string::npos ? 1 : 0) << fsdp;
    EXPECT_TRUE(in.unknown.empty()) << fsdp;
  }
  EXPECT_EQ(read("  fsdp_sharding_strategy: NO_SHARD\n").unknown.size(), 1u);
  EXPECT_EQ(read("  fsdp_sharding_strategy: 6\n").unknown.size(), 1u);
}

}  // namespace
}  // namespace mpt::frameworks
