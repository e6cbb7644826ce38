// SPDX-License-Identifier: Apache-2.0
#pragma once

// PieceRunner: one piece of a model (embedding, a decoder layer, head) ready to be run and timed, built from
// the runtime's own classes on a device of its own.

#include <functional>
#include <memory>

#include "core/layout.h"
#include "profiler/hardware/profile.h"
#include "profiler/measure/target.h"

namespace mpt::profiler {

class PieceRunner {
 public:
  /// `layer`: which decoder layer, if `piece` is one.
  PieceRunner(const ModelSpec& model, const Layout& layout, int64_t sequence, Piece piece, int64_t layer = 0,
              const Target& target = {});
  ~PieceRunner();

  /// One micro-batch forward; it stays in flight.
  void forward();
  /// Of the micro-batch in flight.
  void backward_input();
  void backward_weight();
  /// Drops the micro-batch in flight.
  void finish();
  /// Returns when the device has done it all.
  void synchronize();
  /// Seconds that `work`, calls of the above, takes on the device: between events where it has them, else by
  /// the host's clock. Waits for it.
  double seconds_of(const std::function<void()>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpt::profiler
