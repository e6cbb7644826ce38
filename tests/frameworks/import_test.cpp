// SPDX-License-Identifier: Apache-2.0
#include "frameworks/import.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

Imported megatron(const std::string& flags) {
  const std::string file = testing::TempDir() + "/import.sh";
  write_file_atomically(file, flags);
  return import_megatron_core(file);
}

Imported torchtitan(const std::string& text) {
  const std::string file = testing::TempDir() + "/import.toml";
  write_file_atomically(file, text);
  return import_torchtitan(file);
}

const char* const kSmall = "--num-layers 32 --hidden-size 512 --num-attention-heads 8 --seq-length 2048 ";

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Import, VirtualStagesByTheirLayers) {
  const Imported in = megatron(std::string(kSmall) +
                               "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4");
  EXPECT_EQ(in.layout.chunks, 2);
  EXPECT_EQ(in.layout.layers_per_stage, std::vector<int64_t>(8, 4));
  EXPECT_EQ(in.layout.schedule, "interleaved");
}

TEST(Import, WhatIsLeftOutAndCannotBeIsNamed) {
  EXPECT_NE(error_of([] {
              megatron("--num-layers 2 --hidden-size 4 --num-attention-heads 8");
            }).find("--kv-channels: left out, which means 0 here"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              megatron("--num-layers 2 --hidden-size 8 --num-attention-heads 8 --swiglu");
            }).find("--ffn-hidden-size: left out, which means 0 here"),
            std::string::npos);
}

TEST(Import, ProductsOfDegreesAreNoMoreThanAClusterHas) {
  EXPECT_NE(error_of([] {
              megatron(std::string(kSmall) +
                       "--tensor-model-parallel-size 10000000 --context-parallel-size 10000000");
            }).find("more than 10000000 ranks"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              torchtitan(
                  "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
                  "data_parallel_replicate_degree = 10000000\ndata_parallel_shard_degree = 10000000\n");
            }).find("data_parallel_shard_degree: 10000000 x 10000000"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              megatron(std::string(kSmall) +
                       "--pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 100000");
            }).find("800000 stages for 32 layers"),
            std::string::npos);
}

TEST(Import, MinusOneLeavesTorchtitansDegreesOpen) {
  const Imported in = torchtitan(
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\ndata_parallel_shard_degree = -1\n"
      "[training]\nglobal_batch_size = -1\n");
  EXPECT_EQ(in.layout.data, 0);
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.workload.global_batch, 0);
}

}  // namespace
}  // namespace mpt::frameworks
