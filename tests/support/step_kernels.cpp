// SPDX-License-Identifier: Apache-2.0

// Prints the kernels that one step has on one GPU, without recomputation, with launches, bytes and
// FLOPs of each, as JSON (tests/support/counting_device.h). Two layers are walked, and the others are like
// the second. Usage: step_kernels MODEL SEQUENCE MICRO_BATCH MICRO_BATCHES [fp8]

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/gpu_memory.h"
#include "models/zoo.h"
#include "runtime/comm/mover.h"
#include "runtime/nn/stage.h"
#include "runtime/train/optimizer.h"
#include "tests/support/counting_device.h"

namespace mpt {
namespace {

struct Wanted {
  ModelSpec model;
  int64_t sequence = 0, micro_batch = 0, micro_batches = 0;
  bool fp8 = false;
};

test::KernelCounts count(Wanted wanted, int64_t layers) {
  using namespace runtime;
  test::KernelCounts counts;
  const auto device = test::make_counting_device(counts);
  wanted.model.layers = LayerList(layers, wanted.model.layers[0]);
  wanted.model.max_positions = std::max(wanted.model.max_positions, wanted.sequence);
  Layout layout;
  layout.micro_batch = wanted.micro_batch;
  layout.precision = wanted.fp8 ? Precision::fp8 : Precision::bf16;
  layout.layers_per_stage = {layers};
  layout.execution.edit().kernels.vocabulary_multiple = kVocabularyMultipleOnGpus;
  const auto group = make_single_communicator();
  Stage stage({wanted.model, layout, wanted.sequence, DataType::bfloat16, 1}, 0, {0, layers, true, true},
              *device, {{group.get(), group.get(), group.get()}, {}});
  const ReplicaGroups replicas{group.get(), group.get()};
  Optimizer optimizer(stage.parameters(), *device, replicas, replicas, *group, {});
  const std::vector<int32_t> tokens(size_t(wanted.micro_batch * wanted.sequence), 0);
  counts.clear();
  for (int64_t i = 0; i < wanted.micro_batches; ++i) {
    stage.forward(int(i), tokens.data(), tokens.data(), nullptr, nullptr);
    stage.backward(int(i), nullptr, nullptr);
  }
  optimizer.squared_norm();
  optimizer.step({1e-3});
  return counts;
}

// What `layers` of them have, if one and two have these.
test::KernelCounts of_layers(int64_t layers, const test::KernelCounts& one, test::KernelCounts two) {
  for (auto& [kernel, counts] : two) {
    test::KernelCount& of_two = counts;  // a lambda captures no binding
    const auto found = one.find(kernel);
    const test::KernelCount of_one = found == one.end() ? test::KernelCount{} : found->second;
    const auto at = [&](auto test::KernelCount::*part) {
      return of_one.*part + decltype(of_one.*part)(layers - 1) * (of_two.*part - of_one.*part);
    };
    // The norm of the gradients is one launch, and its sums are as many as the GPU's blocks.
    if (kernel == "sum_of_squares_kernel") of_two.written_bytes = of_one.written_bytes;
    of_two = {at(&test::KernelCount::launches), at(&test::KernelCount::read_bytes),
              at(&test::KernelCount::written_bytes), at(&test::KernelCount::flop)};
  }
  return two;
}

int run(char** argv, bool fp8) {
  const Wanted wanted{models::load_model(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]),
                      std::atoll(argv[4]), fp8};
  const int64_t layers = wanted.model.layers.count();
  nlohmann::json kernels = nlohmann::json::object();
  for (const auto& [name, c] : of_layers(layers, count(wanted, 1), count(wanted, 2)))
    kernels[name] = {{"launches", c.launches},
                     {"read_bytes", c.read_bytes},
                     {"written_bytes", c.written_bytes},
                     {"flop", c.flop}};
  fmt::print("{}\n", nlohmann::json{{"model", argv[1]},
                                    {"precision", fp8 ? "fp8" : "bf16"},
                                    {"sequence", wanted.sequence},
                                    {"tokens", wanted.sequence * wanted.micro_batch * wanted.micro_batches},
                                    {"hidden", wanted.model.hidden},
                                    {"kernels", kernels}}
                         .dump(1));
  return 0;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  const bool fp8 = argc == 6 && std::string_view(argv[5]) == "fp8";
  if (argc != 5 && !fp8) {
    std::fputs("usage: step_kernels MODEL SEQUENCE MICRO_BATCH MICRO_BATCHES [fp8]\n", stderr);
    return 2;
  }
  try {
    return mpt::run(argv, fp8);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_kernels: %s\n", error.what());
    return 1;
  }
}
