// SPDX-License-Identifier: Apache-2.0
#include "planner/request/resolve_parts.h"

#include <cstdlib>

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"

namespace mpt::planner {
namespace {

struct LengthShare {
  double tokens = 0.0, share = 0.0;
};

[[noreturn]] void refuse_lengths(const std::string& found, const std::string& expected) {
  refuse_input("--lengths", found.substr(0, 80), expected,
               "write mean:longest such as 900:8192, or lengths with shares such as 512=0.3,2048=0.7");
}

double number_given(const std::string& text, const std::string& whole) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0.0) || value > 1e9)
    refuse_lengths("\"" + whole + "\"", "positive numbers");
  return value;
}

// Lengths between 0 and the longest with the given mean: an exponential distribution, cut off at the longest,
// in parts of equal width. A mean of at least half the longest makes it even or favours long sequences.
std::vector<LengthShare> by_mean(double mean, double longest, const std::string& whole) {
  if (mean >= longest) refuse_lengths("\"" + whole + "\"", "a mean below the longest");
  constexpr int kParts = 512;
  const auto shares_at = [&](double rate) {
    std::vector<LengthShare> shares;
    for (int i = 0; i < kParts; ++i) {
      const double part = (i + 0.5) / kParts;
      shares.push_back({part * longest, std::exp(-rate * part)});
    }
    return shares;
  };
  const auto mean_of = [](const std::vector<LengthShare>& shares) {
    const auto sum = sum_of<double>(shares, [](const LengthShare& s) { return s.tokens * s.share; });
    return sum / sum_of<double>(shares, &LengthShare::share);
  };
  double low = -500.0, high = 500.0;  // the mean falls with the rate
  for (int step = 0; step < 100; ++step) {
    const double middle = 0.5 * (low + high);
    (mean_of(shares_at(middle)) > mean ? low : high) = middle;
  }
  return shares_at(low);
}

std::vector<LengthShare> shares_of(const std::vector<std::string>& words) {
  if (words.size() == 1 && words.front().find(':') != std::string::npos) {
    const std::string& word = words.front();
    const size_t colon = word.find(':');
    return by_mean(number_given(word.substr(0, colon), word), number_given(word.substr(colon + 1), word),
                   word);
  }
  std::vector<LengthShare> shares;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) refuse_lengths("\"" + word + "\"", "length=share");
    shares.push_back(
        {number_given(word.substr(0, equals), word), number_given(word.substr(equals + 1), word)});
  }
  return shares;
}

// Attention of a sequence of n tokens costs n squared. A full pack holds about tokens / mean sequences, and
// their costs vary independently.
void set_packing(const PlanRequest& r, int64_t tokens, Training& training) {
  if (r.lengths.empty()) return;
  double all = 0.0, first = 0.0, second = 0.0, fourth = 0.0;
  const std::vector<LengthShare> shares = shares_of(r.lengths);
  const double longest = max_by(shares, [](const LengthShare& s) { return s.tokens; })->tokens;
  if (longest > double(tokens))
    refuse_input("--lengths", fmt::format("sequences of up to {:.0f} tokens", longest),
                 fmt::format("at most the {} tokens of --seq, to which they are packed", tokens),
                 fmt::format("--seq {:.0f}", std::ceil(longest / 64.0) * 64.0));
  for (const LengthShare& s : shares) {
    all += s.share;
    first += s.share * s.tokens;
    second += s.share * s.tokens * s.tokens;
    fourth += s.share * std::pow(s.tokens, 4.0);
  }
  first /= all;
  second /= all;
  fourth /= all;
  training.packed_length = second / first;
  const double in_pack = double(tokens) / first;
  training.packed_spread = std::sqrt(std::max(0.0, fourth - second * second)) / second / std::sqrt(in_pack);
  training.packed_sequences = r.global_batch;
}

void set_adapters(const PlanRequest& r, Training& training) {
  if (r.lora > 0) {
    training.adapter_rank = r.lora;
    training.frozen.clear();
    training.adapter_targets = {AdapterTarget::qkv, AdapterTarget::output, AdapterTarget::up,
                                AdapterTarget::down};
  }
  if (!r.lora_targets.empty()) {
    if (!training.adapts())
      refuse_input("--lora-targets", "without --lora", "a rank of the adapters",
                   "add --lora 16, or leave --lora-targets out");
    training.adapter_targets = r.lora_targets;
  }
  if (!r.freeze.empty()) {
    if (training.adapts())
      refuse_input("--freeze", "beside --lora", "one of the two: with LoRA all parts are frozen",
                   "leave --freeze out");
    training.frozen = r.freeze;
  }
  if (r.frozen_weights) training.frozen_format = *r.frozen_weights;
  if (training.frozen_format != FrozenFormat::bf16 && !training.adapts() && training.frozen.empty())
    refuse_input("--frozen-weights", enum_name(training.frozen_format), "weights that are frozen",
                 "add --lora 16 or --freeze embedding, or leave --frozen-weights out");
}

// The precision in which gradients are kept, and the one in which they are summed, without any option.
struct GradientWidths {
  Precision kept = Precision::fp32, summed = Precision::fp32;
};

GradientWidths own_gradients(const Execution& execution, Precision precision) {
  const Precision narrow = precision == Precision::fp16 ? Precision::fp16 : Precision::bf16;
  const auto of_bytes = [&](int64_t bytes) { return bytes == 2 ? narrow : Precision::fp32; };
  return {of_bytes(execution.states.gradient_bytes), of_bytes(execution.states.reduced_bytes)};
}

