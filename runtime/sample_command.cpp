// SPDX-License-Identifier: Apache-2.0

// mpt-run sample: text that a checkpoint's model writes. One rank on a core of the CPU computes it in fp32,
// with a whole forward pass for each token. That is enough for small models.

#include <cmath>
#include <functional>
#include <random>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/files.h"
#include "base/interruption.h"
#include "base/text.h"
#include "frameworks/supports/supports.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/mover.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/nn/stage.h"
#include "runtime/program.h"
#include "runtime/text/tokenizer.h"

namespace mpt::runtime {
namespace {

// Among the `top_k` likeliest tokens, with probabilities to the power of 1 / temperature.
int32_t draw_token(const std::vector<float>& probabilities, const SampleOptions& o, std::mt19937_64& random) {
  const auto count = o.temperature == 0.0 ? size_t{1} : std::min(probabilities.size(), size_t(o.top_k));
  std::vector<float> best = probabilities;
  std::partial_sort(best.begin(), best.begin() + ptrdiff_t(count), best.end(), std::greater<>());
  std::vector<double> weights;
  for (const float p : probabilities) {
    const double share = std::max(0.0F, p) / best[0];
    weights.push_back(p < best[count - 1] ? 0.0 : std::pow(share, 1.0 / std::max(o.temperature, 1e-9)));
  }
  return std::discrete_distribution<int32_t>(weights.begin(), weights.end())(random);
}

std::optional<Tokenizer> tokenizer_of(const SampleOptions& o) {
  return o.tokenizer.empty() ? std::nullopt : std::optional<Tokenizer>(o.tokenizer);
}

std::vector<int32_t> tokens_of(const SampleOptions& o, const std::optional<Tokenizer>& tokenizer,
                               const ModelSpec& model) {
  std::vector<int32_t> tokens;
  const int64_t vocab = model.vocab;
  if (tokenizer) {
    TokenOutput out;
    tokenizer->encode(o.prompt, "--prompt", out);
    tokens = out.tokens;
    if (tokenizer->ids() > vocab)
      refuse_input("--tokenizer " + o.tokenizer, fmt::format("ids 0 to {}", tokenizer->ids() - 1),
                   fmt::format("ids 0 to {}, the model's vocabulary", vocab - 1),
                   "name the tokenizer of the text that the model was trained on");
  } else if (vocab == 256) {
    for (const char byte : o.prompt) tokens.push_back(uint8_t(byte));
  } else {
    refuse_input("--tokenizer", "missing", fmt::format("the tokenizer of {} tokens", vocab),
                 "add --tokenizer tokenizer.json; without it a token is a byte, for a model of 256");
  }
  if (tokens.empty())
    refuse_input("--prompt", "no tokens", "text that the model goes on with", "give it a word");
  if (int64_t(tokens.size()) >= model.max_positions)
    refuse_input("--prompt", fmt::format("{} tokens", tokens.size()),
                 fmt::format("fewer than the model's {} positions", model.max_positions), "shorten it");
  return tokens;
}

// The text of the tokens and of o.tokens more, or of fewer where the model has no more positions or o.stop
// comes.
std::string continued_text(const Checkpoint& checkpoint, const SampleOptions& o,
                           const std::optional<Tokenizer>& tokenizer, std::vector<int32_t> tokens) {
  std::string text;
  const auto add = [&](int32_t token) {
    text += tokenizer ? tokenizer->bytes_of(token) : std::string{char(token)};
  };
  std::for_each(tokens.begin(), tokens.end(), add);
  const size_t prompt = text.size();
  ModelSpec model = checkpoint.info().model;
  frameworks::check_own_runtime(model);
  model.next_token_layers = 0;
  const auto length = std::min(int64_t(tokens.size()) + o.tokens, model.max_positions);
  const auto device = make_cpu_device();
  const auto group = make_single_communicator();
  Layout layout;
  layout.micro_batch = 1;
  layout.layers_per_stage = {model.layers.count()};
  const StageOptions options{model, layout, length, DataType::float32, std::nullopt};
  Stage stage(options, 0, {0, model.layers.count(), true, true}, *device,
              {{group.get(), group.get(), group.get()}, {}});
  for (const Parameter& p : stage.parameters().list())
    stage.parameters().set(p, read_part(checkpoint, TensorKind::value, p));
  std::mt19937_64 random{uint64_t(o.seed)};
  const std::vector<int32_t> targets(size_t(length), 0);
  const double end_s = now_s() + o.most_s;
  while (int64_t(tokens.size()) < length && now_s() < end_s && !stop_requested()) {
    std::vector<int32_t> padded = tokens;  // attention looks back only
    padded.resize(size_t(length));
    stage.forward(0, padded.data(), targets.data(), nullptr, nullptr);
    tokens.push_back(draw_token(stage.take_probabilities(0, int64_t(tokens.size()) - 1), o, random));
    add(tokens.back());
    if (const size_t end = text.find(o.stop, prompt); !o.stop.empty() && end < text.size())
      return text.substr(0, end);
  }
  return text;
}

}  // namespace

void check_sample(const SampleOptions& o, const ModelSpec& model) { tokens_of(o, tokenizer_of(o), model); }

std::string sample_text(SampleOptions o) {
  const auto checkpoint = open_for_reading(o.checkpoint);
  if (o.tokenizer.empty() && is_there(checkpoint->info().tokenizer))
    o.tokenizer = checkpoint->info().tokenizer;
  const auto tokenizer = tokenizer_of(o);
  return printable_lines(
      continued_text(*checkpoint, o, tokenizer, tokens_of(o, tokenizer, checkpoint->info().model)));
}

int sample(int argc, char** argv) {
  SampleOptions o;
  CLI::App app{
      "Prints text that a checkpoint's model writes after a prompt. One core computes it, with a whole "
      "forward pass for each token.",
      "mpt-run sample"};
#include "generated/SampleOptions.inc"
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  fmt::print("{}\n", sample_text(o));
  return kExitOk;
}

}  // namespace mpt::runtime
