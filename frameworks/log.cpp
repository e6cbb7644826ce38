// SPDX-License-Identifier: Apache-2.0
#include "frameworks/log.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.h"

namespace mpt::frameworks {
namespace {

constexpr size_t kLongestNumber = 40;

// Sums over the micro-batches of a step. "backward-allreduce" is part of "backward".
constexpr TimerName kRowTimers[] = {{"forward", StepPart::forward},     {"fwd", StepPart::forward},
                                    {"backward", StepPart::backward},   {"bwd", StepPart::backward},
                                    {"optimizer", StepPart::optimizer}, {"step", StepPart::optimizer},
                                    {"batch generator", StepPart::data}};

}  // namespace

const std::vector<LogReader>& log_readers() {
  static const std::vector<LogReader> readers{
      {"GPT-NeoX", "samples/sec: ... elapsed time per iteration", "\"wall_clock_breakdown\": true",
       read_neox_log},
      {"Megatron-LM", "elapsed time per iteration", "--timing-log-level 2 --timing-log-option minmax",
       read_megatron_log},
      {"NeMo", "train_step_timing in s", "logger.timing_log_level=2 (in NeMo a trace by NsysCallback)",
       read_nemo_log},
      {"torchtitan", "tps", "profiler.enable_profiling", read_torchtitan_log},
      {"DeepSpeed", "SamplesPerSec", "\"wall_clock_breakdown\": true", read_deepspeed_log},
      {"the Hugging Face Trainer", "train_runtime, or a progress bar's s/it", "torch.profiler in a callback",
       read_trainer_log},
  };
  return readers;
}

std::optional<double> number_behind(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(at + key.size());
  // Megatron-LM and DeepSpeed print their settings with leaders, "name ....... 8".
  if (rest.starts_with("..")) rest.remove_prefix(std::min(rest.find_first_not_of('.'), rest.size()));
  const size_t begin = rest.find_first_not_of(" \t=:'\"");
  if (begin == std::string_view::npos) return std::nullopt;
  std::string text(rest.substr(begin, kLongestNumber));
  std::erase(text, ',');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  return value;
}

std::optional<double> number_behind_any(std::string_view line, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (const auto value = number_behind(line, key)) return value;
  return std::nullopt;
}

void check_logged(double value, const FieldRule& rule, const char* what, const LogFile& file, size_t line) {
  if (value >= rule.minimum && value <= rule.maximum) return;
  refuse_input(fmt::format("{} at line {}", file.name, line), fmt::format("{} {}", what, value),
               fmt::format("{} to {}", rule.minimum, rule.maximum), "leave that line out of the log");
}

void set_fact(std::optional<LoggedFact>& fact, std::optional<double> value, size_t line) {
  if (!fact && value && *value >= 1.0 && *value <= 1e9) fact = LoggedFact{*value, line};
}

bool is_not_finite(std::string_view line, std::initializer_list<std::string_view> keys) {
  return any_of(keys, [&](std::string_view key) {
    const auto value = number_behind(line, key);
    return value && !std::isfinite(*value);
  });
}

void add_timer_row(LoggedRun& run, std::string_view line) {
  constexpr std::string_view kMark = "time (ms) |";
  const size_t at = line.find(kMark);
  if (at == std::string_view::npos) return;
  for (size_t begin = at + kMark.size(); begin < line.size();) {
    const size_t end = std::min(line.find('|', begin), line.size());
    const std::string_view field = line.substr(begin, end - begin);
    const std::string_view name = without_blanks(field.substr(0, field.find(':')));
    for (const TimerName& timer : kRowTimers) {
      if (name != timer.name) continue;
      const auto ms = number_behind(field, ":");
      if (ms && *ms >= 0.0 && *ms <= 1e10) run.seconds_of(timer.part).push_back(*ms * 1e-3);
    }
    begin = end + 1;
  }
}

LoggedRun read_steps(const LogFile& file, const LineOfLog& read_line) {
  LoggedRun run;
  std::vector<std::string> speakers;
  for (const LogLine& line : file.lines) {
    LoggedStep step;
    step.line = int64_t(line.number);
    if (!read_line(line, run, step)) continue;
    run.peak_bytes = std::max(run.peak_bytes, step.memory_bytes);
    run.steps.push_back(step);
    speakers.push_back(line.speaker);
  }
  keep_one_speaker(run, speakers);
  return run;
}

void keep_one_speaker(LoggedRun& run, const std::vector<std::string>& speakers) {
  std::map<std::string, size_t> lines;
  for (const std::string& speaker : speakers) ++lines[speaker];
  const auto most = max_by(lines, [](const auto& line) { return line.second; });
  std::vector<LoggedStep> kept;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    if (speakers[i] != most->first) continue;
    const LoggedStep& step = run.steps[i];
    if (!kept.empty() && step.step != 0 && kept.back().step == step.step) kept.pop_back();
    kept.push_back(step);
  }
  run.steps = std::move(kept);
}

}  // namespace mpt::frameworks
