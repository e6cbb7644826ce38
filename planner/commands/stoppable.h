// SPDX-License-Identifier: Apache-2.0
#pragma once

// A signal ends a search with the best plan found so far, since a search looks at stop_requested(). Reading
// and writing files does not look at it, so there a signal must end the program at once.

#include <csignal>

namespace mpt::planner {

/// Catches signals while it exists (base/interruption.h). Its end restores the handlers of before, unless a
/// signal came. A nested one changes nothing. For the main thread.
class Stoppable {
 public:
  Stoppable();
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

  bool catches_ = false;
  struct sigaction before_[3] = {};
};

}  // namespace mpt::planner
