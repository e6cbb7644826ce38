// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/commands.h"

#include <iterator>

#include "base/interruption.h"

namespace mpt::planner {

Stoppable::Stoppable() {
  if (catching_ || stop_requested()) return;
  catches_ = catching_ = true;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  catch_signals();
}

Stoppable::~Stoppable() {
  if (!catches_) return;
  catching_ = false;
  if (stop_requested()) return;  // a second signal may follow, and the result must still be written
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace mpt::planner
