// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "frameworks/supports/supports.h"
#include "models/parameter_count.h"
#include "models/zoo.h"
#include "profiler/hardware/catalog.h"

namespace mpt::test {
namespace {

constexpr int64_t kGpusOfNode = 8;
constexpr int64_t kMostNodes = 64;

struct RequestDice {
  std::mt19937 random;

  template <class T>
  T pick(const std::vector<T>& values) {
    return values[random() % values.size()];
  }
  /// Once in n times.
  bool once_in(uint32_t n) { return random() % n == 0; }
};

// Those that the framework trains in bf16 and that its export writes, as far as the largest cluster may hold
// them.
std::vector<std::string> models_of(const frameworks::Framework& framework) {
  std::vector<std::string> names;
  for (const std::string& name : models::zoo_names()) {
    const ModelSpec model = frameworks::trained_by(framework, models::load_model(name));
    if (frameworks::verdict_on(framework, model).verdict == Verdict::exported &&
        !frameworks::supports_model(framework, model, Precision::bf16))
      names.push_back(name);
  }
  return names;
}

std::vector<Precision> precisions_of(const frameworks::Framework& framework, const ModelSpec& model,
                                     const std::string& node) {
  std::vector<Precision> all{Precision::bf16, Precision::bf16};
  const bool narrow = node != "dgx-a100", blackwell = node == "dgx-b200";
  for (const auto& [precision, has] : {std::pair{Precision::fp16, !narrow},
                                       {Precision::fp8, narrow},
                                       {Precision::mxfp8, blackwell},
                                       {Precision::nvfp4, blackwell}}) {
    if (has && !frameworks::supports_model(framework, model, precision)) all.push_back(precision);
  }
  return all;
}

// Nodes whose memory holds weights, gradients and states, with some room.
int64_t least_nodes(const ModelSpec& model, const std::string& node) {
  const double memory = double(profiler::load_cluster(node + ":1", {}, 0).device.memory_bytes);
  const double gpus = 18.0 * double(models::count_parameters(model).total) / (0.6 * memory);
  int64_t nodes = 1;
  while (double(nodes * kGpusOfNode) < gpus) nodes *= 2;
  return nodes;
}

template <class T>
bool has(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Of what the framework can do at all: all else has no answer.
void set_moving_parts(RequestDice& dice, const ModelSpec& model, const frameworks::Abilities& can,
                      PlanRequest& r) {
  if (dice.once_in(4) && can.overlap_tensor)
    r.overlaps = {"gradient-reduce", "parameter-gather", "tensor", "transfer"};
  if (dice.once_in(8) && can.always_overlaps.empty()) r.overlaps = {"none"};
  if (model.moe() != nullptr && dice.once_in(4)) r.dispatch = Dispatch::once;
  if (dice.once_in(8)) r.bounds.recomputes = {Recompute::full};
  if (dice.once_in(8) && has(can.recomputes, Recompute::selective))
    r.bounds.recomputes = {Recompute::selective};
  if (dice.once_in(6) && !can.schedules.empty()) r.bounds.pipeline = {2, 4, 8};
  if (dice.once_in(6) && can.tensor) r.bounds.tensor = {2, 4};
  if (dice.once_in(8) && !can.context_methods.empty()) r.bounds.context = {2, 4};
  if (dice.once_in(8)) {
    const auto zero = dice.pick<int64_t>({0, 1, 2, 3});
    if (has(can.zero, zero)) r.bounds.zero = {zero};
  }
  if (dice.once_in(12) && has(can.orders, RankOrder::data_outermost))
    r.bounds.orders = {RankOrder::data_outermost};
}

}  // namespace

PlanRequest random_request(uint32_t seed, const frameworks::Framework& framework) {
  RequestDice dice{std::mt19937(seed)};
  PlanRequest r;
  r.framework = framework.name;
  r.model.name = dice.pick(models_of(framework));
  const ModelSpec model = models::load_model(r.model.name);
  const auto node = dice.pick<std::string>({"dgx-a100", "dgx-h100", "dgx-h100", "dgx-b200"});
  const int64_t nodes = std::min(kMostNodes, least_nodes(model, node) * dice.pick<int64_t>({1, 1, 2, 3, 4}));
  r.cluster.name = fmt::format("{}:{}", node, nodes);
  r.precision = dice.pick(precisions_of(framework, model, node));
  r.sequence = std::min(model.max_positions, dice.pick<int64_t>({2048, 4096, 4096, 8192, 16384}));
  r.global_batch = nodes * kGpusOfNode * dice.pick<int64_t>({1, 2, 4, 8}) / dice.pick<int64_t>({1, 1, 2, 4});
  if (dice.once_in(5)) r.global_batch = std::max<int64_t>(2, r.global_batch * 7 / 8);
  set_moving_parts(dice, model, framework.abilities, r);
  r.time_limit_s = 20.0;
  return r;
}

}  // namespace mpt::test
