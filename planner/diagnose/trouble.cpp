// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/trouble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/quantity.h"
#include "base/text.h"
#include "planner/diagnose/doubt.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

using frameworks::number_behind;

constexpr size_t kMostRanksNamed = 6;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The rank that PyTorch names, or else that of the launcher.
int64_t rank_of(const LogLine& line) {
  const auto named = number_behind(line.text, "[Rank ");
  return named && *named >= 0.0 && *named < 1e9 ? int64_t(*named) : line.rank;
}

std::string ranks_text(const std::set<int64_t>& ranks) {
  std::vector<int64_t> known(ranks.lower_bound(0), ranks.end());
  if (known.empty()) return "A rank";
  const size_t shown = std::min(known.size(), kMostRanksNamed);
  return fmt::format("Rank{} {}{}", known.size() > 1 ? "s" : "",
                     fmt::join(known.begin(), known.begin() + int64_t(shown), ", "),
                     shown < known.size() ? fmt::format(" and {} more", known.size() - shown) : "");
}

// The bytes after `key`, in GiB, MiB or KiB; 0 if there are none.
double bytes_behind(std::string_view line, std::string_view key) {
  const auto value = number_behind(line, key);
  if (!value || !(*value > 0.0) || !(*value < 1e9)) return 0.0;
  const std::string_view rest = line.substr(line.find(key) + key.size(), 40);
  const size_t unit = rest.find("iB");
  if (unit == std::string_view::npos || unit == 0) return 0.0;
  const char letter = rest[unit - 1];
  return letter == 'G' ? *value * double(kGiB) : letter == 'M' ? *value * double(kMiB) : 0.0;
}

class OutOfMemory {
 public:
  void look_at(const LogLine& line) {
    const bool of_host = has(line.text, "oom-kill") || has(line.text, "oom_kill") ||
                         has(line.text, "Out of memory: Killed process");
    if (of_host && host_line_ == 0) host_line_ = line.number;
    if (of_host || !(has(line.text, "CUDA out of memory") || has(line.text, "HIP out of memory") ||
                     has(line.text, "CUDA error: out of memory") || has(line.text, "OutOfMemoryError")))
      return;
    if (line_ == 0) line_ = line.number;
    ranks_.insert(rank_of(line));
    asked_ = std::max(asked_, bytes_behind(line.text, "Tried to allocate"));
    room_ = std::max({room_, bytes_behind(line.text, "total capacity of"), capacity_before(line.text)});
  }

  void tell(const Plan& plan, std::vector<Trouble>& troubles) const {
    if (host_line_ > 0)
      troubles.push_back({fmt::format("A host ran out of memory (line {}).", host_line_),
                          "use fewer data workers, no offload, or hosts with more memory"});
    if (line_ == 0) return;
    std::string text = fmt::format("{} ran out of GPU memory (line {})", ranks_text(ranks_), line_);
    if (asked_ > 0.0) text += fmt::format(", asking for {} more", format_bytes(asked_));
    if (room_ > 0.0) text += fmt::format(" of {}", format_bytes(room_));
    text += fmt::format("; the plan predicts {} of {}.", format_bytes(double(reports::peak_bytes(plan))),
                        format_bytes(double(plan.memory_limit_bytes)));
    const std::string doubt =
        doubt_by_memory(plan, room_ > 0.0 ? room_ : double(plan.memory_limit_bytes), true);
    if (!doubt.empty()) {
      troubles.push_back(
          {text + " " + doubt, "compare the options of the run with those of the export", true});
      return;
    }
    const double tenths = std::floor(9.0 * double(reports::peak_bytes(plan)) / double(kGiB));
    troubles.push_back({text,
                        fmt::format("plan again with --memory {:.1f}GiB, or ask mpt-plan doctor --plan what "
                                    "takes less memory",
                                    tenths / 10.0),
                        true});
  }

