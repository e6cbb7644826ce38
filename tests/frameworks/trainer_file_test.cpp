// SPDX-License-Identifier: Apache-2.0
#include "frameworks/pytorch/trainer_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mpt::frameworks {
namespace {

TEST(TrainerFile, LinesStayWhereTheirConditionsHold) {
  const std::string text =
      "a\n# if one\nb\n    # if not two\n    c\n    # end\n# end\n# if not one\nd\n# end\ne\n";
  EXPECT_EQ(kept_lines(text, {{"one", true}, {"two", false}}), "a\nb\n    c\ne\n");
  EXPECT_EQ(kept_lines(text, {{"one", true}, {"two", true}}), "a\nb\ne\n");
  EXPECT_EQ(kept_lines(text, {{"one", false}, {"two", false}}), "a\nd\ne\n");
}

TEST(TrainerFile, UnknownAndUnbalancedConditionsAreFaultsOfOurs) {
  EXPECT_THROW(kept_lines("# if one\n# end\n", {}), InternalError);
  EXPECT_THROW(kept_lines("# if one\n", {{"one", true}}), InternalError);
  EXPECT_THROW(kept_lines("# end\n", {}), InternalError);
}

TEST(TrainerFile, PartsOfEachFamilyOfWeightsAreThere) {
  std::vector<std::string> names;
  for (const auto& [name, text] : trainer_files()) {
    names.emplace_back(name);
    EXPECT_NE(text.find("# body\n"), std::string::npos) << name;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"data.py", "model.py", "plan.py", "split.py", "train.py", "weights.py",
                                      "weights_gpt2.py", "weights_llama.py", "weights_mixtral.py"}));
}

TEST(TrainerFile, ConstantsTakeThePlaceOfTheSampleAndUnusedNamesAreNotImported) {
  const TrainerConditions none{{"refused", false}};
  const std::string text = trainer_file({trainer_part("plan.py"), trainer_part("weights_llama.py")}, none,
                                        "\"\"\"Head.\"\"\"\n", "MESH = [2]\n");
  EXPECT_TRUE(text.starts_with("\"\"\"Head.\"\"\"\n\nimport math\nimport os\n\nimport torch\n\nMESH = [2]\n"))
      << text;
  EXPECT_EQ(text.find("MODEL = "), std::string::npos) << text;
  EXPECT_EQ(text.find("# body"), std::string::npos) << text;
}

}  // namespace
}  // namespace mpt::frameworks
