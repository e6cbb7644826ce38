// SPDX-License-Identifier: Apache-2.0
#pragma once

// PieceRunner: one piece of a model (embedding, a decoder layer, head) ready to be run and timed, built from
// the runtime's own classes on a device of its own.

#include <memory>

#include "core/layout.h"
#include "profiler/hardware/profile.h"
#include "profiler/measure/target.h"

namespace mpt::profiler {

class PieceRunner {
 public:
  PieceRunner(const ModelSpec& model, const Layout& layout, int64_t sequence, Piece piece,
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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpt::profiler
