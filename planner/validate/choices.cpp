// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/choices.h"

#include <algorithm>
#include <map>
#include <utility>

namespace mpt::planner {
namespace {

struct OneLayout {
  const MeasuredLayout* fastest = nullptr;  // by its prediction
  std::vector<double> measured_s;

  void add(const MeasuredLayout& run) {
    if (fastest == nullptr || run.predicted_s < fastest->predicted_s) fastest = &run;
    measured_s.insert(std::upper_bound(measured_s.begin(), measured_s.end(), run.measured_s), run.measured_s);
  }
  double median_s() const {
    const size_t middle = measured_s.size() / 2;
    return measured_s.size() % 2 == 1 ? measured_s[middle]
                                      : (measured_s[middle - 1] + measured_s[middle]) / 2.0;
  }
};

CheckedChoice checked_choice(std::vector<OneLayout> layouts, const PriceErrors& errors) {
  std::sort(layouts.begin(), layouts.end(), [](const OneLayout& a, const OneLayout& b) {
    return a.fastest->predicted_s < b.fastest->predicted_s;
  });
  CheckedChoice choice;
  choice.source = layouts.front().fastest->source;
  double best_s = layouts.front().median_s();
  std::vector<DrawnLayout> drawn;
  for (const OneLayout& l : layouts) {
    best_s = std::min(best_s, l.median_s());
    drawn.push_back(l.fastest->drawn);
  }
  choice.regret = layouts.front().median_s() / best_s - 1.0;
  choice.drawn = draw_choice(drawn, errors);
  return choice;
}

}  // namespace

std::vector<CheckedChoice> check_choices(const std::vector<MeasuredLayout>& runs, const PriceErrors& errors) {
  constexpr size_t kFewest = 3;
  std::map<std::string, std::map<std::string, OneLayout>> sets;
  for (const MeasuredLayout& run : runs) sets[run.set][run.name].add(run);
  std::vector<CheckedChoice> checked;
  for (const auto& [name, layouts] : sets) {
    if (layouts.size() < kFewest) continue;
    std::vector<OneLayout> all;
    for (const auto& [layout, runs_of_layout] : layouts) all.push_back(runs_of_layout);
    checked.push_back(checked_choice(std::move(all), errors));
  }
  return checked;
}

}  // namespace mpt::planner
