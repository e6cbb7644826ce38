// SPDX-License-Identifier: Apache-2.0

// Computes a folder of Hugging Face with the runtime's layers, and writes loss, logits and gradients as JSON,
// by the names that they have there. Usage: dump_model FOLDER BATCH SEQUENCE float32|float64

#include <cstdio>
#include <map>
#include <string>

#include "base/json.h"
#include "models/zoo.h"
#include "runtime/checkpoint/hugging_face.h"
#include "runtime/comm/mover.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/nn/stage.h"

namespace mpt {
namespace {

using runtime::DataType;

std::vector<double> numbers(runtime::Device& device, DataType type, const void* data, int64_t count) {
  std::vector<double> out(static_cast<size_t>(count));
  device.download(type, data, count, out.data());
  return out;
}

class Dump {
 public:
  Dump(const std::string& folder, int64_t batch, int64_t sequence, DataType type)
      : model_(models::load_model(folder + "/config.json")), batch_(batch), sequence_(sequence) {
    model_.layers.change([](LayerKind& kind) {
      if (kind.moe) kind.moe->balance_loss = 0.0;
    });
    Layout layout;
    layout.micro_batch = batch;
    layout.layers_per_stage = {model_.layers.count()};
    stage_ = std::make_unique<runtime::Stage>(
        runtime::StageOptions{model_, layout, sequence, type, 5}, 0,
        StageContent{0, model_.layers.count(), true, true}, *device_,
        runtime::StageGroups{{group_.get(), group_.get(), group_.get()}, {}});
    stage_->set_loss_scale(1.0 / double(batch * sequence));
    load(folder);
    for (int64_t i = 0; i < batch * sequence; ++i) {
      tokens_.push_back(int32_t((i * 37 + i * i) % model_.vocab));
      targets_.push_back(int32_t((i * 53 + 7) % model_.vocab));
    }
    for (int64_t i = 0; i < model_.next_token_layers * batch * sequence; ++i)
      targets_.push_back(int32_t((i * 29 + 11) % model_.vocab));
  }

  Json run() {
    Json out{{"tokens", tokens_}, {"targets", targets_}, {"loss", loss_of(targets_)}};
    out["logits"] = logits();
    stage_->parameters().zero_gradients();
    stage_->forward(0, tokens_.data(), targets_.data(), nullptr, nullptr);
    out["next_token_loss"] = stage_->next_token_loss_sum() / double(batch_ * sequence_);
    stage_->backward(0, nullptr, nullptr);
    out["gradients"] = gradients();
    return out;
  }

 private:
  void load(const std::string& folder) {
    const runtime::HuggingFaceWeights weights(folder, model_);
    tensors_ = weights.tensors();
    runtime::Parameters& parameters = stage_->parameters();
    for (const runtime::Parameter& p : parameters.list()) {
      std::vector<double> values(static_cast<size_t>(p.count));
      double* to = values.data();
      for (const runtime::ShardBlock& block : p.blocks) {
        weights.read(runtime::TensorKind::value, p.name, block, to);
        to += block.count();
      }
      parameters.set(p, values);
    }
  }

  double loss_of(const std::vector<int32_t>& targets) {
    stage_->reset_loss();
    stage_->forward(0, tokens_.data(), targets.data(), nullptr, nullptr, false);
    return stage_->loss_sum() / double(batch_ * sequence_);
  }

  // Of each token, but for a constant: what the loss grows by where another word than the first is wanted.
  std::vector<std::vector<double>> logits() {
    std::vector<int32_t> targets(tokens_.size(), 0);
    const double first = loss_of(targets);
    std::vector<std::vector<double>> table;
    for (int32_t& target : targets) {
      std::vector<double> row;
      for (int64_t word = 0; word < model_.vocab; ++word) {
        target = int32_t(word);
        row.push_back((first - loss_of(targets)) * double(batch_ * sequence_));
      }
      target = 0;
      table.push_back(row);
    }
    return table;
  }

  Json gradients() {
    std::map<std::string, std::vector<double>> own, theirs;
    runtime::Parameters& parameters = stage_->parameters();
    for (const runtime::Parameter& p : parameters.list()) {
      if (p.fixed_step > 0.0) continue;
      const char* const from = static_cast<const char*>(parameters.gradients()) +
                               parameters.first_element(p) * size_of(parameters.state_type());
      own[p.name] = numbers(*device_, parameters.state_type(), from, p.count);
    }
    for (const models::HuggingFaceTensor& t : tensors_) {
      if (!own.contains(t.name)) continue;
      std::vector<double>& to = theirs[t.source];
      to.resize(size_t(t.count()));
      for (int64_t r = 0; r < t.rows; ++r) {
        for (int64_t c = 0; c < t.columns; ++c)
          to[size_t(t.element(r, c))] = own.at(t.name)[size_t((t.row + r) * t.columns + c)];
      }
    }
    return theirs;
  }

  ModelSpec model_;
  std::vector<models::HuggingFaceTensor> tensors_;
  const int64_t batch_, sequence_;
  std::unique_ptr<runtime::Device> device_ = runtime::make_cpu_device();
  std::unique_ptr<runtime::Communicator> group_ = runtime::make_single_communicator();
  std::unique_ptr<runtime::Stage> stage_;
  std::vector<int32_t> tokens_, targets_;
};

int run(const std::vector<std::string>& words) {
  Dump dump(words.at(0), std::stoll(words.at(1)), std::stoll(words.at(2)),
            words.at(3) == "float64" ? DataType::float64 : DataType::float32);
  std::fputs(dump.run().dump().c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("dump_model", [&] { return mpt::run({argv + 1, argv + argc}); });
}
