// SPDX-License-Identifier: Apache-2.0

// Reads a plan with the installed libraries and prints Megatron-LM's arguments of it.

#include <cstdio>

#include "core/plan.h"
#include "planner/export/export.h"

int main(int, char** argv) {
  const mpt::Plan plan = mpt::load_plan(argv[1]);
  std::fputs(mpt::planner::export_megatron(plan).files.front().text.c_str(), stdout);
}
