// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layouts of the zoo's models with everything that prices them.

#include <deque>
#include <memory>
#include <string>

#include "frameworks/framework.h"
#include "models/zoo.h"
#include "planner/search/evaluate.h"
#include "profiler/hardware/catalog.h"

namespace mpt::test {

struct Priced {
  Priced(const std::string& model, const std::string& cluster, Layout of,
         const std::string& framework = "megatron-core")
      : layout(std::move(of)) {
    problem.model = models::load_model(model);
    problem.cluster = profiler::load_cluster(cluster, std::nullopt);
    problem.workload = {4 * layout.data * layout.micro_batch, 4096};
    problem.ranks = layout.ranks();
    problem.memory_limit_bytes = problem.cluster.device.memory_bytes;
    problem.precision = layout.precision = Precision::bf16;
    problem.execution = layout.execution = frameworks::load_framework(framework, "test");
    layout.layers_per_stage = even_stages(problem.model.layers.count(), layout.stages());
    source = planner::make_device_cost(problem.cluster, problem.execution);
    problem.cost = source.get();
  }

  Priced(const Priced&) = delete;

  planner::SearchProblem problem;
  Layout layout;
  std::unique_ptr<planner::CostSource> source;
};

inline Layout layout_of(int64_t tensor, int64_t pipeline, Recompute recompute) {
  Layout l;
  l.tensor = tensor;
  l.pipeline = pipeline;
  l.sequence_parallel = tensor > 1;
  l.recompute = recompute;
  return l;
}

// Of several parallelisms, in place for good: the prices refer to the problem's cluster.
inline std::deque<Priced> priced_layouts() {
  std::deque<Priced> priced;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    priced.emplace_back("llama3-8b", "dgx-h100:2", layout_of(4, 1, recompute));
  Layout overlapped = layout_of(8, 1, Recompute::selective);
  overlapped.overlap_tensor = true;
  priced.emplace_back("llama3-8b", "dgx-h100:1", overlapped);
  Layout ring = layout_of(2, 1, Recompute::none);
  ring.context = 4;
  priced.emplace_back("llama3-8b", "dgx-h100:1", ring);
  Layout experts = layout_of(2, 1, Recompute::full);
  experts.data = experts.expert = 4;
  experts.expert_tensor = 1;
  priced.emplace_back("deepseek-v2", "dgx-h100:1", experts);
  experts.recompute = Recompute::none;
  experts.overlap_exchange = true;
  priced.emplace_back("deepseek-v2", "dgx-h100:1", experts);
  return priced;
}

}  // namespace mpt::test
