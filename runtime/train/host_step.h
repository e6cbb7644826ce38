// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostStep: AdamW where the optimizer's state lies in the host's memory (Ren et al. 2021, arXiv:2101.06840):
// gradients come there in pieces, the host's cores change masters and moments, and weights go back in the
// compute's type. Threads take pieces in turn, so that copies of some run beside the arithmetic of others.

#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/side_stream.h"

namespace mpt::runtime {

/// Elements one behind the other: gradients and weights on the device, the others in the host's memory.
struct HostedRange {
  int64_t count = 0;
  bool decays = false;
  double fixed_step = 0.0;  // as Parameter's
  char *gradient = nullptr, *value = nullptr;
  char *master = nullptr, *first_moment = nullptr, *second_moment = nullptr;
};

/// The step of a weight that decays or not, or that has a fixed step.
AdamW options_of(const AdamW& options, bool decays, double fixed_step);

/// Who computes: a device whose memory is the host's, and threads beside the caller's; none: the caller's.
struct HostCores {
  Device* device = nullptr;
  std::vector<SideStream*> threads;
};

class HostStep {
 public:
  /// Elements of a piece: what a core copies and changes of it stays in its cache.
  static constexpr int64_t kPiece = int64_t{1} << 16;

  /// Weights are of `type` on `device`, all else of state_type_of() it. What ranges and cores refer to
  /// outlives this.
  HostStep(Device& device, HostCores cores, DataType type, std::span<const HostedRange> ranges,
           int64_t piece = kPiece);

  /// `options.weight_decay` is that of ranges that decay. Behind what the caller asked the device for, and
  /// done when it returns.
  void run(const AdamW& options);

 private:
  struct Part {
    int64_t begin = 0;  // in its piece
    HostedRange range;
  };
  // Its parts lie one behind the other on the device, so that it is copied at once.
  struct Piece {
    int64_t count = 0;
    std::vector<Part> parts;
  };
  // Where a thread has the piece that it is at.
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
