// SPDX-License-Identifier: Apache-2.0
#pragma once

// The log of a training run: its steps, its timers, its batch and its number of GPUs.
// Each framework's reader is in its folder. They share the functions here.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "base/log_lines.h"

namespace mpt {
struct Plan;
}

namespace mpt::frameworks {

/// A line of a step. A number that the log lacks is 0.
struct LoggedStep {
#include "generated/LoggedStep.inc"
};

/// The parts of a step that frameworks' timers separate. `backward` includes the reduction of gradients if no
/// timer separates it.
enum class StepPart { forward, backward, forward_backward, gradients, optimizer, data };
constexpr size_t kStepParts = 6;

/// A number that a log states once, and its line.
struct LoggedFact {
  double value = 0.0;
  size_t line = 0;
};

struct LoggedRun {
  std::vector<LoggedStep> steps;
  std::array<std::vector<double>, kStepParts> parts;  // seconds of a step by StepPart, as often as logged
  std::optional<LoggedFact> ranks, global_batch, sequence;
  int64_t peak_bytes = 0;  // the highest of all ranks that print it

  std::vector<double>& seconds_of(StepPart part) { return parts[size_t(part)]; }
  const std::vector<double>& seconds_of(StepPart part) const { return parts[size_t(part)]; }
};

/// A file's lines, and its name for errors.
struct LogFile {
  std::string name;
  std::vector<LogLine> lines;
};

struct LogReader {
  const char* title;  // the program that writes the log
  const char* mark;   // the text of its step lines
  const char* finer;  // the setting that makes the framework log times of parts
  /// No steps if the lines have another format. Throws UserError for impossible numbers.
  LoggedRun (*read)(const LogFile& file, const Plan& plan);
};
/// In the order of trial: the first reader that finds steps has read the log.
const std::vector<LogReader>& log_readers();

/// The number after `key`. Commas within it are skipped, and so are blanks, "=", ":" and quotes before it.
/// "nan" and "inf" are numbers. Nothing if the line has no key, or no number there.
std::optional<double> number_behind(std::string_view line, std::string_view key);
/// The number of the first key that has one.
std::optional<double> number_behind_any(std::string_view line, std::initializer_list<std::string_view> keys);

/// Throws UserError if `value` is outside the range that `rule` gives the field `what`.
void check_logged(double value, const FieldRule& rule, const char* what, const LogFile& file, size_t line);

/// Sets a member of a step to the number after `key`, times `scale`, within the member's range. False if the
/// line has no such number.
template <class M>
bool set_behind(LoggedStep& step, M LoggedStep::*member, const LogLine& line, std::string_view key,
                const LogFile& file, double scale = 1.0) {
  const std::optional<double> value = number_behind(line.text, key);
  if (!value) return false;
  check_logged(*value * scale, mpt::rule_of<LoggedStep>(member), std::string(key).c_str(), file, line.number);
  step.*member = M(*value * scale);
  return true;
}

/// Keeps the first number that a log states of `fact`, if it is from 1 to 1e9.
void set_fact(std::optional<LoggedFact>& fact, std::optional<double> value, size_t line);

/// Whether the number after one of the keys is not finite.
bool is_not_finite(std::string_view line, std::initializer_list<std::string_view> keys);

struct TimerName {
  const char* name;
  StepPart part;
};

/// Reads timers in one row, "time (ms) | forward: 1.0 | backward: 2.0 |". The names are those of DeepSpeed
/// and GPT-NeoX.
void add_timer_row(LoggedRun& run, std::string_view line);

/// Reads the facts of a line into `run`. Returns whether the line reports a step, and then fills `step`.
using LineOfLog = std::function<bool(const LogLine& line, LoggedRun& run, LoggedStep& step)>;
/// The steps of all lines that keep_one_speaker() keeps, and the peak of their memory.
LoggedRun read_steps(const LogFile& file, const LineOfLog& read_line);

/// If several ranks write steps, keeps those of the rank with the most. If a progress bar redraws a step,
/// keeps the last line. `speakers` has the writer of each step.
void keep_one_speaker(LoggedRun& run, const std::vector<std::string>& speakers);

LoggedRun read_megatron_log(const LogFile& file, const Plan& plan);
LoggedRun read_nemo_log(const LogFile& file, const Plan& plan);
LoggedRun read_torchtitan_log(const LogFile& file, const Plan& plan);
LoggedRun read_deepspeed_log(const LogFile& file, const Plan& plan);
LoggedRun read_neox_log(const LogFile& file, const Plan& plan);
LoggedRun read_trainer_log(const LogFile& file, const Plan& plan);

}  // namespace mpt::frameworks
