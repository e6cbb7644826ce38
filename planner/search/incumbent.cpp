// SPDX-License-Identifier: Apache-2.0
#include "planner/search/incumbent.h"

#include "base/clock.h"

namespace mpt::planner {
namespace {

void lower_value(std::atomic<double>& value, double to) {
  double now = value.load();
  while (to < now && !value.compare_exchange_weak(now, to)) {
  }
}

}  // namespace

SharedIncumbent::SharedIncumbent(double step_time_s, int threads, const OnProgress& on_progress)
    : on_progress_(on_progress),
      start_s_(now_s()),
      step_time_s_(step_time_s),
      best_s_(kInfinity),
      layouts_(size_t(threads)),
      frontiers_s_(size_t(threads)) {}

double SharedIncumbent::seconds() const { return now_s() - start_s_; }
void SharedIncumbent::lower_to(double step_time_s) { lower_value(step_time_s_, step_time_s); }
void SharedIncumbent::found(double step_time_s) { lower_value(best_s_, step_time_s); }

void SharedIncumbent::report(size_t thread, int64_t layouts, double frontier_s, double time_limit_s) {
  layouts_[thread].store(layouts, std::memory_order_relaxed);
  frontiers_s_[thread].store(frontier_s, std::memory_order_relaxed);
  if (time_limit_s > 0.0 && seconds() >= time_limit_s) stopped_ = true;
  const std::unique_lock lock(telling_, std::try_to_lock);
  if (!lock.owns_lock() || !on_progress_) return;
  SearchProgress progress{0, seconds(), best_s_.load(), kInfinity};
  for (const auto& layouts : layouts_) progress.layouts += layouts.load(std::memory_order_relaxed);
  for (const auto& of_one_s : frontiers_s_) progress.bound_s = std::min(progress.bound_s, of_one_s.load());
  if (!on_progress_(progress)) stopped_ = true;
}

}  // namespace mpt::planner
