// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names, abilities and values of a training framework, as data: frameworks/<name>/framework.json, built in.
// supports() in frameworks/supports/supports.h is the only reader that draws conclusions from its abilities.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/layout.h"
#include "frameworks/supports/combinations.h"
#include "models/values.h"

namespace mpt::frameworks {

/// Micro-batches m of a step that a schedule takes on p pipeline ranks.
enum class MicroBatchRule {
  any,
  at_least_ranks,      // m >= p
  multiple_of_ranks,   // m is a multiple of p
  whole_rounds,        // m is a multiple of max(1, m / p)
  full_rounds,         // the same, and m >= p
  at_least_two_ranks,  // m >= 2 p
};

enum class SequenceParallelRule { none, optional, always };

/// How routed experts may be split: as the dense layers are, or each of them whole on one rank.
enum class ExpertSplit { as_tensor, whole, either };

/// Which layers recompute in full when not all do.
enum class PartialRecompute {
  none,
  every_nth,   // the first layer and every n-th after it, one n for the whole model
  same_count,  // the same number of layers in every virtual stage
  any,
};

/// Communication that may run beside compute whether asked for or not.
enum class AlwaysBeside { gradient_reduce, parameter_gather, transfer };

/// Decoder layers of virtual stages.
enum class StageDivision { equal, any };

/// Ways to train that a framework may have, beside full training by AdamW on sequences of one length.
enum class TrainingFeature {
  lora,
  lora_on_fp8,  // over frozen weights that are stored in fp8
  lora_on_nf4,  // over such in 4 bits: QLoRA
  expert_adapters,
  frozen_parts,
  bf16_gradients,
  fp32_states,  // weights, gradients and moments in fp32, where they are in bf16 else
  adamw8,
  adafactor,
  sgd,
  muon,
  muon_on_shares,  // which gathers the matrices that ZeRO 2 and 3 share out
  packed_sequences,
  activation_offload,
  deterministic,
};

struct ScheduleAbility {
  std::string schedule;  // a name of core/schedule_catalog.h
  int64_t min_chunks = 1, max_chunks = 1;
  MicroBatchRule micro_batches = MicroBatchRule::any;
  bool without_compile = false;  // only where layers are not compiled
  bool from_rows = false;        // only from a file of its rows

  static void describe(auto& v) {
    using T = ScheduleAbility;
    v.field("schedule", &T::schedule, "name of the schedule");
    v.field("min_chunks", &T::min_chunks, "fewest virtual stages per pipeline rank", between(1, 100000));
    v.field("max_chunks", &T::max_chunks, "most virtual stages per pipeline rank", between(1, 100000));
    v.field("micro_batches", &T::micro_batches, "micro-batches of a step that it takes");
    v.field("without_compile", &T::without_compile, "only where layers are not compiled", optional_field());
    v.field("from_rows", &T::from_rows, "runs only from a file of its rows: searched where it is asked for",
            optional_field());
  }
};

struct Abilities {
  std::vector<ScheduleAbility> schedules;  // empty: no pipeline parallelism
  StageDivision stage_division = StageDivision::equal;
  bool tensor = false, shares_heads = false;
  SequenceParallelRule sequence_parallel = SequenceParallelRule::none;
  std::vector<ContextMethod> context_methods;  // empty: no context parallelism
  bool sequence_divides_by_tensor = false;
  std::map<std::string, bool> fixed_ties;
  std::vector<int64_t> zero, zero_in_pipeline, zero_with_shard_groups, zero_with_offload, zero_with_experts;
  bool plain_replicas_alone = false;
  bool shards_hold_groups = false;
  int64_t nvfp4_multiple = 1;
  bool expert = false;
  ExpertSplit expert_split = ExpertSplit::either;
  bool pads_expert_shares = true, deals_out_experts = false;
  std::vector<models::Value> cannot_spread;
  std::vector<RankOrder> orders;
  std::vector<Recompute> recomputes;
  PartialRecompute partial_recompute = PartialRecompute::none;
  std::vector<Precision> precisions, precisions_with_experts;
  bool overlap_exchange = false;
  bool overlap_all_reduce = false;
  bool overlap_tensor = true;
  std::vector<AlwaysBeside> always_overlaps;
  bool recompute_modules = false;
  bool gather_overlap_alone = true;
  bool shard_groups_cut_experts = true;
  bool experts_in_any_order = true;
  std::vector<CombinationRule> combinations;
  std::vector<JudgedSet> judged;
  std::vector<TrainingFeature> trains;
  std::map<TrainingFeature, std::string> trains_unwritten;

