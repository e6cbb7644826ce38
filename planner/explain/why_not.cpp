// SPDX-License-Identifier: Apache-2.0

#include "base/quantity.h"
#include "base/terminal.h"
#include "core/bound_words.h"
#include "core/ties.h"
#include "planner/explain/explain.h"
#include "planner/explain/nothing_divides.h"
#include "planner/memory/memory_model.h"
#include "planner/search/search.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// Steps that differ by less are reported as equal.
constexpr double kEqual = 5e-4;
constexpr int64_t kLargerBatch = 4;

// The most that a rank can use, regardless of the limit that was set.
double largest_limit(const SearchProblem& problem) {
  return double(most_tensor_bytes(problem.cluster, problem.execution));
}

// Other circumstances, and whether the part of the space would win in them.
class Circumstances {
 public:
  explicit Circumstances(const Question& q) : q_(q) {
    SearchProblem larger = q.part;
    larger.workload.global_batch *= kLargerBatch;
    try_in(fmt::format("a global batch of {}", larger.workload.global_batch), larger);
    if (q.faster_links != nullptr)
      try_in(fmt::format("links {} times as fast", kFasterLinks), *q.faster_links);
    if (q.part.cluster.mixed()) return;
    const double most = largest_limit(q.part);
    SearchProblem roomy = q.part;
    roomy.memory_limit_bytes = int64_t(most);
    const bool lowered = double(q.part.memory_limit_bytes) < 0.99 * most;
    if (lowered && try_in(fmt::format("a limit of {}", format_bytes(most)), roomy)) return;
    roomy.memory_limit_bytes *= 2;
    try_in(fmt::format("{}s with twice the memory", reports::device_word(q.part.cluster)), roomy);
  }

  std::string text() const {
    std::string text = "What would change the answer\n";
    for (const std::string& line : wins_) text += "  " + line + "\n";
    if (!losses_.empty())
      text += fmt::format("  Not {}: other layouts would still be faster.\n", joined(losses_, ", nor "));
    return wins_.empty() && losses_.empty() ? "" : text;
  }

 private:
  // Returns whether a layout fits in these circumstances and the searches finished.
  bool try_in(const std::string& what, SearchProblem part) {
    constexpr double kLongest = 10.0;
    part.near_misses = false;
    part.time_limit_s = part.time_limit_s > 0.0 ? std::min(part.time_limit_s, kLongest) : kLongest;
    const SearchResult mine = search(part, 1);
    if (mine.best.empty() || !mine.certificate.optimal) return false;
    SearchProblem whole = std::move(part);
    whole.bounds = q_.allowed;
    whole.meant.clear();
    const SearchResult best = search(whole, 1);
    if (best.best.empty() || !best.certificate.optimal) return false;
    const double mine_s = mine.best.front().evaluation.step_time_s,
                 best_s = best.best.front().evaluation.step_time_s;
    if (mine_s > best_s * (1.0 + kEqual)) {
      losses_.push_back(what);
      return true;
    }
    const Layout& layout = mine.best.front().estimate.layout;
    const std::vector<std::string> broken = broken_bounds(q_.plan.request.bounds, layout);
    wins_.push_back(fmt::format("With {}{}{} it wins: {} takes {} per step.", what,
                                broken.empty() ? "" : ", and without ", joined(broken, " and "),
                                layout_name(layout), format_seconds(mine_s)));
    return true;
  }

  const Question& q_;
  std::vector<std::string> wins_, losses_;
};

// The cost of the framework's limits: the fastest layout of this kind if the framework ran all layouts.
std::string beyond_framework(const Question& q, const Candidate& chosen) {
  if (!q.part.framework) return "";
  SearchProblem free = q.part;
  free.framework.reset();
  const SearchResult found = search(free, 1);
  if (found.best.empty()) return "";
  const Candidate& best = found.best.front();
  const double ratio = best.evaluation.step_time_s / chosen.evaluation.step_time_s;
  return fmt::format("  If {} ran it, {} would take {} per step, {} {} than the plan.\n",
                     q.part.framework->title, layout_name(best.estimate.layout),
                     format_seconds(best.evaluation.step_time_s), format_difference(std::abs(1.0 - ratio)),
                     ratio < 1.0 ? "faster" : "slower");
}

std::string rules_that_fail(const Question& q, const Candidate& chosen) {
  const Problem why = nothing_divides(q.part);
  return "No layout of this kind is possible:\n" +
         wrapped(fmt::format("{}: {}", why.where, why.found), "  ") + beyond_framework(q, chosen);
}

