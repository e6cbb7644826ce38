// SPDX-License-Identifier: Apache-2.0
#pragma once

// PieceRunner: one piece of a model (embedding, a decoder layer, head), ready to be run and timed. It
// consists of the runtime's classes and has a device that nothing else uses.

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

  /// One micro-batch forward; the micro-batch stays in flight.
  void forward();
  /// For the micro-batch in flight.
  void backward_input();
  void backward_weight();
  /// Drops the micro-batch in flight.
  void finish();
  /// Waits until the device has completed all work.
  void synchronize();
  /// Seconds that `work`, calls of the above, takes on the device: by events if the device has them, else by
  /// the host's clock. Waits for the work.
  double seconds_of(const std::function<void()>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpt::profiler
