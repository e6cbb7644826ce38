// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_monitor.h"

#include <unistd.h>

#include <cstdio>
#include <system_error>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "reports/table.h"
#include "runtime/monitor/step_curves.h"

namespace mpt::runtime {
namespace {

constexpr size_t kMostRows = 32;     // of the tables of ranks
constexpr size_t kRecentSteps = 20;  // whose median says how long the rest takes

}  // namespace

StepMonitor::StepMonitor(const Plan& plan, const MonitorOptions& options)
    : options_(options), terminal_(isatty(1) == 1) {
  if (!options.tensorboard.empty()) {
    curves_ = open_event_file(options.tensorboard);
    add(*curves_, start_events(options.done + 1));
  }
  if (options.log.empty()) return;
  log_ = std::make_unique<LogFile>(options.log, options.done > 0, "--log " + options.log.string());
  const Json header{{"format", "mpt-run-log"},
                    {"version", 1},
                    {"model", plan.model.name},
                    {"layout", layout_name(plan.layout)},
                    {"program_digest", plan.program_digest},
                    {"predicted_step_time_s", plan.prediction.step_time_s}};
  add(*log_, header.dump() + "\n");
}

StepMonitor::~StepMonitor() {
  if (!terminal_ || options_.quiet || options_.watch) return;
  try {
    fmt::print("\r\033[K");
    std::fflush(stdout);                // stderr may follow
  } catch (const std::system_error&) {  // run_program() reports it
  }
}

std::map<std::filesystem::path, std::string> StepMonitor::failures() const {
  std::map<std::filesystem::path, std::string> all{{options_.metrics, metrics_failure_}};
  if (log_) all[options_.log] = log_->failure();
  if (curves_) all[options_.tensorboard] = curves_->failure();
  std::erase_if(all, [](const auto& one) { return one.second.empty(); });
  return all;
}

void StepMonitor::say(const std::string& text) {
  if (options_.quiet) return;
  const std::lock_guard lock(printing_);
  if (drawn_lines_ > 0 && terminal_) fmt::print("\033[{}A\033[J", drawn_lines_);
  print_while_read([&] { fmt::print("{}{}\n", terminal_ ? "\r\033[K" : "", text); });
  drawn_lines_ = 0;  // the next table is drawn below
}

// A full disk must not end the training.
void StepMonitor::add(LogFile& file, const std::string& record) {
  if (!file.add(record)) warn(fmt::format("mpt-run: {}; training goes on", file.failure()));
}

std::string StepMonitor::line(const reports::StepRecord& r) const {
  std::string text = fmt::format(
      "step {:>{}}/{}  loss {:>7.4f}  grad norm {:>7.3f}  lr {:<8.3g}  {:>8} per step  {:>9} tokens/s  "
      "bubble {:>5}",
      r.step, std::to_string(options_.steps).size(), options_.steps, r.loss, r.gradient_norm, r.learning_rate,
      format_seconds(r.step_time_s), format_count(int64_t(r.tokens_per_s)), format_percent(r.bubble_share));
  if (r.model_flop_utilization > 0.0) text += "  MFU " + format_percent(r.model_flop_utilization);
  if (r.next_token_loss) text += fmt::format("  next-token loss {:.4f}", *r.next_token_loss);
  if (r.validation_loss) text += fmt::format("  validation {:.4f}", *r.validation_loss);
  if (r.skipped) text += "  SKIPPED: NaN or Inf";
  for (const int64_t rank : r.stragglers) text += fmt::format("  SLOW: rank {}", rank);
  return text;
}

std::string StepMonitor::progress(const reports::StepRecord& r) const {
  auto seen = fmt::format("  {} tokens, epoch {:.2f}", format_magnitude(double(r.tokens)), r.epochs);
  if (r.step >= options_.steps) return seen;
  return seen + fmt::format(", about {} left",
                            format_duration(double(options_.steps - r.step) * reports::median(recent_s_)));
}

std::string StepMonitor::rank_table(const reports::StepRecord& r) const {
  reports::Table table(
      {{"rank"}, {"compute"}, {"inside it"}, {"transfers"}, {"gradients"}, {"idle"}, {"memory"}, {"peak"}});
  for (size_t i = 0; i < std::min(kMostRows, r.ranks.size()); ++i) {
    const reports::RankRecord& rank = r.ranks[i];
    std::string gradients = format_seconds(rank.gradients_s);
    if (rank.gradient_exchange_s != rank.gradients_s)
      gradients += " of " + format_seconds(rank.gradient_exchange_s);
    table.add_row({std::to_string(rank.rank), format_seconds(rank.compute_s),
                   format_seconds(rank.tensor_s + rank.context_s + rank.expert_s + rank.sharding_s),
                   format_seconds(rank.transfer_s), gradients, format_seconds(rank.idle_s),
                   format_bytes(double(rank.memory_bytes)), format_bytes(double(rank.peak_bytes))});
  }
  std::string text = table.text();
  if (r.ranks.size() > kMostRows) text += fmt::format("  and {} more ranks\n", r.ranks.size() - kMostRows);
  return text;
}

std::string StepMonitor::gpu_table(const reports::StepRecord& r) const {
  if (!any_of(r.ranks, [](const reports::RankRecord& rank) { return rank.gpu_memory_bytes >= 0; })) return "";
  const auto told = [](double value, const char* form) {
    return value < 0.0 ? "-" : fmt::format(fmt::runtime(form), value);
  };
  reports::Table table(
      {{"GPU of rank"}, {"busy"}, {"memory busy"}, {"memory"}, {"power"}, {"clock"}, {"links"}});
  for (size_t i = 0; i < std::min(kMostRows, r.ranks.size()); ++i) {
    const reports::RankRecord &now = r.ranks[i], &before = i < before_.size() ? before_[i] : now;
    const double linked = double(now.link_sent_bytes - before.link_sent_bytes + now.link_received_bytes -
                                 before.link_received_bytes);
    const bool known = before_.size() > i && before.link_sent_bytes >= 0;
    table.add_row({std::to_string(i), told(100.0 * now.gpu_busy, "{:.0f}%"),
                   told(100.0 * now.gpu_memory_busy, "{:.0f}%"), format_bytes(double(now.gpu_memory_bytes)),
                   told(now.gpu_power_w, "{:.0f} W"), told(double(now.gpu_clock_mhz), "{:.0f} MHz"),
                   told(known ? linked / r.step_time_s * 1e-9 : -1.0, "{:.1f} GB/s")});
  }
  return "\n" + table.text();
}

// Overwrites the earlier drawing.
void StepMonitor::draw(const reports::StepRecord& r) {
  const std::string text = line(r) + progress(r) + "\n\n" + rank_table(r) + gpu_table(r);
  if (drawn_lines_ > 0 && terminal_) fmt::print("\033[{}A\033[J", drawn_lines_);
  fmt::print("{}", text);
  before_ = r.ranks;
  drawn_lines_ = int(std::count(text.begin(), text.end(), '\n'));
}

void StepMonitor::write_row(const reports::StepRecord& r) {
  constexpr size_t kMostRanks = 64;
  reports::StepRecord written = r;
  if (written.ranks.size() > kMostRanks) written.ranks.clear();
  add(*log_, to_json(written).dump() + "\n");  // JSON has no NaN, so values that are not finite become null
}

void StepMonitor::write_metrics(const reports::StepRecord& r) {
  try {
    write_file_atomically(options_.metrics, metrics_of(r, options_.metrics.stem().string(), hosts_), false);
  } catch (const std::exception& error) {
    if (metrics_failure_.empty()) warn(fmt::format("mpt-run: {}; training goes on", error.what()));
    metrics_failure_ = error.what();
  }
}

void StepMonitor::print(const reports::StepRecord& r) {
  const bool notable = r.validation_loss || r.skipped || !r.stragglers.empty();
  if (options_.watch && !r.ranks.empty()) {
    draw(r);
  } else if (terminal_) {
    const std::string left = progress(r);
    fmt::print("{}", notable ? "\r\033[K" + line(r) + left + "\n" : live_line(line(r), left));
  } else if (pacer_.is_due(r.step, options_.steps, now_s()) || notable) {
    fmt::print("{}{}\n", line(r), progress(r));
  }
}

void StepMonitor::on_step(const reports::StepRecord& r) {
  if (!r.hosts.empty()) hosts_ = r.hosts;
  recent_s_.push_back(r.step_time_s);
  if (recent_s_.size() > kRecentSteps) recent_s_.erase(recent_s_.begin());
  if (log_) write_row(r);
  if (curves_) add(*curves_, event_of(r));
  if (!options_.metrics.empty()) write_metrics(r);
  if (options_.quiet) return;
  try {
    const std::lock_guard lock(printing_);
    if (print_while_read([&] { print(r); })) return;
    warn("mpt-run: nobody reads stdout any more; training goes on");
  } catch (const std::system_error& error) {  // run_program() turns it into a failure
    warn(fmt::format("mpt-run: stdout cannot be written ({}); training goes on", error.code().message()));
  }
  options_.quiet = true;
}

}  // namespace mpt::runtime
