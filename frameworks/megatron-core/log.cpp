// SPDX-License-Identifier: Apache-2.0

// Megatron-LM's log: training_log() in megatron/training/training.py, report_memory() in
// megatron/training/utils.py, and the timers of megatron/core/timers.py.

#include "frameworks/log.h"

namespace mpt::frameworks {
namespace {

constexpr TimerName kMegatronTimers[] = {{"forward-backward ", StepPart::forward_backward},
                                         {"all-grads-sync ", StepPart::gradients},
                                         {"optimizer ", StepPart::optimizer},
                                         {"batch-generator ", StepPart::data}};

// "    optimizer ................: (11.2, 12.5)": of the fastest and the slowest rank, or the slowest alone.
void add_megatron_timer(LoggedRun& run, std::string_view line) {
  const size_t dots = line.find("..: ");
  if (dots == std::string_view::npos) return;
  const std::string_view values = line.substr(dots + 4);
  const size_t comma = values.find(", ");
  const auto ms = number_behind(comma == std::string_view::npos ? values : values.substr(comma + 2), "");
  if (!ms || !(*ms >= 0.0) || !(*ms <= 1e10)) return;
  for (const TimerName& timer : kMegatronTimers)
    if (line.substr(std::min(line.find_first_not_of(' '), line.size())).starts_with(timer.name))
      run.seconds_of(timer.part).push_back(*ms * 1e-3);
}

void add_megatron_facts(LoggedRun& run, const LogLine& line) {
  set_fact(run.ranks, number_behind_any(line.text, {"using world size:", " world_size .."}), line.number);
  set_fact(run.global_batch, number_behind(line.text, " global_batch_size .."), line.number);
  set_fact(run.sequence, number_behind(line.text, " seq_length .."), line.number);
  const auto mib = number_behind(line.text, "| max allocated:");
  if (mib && *mib >= 0.0 && *mib <= 1e9) run.peak_bytes = std::max(run.peak_bytes, int64_t(*mib * 1048576.0));
}

}  // namespace

LoggedRun read_megatron_log(const LogFile& file, const Plan&) {
  return read_steps(file, [&](const LogLine& line, LoggedRun& run, LoggedStep& step) {
    add_megatron_timer(run, line.text);
    add_megatron_facts(run, line);
    if (!set_behind(step, &LoggedStep::seconds, line, "elapsed time per iteration (ms):", file, 1e-3))
      return false;
    set_behind(step, &LoggedStep::step, line, "iteration ", file);
    set_behind(step, &LoggedStep::global_batch, line, "global batch size:", file);
    set_behind(step, &LoggedStep::flop_per_s, line, "throughput per GPU (TFLOP/s/GPU):", file, 1e12);
    set_behind(step, &LoggedStep::skipped, line, "number of skipped iterations:", file);
    set_behind(step, &LoggedStep::not_finite, line, "number of nan iterations:", file);
    if (step.not_finite == 0 && is_not_finite(line.text, {"lm loss:", "grad norm:"})) step.not_finite = 1;
    return true;
  });
}

}  // namespace mpt::frameworks
