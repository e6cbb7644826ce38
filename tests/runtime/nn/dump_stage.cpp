// SPDX-License-Identifier: Apache-2.0

// Writes a small model's weights, tokens, loss and gradients as JSON, for torch_reference.py to compute
// again. Usage: dump_stage gpt|llama|mixtral|grouped|qwen|predicting

#include <cstdio>
#include <map>
#include <string>

#include "base/json.h"
#include "runtime/comm/mover.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/nn/stage.h"
#include "tests/support/make_plan.h"

namespace mpt {
namespace {

constexpr int64_t kSequence = 19;
constexpr int64_t kBatch = 3;

Json tensor(const runtime::Parameter& p, const void* base, int64_t first) {
  const auto* data = static_cast<const double*>(base) + first;
  return std::vector<double>(data, data + p.count);
}

ModelSpec predicting() {
  ModelSpec m = test::little_mixtral(2);
  m.next_token_layers = 2;
  return m;
}

int run(const std::string& style) {
  const std::map<std::string, ModelSpec> models{
      {"gpt", test::little_gpt(2)},         {"llama", test::little_llama(2)},
      {"mixtral", test::little_mixtral(2)}, {"grouped", test::little_grouped(2)},
      {"qwen", test::little_qwen(2)},       {"predicting", predicting()}};
  const ModelSpec& model = models.at(style);
  const auto device = runtime::make_cpu_device();
  const auto group = runtime::make_single_communicator();
  Layout layout;
  layout.micro_batch = kBatch;
  layout.layers_per_stage = {model.layers.count()};
  const runtime::StageOptions options{model, layout, kSequence, runtime::DataType::float64, 5};
  runtime::Stage stage(options, 0, {0, model.layers.count(), true, true}, *device,
                       {{group.get(), group.get(), group.get()}, {}});
  stage.set_loss_scale(1.0 / double(kBatch * kSequence));
  runtime::Parameters& parameters = stage.parameters();
  auto* values = static_cast<double*>(parameters.values());
  for (int64_t i = 0; i < parameters.count(); ++i) values[i] = values[i] * 5 + 0.02 * double(i * 31 % 17 - 8);
  std::vector<int32_t> tokens, targets;
  for (int64_t i = 0; i < kBatch * kSequence; ++i) {
    tokens.push_back(int32_t(i * 37 % model.vocab));
    targets.push_back(int32_t((i * 53 + 7) % model.vocab));
  }
  for (int64_t i = 0; i < model.next_token_layers * kBatch * kSequence; ++i)
    targets.push_back(int32_t((i * 29 + 11) % model.vocab));
  stage.forward(0, tokens.data(), targets.data(), nullptr, nullptr);
  const double loss = stage.loss_sum() / double(kBatch * kSequence),
               next_token_loss = stage.next_token_loss_sum() / double(kBatch * kSequence);
  stage.backward(0, nullptr, nullptr);
  Json out{{"model", to_json(model)}, {"batch", kBatch},    {"sequence", kSequence},
           {"tokens", tokens},        {"targets", targets}, {"loss", loss}};
  out["next_token_loss"] = next_token_loss;
  out["next_token_weight"] = options.next_token_weight;
  for (const runtime::Parameter& p : parameters.list()) {
    const int64_t first = parameters.first_element(p);
    out["weights"][p.name] = {{"shape", {p.global_rows, p.global_columns}},
                              {"value", tensor(p, parameters.values(), first)},
                              {"gradient", tensor(p, parameters.gradients(), first)}};
  }
  std::fputs(out.dump().c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("dump_stage", [&] { return mpt::run(argc > 1 ? argv[1] : "gpt"); });
}
