// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostStep: AdamW with the optimizer's state in host memory (Ren et al. 2021, arXiv:2101.06840). Gradients
// are copied there in pieces, the host's cores change masters and moments, and weights are copied back in the
// compute's type. Threads take pieces in turn, so copies of some overlap with the arithmetic of others.

#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/side_stream.h"

namespace mpt::runtime {

/// Contiguous elements: gradients and weights are on the device, the others in host memory.
struct HostedRange {
  int64_t count = 0;
  bool decays = false;
  double fixed_step = 0.0;  // like Parameter's
  char *gradient = nullptr, *value = nullptr;
  char *master = nullptr, *first_moment = nullptr, *second_moment = nullptr;
};

/// The options for a weight that decays or not, or that has a fixed step.
AdamW options_of(const AdamW& options, bool decays, double fixed_step);

/// The processors of the step: a device that works in host memory, and threads. Without threads the caller's
/// computes.
struct HostCores {
  Device* device = nullptr;
  std::vector<SideStream*> threads;
};

class HostStep {
 public:
  /// Elements of a piece: few enough to stay in a core's cache.
  static constexpr int64_t kPiece = int64_t{1} << 16;

  /// Weights have `type` and are on `device`; all else has the type that state_type_of() gives. The referents
  /// of ranges and cores must outlive this.
  HostStep(Device& device, HostCores cores, DataType type, std::span<const HostedRange> ranges,
           int64_t piece = kPiece);

  /// `options.weight_decay` is for ranges that decay. Runs after the caller's earlier work on the device, and
  /// is complete on return.
  void run(const AdamW& options);

 private:
  struct Part {
    int64_t begin = 0;  // in its piece
    HostedRange range;
  };
  // Its parts are contiguous on the device, so one copy moves it.
  struct Piece {
    int64_t count = 0;
    std::vector<Part> parts;
  };
  // A thread's memory for its current piece.
  struct Room {
    HostBuffer gradients, values;
  };

  void add(const HostedRange& range, int64_t most);
  void update(const Piece& piece, const AdamW& options, const Room& room) const;
  HostedRange from(const HostedRange& range, int64_t begin, int64_t count) const;

  Device& device_;
  HostCores cores_;
  DataType type_, state_type_;
  std::vector<Piece> pieces_;
  std::vector<Room> rooms_;  // one for each thread
};

}  // namespace mpt::runtime
