// SPDX-License-Identifier: Apache-2.0

// The Hugging Face Trainer's output, with any sharding: tqdm's progress bar, the dictionaries that it prints,
// and its summary at the end (transformers/trainer.py and trainer_callback.py).

#include <utility>

#include "frameworks/log.h"

namespace mpt::frameworks {
namespace {

// " 10/500 [00:52<42:53,  5.25s/it]" or "... 1.20it/s]": seconds of one.
std::optional<double> seconds_of_bar(std::string_view line) {
  // Bars of downloads and of loading weights begin with a word.
  if (line.find_first_not_of(" 0123456789") != line.find("%|")) return std::nullopt;
  const size_t bracket = line.find(" [");
  const size_t rate = line.find(", ", bracket == std::string_view::npos ? line.size() : bracket);
  if (rate == std::string_view::npos || line.find('<', bracket) > rate) return std::nullopt;
  const std::string_view text = line.substr(rate + 2);
  const auto value = number_behind(text, "");
  if (!value || !(*value > 0.0)) return std::nullopt;
  const size_t seconds = text.find("s/it"), steps = text.find("it/s");
  if (std::min(seconds, steps) == std::string_view::npos) return std::nullopt;
  return seconds < steps ? *value : 1.0 / *value;
}

// "10/500 [": the step and how many there are.
std::optional<std::pair<int64_t, double>> steps_of_bar(std::string_view line) {
  const size_t bracket = line.find(" [");
  const size_t slash = line.rfind('/', bracket);
  if (bracket == std::string_view::npos || slash == std::string_view::npos) return std::nullopt;
  const size_t blank = line.find_last_of(" |", slash);
  const auto step = number_behind(line.substr(blank == std::string_view::npos ? 0 : blank + 1), "");
  const auto all = number_behind(line.substr(slash + 1), "");
  if (!step || !all || !(*step >= 1.0) || !(*step <= *all) || !(*all <= 1e12)) return std::nullopt;
  return std::pair(int64_t(*step), *all);
}

class TrainerLog {
 public:
  explicit TrainerLog(const LogFile& file) : file_(file) {}

  LoggedRun read() {
    for (const LogLine& line : file_.lines) {
      set_fact(run_.global_batch,
               number_behind(line.text, "Total train batch size (w. parallel, distributed & accumulation) ="),
               line.number);
      set_fact(optimizer_steps_, number_behind(line.text, "Total optimization steps ="), line.number);
      add_bar(line);
      if (line.text.find("'loss'") != std::string_view::npos &&
          is_not_finite(line.text, {"'loss'", "'grad_norm'"}))
        ++not_finite_;
      add_summary(line);
    }
    if (!trained_) return {};
    keep_longest_bar();
    keep_one_speaker(run_, speakers_);
    return std::move(run_);
  }

 private:
  void add_bar(const LogLine& line) {
    if (line.text.find("{'loss'") != std::string_view::npos) trained_ = true;
    const auto steps = steps_of_bar(line.text);
    const auto seconds = seconds_of_bar(line.text);
    if (!steps || !seconds) return;
    add(steps->first, *seconds, line);
    totals_.back() = steps->second;
  }

  // "{'train_runtime': 1234.5, 'train_samples_per_second': 51.8, 'train_steps_per_second': 0.08, ...}". A run
  // without a progress bar prints only this.
  void add_summary(const LogLine& line) {
    const auto runtime = number_behind(line.text, "'train_runtime'");
    if (!runtime) return;
    trained_ = true;
    const auto rate = number_behind(line.text, "'train_steps_per_second'");
    if (!run_.steps.empty() || !(*runtime > 0.0)) return;
    if (optimizer_steps_)
      add(int64_t(optimizer_steps_->value), *runtime / optimizer_steps_->value, line);
    else if (rate && *rate > 0.0)
      add(0, 1.0 / *rate, line);
  }

  void add(int64_t number, double seconds, const LogLine& line) {
    check_logged(seconds, rule_of<LoggedStep>(&LoggedStep::seconds), "seconds of a step", file_, line.number);
    LoggedStep step;
    step.step = number;
    step.seconds = seconds;
    step.line = int64_t(line.number);
    step.not_finite = std::exchange(not_finite_, 0);
    run_.steps.push_back(step);
    speakers_.push_back(line.speaker);
    totals_.push_back(0.0);
  }

  // The bars of evaluations have fewer steps.
  void keep_longest_bar() {
    const double most = totals_.empty() ? 0.0 : *std::max_element(totals_.begin(), totals_.end());
    size_t kept = 0;
    int64_t not_finite = 0;  // of dropped bars between a loss and the next step
    for (size_t i = 0; i < totals_.size(); ++i) {
      not_finite += run_.steps[i].not_finite;
      if (totals_[i] != most) continue;
      run_.steps[kept] = run_.steps[i];
      run_.steps[kept].not_finite = std::exchange(not_finite, 0);
      speakers_[kept++] = speakers_[i];
    }
    if (kept > 0) run_.steps[kept - 1].not_finite += not_finite + not_finite_;
    run_.steps.resize(kept);
    speakers_.resize(kept);
  }

  const LogFile& file_;
  LoggedRun run_;
  std::vector<std::string> speakers_;
  std::vector<double> totals_;  // steps of the bar that each step is from
  std::optional<LoggedFact> optimizer_steps_;
  int64_t not_finite_ = 0;
  bool trained_ = false;
};

}  // namespace

LoggedRun read_trainer_log(const LogFile& file, const Plan&) { return TrainerLog(file).read(); }

}  // namespace mpt::frameworks
