// SPDX-License-Identifier: Apache-2.0

// The options that mpt-plan's commands share, as their help shows them.

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/quantity.h"
#include "core/recompute_modules.h"
#include "core/schedule_catalog.h"
#include "planner/command_line.h"

namespace mpt::planner {
namespace {

constexpr const char* kWhat = "What to train";
constexpr const char* kWhere = "Where";
constexpr const char* kMoreWhat = "More about what runs the plan";
constexpr const char* kRestrict = "Restrict the search, values separated by commas (default: everything)";
constexpr const char* kMoreRestrict = "More limits of the search";
constexpr const char* kLayout = "Layout";
constexpr const char* kOutput = "Output";
constexpr const char* kMoreOutput = "More output";
constexpr int64_t kMostSequences = int64_t{1} << 28;

std::vector<std::string> recompute_module_names() {
  std::vector<std::string> names;
  for (const RecomputeModule& module : recompute_modules()) names.emplace_back(module.name);
  return names;
}

// "128k" becomes "131072" before CLI11 reads a number.
CLI::Validator tokens_of_a_sequence() {
  return {[](std::string& text) {
            text = std::to_string(parse_sequence(text, "--seq"));
            return std::string();
          },
          "", "sequence"};
}

// Throws: before the work, not after it.
CLI::Validator checked_by(double (*parse)(std::string_view, std::string_view), const std::string& option) {
  return {[parse, option](std::string& text) {
            parse(text, option);
            return std::string();
          },
          "", option};
}

void declare_workload(CLI::App& app, PlanOptions& o) {
  app.add_option("--model", o.model,
                 "Name such as llama3-70b (mpt-plan model list), Hugging Face id, or path of a config.json")
      ->type_name("MODEL")
      ->group(kWhat);
  app.add_option("--global-batch", o.global_batch, "Sequences per optimizer step")
      ->check(CLI::Range(int64_t{1}, kMostSequences))
      ->group(kWhat);
  app.add_option(
         "--seq", o.sequence,
         "Tokens per sequence; in 8k, k is 1024 (default: 4096, or less if the model's limit is lower)")
      ->transform(tokens_of_a_sequence())
      ->group(kWhat);
  app.add_option("--precision", o.precision,
                 "fp32, bf16, fp16, fp8, mxfp8 or nvfp4 (default: bf16 on GPUs, fp32 on CPUs)")
      ->type_name("NAME")
      ->group(kWhat);
  app.add_option("--framework", o.framework,
                 "Software that will run the plan, such as megatron-core, nemo, torchtitan or fsdp; an "
                 "unknown name lists all (default: megatron-core on GPUs, mpt on CPUs)")
      ->type_name("NAME")
      ->group(kWhat);
}

void declare_place(CLI::App& app, PlanOptions& o) {
  app.add_option("--cluster", o.cluster,
                 "Nodes such as dgx-h100:8 (mpt-plan cluster list), a cluster file (docs/clusters.md), "
                 "this-machine:4 for CPU ranks, or several joined: dgx-a100:8+dgx-h100:4@100Gb/s@5ms")
      ->type_name("CLUSTER")
      ->group(kWhere);
  app.add_option("--gpus,--ranks", o.ranks,
                 "GPUs to use, or CPU ranks; names the nodes where --cluster has no count (default: all of "
                 "the cluster)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}))
      ->group(kWhere);
  app.add_option(
         "--memory-margin", o.memory_margin,
         "Share of a GPU's memory to leave free, such as 5% (default: what 9 of 10 published runs of the "
         "framework needed)")
      ->type_name("SHARE")
      ->group(kMoreRestrict);
  app.add_option("--memory", o.memory,
                 "Limit of each GPU, such as 70GiB (default: its own, less what driver and framework take)")
      ->type_name("SIZE")
      ->group(kWhere);
  app.add_option("--profile", o.profile, "Times of this machine, written by mpt-profile (default: none)")
      ->type_name("FILE")
      ->group(kWhere);
  app.add_option(
         "--kernels", o.kernels,
         "Kernel times of the cluster's GPU, written by mpt-profile import (default: those that come with "
         "mpt-plan)")
      ->type_name("FILE")
      ->group("More about where");
}

void declare_runner(CLI::App& app, PlanOptions& o) {
  app.add_option("--execution", o.execution,
                 "How your framework differs from what is known of it, by the names in a plan's execution "
                 "(docs/file_formats.md), such as fp8_attention=true,graphs=true (default: as known)")
      ->delimiter(',')
      ->type_name("NAME=VALUE")
      ->group(kMoreWhat);
  app.add_option(
         "--overlap", o.overlaps,
         "Communication beside compute: none, or some of " + overlap_names() +
             " (default: all but tensor and exchange, the one of tokens with experts; only transfer on "
             "one node with --framework mpt)")
      ->delimiter(',')
      ->type_name("NAMES")
      ->group(kMoreWhat);
  app.add_option(
         "--recompute-modules", o.recompute_modules,
         fmt::format("What selective recompute runs again, by Megatron Core's names: {} (default: core_attn)",
                     fmt::join(recompute_module_names(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(recompute_module_names()))
      ->type_name("NAMES")
      ->group(kMoreWhat);
  app.add_flag("--beyond-framework", o.beyond_framework,
               "Consider layouts that the framework cannot run, too")
      ->group(kMoreRestrict);
  app.add_option(
         "--expert-load", o.expert_load,
         "Expert imbalance: tokens of the busiest GPU over the average, for its time and memory; mpt-run "
         "measures it (default: 1)")
      ->check(CLI::Range(1.0, 1e4))
      ->group(kMoreWhat);
  app.add_option(
         "--dispatch", o.dispatch,
         "each: a token is sent once for every expert it goes to. once: once for every GPU or node, as "
         "DeepEP and HybridEP do (default: each)")
      ->check(CLI::IsMember({"each", "once"}))
      ->type_name("HOW")
      ->group(kMoreWhat);
}

struct SpaceOption {
  const char* name;
  std::vector<std::string>* words;
  const char* value;
  std::string what;   // in a search
  const char* usual;  // of one layout
  bool advanced;
};

std::vector<SpaceOption> space_options(SpaceOptions& o) {
  const std::string schedules = fmt::format("Pipeline schedule: {}", fmt::join(schedule_names(), ", "));
  return {
      {"--tp", &o.tensor, "N", "Tensor-parallel degree", "1", false},
      {"--cp", &o.context, "N", "Context-parallel degree", "1", false},
      {"--pp", &o.pipeline, "N", "Pipeline stages, each on GPUs of its own", "1", false},
      {"--dp", &o.data, "N", "Data-parallel degree", "what the other degrees leave", false},
      {"--zero", &o.zero, "N", "ZeRO stage, 0 to 3; 3 is fully sharded, as FSDP", "0", false},
      {"--ep", &o.expert, "N", "Expert-parallel degree", "1", false},
      {"--micro-batch", &o.micro_batch, "N", "Sequences per micro-batch", "1", false},
      {"--recompute", &o.recomputes, "HOW", "Activations computed again: none, selective or full", "none",
       false},
      {"--schedule", &o.schedules, "NAME", schedules, "1f1b, or interleaved with --chunks", false},
      {"--sp", &o.sequence_parallel, "on|off", "Sequence parallel beside tensor parallel",
       "off, or on where tensor and expert parallel meet", true},
      {"--cp-method", &o.context_methods, "HOW", "How context ranks attend: ring or all_to_all", "ring",
       true},
      {"--chunks", &o.chunks, "N", "Virtual stages on each GPU of a pipeline",
       "the fewest that the schedule has", true},
      {"--offload", &o.offload, "on|off", "Optimizer state in CPU memory", "off", true},
      {"--order", &o.orders, "AXIS",
       "Axis whose neighbours are farthest apart: pipeline_outermost or data_outermost", "pipeline_outermost",
       true},
      {"--etp", &o.expert_tensor, "N", "Ways to split each expert",
       "the tensor-parallel degree where it divides", true},
  };
}

}  // namespace

void declare_problem(CLI::App& app, PlanOptions& o) {
  declare_workload(app, o);
  declare_place(app, o);
  declare_runner(app, o);
  app.add_option("--threads", o.threads, "Threads of the search (default: one per core, at most 8)")
      ->check(CLI::Range(1, 256))
      ->group(kMoreRestrict);
}

void declare_space(CLI::App& app, SpaceOptions& o, bool several) {
  for (const SpaceOption& entry : space_options(o)) {
    const std::string what = several ? entry.what : fmt::format("{} (default: {})", entry.what, entry.usual);
    CLI::Option* option = app.add_option(entry.name, *entry.words, what)->type_name(entry.value);
    if (several) {
      option->delimiter(',')->group(entry.advanced ? kMoreRestrict : kRestrict);
    } else {
      option->expected(1)->group(kLayout);
    }
  }
}

void declare_outputs(CLI::App& app, OutputOptions& o) {
  app.add_option("-o,--output", o.output, "Write the plan")->type_name("FILE")->group(kOutput);
  app.add_option("--report", o.report, "Write a page for a browser")->type_name("FILE.html")->group(kOutput);
  app.add_option("--trace", o.trace, "Write the simulated step as a trace for Perfetto")
      ->type_name("FILE")
      ->group(kMoreOutput);
  app.add_flag("--json", o.json, "Print the plan as JSON instead of text")->group(kOutput);
  app.add_flag("-v,--verbose", o.verbose,
               "Print the details behind the answer, too: ranking, memory, reasons, published runs")
      ->group(kOutput);
}

void declare_cost(CLI::App& app, CostOptions& o) {
  app.add_option("--tokens", o.tokens, "Tokens of a whole training, such as 15T: prints days and GPU-hours")
      ->type_name("COUNT")
      ->check(checked_by(parse_count, "--tokens"))
      ->group(kOutput);
  app.add_option("--price", o.price, "Price of a GPU-hour: prints what the training costs")
      ->check(CLI::Range(0.0, 1e6))
      ->group(kOutput);
  app.add_option("--goodput", o.goodput,
                 "Share of the time that trains; the rest is failures, saving and evaluation. It scales days "
                 "and cost (default: 1)")
      ->check(CLI::Range(0.01, 1.0))
      ->group(kOutput);
}

void declare(CLI::App& app, PlanOptions& o) {
  declare_problem(app, o);
  declare_space(app, o.space, true);
  declare_outputs(app, o.out);
  declare_cost(app, o.cost);
  app.add_option("--top", o.top, "Layouts to rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->group(kOutput);
  app.add_flag("--pareto", o.pareto, "Print what trades time against memory and GPUs; -o writes the fastest")
      ->group(kOutput);
  app.add_option("--time-limit", o.time_limit_s,
                 "Seconds of search, then the best so far and how far it may be from the optimum")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e6))
      ->group(kMoreRestrict);
  app.add_option("--from", o.from, "Simulate the step of this plan again instead of searching")
      ->type_name("FILE")
      ->group("More to do with a plan");
}

void check_from(const CLI::App& app, const PlanOptions& o) {
  if (o.from.empty()) return;
  const std::vector<std::string> beside{"--from", "--output", "--report", "--trace", "--json", "--verbose"};
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || std::find(beside.begin(), beside.end(), option->get_name()) != beside.end())
      continue;
    throw UserError(Problem{"--from", "excludes " + option->get_name(), "one or the other",
                            "a plan holds its model, cluster and layout"});
  }
}

}  // namespace mpt::planner
