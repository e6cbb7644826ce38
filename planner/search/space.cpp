// SPDX-License-Identifier: Apache-2.0
#include "planner/search/space.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/schedule_catalog.h"

namespace mpt::planner {
namespace {

// Beyond this many actions in a step a schedule is no longer one that anybody runs, and would not fit in a
// plan.
constexpr int64_t kMaxActions = 2'000'000;

template <class T>
bool allowed(const std::vector<T>& bound, const T& value) {
  return bound.empty() || std::find(bound.begin(), bound.end(), value) != bound.end();
}

class Enumeration {
 public:
  explicit Enumeration(const SearchProblem& problem) : problem_(problem) {}

  Space run() {
    const SpaceBounds& bounds = problem_.bounds;
    bool any = false;
    for (const int64_t tensor : divisors(problem_.ranks)) {
      if (!allowed(bounds.tensor, tensor)) continue;
      for (const int64_t pipeline : divisors(problem_.ranks / tensor)) {
        const int64_t data = problem_.ranks / tensor / pipeline;
        if (!allowed(bounds.pipeline, pipeline) || !allowed(bounds.data, data)) continue;
        any = true;
        add_split(tensor, pipeline, data);
      }
    }
    if (!any) note(fmt::format("no allowed tensor x pipeline x data is {} ranks", problem_.ranks));
    return std::move(space_);
  }

 private:
  void note(const std::string& reason) { ++space_.not_dividing[reason]; }

  void add_split(int64_t tensor, int64_t pipeline, int64_t data) {
    Layout layout;
    layout.tensor = tensor;
    layout.pipeline = pipeline;
    layout.data = data;
    layout.precision = problem_.precision;
    layout.layers_per_stage = even_stages(problem_.model.layers, pipeline);
    if (auto rejection = check_layout(problem_.model, layout, problem_.workload))
      return note(rejection->reason);
    if (pipeline > problem_.model.layers)
      return note(fmt::format("{} stages for {} layers", pipeline, problem_.model.layers));
    bool any = false;
    for (const int64_t micro_batch : divisors(problem_.workload.global_batch / data)) {
      if (!allowed(problem_.bounds.micro_batch, micro_batch)) continue;
      any = true;
      layout.micro_batch = micro_batch;
      add_schedules(layout);
    }
    if (!any) {
      note(fmt::format("no allowed micro-batch divides the {} sequences of a data-parallel rank",
                       problem_.workload.global_batch / data));
    }
  }

  void add_schedules(const Layout& split) {
    bool any = false;
    for (const ScheduleEntry& entry : schedule_catalog()) {
      if (!allowed(problem_.bounds.schedules, entry.name)) continue;
      const bool only_one = split.pipeline == 1;  // without a pipeline there is nothing to order
      if (only_one && &entry != first_allowed()) continue;
      const int64_t most = std::min<int64_t>(entry.max_chunks, problem_.model.layers / split.pipeline);
      for (int64_t chunks = entry.min_chunks; chunks <= most; ++chunks) {
        if (!allowed(problem_.bounds.chunks, chunks) || (only_one && chunks > 1)) continue;
        Layout layout = split;
        layout.schedule = entry.name;
        layout.chunks = chunks;
        layout.layers_per_stage = even_stages(problem_.model.layers, layout.stages());
        any = true;
        if (layout.stages() * micro_batches(layout, problem_.workload) > kMaxActions) {
          note(fmt::format("more than {} stages x micro-batches", kMaxActions));
          continue;
        }
        add_recomputes(layout);
      }
    }
    if (!any) note(fmt::format("no allowed schedule and chunks for {} pipeline ranks", split.pipeline));
  }

  const ScheduleEntry* first_allowed() const {
    const auto& entries = schedule_catalog();
    // 1F1B holds the fewest micro-batches, so it is the one that stands for all without a pipeline.
    for (const ScheduleEntry& entry : entries) {
      if (entry.name == Layout{}.schedule && allowed(problem_.bounds.schedules, entry.name)) return &entry;
    }
    for (const ScheduleEntry& entry : entries) {
      if (entry.min_chunks == 1 && allowed(problem_.bounds.schedules, entry.name)) return &entry;
    }
    return nullptr;
  }

  void add_recomputes(Layout layout) {
    for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
      if (!allowed(problem_.bounds.recomputes, recompute)) continue;
      layout.recompute = recompute;
      space_.layouts.push_back(layout);
    }
  }

  const SearchProblem& problem_;
  Space space_;
};

}  // namespace

std::vector<int64_t> divisors(int64_t value) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    small.push_back(d);
    if (d != value / d) large.push_back(value / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

Space enumerate_space(const SearchProblem& problem) { return Enumeration(problem).run(); }

}  // namespace mpt::planner
