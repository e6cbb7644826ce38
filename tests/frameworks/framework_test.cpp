// SPDX-License-Identifier: Apache-2.0
#include "frameworks/framework.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "frameworks/export_targets.h"

namespace mpt::frameworks {
namespace {

TEST(Framework, EveryOneLoadsUnderItsName) {
  const std::vector<std::string> names = framework_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()),
            (std::set<std::string>{"automodel", "deepspeed", "megatron-bridge", "megatron-core", "mpt",
                                   "pytorch", "torchtitan", "transformers-ddp", "transformers-deepspeed",
                                   "transformers-fsdp"}));
  for (const std::string& name : names) EXPECT_EQ(load_framework(name, "test").framework, name);
  EXPECT_EQ(load_framework("mpt", "test"), Execution{});
  EXPECT_EQ(usual_framework().name, "megatron-core");
}

TEST(Framework, GoesByWhatPeopleCallIt) {
  for (const auto& [alias, name] : {std::pair{"fsdp", "pytorch"},
                                    {"fsdp2", "pytorch"},
                                    {"megatron", "megatron-core"},
                                    {"nemo", "megatron-bridge"},
                                    {"transformers", "transformers-fsdp"}})
    EXPECT_EQ(find_framework(alias), find_framework(name)) << alias;
  std::set<std::string> known;
  for (const Framework& framework : known_frameworks()) {
    EXPECT_TRUE(known.insert(framework.name).second) << framework.name;
    for (const std::string& alias : framework.other_names())
      EXPECT_TRUE(known.insert(alias).second) << alias << " is two";
    for (const std::string& other : framework.takes_plans_of) {
      ASSERT_NE(find_framework(other), nullptr) << other;
      EXPECT_EQ(find_framework(other)->name, other);
    }
  }
}

// TRL 1.16.0 computes log-probabilities by tiles of the head: plan, export, import and doctor say the same.
TEST(Framework, TrlKeepsNoLogits) {
  for (const char* name : {"transformers-fsdp", "transformers", "axolotl", "llamafactory"})
    EXPECT_EQ(load_framework(name, "test").kernels.loss, LossKernel::fp32) << name;
  Execution trl = load_framework("trl", "test");
  EXPECT_EQ(trl.kernels.loss, LossKernel::chunked);
  EXPECT_EQ(trl.framework, "transformers-fsdp");
  EXPECT_EQ(trl.allocator.process_build_bytes, 4) << "of a checkpoint";
  EXPECT_EQ(trl.kernels.loss_tile_words, 32768);
  EXPECT_TRUE(trl.states.narrow_adapters);
  trl.kernels.loss = LossKernel::fp32;
  trl.kernels.loss_tile_words = 0;
  trl.states.narrow_adapters = false;
  std::swap(trl.allocator.process_build_bytes, trl.allocator.host_build_bytes);
  EXPECT_EQ(trl, load_framework("transformers-fsdp", "test")) << "nothing else is otherwise";
  for (const char* name : {"trl-ddp", "trl-deepspeed"})
    EXPECT_EQ(load_framework(name, "test").kernels.loss_tile_words, 32768) << name;
}

// docs/frameworks.md has a row for each, with its aliases.
TEST(Framework, TheDocumentHasTheirNames) {
  const std::string page = read_file(MPT_SOURCE_DIR "/docs/frameworks.md");
  for (const Framework& framework : known_frameworks()) {
    const size_t row = page.find("\n| `" + framework.name + "` |");
    ASSERT_NE(row, std::string::npos) << framework.name;
    const std::string line = page.substr(row + 1, page.find('\n', row + 1) - row - 1);
    for (const std::string& alias : framework.other_names())
      EXPECT_NE(line.find("`" + alias + "`"), std::string::npos) << line << " lacks " << alias;
  }
}

TEST(Framework, UnknownOnesAreRefusedWithTheNearestName) {
  EXPECT_EQ(find_framework("maxtext"), nullptr) << "of published runs alone";
  try {
    framework_named("fsdp3", "--framework");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"fsdp"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("transformers-deepspeed"), std::string::npos) << error.what();
  }
}

TEST(Framework, TakesOtherValuesOfItsFields) {
  const Execution bridge = load_framework("megatron-bridge", "test");
  EXPECT_EQ(with_changes(bridge, {}, "test"), bridge);
  Execution changed = bridge;
  changed.kernels.fp8_attention = true;
  changed.host.launch_us = 2.5;
  changed.kernels.attention = AttentionKernel::flash2;
  EXPECT_EQ(with_changes(bridge, {"fp8_attention=true", "launch_us=2.5", "attention=flash2"}, "test"),
            changed);
  for (const char* wrong :
       {"graphs", "=true", "graphs=", "graphs=1", "launch_us=[1]", "no_such=1", "framework=mpt"})
    EXPECT_THROW(with_changes(bridge, {wrong}, "test"), UserError) << wrong;
}

TEST(Framework, AnAliasAmongFieldsIsTheFramework) {
  const Execution named = with_fields({}, {{"framework", "nemo"}, {"launch_us", 1.5}}, "test");
  Execution expected = load_framework("megatron-bridge", "test");
  expected.host.launch_us = 1.5;
  EXPECT_EQ(named, expected);
}

}  // namespace
}  // namespace mpt::frameworks