 private:
  // Format of releases before 2.2: "(GPU 3; 79.15 GiB total capacity; ...".
  static double capacity_before(std::string_view text) {
    const size_t end = text.find(" total capacity;");
    const size_t begin = text.rfind("; ", end);
    return end == std::string_view::npos || begin == std::string_view::npos
               ? 0.0
               : bytes_behind(text.substr(begin, end - begin), "; ");
  }

  size_t line_ = 0, host_line_ = 0;
  std::set<int64_t> ranks_;
  double asked_ = 0.0, room_ = 0.0;
};

class TimeOuts {
 public:
  void look_at(const LogLine& line) {
    if (!has(line.text, "atchdog caught collective operation timeout")) return;
    if (line_ == 0) {
      line_ = line.number;
      const size_t type = line.text.find("OpType=");
      if (type != std::string_view::npos) {
        const std::string_view name = line.text.substr(type + 7);
        operation_ = printable(std::string(name.substr(0, std::min<size_t>(name.find_first_of(",) "), 40))));
      }
      if (const auto ms = number_behind(line.text, "Timeout(ms)="); ms && *ms > 0.0 && *ms < 1e12)
        limit_s_ = *ms * 1e-3;
    }
    ranks_.insert(rank_of(line));
  }

  void tell(const Plan& plan, std::vector<Trouble>& troubles) const {
    if (line_ == 0) return;
    std::string text = fmt::format("{} waited too long for a collective (line {}", ranks_text(ranks_), line_);
    if (!operation_.empty()) text += ", " + operation_;
    if (limit_s_ > 0.0) text += fmt::format(", limit {:.0f} s", limit_s_);
    text += ").";
    std::vector<int64_t> silent;
    for (int64_t rank = 0; rank < plan.layout.ranks() && silent.size() <= kMostRanksNamed; ++rank)
      if (!ranks_.contains(rank)) silent.push_back(rank);
    const bool told = !ranks_.contains(-1) && !silent.empty() && silent.size() <= kMostRanksNamed;
    troubles.push_back(
        {text, told ? fmt::format("look first at rank{} {}, which did not report it: it may be the one that "
                                  "the others waited for",
                                  silent.size() > 1 ? "s" : "", fmt::join(silent, ", "))
                    : "look for the rank that left: the first error of the log, a dead host, or a link that "
                      "is down"});
  }

 private:
  size_t line_ = 0;
  std::set<int64_t> ranks_;
  std::string operation_;
  double limit_s_ = 0.0;
};

std::string steps_text(const BadSteps& steps) {
  std::string count = fmt::format("{} step{}", format_count(steps.count), steps.count == 1 ? "" : "s");
  if (steps.first == 0) return count;
  return fmt::format("{} ({} step {})", count, steps.count == 1 ? "it is" : "the first is", steps.first);
}

}  // namespace

std::vector<Trouble> find_troubles(const frameworks::LogFile& file, const Plan& plan) {
  OutOfMemory memory;
  TimeOuts time_outs;
  for (const LogLine& line : file.lines) {
    memory.look_at(line);
    time_outs.look_at(line);
  }
  std::vector<Trouble> troubles;
  memory.tell(plan, troubles);
  time_outs.tell(plan, troubles);
  return troubles;
}

std::vector<Trouble> bad_steps(const BadSteps& not_finite, const BadSteps& skipped, Precision precision) {
  std::vector<Trouble> troubles;
  if (not_finite.count > 0)
    troubles.push_back(
        {fmt::format("{} had a loss or gradients that are not finite.", steps_text(not_finite)),
         "go back to a checkpoint before it; lower the learning rate, and check the data of "
         "that step"});
  if (skipped.count > 0) {
    const bool scaled = precision == Precision::fp16;
    troubles.push_back(
        {fmt::format("{} left the weights as they were.", steps_text(skipped)),
         scaled ? "a few at the start set fp16's loss scale; if they go on, train in bf16"
                : "only fp16 has a loss scale to find: look for overflows, and compare the log's precision "
                  "with the plan's"});
  }
  return troubles;
}

}  // namespace mpt::planner
