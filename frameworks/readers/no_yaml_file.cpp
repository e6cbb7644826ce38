// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "frameworks/readers/yaml_file.h"

namespace mpt::frameworks {

Json yaml_value(const std::string&, WorkBudget& budget) {
  refuse_input(budget.file(), "a file in YAML", "another format",
               "this build has no YAML parser (MPT_PLANNER_ONLY=ON); build without that option");
}

}  // namespace mpt::frameworks
