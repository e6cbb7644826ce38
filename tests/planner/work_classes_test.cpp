// SPDX-License-Identifier: Apache-2.0

// Where the step's time goes by class of work.

#include "planner/explain/operators.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/simulate/simulator.h"
#include "tests/planner/priced_layouts.h"

namespace mpt::planner {
namespace {

using test::layout_of;
using test::Priced;
using test::priced_layouts;

Candidate candidate_of(const Priced& p) {
  Candidate c{estimate(p.problem, p.layout), {}};
  c.evaluation = evaluate_regardless(p.problem, c.estimate);
  return c;
}

Layout pipelined() {
  Layout l = layout_of(2, 4, Recompute::selective);
  l.data = 2;
  l.zero = 1;
  l.shard = 2;
  return l;
}

double of(const WorkSeconds& work, WorkClass c) { return work[size_t(c)]; }

TEST(WorkClasses, AddUpToTheStep) {
  for (const Priced& p : priced_layouts()) {
    const Candidate c = candidate_of(p);
    const WorkSeconds work = critical_work(p.problem, c);
    const double sum = std::accumulate(work.begin(), work.end(), 0.0);
    EXPECT_NEAR(sum, c.evaluation.step_time_s, 1e-9 * sum) << layout_name(p.layout);
    for (const double seconds : work) EXPECT_GE(seconds, 0.0) << layout_name(p.layout);
    EXPECT_GT(of(work, WorkClass::products), 0.0) << layout_name(p.layout);
  }
}

TEST(WorkClasses, ALayoutHasThoseOfItsParts) {
  const Priced alone("llama3-8b", "dgx-h100:1", layout_of(1, 1, Recompute::full));
  const WorkSeconds of_one = critical_work(alone.problem, candidate_of(alone));
  for (const WorkClass c : {WorkClass::tensor_collectives, WorkClass::expert_exchange, WorkClass::transfers,
                            WorkClass::grouped_products})
    EXPECT_EQ(of(of_one, c), 0.0) << enum_name(c);
  for (const WorkClass c :
       {WorkClass::products, WorkClass::attention, WorkClass::elementwise, WorkClass::optimizer})
    EXPECT_GT(of(of_one, c), 0.0) << enum_name(c);
  const Priced split("llama3-8b", "dgx-h100:2", pipelined());
  const WorkSeconds of_many = critical_work(split.problem, candidate_of(split));
  for (const WorkClass c : {WorkClass::tensor_collectives, WorkClass::transfers, WorkClass::data_parallel})
    EXPECT_GT(of(of_many, c), 0.0) << enum_name(c);
}

// The step if each class takes longer by its factor, simulated again.
double simulated_s(const Priced& p, const Candidate& c, const WorkSeconds& factors) {
  const InstructionWork work(p.problem, c);
  std::vector<double> durations = c.evaluation.durations_s;
  for (size_t id = 0; id < durations.size(); ++id) {
    const WorkSeconds shares = work.shares(InstructionId(id));
    durations[id] *= std::inner_product(shares.begin(), shares.end(), factors.begin(), 0.0);
  }
  return step_time_s(simulate(c.evaluation.program, durations));
}

TEST(WorkClasses, TellToFirstOrderWhatSimulationDoes) {
  constexpr double kTolerance = 0.005;
  std::deque<Priced> all = priced_layouts();
  all.emplace_back("llama3-8b", "dgx-h100:2", pipelined());
  for (const Priced& p : all) {
    const Candidate c = candidate_of(p);
    const WorkSeconds work = critical_work(p.problem, c);
    for (size_t changed = 0; changed < kWorkClasses; ++changed) {
      for (const double factor : {0.9, 1.1}) {
        WorkSeconds factors;
        factors.fill(1.0);
        factors[changed] = factor;
        const double first_order = std::inner_product(work.begin(), work.end(), factors.begin(), 0.0);
        EXPECT_NEAR(first_order / simulated_s(p, c, factors), 1.0, kTolerance)
            << layout_name(p.layout) << " " << enum_name(WorkClass(changed)) << " " << factor;
      }
    }
  }
}

}  // namespace
}  // namespace mpt::planner
