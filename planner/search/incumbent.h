// SPDX-License-Identifier: Apache-2.0
#pragma once

// Incumbents: the best layouts that a search has found so far, and what its threads share about them.

#include <atomic>
#include <limits>
#include <mutex>
#include <tuple>
#include <vector>

#include "planner/search/search_result.h"

namespace mpt::planner {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Ties go to less memory, then to the simpler split and order of ranks.
struct Incumbent {
  double step_time_s;
  int64_t peak_bytes;
  Layout layout;
  auto key() const {
    return std::tie(step_time_s, peak_bytes, layout.tensor, layout.context, layout.pipeline, layout.chunks,
                    layout.zero, layout.schedule, layout.order);
  }
};

/// The time that prunes in all threads, their progress, and whether they shall stop.
class SharedIncumbent {
 public:
  /// `step_time_s`: nothing slower is wanted; infinity where nothing is known.
  SharedIncumbent(double step_time_s, int threads, const OnProgress& on_progress);

  /// Nothing slower is wanted.
  double step_time_s() const { return step_time_s_.load(std::memory_order_relaxed); }
  double seconds() const;
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  void lower_to(double step_time_s);
  void found(double step_time_s);
  /// Looks at the clock, and tells `on_progress`. `frontier_s`: no node in this thread's frontier is faster;
  /// 0: not known yet.
  void report(size_t thread, int64_t layouts, double frontier_s, double time_limit_s);

 private:
  const OnProgress& on_progress_;
  const double start_s_;
  std::atomic<double> step_time_s_, best_s_;
  std::atomic<bool> stopped_{false};
  std::vector<std::atomic<int64_t>> layouts_;
  std::vector<std::atomic<double>> frontiers_s_;
  std::mutex telling_;
};

}  // namespace mpt::planner
