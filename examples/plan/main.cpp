// SPDX-License-Identifier: Apache-2.0

// Plans the training of Llama 3 8B on one node and writes plan.json: plan MODEL CLUSTER BATCH.

#include <cstdio>

#include "base/error.h"
#include "planner/api.h"

int main(int argc, char** argv) try {
  mpt::PlanRequest request;
  request.model.name = argc > 1 ? argv[1] : "llama3-8b";
  request.cluster.name = argc > 2 ? argv[2] : "dgx-h100:1";
  request.global_batch = argc > 3 ? std::atoll(argv[3]) : 64;
  const mpt::Plan plan = mpt::planner::plan(request);
  std::printf("%s: %.3f s per step\n", mpt::layout_name(plan.layout).c_str(), plan.prediction.step_time_s);
  mpt::save_plan(plan, "plan.json");
} catch (const mpt::UserError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
