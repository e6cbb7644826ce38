// SPDX-License-Identifier: Apache-2.0
#pragma once

// One thread's share of a search, and what the threads know of each other.

#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "planner/search/search.h"

namespace mpt::planner {

/// A time before any is reached.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Most splits whose near misses a search tells.
inline constexpr size_t kFamiliesTold = 6;

/// The fastest layouts so far. Ties go to less memory, then to the simpler split and order of ranks.
struct Kept {
  double step_time_s;
  int64_t peak_bytes;
  Layout layout;
  auto key() const {
    return std::tie(step_time_s, peak_bytes, layout.tensor, layout.context, layout.pipeline, layout.chunks,
                    layout.zero, layout.schedule, layout.order);
  }
};

/// What the threads of a search know of each other.
class Together {
 public:
  /// `reached_s`: a time that is known to be reached; nothing slower is of interest.
  Together(double reached_s, int shares, const OnProgress& on_progress);

  double reached_s() const { return reached_s_.load(std::memory_order_relaxed); }
  double seconds() const;
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  /// `last_s`: as many layouts as are wanted are no slower.
  void reach(double last_s);
  void found(double step_time_s);
  /// Looks at the clock, and asks. `front_s`: nothing that waits in this share is faster; 0: not known yet.
  void look(size_t share, int64_t layouts, double front_s, double time_limit_s);

 private:
  const OnProgress& on_progress_;
  const double start_s_;
  std::atomic<double> reached_s_, best_s_;
  std::atomic<bool> stopped_{false};
  std::vector<std::atomic<int64_t>> looked_;
  std::vector<std::atomic<double>> fronts_s_;
  std::mutex asking_;
};

/// Searches every `shares`-th split of the space: whole splits, so that what is told of them is complete.
class SearchShare {
 public:
  SearchShare(const SearchProblem& problem, size_t keep, size_t share, size_t shares, Together& together);
  ~SearchShare();

  void run();
  bool optimal() const;
  bool found() const;
  /// What fell to memory. Where nothing fits, only what the smallest layout needs is told.
  void tell_over_memory(bool nothing_fits);
  SearchResult take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpt::planner