std::string over_memory(const Question& q, const SearchResult& result) {
  const NearMiss& family = result.over_memory.front();
  const double needed = family.nearest.needed, most = largest_limit(q.part);
  std::string text = fmt::format(
      "All {} layouts of this kind need more than {} per {}.\n"
      "  The closest, {}, needs {} more: {}\n",
      format_count(result.certificate.layouts), format_bytes(double(q.part.memory_limit_bytes)),
      reports::device_word(q.part.cluster), layout_name(family.layout),
      format_bytes(needed - family.nearest.available), family.nearest.reason);
  text += needed <= most
              ? fmt::format("  The plan's limit rules it out: it would fit with --memory {:.1f}GiB.\n",
                            std::ceil(10.0 * needed / double(kGiB)) / 10.0)
              : fmt::format("  A {} has {}: it would take more memory, or more {}s.\n",
                            reports::device_word(q.part.cluster), format_bytes(most),
                            reports::device_word(q.part.cluster));
  return text + Circumstances(q).text();
}

// Why a faster layout was not chosen, and what to do.
std::string not_allowed(const Question& q, const Layout& faster) {
  if (q.plan.search.layouts <= 1)
    return "it was not chosen because the plan's layout was given, not searched for.\n"
           "What would change the answer\n  Planning without a layout.\n";
  const std::vector<std::string> broken = broken_bounds(q.plan.request.bounds, faster);
  if (!broken.empty())
    return fmt::format(
        "it was not chosen because you set {0}.\nWhat would change the answer\n  Planning again without "
        "{0}.\n",
        joined(broken, " and "));
  if (!q.plan.search.optimal)
    return fmt::format(
        "it was not chosen because the search was stopped after {}.\n"
        "What would change the answer\n  Planning again with a longer --time-limit.\n",
        format_seconds(q.plan.search.seconds));
  return "the plan file does not say why it was not chosen: prices have changed since, or limits of the "
         "search are not in the file.\nWhat would change the answer\n  Planning again.\n";
}

std::string slower(const Question& q, const Candidate& best, const Candidate& chosen) {
  const double ratio = best.evaluation.step_time_s / chosen.evaluation.step_time_s;
  return fmt::format("  It is {} slower than the plan{}.\n", format_difference(ratio - 1.0),
                     difference_of(q.part, chosen, best)) +
         Circumstances(q).text();
}

// Of tied layouts, the plan is the one that needs least memory.
std::string memory_between(const Candidate& best, const Candidate& chosen) {
  const int64_t more = best.evaluation.peak_bytes - chosen.evaluation.peak_bytes;
  return more > 0 ? fmt::format(" The plan needs {} less memory.", format_bytes(double(more))) : "";
}

std::string compared(const Question& q, const SearchResult& result, const Candidate& chosen) {
  const Candidate& best = result.best.front();
  const double mine_s = best.evaluation.step_time_s, plan_s = chosen.evaluation.step_time_s;
  auto text = fmt::format("The fastest of the {} layouts of this kind is {}: {} per step, {} of memory.\n",
                          format_count(result.certificate.layouts), layout_name(best.estimate.layout),
                          format_seconds(mine_s), format_bytes(double(best.evaluation.peak_bytes)));
  if (!best.estimate.layout.recomputed_layers.empty())
    text +=
        "  Only as many layers of each stage recompute as memory asks for; all of them would take longer.\n";
  if (best.estimate.layout == chosen.estimate.layout) return text + "  It is the plan's own layout.\n";
  if (std::abs(mine_s / plan_s - 1.0) < kEqualTimes)
    return text + fmt::format("  It is as fast as the plan ({}): less than {} between them.{}\n",
                              format_seconds(plan_s), format_percent(kEqualTimes),
                              memory_between(best, chosen));
  if (mine_s > plan_s) return text + slower(q, best, chosen);
  return text + fmt::format("  It is {} faster ({} against {}); {}", format_percent(plan_s / mine_s - 1.0),
                            format_seconds(mine_s), format_seconds(plan_s),
                            not_allowed(q, best.estimate.layout));
}

}  // namespace

std::string why_not(const Question& question, const Candidate& chosen) {
  const SearchResult result = search(question.part, 1);
  if (!result.best.empty()) return compared(question, result, chosen);
  return result.over_memory.empty() ? rules_that_fail(question, chosen) : over_memory(question, result);
}

}  // namespace mpt::planner
