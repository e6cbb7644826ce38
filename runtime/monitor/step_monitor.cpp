// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "base/clock.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "reports/table.h"

namespace mpt::runtime {

StepMonitor::StepMonitor(const Plan& plan, const MonitorOptions& options)
    : options_(options), terminal_(isatty(1) == 1) {
  std::string reason;
  if (options.gpus && (options.watch || !options.log.empty())) gpus_ = open_gpu_monitor(reason);
  if (!reason.empty()) warn("mpt-run: note: the GPUs' load is not watched: " + reason);
  if (options.log.empty()) return;
  log_ = std::make_unique<LogFile>(options.log, options.append, "--log " + options.log.string());
  const Json header{{"format", "mpt-run-log"},
                    {"version", 1},
                    {"model", plan.model.name},
                    {"layout", layout_name(plan.layout)},
                    {"program_digest", plan.program_digest},
                    {"predicted_step_time_s", plan.prediction.step_time_s}};
  add_to_log(header.dump());
}

StepMonitor::~StepMonitor() {
  if (!terminal_ || options_.quiet || options_.watch) return;
  try {
    fmt::print("\r\033[K");
    std::fflush(stdout);                // stderr may follow
  } catch (const std::system_error&) {  // run_program() reports it
  }
}

std::string StepMonitor::failure() const { return log_ ? log_->failure() : ""; }

// A full disk must not end the training.
void StepMonitor::add_to_log(const std::string& line) {
  if (log_->add_line(line)) return;
  warn(fmt::format("mpt-run: {}; training goes on", log_->failure()));
}

std::string StepMonitor::line(const reports::StepRecord& r) const {
  std::string text = fmt::format(
      "step {:>{}}/{}  loss {:>7.4f}  grad norm {:>7.3f}  {:>8} per step  {:>9} tokens/s  bubble {:>5}",
      r.step, std::to_string(options_.steps).size(), options_.steps, r.loss, r.gradient_norm,
      format_seconds(r.step_time_s), format_count(int64_t(r.tokens_per_s)), format_percent(r.bubble_share));
  if (r.model_flop_utilization > 0.0) text += "  MFU " + format_percent(r.model_flop_utilization);
  if (r.next_token_loss) text += fmt::format("  next-token loss {:.4f}", *r.next_token_loss);
  if (r.validation_loss) text += fmt::format("  validation {:.4f}", *r.validation_loss);
  if (r.skipped) text += "  SKIPPED: NaN or Inf";
  for (const int64_t rank : r.stragglers) text += fmt::format("  SLOW: rank {}", rank);
  return text;
}

std::string StepMonitor::time_left(const reports::StepRecord& r) const {
  if (!terminal_ || r.step >= options_.steps) return "";
  return fmt::format("  about {} left", format_duration(double(options_.steps - r.step) * r.step_time_s));
}

std::string StepMonitor::rank_table(const reports::StepRecord& r) const {
  constexpr size_t kMostRows = 32;
  reports::Table table(
      {{"rank"}, {"compute"}, {"inside it"}, {"transfers"}, {"gradients"}, {"idle"}, {"memory"}, {"peak"}});
  for (size_t i = 0; i < std::min(kMostRows, r.ranks.size()); ++i) {
    const reports::RankRecord& rank = r.ranks[i];
    table.add_row({std::to_string(rank.rank), format_seconds(rank.compute_s),
                   format_seconds(rank.tensor_s + rank.context_s + rank.expert_s + rank.sharding_s),
                   format_seconds(rank.transfer_s), format_seconds(rank.gradients_s),
                   format_seconds(rank.idle_s), format_bytes(double(rank.memory_bytes)),
                   format_bytes(double(rank.peak_bytes))});
  }
  std::string text = table.text();
  if (r.ranks.size() > kMostRows) text += fmt::format("  and {} more ranks\n", r.ranks.size() - kMostRows);
  return text;
}

std::string StepMonitor::gpu_table() const {
  if (loads_.empty()) return "";
  reports::Table table({{"GPU"}, {"busy"}, {"memory busy"}, {"memory"}, {"power"}, {"clock"}});
  for (const GpuLoad& load : loads_) {
    table.add_row({std::to_string(load.gpu), format_percent(load.busy), format_percent(load.memory_busy),
                   format_bytes(double(load.memory_bytes)), fmt::format("{:.0f} W", load.power_w),
                   fmt::format("{} MHz", load.clock_mhz)});
  }
  return "\n" + table.text();
}

// Overwrites the earlier drawing.
void StepMonitor::draw(const reports::StepRecord& r) {
  const std::string text = line(r) + time_left(r) + "\n\n" + rank_table(r) + gpu_table();
  if (drawn_lines_ > 0 && terminal_) fmt::print("\033[{}A\033[J", drawn_lines_);
  fmt::print("{}", text);
  drawn_lines_ = int(std::count(text.begin(), text.end(), '\n'));
}

void StepMonitor::write_row(const reports::StepRecord& r) {
  constexpr size_t kMostRanks = 64;
  // JSON has no NaN, so values that are not finite become null.
  Json row{{"step", r.step},
           {"loss", r.loss},
           {"gradient_norm", r.gradient_norm},
           {"learning_rate", r.learning_rate},
           {"step_time_s", r.step_time_s},
           {"tokens_per_s", r.tokens_per_s},
           {"model_flop_utilization", r.model_flop_utilization},
           {"bubble_share", r.bubble_share},
           {"data_wait_s", r.data_wait_s}};
  if (r.skipped) row["skipped"] = true;
  if (r.loss_scale != 1.0) row["loss_scale"] = r.loss_scale;
  if (r.next_token_loss) row["next_token_loss"] = *r.next_token_loss;
  if (r.validation_loss) row["validation_loss"] = *r.validation_loss;
  if (!r.stragglers.empty()) row["stragglers"] = r.stragglers;
  for (size_t i = 0; i < r.ranks.size() && r.ranks.size() <= kMostRanks; ++i) {
    const reports::RankRecord& rank = r.ranks[i];
    row["ranks"].push_back({{"rank", rank.rank},
                            {"compute_s", rank.compute_s},
                            {"tensor_s", rank.tensor_s},
                            {"context_s", rank.context_s},
                            {"expert_s", rank.expert_s},
                            {"sharding_s", rank.sharding_s},
                            {"transfer_s", rank.transfer_s},
                            {"gradients_s", rank.gradients_s},
                            {"idle_s", rank.idle_s},
                            {"data_wait_s", rank.data_wait_s},
                            {"memory_bytes", rank.memory_bytes},
                            {"peak_bytes", rank.peak_bytes}});
    if (rank.expert_load > 0.0) row["ranks"].back()["expert_load"] = rank.expert_load;
  }
  for (const GpuLoad& load : loads_) {
    row["gpus"].push_back({{"gpu", load.gpu},
                           {"busy", load.busy},
                           {"memory_busy", load.memory_busy},
                           {"memory_bytes", load.memory_bytes},
                           {"power_w", load.power_w},
                           {"clock_mhz", load.clock_mhz}});
  }
  for (const InstructionDuration& i : r.instructions)
    row["instructions"].push_back({{"kind", enum_name(i.kind)}, {"stage", i.stage}, {"seconds", i.seconds}});
  add_to_log(row.dump());
}

void StepMonitor::print(const reports::StepRecord& r) {
  const bool notable = r.validation_loss || r.skipped || !r.stragglers.empty();
  if (options_.watch && !r.ranks.empty()) {
    draw(r);
  } else if (terminal_) {
    const std::string left = time_left(r);
    fmt::print("{}", notable ? "\r\033[K" + line(r) + left + "\n" : live_line(line(r), left));
  } else if (pacer_.is_due(r.step, options_.steps, now_s()) || notable) {
    fmt::print("{}\n", line(r));
  }
}

void StepMonitor::on_step(const reports::StepRecord& r) {
  if (gpus_) loads_ = gpus_->read();
  if (log_) write_row(r);
  if (options_.quiet) return;
  try {
    if (print_while_read([&] { print(r); })) return;
    warn("mpt-run: nobody reads stdout any more; training goes on");
  } catch (const std::system_error& error) {  // run_program() turns it into a failure
    warn(fmt::format("mpt-run: stdout cannot be written ({}); training goes on", error.code().message()));
  }
  options_.quiet = true;
}

}  // namespace mpt::runtime
