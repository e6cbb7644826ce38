// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/rank_worker.h"

namespace mpt::runtime {

std::vector<size_t> in_flight_of_stages(const StepProgram& program) {
  std::vector<size_t> held(size_t(program.stages), 0), most(held);
  for (const Instruction& i : program.instructions) {
    if (i.stage < 0) continue;
    const auto s = size_t(i.stage);
    if (i.kind == InstructionKind::forward) most[s] = std::max(most[s], ++held[s]);
    if (i.kind == InstructionKind::backward || i.kind == InstructionKind::weight_gradient) --held[s];
  }
  return most;
}

namespace {

// The means over layers, by pass.
std::vector<double> means(const std::vector<LayerLoads>& layers) {
  size_t passes = layers.front().size();
  for (const LayerLoads& layer : layers) passes = std::min(passes, layer.size());
  std::vector<double> mean(passes, 0.0);
  for (const LayerLoads& layer : layers)
    for (size_t pass = 0; pass < passes; ++pass) mean[pass] += layer[pass] / double(layers.size());
  return mean;
}

double highest_mean_of(const std::vector<double>& values, size_t window) {
  double most = 0.0;
  window = std::clamp<size_t>(window, 1, std::max<size_t>(1, values.size()));
  for (size_t first = 0; first + window <= values.size(); ++first) {
    const auto begin = values.begin() + std::ptrdiff_t(first);
    most = std::max(most, std::accumulate(begin, begin + std::ptrdiff_t(window), 0.0) / double(window));
  }
  return most;
}

}  // namespace

double expert_load(const std::vector<StageLoads>& stages, bool one_by_one) {
  double fullest = 0.0, sum = 0.0;
  size_t layers = 0;
  for (const StageLoads& stage : stages) {
    if (stage.layers.empty()) continue;
    for (const auto& layer : stage.layers)
      for (const double load : layer) fullest = std::max(fullest, load);
    sum += double(stage.layers.size()) * highest_mean_of(means(stage.layers), stage.in_flight);
    layers += stage.layers.size();
  }
  return one_by_one || layers == 0 ? fullest : sum / double(layers);
}

}  // namespace mpt::runtime
