// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/describe_model.h"

#include "base/quantity.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "models/parameter_count.h"

namespace mpt::planner {
namespace {

// "3 window_mlp, attention_mlp": the block of a run of layers.
std::string block_of(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < names.size();) {
    size_t end = at + 1;
    while (end < names.size() && names[end] == names[at]) ++end;
    parts.push_back(end - at == 1 ? names[at] : fmt::format("{} {}", end - at, names[at]));
    at = end;
  }
  return joined(parts, ", ");
}

// One line for each run of layers, the lowest first.
std::string run_lines(const LayerList& layers) {
  std::string text;
  int64_t first = 0;
  for (const LayerRun& run : layers.runs) {
    const int64_t count = run.repeat * int64_t(run.of.size());
    const std::string block = block_of(run.of);
    text += line_of(
        count == 1 ? fmt::format("  {}", first) : fmt::format("  {} to {}", first, first + count - 1),
        run.repeat == 1 || run.of.size() == 1 ? block : fmt::format("{} times: {}", run.repeat, block));
    first += count;
  }
  return text;
}

std::string describe_attention(const Attention& a) {
  std::string text =
      a.latent ? fmt::format("latent attention, {} heads", a.heads)
               : fmt::format("{} heads of {}, {} for keys and values", a.heads, a.head_dim, a.kv_heads);
  if (a.window) text += fmt::format(", a window of {}", format_count(*a.window));
  if (a.chunk) text += fmt::format(", chunks of {}", format_count(*a.chunk));
  if (a.index)
    text += fmt::format(", an index of {} heads chooses {} {}", a.index->heads, format_count(a.index->chosen),
                        a.index->block == 1 ? "keys" : fmt::format("blocks of {} keys", a.index->block));
  if (a.output_gate != OutputGate::none)
    text += fmt::format(", {} output gate", replaced(enum_name(a.output_gate), '_', ' '));
  if (a.rotary) text += fmt::format(", rotary base {}", format_count(int64_t(a.rotary->base)));
  return text;
}

std::string describe_mlp(const Mlp& mlp) {
  return fmt::format("{} wide, {}{}", format_count(mlp.ffn_hidden), mlp.gated ? "gated " : "",
                     replaced(enum_name(mlp.activation), '_', ' '));
}

std::string describe_kind(const LayerKind& kind) {
  std::vector<std::string> parts;
  if (kind.attention) parts.push_back(describe_attention(*kind.attention));
  if (kind.linear)
    parts.push_back(fmt::format("{}, {} heads of {}, {} of {} for keys",
                                replaced(enum_name(kind.linear->kind), '_', ' '), kind.linear->heads,
                                kind.linear->head_dim, kind.linear->key_heads, kind.linear->key_dim));
  if (kind.convolution)
    parts.push_back(fmt::format("gated convolution over {} tokens", kind.convolution->length));
  if (kind.mlp) parts.push_back("MLP " + describe_mlp(*kind.mlp));
  if (kind.moe) {
    std::string text = fmt::format("{} experts {}, {} for each token", kind.moe->experts,
                                   describe_mlp(kind.moe->expert), kind.moe->experts_per_token);
    if (kind.moe->shared_ffn_hidden > 0)
      text += fmt::format(", shared {} wide", format_count(kind.moe->shared_ffn_hidden));
    parts.push_back(text);
  }
  return joined(parts, "; ");
}

std::string kind_lines(const ModelSpec& m) {
  return sum_of<std::string>(m.layers.kinds, [&](const auto& named) {
    const auto& [name, kind] = named;
    const auto count = double(models::parameters(models::layer_program(m, kind, Layout{}, 1)));
    return line_of(name, fmt::format("{}; {} parameters", describe_kind(kind), format_magnitude(count)));
  });
}

// FLOP of forward and backward, as MFU counts it.
std::string work_line(const ModelSpec& m, const std::vector<int64_t>& sequences) {
  const auto parts = mapped<std::string>(sequences, [&](int64_t length) {
    return fmt::format("{} at {} tokens", format_magnitude(models::model_flop_per_token(m, length)),
                       format_count(length));
  });
  return line_of("FLOP per token", joined(parts, ", "));
}

std::string framework_lines(const ModelSpec& m) {
  std::string text;
  for (const frameworks::Framework& f : frameworks::known_frameworks()) {
    const ModelVerdict& v = frameworks::verdict_on(f, frameworks::trained_by(f, m));
    text += line_of(text.empty() ? "frameworks" : "",
                    v.verdict == VerdictKind::exported  ? f.title + " runs it, and MPT writes it"
                    : v.verdict == VerdictKind::not_run ? fmt::format("{} ({})", v.reason, v.source)
                                                        : v.reason);
  }
  return text;
}

// Memory of all layers in bf16 on one rank.
std::string memory_line(const ModelSpec& m) {
  Layout layout;
  layout.precision = Precision::bf16;
  const int64_t sequence = std::min<int64_t>(4096, m.max_positions);
  double kept = 0.0, keys = 0.0;
  const models::LayerKinds kinds(m);
  for (size_t k = 0; k < kinds.size(); ++k) {
    const LayerKind& kind = kinds.kind(k);
    const auto program = models::layer_program(m, kind, layout, sequence);
    kept += double(kinds.all()[k]) * double(models::saved_bytes(program, Recompute::none)) / double(sequence);
    if (!kind.attention) continue;
    const Attention& a = *kind.attention;
    const int64_t width = a.latent ? a.latent->key_value_rank + a.latent->rope_head_dim
                                   : a.kv_heads * (a.head_dim + a.value_head_dim());
    keys += double(kinds.all()[k]) * 2.0 * double(width);
  }
  return line_of("bytes per token",
                 fmt::format("{} kept for backward without recompute, {} of keys and values",
                             format_bytes(kept), format_bytes(keys)));
}

// One line for neighbouring stages with equal numbers of layers and parameters.
std::string stage_lines(const Json& stages) {
  std::string text;
  for (size_t s = 0, end = 0; s < stages.size(); s = end) {
    while (end < stages.size() && stages[end] == stages[s]) ++end;
    text += line_of(end - s == 1 ? fmt::format("stage {}", s) : fmt::format("stages {} to {}", s, end - 1),
                    fmt::format("{} layers, {} parameters each", stages[s]["layers"].get<int64_t>(),
                                format_magnitude(stages[s]["parameters"].get<double>())));
  }
  return text;
}

}  // namespace

