// SPDX-License-Identifier: Apache-2.0

// torchtitan's log: tokens per second and GPU, torchtitan/components/metrics.py. Every rank may write it.

#include "frameworks/log.h"
#include "core/plan.h"

namespace mpt::frameworks {
namespace {

// The product of the degrees that divide the ranks, if the line has all of them.
std::optional<double> titan_mesh_ranks(std::string_view line) {
  if (line.find("Building device mesh with parallelism") == std::string_view::npos) return std::nullopt;
  double ranks = 1.0;
  for (const char* degree : {" pp=", "dp_replicate=", "dp_shard=", " cp=", " tp="}) {
    const auto value = number_behind(line, degree);
    if (!value) return std::nullopt;
    ranks *= *value;
  }
  return ranks;
}

void add_titan_facts(LoggedRun& run, const LogLine& line) {
  set_fact(run.ranks, titan_mesh_ranks(line.text), line.number);
  if (line.text.find("Trainer is initialized with") == std::string_view::npos) return;
  set_fact(run.global_batch, number_behind(line.text, "global batch size"), line.number);
  set_fact(run.sequence, number_behind(line.text, "sequence length"), line.number);
}

}  // namespace

LoggedRun read_torchtitan_log(const LogFile& file, const Plan& plan) {
  return read_steps(file, [&](const LogLine& line, LoggedRun& run, LoggedStep& step) {
    add_titan_facts(run, line);
    const auto rate = number_behind(line.text, "tps:");
    if (!rate || line.text.find("step:") == std::string_view::npos ||
        line.text.find("validate") != std::string_view::npos)
      return false;
    step.seconds = double(plan.workload.tokens_per_step()) / (*rate * double(plan.layout.ranks()));
    check_logged(step.seconds, rule_of<LoggedStep>(&LoggedStep::seconds), "seconds of a step, by tps:", file,
                 line.number);
    set_behind(step, &LoggedStep::step, line, "step:", file);
    set_behind(step, &LoggedStep::flop_per_s, line, "tflops:", file, 1e12);
    set_behind(step, &LoggedStep::memory_bytes, line, "memory:", file, 1073741824.0);
    step.not_finite = is_not_finite(line.text, {"loss:", "grad_norm:"}) ? 1 : 0;
    return true;
  });
}

}  // namespace mpt::frameworks
