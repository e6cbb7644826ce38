// SPDX-License-Identifier: Apache-2.0

// Lowers and simulates one step of 1F1B over stages x micro-batches.

#include <benchmark/benchmark.h>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/simulate/simulator.h"

namespace mpt {
namespace {

Layout layout_of(int64_t stages) {
  Layout layout;
  layout.pipeline = stages;
  return layout;
}

void lower_step(benchmark::State& state) {
  const Schedule schedule =
      find_schedule("1f1b", "bench").generate(int(state.range(0)), 1, int(state.range(1)));
  const std::vector<StageFootprint> footprints(size_t(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(lower(layout_of(state.range(0)), schedule, footprints));
}

void simulate_step(benchmark::State& state) {
  const Schedule schedule =
      find_schedule("1f1b", "bench").generate(int(state.range(0)), 1, int(state.range(1)));
  const StepProgram program =
      lower(layout_of(state.range(0)), schedule, std::vector<StageFootprint>(size_t(state.range(0))));
  const std::vector<double> durations(program.instructions.size(), 1e-3);
  for (auto _ : state) benchmark::DoNotOptimize(planner::simulate(program, durations));
}

BENCHMARK(lower_step)->Args({4, 32})->Args({16, 128})->Args({16, 512})->Unit(benchmark::kMicrosecond);
BENCHMARK(simulate_step)->Args({4, 32})->Args({16, 128})->Args({16, 512})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mpt

BENCHMARK_MAIN();