  static void describe(auto& v) {  // NOLINT(readability-function-size): a line for each field
    using T = Abilities;
    const FieldRule may = optional_field();
    v.field("schedules", &T::schedules, "pipeline schedules; none: no pipeline parallelism");
    v.field("stage_division", &T::stage_division, "whether virtual stages may differ in layers");
    v.field("tensor", &T::tensor, "tensor parallelism");
    v.field("shares_heads", &T::shares_heads, "key-value heads on several tensor ranks", may);
    v.field("sequence_parallel", &T::sequence_parallel, "with tensor parallelism: never, if asked, always");
    v.field("context_methods", &T::context_methods, "how context ranks attend; none: no context parallelism");
    v.field("sequence_divides_by_tensor", &T::sequence_divides_by_tensor,
            "the sequence must divide by 2 x context x tensor");
    v.field("fixed_ties", &T::fixed_ties,
            "types of models whose head always is the embedding's weight, or never is", may);
    v.field("zero", &T::zero, "ZeRO stages without a pipeline, its default first", between(0, 3));
    v.field("zero_in_pipeline", &T::zero_in_pipeline, "ZeRO stages with a pipeline, its default first",
            between(0, 3));
    v.field("zero_with_shard_groups", &T::zero_with_shard_groups,
            "ZeRO stages whose states may be shared out over some of the replicas only", between(0, 3));
    v.field("zero_with_offload", &T::zero_with_offload,
            "ZeRO stages with optimizer state in the host's memory", between(0, 3));
    v.field("zero_with_experts", &T::zero_with_experts, "ZeRO stages with expert parallelism", between(0, 3));
    v.field("plain_replicas_alone", &T::plain_replicas_alone,
            "ZeRO 0 only without tensor, pipeline and context parallelism");
    v.field("shards_hold_groups", &T::shards_hold_groups,
            "replicas that share states out are whole groups of context and expert ranks", may);
    v.field("expert", &T::expert, "expert parallelism");
    v.field("expert_split", &T::expert_split, "how experts may be split over tensor ranks");
    v.field("pads_expert_shares", &T::pads_expert_shares,
            "shares of experts' weights where their sizes do not divide", may);
    v.field(
        "deals_out_experts", &T::deals_out_experts,
        "shards hold whole experts: more shards than divide these leave ranks without any, and pad what is "
        "moved",
        may);
    v.field("cannot_spread", &T::cannot_spread, "values of models whose experts it cannot spread over ranks",
            may);
    v.field("orders", &T::orders, "which axis may lie outermost");
    v.field("recomputes", &T::recomputes, "what may be recomputed");
    v.field("partial_recompute", &T::partial_recompute, "which layers recompute when not all do");
    v.field("precisions", &T::precisions, "precisions of compute");
    v.field("precisions_with_experts", &T::precisions_with_experts, "precisions of models with experts");
    v.field("overlap_exchange", &T::overlap_exchange,
            "tokens go to experts beside another micro-batch; in pipelines with virtual stages only");
    v.field("overlap_all_reduce", &T::overlap_all_reduce,
            "tensor-parallel collectives overlap without sequence parallelism, too");
    v.field("overlap_tensor", &T::overlap_tensor, "tensor-parallel collectives beside their products", may);
    v.field("always_overlaps", &T::always_overlaps,
            "communication beside compute that cannot be switched off", may);
    v.field("recompute_modules", &T::recompute_modules,
            "selective recompute of modules that --recompute-modules names");
    v.field("gather_overlap_alone", &T::gather_overlap_alone,
            "gathering of weights overlaps where the reduction of gradients does not", may);
    v.field("shard_groups_cut_experts", &T::shard_groups_cut_experts,
            "groups that share out states need not divide the replicas of experts", may);
    v.field("experts_in_any_order", &T::experts_in_any_order,
            "with data outermost, experts may have other replicas than the rest of the model", may);
    v.field("nvfp4_multiple", &T::nvfp4_multiple,
            "tokens and sizes of products in nvfp4 are multiples of this on each rank",
            optional_field(between(1, 4096)));
    v.field("combinations", &T::combinations, "parts of layouts and models that do not go together", may);
    v.field("judged", &T::judged, "parts that do, by a run or its own line");
    v.field("trains", &T::trains, "ways to train beside full training by AdamW", may);
    v.field("trains_unwritten", &T::trains_unwritten,
            "further ones, which MPT does not write for it yet, and where it says so", rare_field());
  }
};

/// How files of a framework are known: by their ending, and by a text in them where others share it.
struct FileForm {
  std::string ending, mark;

