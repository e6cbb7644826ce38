// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace mpt::planner {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string family_name(const Layout& layout) {
  return fmt::format("tp{} pp{} dp{}", layout.tensor, layout.pipeline, layout.data);
}

void note_rejection(const Layout& layout, const Rejection& rejection, SearchResult& result) {
  MemoryFamily& family = result.over_memory[family_name(layout)];
  if (family.count++ == 0 || rejection.needed < family.nearest.needed) {
    family.nearest = rejection;
    family.layout = layout;
  }
}

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

  SearchCertificate& certificate = result.certificate;
  certificate.layouts = int64_t(estimates.size());
  for (size_t i = 0; i < estimates.size(); ++i) {
    // The list is sorted: what follows cannot be faster than the last one kept.
    if (result.best.size() == keep && estimates[i].bound_s > result.best.back().evaluation.step_time_s) {
      certificate.over_bound = int64_t(estimates.size() - i);
      break;
    }
    Evaluation evaluation = evaluate(problem, estimates[i]);
    if (evaluation.rejection) {
      ++certificate.over_memory;
      note_rejection(estimates[i].layout, *evaluation.rejection, result);
      continue;
    }
    ++certificate.simulated;
    result.best.push_back({std::move(estimates[i]), std::move(evaluation)});
    std::stable_sort(result.best.begin(), result.best.end(), faster);
    if (result.best.size() > keep) result.best.pop_back();
  }
  certificate.optimal =
      certificate.over_memory + certificate.over_bound + certificate.simulated == certificate.layouts;
  certificate.seconds = now_s() - start_s;
  return result;
}

}  // namespace mpt::planner
