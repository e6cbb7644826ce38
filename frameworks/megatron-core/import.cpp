// SPDX-License-Identifier: Apache-2.0

// Layouts from flags of megatron/training/arguments.py at core_v0.19.2.

#include "frameworks/megatron-core/import.h"

#include "frameworks/asked.h"
#include "frameworks/dialects.h"
#include "frameworks/framework.h"
#include "frameworks/readers/expressions.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {
namespace {

// Megatron-LM's own reason to refuse the flags. Throws FrameworkRefusal for a flag that it does not have, and
// for a value out of a flag's range. Unknown flags of another program are listed in `in`.
std::optional<Problem> flags_refused(const MegatronFlags& f, const Asked& asked, Imported& in) {
  std::map<std::string, std::optional<Json>> given = f.environment();
  for (const auto& [flag, words] : f.all()) {
    std::vector<std::string> texts;
    bool known = true;
    for (const ShellWord& word : words) {
      texts.push_back(word.text);
      known = known && word.unknown.empty() && word.several.empty();
    }
    if (!f.has(flag) && known) continue;
    if (asked.kind_of(flag).empty() && !f.own_program()) {
      in.unknown.push_back("--" + flag);
      continue;
    }
    const auto value = asked.value_of(flag, known ? texts : std::vector<std::string>{}, f.at(flag));
    given[copy_of(asked.sets, flag).value_or(replaced(flag, '-', '_'))] = known ? value : std::nullopt;
  }
  if (const auto layout = f.has("pipeline-model-parallel-layout")
                              ? expanded_layout(f.source("pipeline-model-parallel-layout"))
                              : std::nullopt) {
    for (const auto& [letter, layer] :
         {std::pair{'E', "embedding"}, {'t', "decoder"}, {'m', "mtp"}, {'L', "loss"}})
      given[fmt::format("flatten_layout.{}", layer)] = std::count(layout->begin(), layout->end(), letter);
  }
  return asked.refusal(given, f.is_whole(), f.file());
}

Recompute recompute_of(const MegatronFlags& f) {
  if (f.has("recompute-activations") || f.has("moe-layer-recompute")) return Recompute::selective;
  const std::string granularity = f.text("recompute-granularity", "");
  return granularity == "full"        ? Recompute::full
         : granularity == "selective" ? Recompute::selective
                                      : Recompute::none;
}

void set_recompute(const MegatronFlags& f, const ModelSpec& m, Imported& in) {
  Layout& l = in.layout;
  l.recompute = recompute_of(f);
  if (l.recompute == Recompute::selective) {
    std::vector<std::string> modules = f.texts("recompute-modules");
    std::erase(modules, "None");
    if (!modules.empty()) set_recompute_modules(modules, l.selective);
    for (const std::string& known : recompute_modules_of(l.selective)) std::erase(modules, known);
    for (const std::string& module : modules)
      in.notes.push_back(fmt::format("--recompute-modules {}: not taken over", cut_text(module, 40)));
    l.selective.experts = l.selective.experts || f.has("moe-layer-recompute");
  }
  if (l.recompute != Recompute::full) return;
  const int64_t layers = f.number("recompute-num-layers", between(1, double(m.layers.count())), 1);
  if (f.text("recompute-method", "uniform") == "block") {
    for (const int64_t held : l.layers_per_stage) l.recomputed_layers.push_back(std::min(held, layers));
  } else if (layers > 1) {
    in.notes.push_back(
        fmt::format("--recompute-num-layers {}: taken as 1, which keeps every layer's input", layers));
  }
}

// Layers of each pipeline rank, all of its virtual stages together. The embedding and the loss may count as a
// layer each.
std::vector<int64_t> layers_of_ranks(const MegatronFlags& f, const ModelSpec& m, int64_t ranks) {
  const int64_t first = f.number("decoder-first-pipeline-num-layers", between(0, 1e5), 0);
  const int64_t last = f.number("decoder-last-pipeline-num-layers", between(0, 1e5), 0);
  const int64_t extra = int64_t(f.has("account-for-embedding-in-pipeline-split")) +
                        int64_t(f.has("account-for-loss-in-pipeline-split"));
  const int64_t others = ranks - int64_t(first > 0) - int64_t(last > 0);
  const int64_t left = m.layers.count() + extra - first - last;
  if (others < 0 || left < 0 || (others == 0 ? left != 0 : left % others != 0))
    throw FrameworkRefusal(
        f.at("pipeline-model-parallel-size"),
        others > 0 ? fmt::format("{} layers for {} pipeline ranks", left, others)
                   : fmt::format("{} of {} layers are left over", left, m.layers.count()),
        "a number of layers that the pipeline ranks divide",
        "Megatron-LM refuses others; --pipeline-model-parallel-layout says them one by one");
  std::vector<int64_t> counts(size_t(ranks), others > 0 ? left / others : 0);
  if (first > 0) counts.front() = first;
  if (last > 0) counts.back() = last;
  return counts;
}

std::vector<int64_t> layers_of_stages(const MegatronFlags& f, const ModelSpec& m, const Layout& l) {
  const std::vector<int64_t> ranks = layers_of_ranks(f, m, l.pipeline);
  std::vector<int64_t> stages;
  for (int64_t s = 0; s < l.stages(); ++s) {
    const int64_t held = ranks[size_t(s % l.pipeline)];
    if (held % l.chunks != 0)
      throw FrameworkRefusal(f.at("num-virtual-stages-per-pipeline-rank"),
                             fmt::format("{} layers of a rank in {} virtual stages", held, l.chunks),
                             "as many layers in each virtual stage", "Megatron-LM refuses others");
    stages.push_back(held / l.chunks);
  }
  stages.front() -= int64_t(f.has("account-for-embedding-in-pipeline-split"));
  stages.back() -= int64_t(f.has("account-for-loss-in-pipeline-split"));
  return stages;
}

int64_t chunks_of(const MegatronFlags& f, const ModelSpec& m, int64_t ranks) {
  if (!f.has("num-layers-per-virtual-pipeline-stage"))
    return f.number("num-virtual-stages-per-pipeline-rank", rule_of(&Layout::chunks), 1);
  const int64_t per_stage = f.number("num-layers-per-virtual-pipeline-stage",
                                     between(1, double(m.layers.count())), m.layers.count());
  const int64_t extra = int64_t(f.has("account-for-embedding-in-pipeline-split")) +
                        int64_t(f.has("account-for-loss-in-pipeline-split"));
  const int64_t held = (m.layers.count() + extra) / ranks;
  if (held % per_stage != 0)
    throw FrameworkRefusal(f.at("num-layers-per-virtual-pipeline-stage"), std::to_string(per_stage),
                           fmt::format("a divisor of a rank's {} layers", held),
                           "Megatron-LM refuses others");
  return std::max<int64_t>(1, held / per_stage);
}

void set_pipeline(const MegatronFlags& f, const ModelSpec& m, Imported& in) {
  Layout& l = in.layout;
  l.pipeline = f.number("pipeline-model-parallel-size", rule_of(&Layout::pipeline), 1);
  std::string text = f.text("hybrid-layer-pattern", "");
  const bool cut = text.find('|') != std::string::npos;
  const std::string word = cut ? "hybrid-layer-pattern" : "pipeline-model-parallel-layout";
  text = cut ? "E" + text.substr(0, text.find('/')) + "L" : f.text(word, "None");
  if (cut)
    std::replace_if(
        text.begin() + 1, text.end() - 1, [](char letter) { return letter != '|'; }, 't');
  if (f.has(word) && text != "None") {
    const auto stages = decoder_layers_of_stages(text);
    if (!stages || int64_t(stages->size()) % l.pipeline != 0)
      f.refuse(word, fmt::format("stages such as Et*2|(tt|)*6L, as many for each of {} ranks", l.pipeline));
    l.layers_per_stage = *stages;
    l.chunks = int64_t(stages->size()) / l.pipeline;
  } else {
    l.chunks = chunks_of(f, m, l.pipeline);
    check_stages(l, m, f.at("pipeline-model-parallel-size"));
    l.layers_per_stage = layers_of_stages(f, m, l);
  }
  if (l.chunks > 1 && l.pipeline == 1)
    throw FrameworkRefusal(f.at("pipeline-model-parallel-size"),
                           fmt::format("{} virtual stages on one pipeline rank", l.chunks),
                           "at least two pipeline ranks", "Megatron-LM refuses others");
  l.schedule = l.chunks > 1 ? "interleaved" : "1f1b";
  l.overlap_transfer = !f.has("no-overlap-p2p-communication");
}

void set_data_parallel(const MegatronFlags& f, Imported& in) {
  Layout& l = in.layout;
  const std::string strategy = f.text("data-parallel-sharding-strategy", "no_shard");
  if (f.has("use-megatron-fsdp") || f.has("use-custom-fsdp")) {
    l.zero = strategy == "optim_grads_params" ? 3
             : strategy == "optim_grads"      ? 2
             : strategy == "optim"            ? 1
                                              : 0;
  } else if (f.has("use-torch-fsdp2")) {
    l.zero = f.has("torch-fsdp2-no-reshard-after-forward") ? 2 : 3;
  } else if (f.has("use-distributed-optimizer") || f.has("use-layer-wise-distributed-optimizer") ||
             f.text("optimizer", "").starts_with("dist_")) {  // megatron/core/optimizer/__init__.py:746
    l.zero = 1;
  }
  l.overlap_gradient_reduce = f.has("overlap-grad-reduce");
  l.overlap_parameter_gather = f.has("overlap-param-gather");
  l.offload_optimizer = f.has("optimizer-cpu-offload");
  l.data = 0;
  in.shard_groups = f.number("num-distributed-optimizer-instances", rule_of(&Layout::data), 1);
}

void set_split(const MegatronFlags& f, Imported& in) {
  Layout& l = in.layout;
  l.tensor = f.number("tensor-model-parallel-size", rule_of(&Layout::tensor), 1);
  l.sequence_parallel = f.has("sequence-parallel") && l.tensor > 1;
  l.overlap_tensor = f.has("tp-comm-overlap");
  l.context = f.number("context-parallel-size", rule_of(&Layout::context), 1);
  const std::string method = f.text("cp-comm-type", "p2p");
  if (l.context > 1 && method == "a2a") l.context_method = ContextMethod::all_to_all;
  if (l.context > 1 && method != "a2a" && method != "p2p")
    in.notes.push_back(fmt::format("--cp-comm-type {}: taken as ring attention", cut_text(method, 40)));
  l.expert = f.number("expert-model-parallel-size", rule_of(&Layout::expert), 1);
  l.expert_tensor = f.number("expert-tensor-parallel-size", rule_of(&Layout::tensor), l.tensor);
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  l.micro_batch = f.number("micro-batch-size", rule_of(&Layout::micro_batch), 1);
  l.overlap_exchange = l.expert > 1 && f.has("overlap-moe-expert-parallel-comm");
  if (f.has("use-tp-pp-dp-mapping")) l.order = RankOrder::data_outermost;
}

Precision precision_of(const MegatronFlags& f, std::vector<std::string>& notes) {
  if (f.has("fp4-format")) return Precision::nvfp4;
  if (f.has("fp8-format")) {
    const std::string recipe = f.text("fp8-recipe", "delayed");
    if (recipe == "blockwise" || recipe == "custom")
      notes.push_back(fmt::format("--fp8-recipe {}: taken as one scale for each matrix", recipe));
    return recipe == "mxfp8" ? Precision::mxfp8 : Precision::fp8;
  }
  return f.has("bf16") ? Precision::bf16 : f.has("fp16") ? Precision::fp16 : Precision::fp32;
}

// "bf16", or Megatron-Bridge's "torch.bfloat16".
int64_t bytes_of_type(const MegatronFlags& f, const char* name) {
  const std::string type = f.text(name, "fp32");
  return type.ends_with("16") ? 2 : type.ends_with('8') ? 1 : 4;
}

// A weight in bf16 has the upper 16 bits of its master weight, so the optimizer stores the lower 16 alone
// (store_param_remainders of megatron-core 0.19.2, optimizer/distrib_optimizer.py:1008). With an fp8 recipe
// other than "delayed" it stores all 32 (optimizer/optimizer_config.py:404).
bool stores_remainders(const MegatronFlags& f) {
  const bool delayed = !f.has("fp8-format") || f.text("fp8-recipe", "delayed") == "delayed";
  return f.has("bf16") && delayed && !f.has("optimizer-cpu-offload");
}

void set_attention_backend(const MegatronFlags& f, Imported& in) {
  // megatron/core/models/backends.py, LocalSpecProvider: DotProductAttention, whatever the backend.
  const bool local = f.text("transformer-impl", "") == "local";
  const std::string backend = local ? "local" : f.text("attention-backend", "auto");
  if (backend == "unfused" || backend == "local") in.execution.emplace_back("attention=unfused");
  if (backend == "flash")
    in.notes.emplace_back("--attention-backend flash: priced as cuDNN's attention, which is about as fast");
}

// "0:384 200B:768 400B:1152": the last one, for most of a training runs with it.
int64_t scheduled_batch(const MegatronFlags& f) {
  int64_t batch = 0;
  WorkBudget budget(f.file(), kMostImportedBytes);
  for (const std::string& value : f.texts("step-batch-size-schedule"))
    for (const ShellWord& step : argument_words(value, budget)) {
      const size_t colon = step.text.find(':');
      const std::string number = colon == std::string::npos ? "" : step.text.substr(colon + 1);
      const bool digits =
          !number.empty() && number.size() < 9 && number.find_first_not_of("0123456789") == std::string::npos;
      if (!digits) f.refuse("step-batch-size-schedule", "starts with batch sizes, such as 0:384 200B:768");
      batch = std::stoll(number);
    }
  return batch;
}

// Bytes of states, kernels and traffic.
void set_execution(const MegatronFlags& f, Imported& in) {
  const auto change = [&](const std::string& text) { in.execution.push_back(text); };
  // In fp16, gradients stay in 16 bits without --accumulate-allreduce-grads-in-fp32. In bf16 they are always
  // accumulated in fp32. megatron/training/arguments.py:1189-1194 also leaves it off for gradients that are
  // kept in 16 bits.
  const bool aware = f.has("use-precision-aware-optimizer");
  if (f.has("grad-reduce-in-bf16") || (aware && bytes_of_type(f, "main-grads-dtype") == 2) ||
      (f.has("fp16") && !f.has("accumulate-allreduce-grads-in-fp32"))) {
    change("gradient_bytes=2");
    change("reduced_bytes=2");
  }
  if (aware) {
    const int64_t master = stores_remainders(f) ? 2 : bytes_of_type(f, "main-params-dtype");
    change(fmt::format("optimizer_bytes={}",
                       master + bytes_of_type(f, "exp-avg-dtype") + bytes_of_type(f, "exp-avg-sq-dtype")));
  }
  if (f.has("fp8-param-gather")) change("fp8_weight_bytes=2");
  if (f.has("moe-router-force-load-balancing")) change("balanced_experts=true");
  if (f.has("cross-entropy-loss-fusion")) change("loss=fused");
  set_attention_backend(f, in);
  const std::string graphs = f.text("cuda-graph-impl", "none");
  if (graphs == "full_iteration") change("graphs=true");
  if (graphs == "local" || graphs == "transformer_engine")
    in.notes.push_back(fmt::format("--cuda-graph-impl {}: launches are priced without graphs", graphs));
  if (f.real("attention-dropout", between(0, 1), 0.1) > 0.0 ||
      f.real("hidden-dropout", between(0, 1), 0.1) > 0.0)
    change("dropout=true");
  // Megatron-LM pads by default; a vocabulary that is padded already stays as it is.
  const bool pads = !f.has("no-pad-vocab-size") && !f.has("disable-pad-vocab-size");
  const bool padded = pads && (f.has("vocab-size") || !f.has("padded-vocab-size"));
  change(fmt::format("vocabulary_multiple={}",
                     padded ? f.number("make-vocab-size-divisible-by", between(1, 1 << 20), 128) : 1));
  if (f.has("fp8-output-proj")) change("fp8_head=true");
  if (f.text("moe-token-dispatcher-type", "allgather") != "flex") return;
  change("deduplicates_dispatch=true");  // kernels that also pad experts' rows
  change("pads_expert_rows=false");
}

// Settings that make the objective depend on the size of a micro-batch (run: megatron-aux-micro-batch-2,
// megatron-capacity-micro-batch-2).
void note_objective(const MegatronFlags& f, Imported& in) {
  const MixtureOfExperts* const moe = in.model->moe();
  const int64_t size = in.layout.micro_batch;
  if (moe == nullptr) return;
  if (size > 1 && moe->balance_loss > 0.0 &&
      f.text("moe-router-load-balancing-type", "aux_loss") == "aux_loss")
    in.notes.push_back(fmt::format(
        "--moe-router-load-balancing-type aux_loss balances the {} sequences of a micro-batch: with another "
        "--micro-batch-size it trains another objective, and seq_aux_loss does not",
        size));
  if (f.has("moe-expert-capacity-factor"))
    in.notes.emplace_back(
        "--moe-expert-capacity-factor drops tokens by micro-batch: its size is part of the objective");
}

void read_flags(const MegatronFlags& f, const std::string& framework, std::optional<ModelSpec> model,
                Imported& in) {
  const models::Dialect& dialect = dialect_of(framework);
  in.notes = f.notes();
  in.model = model ? std::move(*model) : megatron_model(f, framework, in.notes);
  set_split(f, in);
  in.layout.precision = precision_of(f, in.notes);
  set_pipeline(f, *in.model, in);
  set_data_parallel(f, in);
  set_recompute(f, *in.model, in);
  set_execution(f, in);
  note_objective(f, in);
  in.workload.sequence = f.number("seq-length", rule_of(&Workload::sequence), in.model->max_positions);
  in.workload.global_batch = f.has("global-batch-size")
                                 ? f.number("global-batch-size", rule_of(&Workload::global_batch), 1)
                                 : scheduled_batch(f);
  set_optimizer(in, f.text("optimizer", "adam"));
  in.layout.training.edit().deterministic = f.has("deterministic-mode");
  in.open_vocabulary = open_vocabulary(f);
  in.micro_batch_group = f.number("microbatch-group-size-per-virtual-pipeline-stage", between(0, 1e6), 0);
  for (const std::string& name : dialect.not_taken_over)
    if (f.has(name)) in.notes.push_back(fmt::format("--{} is not taken over", name));
  check_imported(in, f.file());
}

}  // namespace

