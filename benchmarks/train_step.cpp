// SPDX-License-Identifier: Apache-2.0

// Times optimizer steps (forward, backward, AdamW) of a GPT-2 style model, on one core or in data parallel on
// several, a batch and a core each. Reads lines "N" from stdin, does N steps for each and answers on one line
// with the seconds of each, so that a script can take turns with another program; a line "0" is answered with
// the FLOP/s that each core reaches in products of matrices. Begins with the FLOPs of a step and core.
// In bf16 weights have fp32 masters. Usage: train_step LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY [RANKS
// [fp32|bf16]]

#include <fmt/format.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "models/layer_program.h"
#include "runtime/comm/mover.h"
#include "runtime/comm/threads/thread_world.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/nn/stage.h"

namespace mpt {
namespace {

ModelSpec model_of(char** argv) {
  ModelSpec m;
  m.name = "bench";
  m.hidden = std::atoll(argv[2]);
  LayerKind layer;
  Attention& attention = layer.attention.emplace();
  attention.heads = attention.kv_heads = std::atoll(argv[3]);
  attention.head_dim = m.hidden / attention.heads;
  attention.qkv_bias = attention.output_bias = true;
  m.max_positions = std::atoll(argv[4]);
  m.vocab = std::atoll(argv[6]);
  layer.mlp = Mlp{.ffn_hidden = 4 * m.hidden, .bias = true};
  m.layers = LayerList(std::atoll(argv[1]), layer);
  m.tied_embeddings = true;
  return m;
}

using runtime::DataType;

class Rank {
 public:
  Rank(const ModelSpec& model, int64_t batch, DataType type, std::unique_ptr<runtime::Communicator> data)
      : type_(type), tokens_(batch * model.max_positions), data_(std::move(data)) {
    Layout layout;
    layout.micro_batch = batch;
    layout.layers_per_stage = {model.layers.count()};
    stage_.emplace(runtime::StageOptions{model, layout, model.max_positions, type, 1}, 0,
                   StageContent{0, model.layers.count(), true, true}, *device_,
                   runtime::StageGroups{{group_.get(), group_.get(), group_.get()}, {}});
    stage_->set_loss_scale(1.0 / double(tokens_ * data_->size()));
    const int64_t bytes = parameters().count() * 4;
    for (runtime::Buffer* moment : {&first_, &second_}) {
      *moment = runtime::Buffer(*device_, bytes);
      device_->zero(moment->data(), bytes);
    }
    if (type != kState) {
      masters_ = runtime::Buffer(*device_, bytes);
      device_->run(type, runtime::CopyColumns{.to_type = kState,
                                              .rows = 1,
                                              .columns = parameters().count(),
                                              .from = parameters().values(),
                                              .from_stride = 0,
                                              .to = masters_.data(),
                                              .to_stride = 0});
    }
    for (int64_t i = 0; i < tokens_; ++i) {
      ids_.push_back(int32_t(i * 7919 % model.vocab));
      targets_.push_back(int32_t((i * 7919 + 1) % model.vocab));
    }
  }

  double step_s() {
    data_->barrier();
    const double start = now_s();
    stage_->forward(0, ids_.data(), targets_.data(), nullptr, nullptr);
    stage_->backward(0, nullptr, nullptr);
    if (data_->size() > 1)
      data_->all_reduce(parameters().gradients(), parameters().count(), kState,
                        runtime::ReduceOperation::sum);
    ++adamw_.step;
    const bool narrow = type_ != kState;
    device_->run(kState, runtime::AdamStep{.count = parameters().count(),
                                           .options = adamw_,
                                           .gradient = parameters().gradients(),
                                           .parameter = narrow ? masters_.data() : parameters().values(),
                                           .first_moment = first_.data(),
                                           .second_moment = second_.data(),
                                           .copy = {type_, narrow ? parameters().values() : nullptr}});
    parameters().zero_gradients();
    data_->barrier();
    return now_s() - start;
  }

  // Measured like a step: for about the same time, on all ranks at once, until the last one is done.
  double product_flop_per_s() {
    constexpr int64_t kSize = 768, kProducts = 16;
    constexpr runtime::LinearShape kShape{kSize, kSize, kSize};
    const runtime::Buffer a(*device_, kSize * kSize * size_of(type_)), b(*device_, a.bytes()),
        c(*device_, a.bytes());
    const std::vector<double> values(size_t(kSize * kSize), 0.5);
    for (const runtime::Buffer* operand : {&a, &b})
      device_->upload(type_, values.data(), kSize * kSize, operand->data());
    data_->barrier();
    const double start = now_s();
    for (int64_t i = 0; i < kProducts; ++i)
      device_->run(type_,
                   runtime::LinearForward{.shape = kShape, .x = a.data(), .w = b.data(), .y = c.data()});
    data_->barrier();
    return double(kProducts) * 2.0 * double(kSize * kSize * kSize) / (now_s() - start);
  }

 private:
  static constexpr auto kState = DataType::float32;
  runtime::Parameters& parameters() { return stage_->parameters(); }

  DataType type_;
  int64_t tokens_;
  std::unique_ptr<runtime::Device> device_ = runtime::make_cpu_device();
  std::unique_ptr<runtime::Communicator> group_ = runtime::make_single_communicator();
  std::unique_ptr<runtime::Communicator> data_;
  std::optional<runtime::Stage> stage_;
  runtime::Buffer masters_, first_, second_;
  std::vector<int32_t> ids_, targets_;
  runtime::AdamW adamw_{.learning_rate = 1e-3, .step = 0};
};

int run(int argc, char** argv) {
  const std::string_view type = argc == 9 ? argv[8] : "fp32";
  if (argc < 7 || argc > 9 || (type != "fp32" && type != "bf16"))
    throw UserError(Problem{"train_step", "wrong arguments",
                            "LAYERS HIDDEN HEADS SEQUENCE BATCH VOCABULARY [RANKS [fp32|bf16]]", ""});
  const ModelSpec model = model_of(argv);
  const int64_t batch = std::atoll(argv[5]);
  const int ranks = argc >= 8 ? std::atoi(argv[7]) : 1;
  fmt::print("{}\n",
             models::model_flop_per_token(model, model.max_positions) * double(batch * model.max_positions));
  std::fflush(stdout);
  runtime::ThreadWorld world(std::chrono::minutes(10), ranks);
  std::vector<int> everybody(static_cast<size_t>(ranks));
  std::iota(everybody.begin(), everybody.end(), 0);
  int rounds = 0;
  bool more = true;
  std::barrier together(ranks);
  const auto work = [&](int number) {
    Rank rank(model, batch, type == "bf16" ? DataType::bfloat16 : DataType::float32,
              world.communicator(number, everybody, "data"));
    while (true) {
      if (number == 0) more = std::scanf("%d", &rounds) == 1;
      together.arrive_and_wait();
      if (!more) return;
      const int steps = rounds;
      std::vector<double> answers;
      for (int i = 0; i < steps; ++i) answers.push_back(rank.step_s());
      if (steps == 0) answers.push_back(rank.product_flop_per_s());
      together.arrive_and_wait();
      if (number != 0) continue;
      fmt::print("{}\n", fmt::join(answers, " "));
      std::fflush(stdout);
    }
  };
  std::vector<std::jthread> others;
  for (int r = 1; r < ranks; ++r) others.emplace_back(work, r);
  work(0);
  return kExitOk;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("train_step", [&] { return mpt::run(argc, argv); });
}