bool keeps_gradients_in(const frameworks::Framework& f, const SearchProblem& problem, Precision asked) {
  Training training = problem.training;
  training.bf16_gradients =
      asked == Precision::bf16 && own_gradients(f.execution, problem.precision).kept != asked;
  return (asked != Precision::fp32 || own_gradients(f.execution, problem.precision).kept == asked ||
          contains(f.abilities.trains, frameworks::TrainingFeature::fp32_states)) &&
         (asked == Precision::fp32 || problem.precision != Precision::fp32) &&
         !frameworks::supports_training(f, training) &&
         !frameworks::supports_model(f, problem.model, problem.precision);
}

[[noreturn]] void refuse_gradients(const SearchProblem& problem, const frameworks::Framework& framework,
                                   Precision asked, Precision own) {
  const auto others = frameworks::framework_names(
      [&](const frameworks::Framework& other) { return keeps_gradients_in(other, problem, asked); });
  const std::string named =
      others.empty() ? "" : fmt::format(", or --framework with one of {}", joined(others, ", "));
  refuse_input("--gradients", fmt::format("{} with {}", enum_name(asked), framework.title),
               fmt::format("{}, in which it keeps gradients{}", enum_name(own), named),
               "leave --gradients out, or search with --beyond-framework");
}

}  // namespace

Training training_of(const PlanRequest& r, int64_t tokens) {
  Training training = r.layout ? *r.layout->training : Training{};
  if (r.optimizer) training.optimizer = *r.optimizer;
  if (r.gradients && *r.gradients != Precision::fp32 && *r.gradients != Precision::bf16)
    refuse_input("--gradients", enum_name(*r.gradients), "fp32 or bf16");
  if (r.gradients) training.bf16_gradients = *r.gradients == Precision::bf16;
  training.deterministic = training.deterministic || r.deterministic;
  if (!r.offload_activations.empty()) training.offloaded = r.offload_activations;
  if (training.offloads(OffloadModule::attn_proj) && !training.offloads(OffloadModule::core_attn))
    refuse_input("--offload-activations", "attn_proj without core_attn",
                 "both: the input of the one is the output of the other, which its backward reads",
                 "add core_attn");
  set_adapters(r, training);
  set_packing(r, tokens, training);
  if (r.masked > 0.0) training.masked = r.masked;
  return training;
}

void set_gradients(const PlanRequest& r, SearchProblem& problem, std::vector<std::string>& notes) {
  if (!r.gradients) return;
  Execution& execution = problem.execution;
  const GradientWidths own = own_gradients(execution, problem.precision);
  const frameworks::Framework* framework = frameworks::find_framework(execution.framework);
  const std::string title = framework != nullptr ? framework->title : execution.framework;
  if (own.kept == *r.gradients) {
    problem.training.bf16_gradients = false;
    if (own.summed != own.kept)
      notes.push_back(
          fmt::format("{} keeps gradients in {}, as --gradients says; they are summed over ranks in {}",
                      title, enum_name(own.kept), enum_name(own.summed)));
    return;
  }
  const bool switches = *r.gradients == Precision::bf16 && framework != nullptr &&
                        keeps_gradients_in(*framework, problem, Precision::bf16);
  if (switches) return;
  if (*r.gradients == Precision::fp32 && framework != nullptr &&
      contains(framework->abilities.trains, frameworks::TrainingFeature::fp32_states)) {
    StateBytes& states = execution.states;  // all of one type: no copy of the weights is left
    states.weight_bytes = states.gradient_bytes = states.reduced_bytes = 4;
    states.optimizer_bytes = 8;
    return;
  }
  if (framework != nullptr && !r.beyond_framework)
    refuse_gradients(problem, *framework, *r.gradients, own.kept);
  if (*r.gradients == Precision::fp32) execution.states.gradient_bytes = execution.states.reduced_bytes = 4;
}

void narrow_adapters(SearchProblem& problem) {
  Execution& e = problem.execution;
  const bool adapters = e.states.narrow_adapters && problem.training.frozen_format != FrozenFormat::bf16;
  const bool all = e.states.narrow_weights && problem.precision == Precision::bf16;
  if (!adapters && (!all || problem.training.adapts())) return;
  e.states.weight_bytes = e.states.gradient_bytes = e.states.reduced_bytes = 2;
  e.states.bucket_bytes = std::min<int64_t>(e.states.bucket_bytes, 2);
  e.states.optimizer_bytes = 4 + e.states.bucket_bytes;
  e.kept.narrows_each_input = false;
}

void note_formats(const SearchProblem& problem, std::vector<std::string>& notes) {
  const Training& t = problem.training;
  const StateBytes& states = problem.execution.states;
  if (t.frozen_format != FrozenFormat::bf16 && problem.model.moe() != nullptr && !states.narrows_experts)
    notes.push_back(fmt::format(
        "frozen experts stay in 16 bits beside {} weights: they are stacked weights and no linear layers",
        enum_name(t.frozen_format)));
  if (t.optimizer == OptimizerKind::adamw8 && states.narrow_moment_block > 1)
    notes.push_back(
        fmt::format("moments are in 8 bits where a rank's rows of a weight are a multiple of {}, and else in "
                    "the weight's type. A checkpoint of them opens on as many ranks as wrote it",
                    states.narrow_moment_block));
}

void set_deterministic(SearchProblem& problem, std::vector<std::string>& notes) {
  if (!problem.training.deterministic) return;
  // Megatron-LM refuses its fused loss in this mode (megatron/training/arguments.py).
  if (problem.execution.kernels.loss == LossKernel::fused) problem.execution.kernels.loss = LossKernel::fp32;
  notes.emplace_back(
      "deterministic kernels: no run tells what they alone cost, so steps may be longer than predicted");
}

}  // namespace mpt::planner