std::string line_of(const std::string& name, const std::string& text) {
  return fmt::format("  {:<16} {}\n", name, text);
}

std::string describe_model(const models::ImportedModel& read, const std::vector<int64_t>& sequences,
                           int64_t stages) {
  const ModelSpec& m = read.model;
  const models::ParameterCount count = models::count_parameters(m);
  std::string text = fmt::format("{}: {} parameters", m.name, format_magnitude(double(count.total)));
  if (count.active != count.total)
    text += fmt::format(", {} active per token", format_magnitude(double(count.active)));
  text += fmt::format(
      "\n{}{}{}", line_of("layers", fmt::format("{} of width {}", m.layers.count(), format_count(m.hidden))),
      run_lines(m.layers), kind_lines(m));
  if (m.next_token_layers > 0)
    text += line_of("further tokens",
                    fmt::format("{} layers predict them; not counted above", m.next_token_layers));
  text += line_of("vocabulary", fmt::format("{}, output weights {}", format_count(m.vocab),
                                            m.tied_embeddings ? "tied to the embeddings" : "of their own"));
  text += line_of("sequence", fmt::format("at most {} tokens", format_count(m.max_positions)));
  text += work_line(m, sequences) + memory_line(m);
  if (stages > 1) text += stage_lines(stage_counts(m, stages));
  text += framework_lines(m);
  if (!read.ignored.empty())
    text += line_of("not read", fmt::format("{}", cut_text(joined(read.ignored, ", "), 900)));
  for (const std::string& note : read.notes) text += line_of("note", note);
  return text;
}

}  // namespace mpt::planner
