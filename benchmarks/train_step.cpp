// SPDX-License-Identifier: Apache-2.0

// Times optimizer steps (forward, backward, AdamW) of a GPT-2 style model on one core. Reads lines "N" from
// stdin, does N steps for each and answers with the seconds of each on one line, so that a script can take
// turns with another program. Usage: train_step LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "runtime/comm/single.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/nn/stage.h"

namespace mpt {
namespace {

ModelSpec model_of(char** argv) {
  ModelSpec m;
  m.name = "bench";
  m.layers = std::atoll(argv[1]);
  m.hidden = std::atoll(argv[2]);
  m.heads = m.kv_heads = std::atoll(argv[3]);
  m.head_dim = m.hidden / m.heads;
  m.max_positions = std::atoll(argv[4]);
  m.vocab = std::atoll(argv[6]);
  m.ffn_hidden = 4 * m.hidden;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = m.tied_embeddings = true;
  return m;
}

int run(int argc, char** argv) {
  if (argc != 7)
    throw UserError(
        Problem{"train_step", "wrong arguments", "LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY", ""});
  const ModelSpec model = model_of(argv);
  Layout layout;
  layout.micro_batch = std::atoll(argv[5]);
  layout.layers_per_stage = {model.layers};
  const int64_t sequence = model.max_positions, tokens = layout.micro_batch * sequence;
  const auto device = runtime::make_cpu_device();
  const auto group = runtime::make_single_communicator();
  constexpr auto kType = runtime::DataType::float32;
  runtime::Stage stage({model, layout, sequence, kType, 1}, 0, {0, model.layers, true, true}, *device,
                       {{group.get(), group.get(), group.get()}, {}});
  stage.set_loss_scale(1.0 / double(tokens));
  runtime::Parameters& parameters = stage.parameters();
  const int64_t bytes = parameters.count() * 4;
  runtime::Buffer first(*device, bytes), second(*device, bytes);
  device->zero(first.data(), bytes);
  device->zero(second.data(), bytes);
  std::vector<int32_t> ids, targets;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(int32_t(i * 7919 % model.vocab));
    targets.push_back(int32_t((i * 7919 + 1) % model.vocab));
  }
  runtime::AdamW adamw{1e-3};
  int rounds = 0;
  while (std::scanf("%d", &rounds) == 1) {
    for (int i = 0; i < rounds; ++i, ++adamw.step) {
      const double start = now_s();
      stage.forward(0, ids.data(), targets.data(), nullptr, nullptr);
      stage.backward(0, nullptr, nullptr);
      device->adamw(kType, parameters.count(), adamw, parameters.gradients(), parameters.values(),
                    first.data(), second.data());
      parameters.zero_gradients();
      fmt::print("{} ", now_s() - start);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return kExitOk;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("train_step", [&] { return mpt::run(argc, argv); });
}