  static void describe(auto& v) {
    v.field("ending", &FileForm::ending, "how the file's name ends");
    v.field("mark", &FileForm::mark, "a text in it", rare_field());
  }
};

/// What its export writes and its import reads.
struct FrameworkFiles {
  std::string exported, imported;  // a line for people
  std::vector<FileForm> forms;     // of what is imported; empty: any
  // How recipes are known among files of any kind: by one of the endings, "" for none, and one of the texts.
  std::vector<std::string> recipe_endings, recipe_marks;

  static void describe(auto& v) {
    using T = FrameworkFiles;
    v.field("exported", &T::exported, "what the export writes, with the framework's version");
    v.field("imported", &T::imported, "what the import reads");
    v.field("forms", &T::forms, "how such files are known", rare_field());
    v.field("recipe_endings", &T::recipe_endings, "how names of recipes end");
    v.field("recipe_marks", &T::recipe_marks, "texts of which recipes have one");
  }
};

/// A run of some steps on data that are made up, with what the export writes.
struct FrameworkTrial {
  std::string script;                  // of the exported files
  std::vector<std::string> arguments;  // "@steps@" stands for the number of steps
  std::string where;                   // what has to be there; may be empty
  bool whole_model = false;            // not with pipelines, whose layers are the user's
  std::string source;                  // where the arguments are documented

  static void describe(auto& v) {
    using T = FrameworkTrial;
    v.field("script", &T::script, "exported file that starts it");
    v.field("arguments", &T::arguments, "what follows the script; @steps@ stands for the number of steps");
    v.field("where", &T::where, "where to start it", rare_field());
    v.field("whole_model", &T::whole_model, "without pipelines alone", rare_field());
    v.field("source", &T::source, "where the arguments are documented", long_text());
  }
};

struct Framework {
  std::string name;     // as in --framework
  std::string title;    // as its makers write it
  std::string version;  // that the abilities were read from
  std::string dialect;  // folder of the dialect.json that says which models it has; empty: any
  std::vector<std::string> aliases;
  std::vector<std::string> sharding_aliases;  // that mean FSDP and tensor ranks alone
  std::vector<std::string> takes_plans_of;
  FrameworkFiles files;
  FrameworkTrial trial;  // no script: its exports run on data of the user alone
  Abilities abilities;
  Execution execution;
  std::map<std::string, std::string> sources;  // by ability
  /// How its own files and programs say what planner/answer/memory_switches.json changes, by option.
  std::map<std::string, std::string> switches;

  /// All that people call it beside its name.
  std::vector<std::string> other_names() const {
    std::vector<std::string> names = aliases;
    names.insert(names.end(), sharding_aliases.begin(), sharding_aliases.end());
    return names;
  }

  static void describe(auto& v) {
    using T = Framework;
    v.field("name", &T::name, "as in --framework");
    v.field("title", &T::title, "as its makers write it");
    v.field("version", &T::version, "release that the abilities were read from");
    v.field("dialect", &T::dialect, "framework whose dialect.json says which models it has");
    v.field("aliases", &T::aliases, "what else people call it");
    v.field("sharding_aliases", &T::sharding_aliases,
            "names of it that mean FSDP and tensor parallelism, without pipelines and context parallelism",
            rare_field());
    v.field("takes_plans_of", &T::takes_plans_of, "frameworks whose plans suit its export, too");
    v.field("files", &T::files, "what it exports and imports", optional_field());
    v.field("trial", &T::trial, "arguments of a short run on data that are made up", rare_field());
    v.field("abilities", &T::abilities, "what it can run");
    v.field("execution", &T::execution, "what it does with a layout: what differs from mpt-run");
    v.field("sources", &T::sources, "where each ability is documented", long_text());
    v.field("switches", &T::switches, "its words for options that save memory", rare_field());
  }
};

}  // namespace mpt::frameworks
