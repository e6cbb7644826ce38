// SPDX-License-Identifier: Apache-2.0

// NeMo's log (nemo/utils/exp_manager.py and its progress printer), and the line that Megatron-Bridge adds to
// Megatron-LM's (training/utils/train_utils.py).

#include "frameworks/log.h"

namespace mpt::frameworks {
namespace {

// Megatron-Bridge prints two lines for a step; NeMo prints one.
bool read_nemo_step(LoggedStep& step, const LogLine& line, const LogFile& file) {
  if (set_behind(step, &LoggedStep::seconds, line, "train_step_timing in s", file)) {
    set_behind(step, &LoggedStep::step, line, "global_step", file);
    set_behind(step, &LoggedStep::global_batch, line, "global_batch_size:", file);
    set_behind(step, &LoggedStep::memory_bytes, line, "max_memory_allocated:", file);
    step.not_finite = is_not_finite(line.text, {"reduced_train_loss", "grad_norm"}) ? 1 : 0;
    return true;
  }
  if (line.text.find("MODEL_TFLOP/s/GPU") == std::string_view::npos) return false;
  set_behind(step, &LoggedStep::flop_per_s, line, "GPU utilization:", file, 1e12);
  return set_behind(step, &LoggedStep::seconds, line, "Step Time :", file);
}

}  // namespace

LoggedRun read_nemo_log(const LogFile& file, const Plan&) {
  return read_steps(file, [&](const LogLine& line, LoggedRun& run, LoggedStep& step) {
    if (line.text.find("All distributed processes registered") != std::string_view::npos)
      set_fact(run.ranks, number_behind(line.text, "Starting with "), line.number);
    return read_nemo_step(step, line, file);
  });
}

}  // namespace mpt::frameworks