Imported megatron_import(const MegatronFlags& f, const std::string& framework,
                         std::optional<ModelSpec> model) {
  for (const auto& [name, now] : dialect_of(framework).former)
    if (f.has(name)) throw FrameworkRefusal(f.at(name), "a flag that Megatron-LM no longer takes", now);
  Imported in;
  in.ranks = f.ranks();
  in.nodes = f.nodes();
  const Asked* const asked = asked_of(framework_named(framework, ""));
  if (asked != nullptr && !asked->keys.empty()) in.refused = flags_refused(f, *asked, in);
  try {
    read_flags(f, framework, std::move(model), in);
  } catch (const FrameworkRefusal&) {  // its own message is clearer
    if (in.refused && f.is_whole()) throw FrameworkRefusal(*in.refused);
    throw;
  }
  // A part of a script has neither. The values below are Megatron-LM's defaults, which are not used in
  // practice.
  const bool length = f.has("seq-length");
  const bool batch = f.has("micro-batch-size") || f.has("global-batch-size");
  if (!length) in.unknown.emplace_back("the length of a sequence (--seq-length)");
  if (!batch) in.unknown.emplace_back("the batch (--micro-batch-size)");
  return in;
}

Imported import_megatron_core(const std::filesystem::path& file) {
  if (file.extension() != ".yaml" && file.extension() != ".yml") {
    WorkBudget budget(file.string(), kMostImportedBytes);
    if (auto launched = read_launch(shell_commands(read_file(file, kMostImportedBytes), file, budget), file))
      return std::move(*launched);
  }
  return megatron_import(MegatronFlags::of_file(file), "megatron-core");
}

}  // namespace mpt::frameworks
