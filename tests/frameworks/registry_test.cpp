// SPDX-License-Identifier: Apache-2.0
#include "frameworks/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/export_targets.h"
#include "frameworks/framework.h"

namespace mpt::frameworks {
namespace {

TEST(Registry, HasARowForEachFramework) {
  std::set<std::string> rows;
  for (const FrameworkCode& code : framework_code()) EXPECT_TRUE(rows.insert(code.framework).second);
  const std::vector<std::string> names = framework_names();
  EXPECT_EQ(rows, std::set<std::string>(names.begin(), names.end()));
}

TEST(Registry, TargetsGoByNamesAndAliasesOfFrameworks) {
  for (const ExportTarget& target : export_targets()) EXPECT_EQ(&find_export_target(target.name), &target);
  for (const auto& [name, target] : {std::pair{"megatron", "megatron-core"},
                                     {"fsdp2", "pytorch"},
                                     {"nemo", "megatron-bridge"},
                                     {"slurm", "slurm"}})
    EXPECT_STREQ(find_export_target(name).name, target);
  for (const char* none : {"mpt", "no such"}) EXPECT_THROW(find_export_target(none), UserError) << none;
}

TEST(Registry, PlansGoToTheirOwnExport) {
  const auto target_of = [](const char* framework) {
    const ExportTarget* target = export_target_of(framework);
    return std::string(target != nullptr ? target->name : "none");
  };
  EXPECT_EQ(target_of("megatron-core"), "megatron-core");
  EXPECT_EQ(target_of("nemo"), "megatron-bridge");
  EXPECT_EQ(target_of("transformers-deepspeed"), "transformers-deepspeed");
  for (const char* none : {"mpt", "maxtext"}) EXPECT_EQ(target_of(none), "none");
  EXPECT_TRUE(takes_plans_of(find_export_target("megatron-bridge"), "megatron-core"));
  EXPECT_TRUE(takes_plans_of(find_export_target("deepspeed"), "transformers-deepspeed"));
  EXPECT_FALSE(takes_plans_of(find_export_target("megatron-core"), "megatron-bridge"));
  EXPECT_FALSE(takes_plans_of(find_export_target("torchtitan"), "maxtext"));
  EXPECT_TRUE(takes_plans_of(find_export_target("slurm"), "maxtext")) << "launchers start any";
}

TEST(Registry, ImportersGoByNameOrEnding) {
  EXPECT_STREQ(find_importer("", "run.toml").framework, "torchtitan");
  EXPECT_STREQ(find_importer("", "run.sh").framework, "megatron-core");
  EXPECT_STREQ(find_importer("megatron", "run.toml").framework, "megatron-core");
  EXPECT_STREQ(find_importer("titan", "run.sh").framework, "torchtitan");
  EXPECT_THROW(find_importer("mpt", "run.toml"), UserError);
}

// Several frameworks have files of one ending: a word in them decides.
TEST(Registry, FilesOfOneEndingGoByWhatTheyHold) {
  const auto importer_of = [](const char* name, const char* text) {
    const std::string file = testing::TempDir() + "/" + name;
    write_file_atomically(file, text);
    return std::string(find_importer("", file).framework);
  };
  EXPECT_EQ(importer_of("a.yaml", "distributed_type: DEEPSPEED"), "transformers-deepspeed");
  EXPECT_EQ(importer_of("a.yaml", "fsdp_config:"), "transformers-fsdp");
  EXPECT_EQ(importer_of("a.yaml", "step_scheduler:"), "automodel");
  EXPECT_EQ(importer_of("a.yaml", "cutoff_len: 2048"), "transformers-fsdp") << "LLaMA-Factory";
  EXPECT_EQ(importer_of("a.yaml", "base_model: me/mine\nsequence_len: 2048"), "transformers-fsdp")
      << "axolotl";
  EXPECT_EQ(importer_of("a.py", "from torchtitan.trainer import Trainer"), "torchtitan");
  EXPECT_EQ(importer_of("a.py", "init_device_mesh()"), "pytorch");
  EXPECT_EQ(importer_of("a.json", "{}"), "deepspeed");
}

}  // namespace
}  // namespace mpt::frameworks
