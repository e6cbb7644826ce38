// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace mpt::planner {
namespace {

constexpr size_t kFamiliesTold = 6;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string family_name(const Layout& layout) {
  return fmt::format("tp{} pp{} dp{}", layout.tensor, layout.pipeline, layout.data);
}

// Layouts that fell to memory, most of them before a program was made: what they need is first known from
// below (the floor, then the peak without transfer buffers) and made exact only for those that people read.
class OverMemory {
 public:
  void add(const Estimate& estimate) {
    families_[family_name(estimate.layout)].push_back({double(estimate.floor_bytes), &estimate, {}, 0});
  }

  /// The families with the nearest misses, at most `most`, nearest first.
  std::vector<MemoryFamily> nearest(const SearchProblem& problem, size_t most) {
    std::vector<MemoryFamily> out;
    while (!families_.empty() && out.size() < most) {
      const auto family = std::min_element(families_.begin(), families_.end(), [](auto& a, auto& b) {
        return nearest_of(a.second).needed < nearest_of(b.second).needed;
      });
      Miss& miss = nearest_of(family->second);
      if (miss.rung < kExact) {
        raise(problem, miss);  // it may no longer be the nearest
        continue;
      }
      out.push_back(
          {family->first, int64_t(family->second.size()), std::move(*miss.rejection), miss.estimate->layout});
      families_.erase(family);
    }
    return out;
  }
  size_t families() const { return families_.size(); }

 private:
  static constexpr int kExact = 2;
  struct Miss {
    double needed;
    const Estimate* estimate;
    std::optional<Rejection> rejection;
    int rung;  // 0: the floor, 1: without transfer buffers, kExact
  };

  static Miss& nearest_of(std::vector<Miss>& misses) {
    return *std::min_element(misses.begin(), misses.end(),
                             [](const Miss& a, const Miss& b) { return a.needed < b.needed; });
  }

  static void raise(const SearchProblem& problem, Miss& miss) {
    ++miss.rung;
    auto rejection = miss.rung == kExact ? exact_memory_rejection(problem, *miss.estimate)
                                         : quick_memory_rejection(problem, *miss.estimate);
    // Without its transfer buffers a layout may yet fit.
    if (!rejection) return;
    miss.needed = rejection->needed;
    miss.rejection = std::move(rejection);
  }

  std::map<std::string, std::vector<Miss>> families_;
};

// Keeps the fastest; ties go to less memory, then to the simpler split.
bool faster(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    const Layout& l = c.estimate.layout;
    return std::make_tuple(c.evaluation.step_time_s, c.evaluation.peak_bytes, l.tensor, l.pipeline, l.chunks,
                           l.schedule);
  };
  return key(a) < key(b);
}

}  // namespace

SearchResult search(const SearchProblem& problem, size_t keep) {
  const double start_s = now_s();
  SearchResult result;
  Space space = enumerate_space(problem);
  result.not_dividing = std::move(space.not_dividing);
  std::vector<Estimate> estimates;
  estimates.reserve(space.layouts.size());
  for (const Layout& layout : space.layouts) estimates.push_back(estimate(problem, layout));
  std::stable_sort(estimates.begin(), estimates.end(),
                   [](const Estimate& a, const Estimate& b) { return a.bound_s < b.bound_s; });

  OverMemory over_memory;
  SearchCertificate& certificate = result.certificate;
  certificate.layouts = int64_t(estimates.size());
  for (size_t i = 0; i < estimates.size(); ++i) {
    // The list is sorted: what follows cannot be faster than the last one kept.
    if (result.best.size() == keep && estimates[i].bound_s > result.best.back().evaluation.step_time_s) {
      certificate.over_bound = int64_t(estimates.size() - i);
      break;
    }
    std::optional<Evaluation> evaluation;
    if (estimates[i].floor_bytes <= problem.memory_limit_bytes) evaluation = evaluate(problem, estimates[i]);
    if (!evaluation || evaluation->rejection) {
      ++certificate.over_memory;
      over_memory.add(estimates[i]);
      continue;
    }
    ++certificate.simulated;
    result.best.push_back({std::move(estimates[i]), std::move(*evaluation)});
    std::stable_sort(result.best.begin(), result.best.end(), faster);
    if (result.best.size() > keep) result.best.pop_back();
  }
  // Where nothing fits, only what the smallest layout needs is told.
  result.over_memory = over_memory.nearest(problem, result.best.empty() ? 1 : kFamiliesTold);
  result.more_over_memory = int64_t(over_memory.families());
  certificate.optimal =
      certificate.over_memory + certificate.over_bound + certificate.simulated == certificate.layouts;
  certificate.seconds = now_s() - start_s;
  return result;
}

}  // namespace mpt::planner
