// SPDX-License-Identifier: Apache-2.0

// DeepSpeed's log: ThroughputTimer in deepspeed/utils/timer.py, the engine's timers, and the configuration
// that it prints at the start.

#include <cmath>
#include <utility>

#include "core/plan.h"
#include "frameworks/log.h"

namespace mpt::frameworks {
namespace {

constexpr double kBytesOfGb = 1073741824.0;  // DeepSpeed's GB

// "epoch=0/micro_step=8/global_step=4, ..."; older releases: "0/4, ...".
void set_deepspeed_step(LoggedStep& step, const LogLine& line, const LogFile& file) {
  if (set_behind(step, &LoggedStep::step, line, "global_step=", file)) return;
  const size_t end = line.text.find(", ");
  const size_t slash = line.text.rfind('/', end);
  if (end == std::string_view::npos || slash == std::string_view::npos) return;
  const auto number = number_behind(line.text.substr(slash + 1, end - slash - 1), "");
  if (number && *number >= 1.0 && *number <= 1e12) step.step = int64_t(*number);
}

// "step=40, skipped=2": skipped among all steps so far.
class SkippedSoFar {
 public:
  int64_t since(const LogLine& line) {
    const auto all = number_behind(line.text, ", skipped=");
    if (!all || !(*all >= 0.0) || !(*all <= 1e9)) return 0;
    const int64_t more = std::max<int64_t>(0, int64_t(*all) - seen_);
    seen_ = int64_t(*all);
    return more;
  }

 private:
  int64_t seen_ = 0;
};

// Samples of a step computed from their rate, if that is a whole number up to rounding.
int64_t neox_batch(const LoggedStep& step, double samples_per_s) {
  const double samples = samples_per_s * step.seconds;
  const double whole = std::round(samples);
  return whole >= 1.0 && whole <= 1e9 && std::abs(samples - whole) < 0.01 * whole ? int64_t(whole) : 0;
}

}  // namespace

LoggedRun read_deepspeed_log(const LogFile& file, const Plan& plan) {
  SkippedSoFar skipped;
  int64_t skipped_before = 0;
  return read_steps(file, [&](const LogLine& line, LoggedRun& run, LoggedStep& step) {
    add_timer_row(run, line.text);
    skipped_before += skipped.since(line);
    set_fact(run.ranks, number_behind(line.text, "  world_size .."), line.number);
    set_fact(run.global_batch, number_behind(line.text, "  train_batch_size .."), line.number);
    const auto rate = number_behind_any(line.text, {"CurrSamplesPerSec=", "SamplesPerSec="});
    if (!rate) return false;
    step.seconds = double(plan.workload.global_batch) / *rate;
    check_logged(step.seconds, rule_of<LoggedStep>(&LoggedStep::seconds),
                 "seconds of a step, by SamplesPerSec", file, line.number);
    set_deepspeed_step(step, line, file);
    set_behind(step, &LoggedStep::memory_bytes, line, "MaxMemAllocated=", file, kBytesOfGb);
    step.skipped = std::exchange(skipped_before, 0);
    return true;
  });
}

// GPT-NeoX's log: training_log() in megatron/logging.py. GPT-NeoX runs on DeepSpeed's engine.
LoggedRun read_neox_log(const LogFile& file, const Plan&) {
  return read_steps(file, [&](const LogLine& line, LoggedRun& run, LoggedStep& step) {
    // DeepSpeed's engine times the same parts; its rows name the rank.
    if (line.text.find("[Rank ") == std::string_view::npos) add_timer_row(run, line.text);
    const auto rate = number_behind(line.text, "samples/sec:");
    if (!rate ||
        !set_behind(step, &LoggedStep::seconds, line, "elapsed time per iteration (ms):", file, 1e-3))
      return false;
    step.global_batch = neox_batch(step, *rate);
    set_behind(step, &LoggedStep::step, line, "iteration ", file);
    set_behind(step, &LoggedStep::flop_per_s, line, "approx flops per GPU:", file, 1e12);
    set_behind(step, &LoggedStep::skipped, line, "number of skipped iterations:", file);
    set_behind(step, &LoggedStep::not_finite, line, "number of nan iterations:", file);
    if (step.not_finite == 0 && is_not_finite(line.text, {"lm_loss:"})) step.not_finite = 1;
    return true;
  });
}

}  // namespace mpt::frameworks
