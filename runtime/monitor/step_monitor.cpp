// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_monitor.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/json.h"
#include "core/quantity.h"

namespace mpt::runtime {

StepMonitor::StepMonitor(const Plan& plan, int64_t steps, const std::filesystem::path& log, bool quiet,
                         bool append)
    : steps_(steps), quiet_(quiet), terminal_(isatty(1) == 1) {
  if (log.empty()) return;
  log_ = std::fopen(log.c_str(), append ? "a" : "w");
  if (log_ == nullptr) {
    throw UserError(Problem{"--log " + log.string(),
                            fmt::format("cannot be written ({})", std::strerror(errno)),
                            "a path in a folder that exists", ""});
  }
  const Json header{{"format", "mpt-run-log"},
                    {"version", 1},
                    {"model", plan.model.name},
                    {"layout", layout_name(plan.layout)},
                    {"program_digest", plan.program_digest},
                    {"predicted_step_time_s", plan.prediction.step_time_s}};
  fmt::print(log_, "{}\n", header.dump());
}

StepMonitor::~StepMonitor() {
  if (terminal_ && !quiet_) fmt::print("\r\033[K");
  if (log_ != nullptr) std::fclose(log_);
}

std::string StepMonitor::line(const reports::StepRecord& r) const {
  std::string text = fmt::format("step {:>{}}/{}  loss {:.4f}  grad norm {:.3f}  {} tokens/s  {}  bubble {}",
                                 r.step, std::to_string(steps_).size(), steps_, r.loss, r.gradient_norm,
                                 format_count(int64_t(r.tokens_per_s)), format_seconds(r.step_time_s),
                                 format_percent(r.bubble_share));
  if (r.validation_loss) text += fmt::format("  validation {:.4f}", *r.validation_loss);
  if (r.skipped) text += "  SKIPPED: not finite";
  return text;
}

void StepMonitor::on_step(const reports::StepRecord& r) {
  if (log_ != nullptr) {
    // JSON has no NaN: what is not finite becomes null.
    Json row{{"step", r.step},
             {"loss", r.loss},
             {"gradient_norm", r.gradient_norm},
             {"learning_rate", r.learning_rate},
             {"step_time_s", r.step_time_s},
             {"tokens_per_s", r.tokens_per_s},
             {"bubble_share", r.bubble_share},
             {"data_wait_s", r.data_wait_s}};
    if (r.skipped) row["skipped"] = true;
    if (r.loss_scale != 1.0) row["loss_scale"] = r.loss_scale;
    if (r.validation_loss) row["validation_loss"] = *r.validation_loss;
    fmt::print(log_, "{}\n", row.dump());
    std::fflush(log_);  // whoever follows the file sees whole lines
  }
  if (quiet_) return;
  if (terminal_) {
    fmt::print("\r\033[K{}", line(r));
    if (r.validation_loss || r.skipped) fmt::print("\n");
  } else if (r.step == 1 || r.step == steps_ || r.step % 10 == 0 || r.validation_loss || r.skipped) {
    fmt::print("{}\n", line(r));
  }
  std::fflush(stdout);
}

}  // namespace mpt::runtime
