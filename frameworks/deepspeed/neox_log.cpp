// SPDX-License-Identifier: Apache-2.0

// GPT-NeoX's log: training_log() in megatron/logging.py, which DeepSpeed's engine runs beneath.

#include <cmath>

#include "frameworks/log.h"

namespace mpt::frameworks {
namespace {

// Samples of a step by their rate, where that is a whole number but for rounding.
int64_t neox_batch(const LoggedStep& step, double samples_per_s) {
  const double samples = samples_per_s * step.seconds;
  const double whole = std::round(samples);
  return whole >= 1.0 && whole <= 1e9 && std::abs(samples - whole) < 0.01 * whole ? int64_t(whole) : 0;
}

}  // namespace

LoggedRun read_neox_log(const LogFile& file, const Plan&) {
  LoggedRun run;
  std::vector<std::string> speakers;
  for (const LogLine& line : file.lines) {
    // DeepSpeed's engine times the same parts; its own rows name the rank.
    if (line.text.find("[Rank ") == std::string_view::npos) add_timer_row(run, line.text);
    const auto rate = number_behind(line.text, "samples/sec:");
    LoggedStep step;
    if (!rate ||
        !set_behind(step, &LoggedStep::seconds, line, "elapsed time per iteration (ms):", file, 1e-3))
      continue;
    step.line = int64_t(line.number);
    step.global_batch = neox_batch(step, *rate);
    set_behind(step, &LoggedStep::step, line, "iteration ", file);
    set_behind(step, &LoggedStep::flop_per_s, line, "approx flops per GPU:", file, 1e12);
    set_behind(step, &LoggedStep::skipped, line, "number of skipped iterations:", file);
    set_behind(step, &LoggedStep::not_finite, line, "number of nan iterations:", file);
    if (step.not_finite == 0 && is_not_finite(line.text, {"lm_loss:"})) step.not_finite = 1;
    run.steps.push_back(step);
    speakers.push_back(line.speaker);
  }
  keep_one_speaker(run, speakers);
  return run;
}

}  // namespace mpt::frameworks
