// SPDX-License-Identifier: Apache-2.0
#pragma once

// ActivationPeaks: the moments of a schedule at which a rank can hold the most, whatever its stages' bytes
// are. A search asks for the peak of one schedule under thousands of footprints; of the many actions of a
// rank only a few moments hold no less than every other one. With many chunks per rank they are not few, and
// the rows themselves are gone through.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/schedule.h"
#include "core/stage_footprint.h"

namespace mpt {

/// Peak bytes of each pipeline rank but for its transfer slots: what peak_bytes() says of the lowered
/// program, less the slots, and far cheaper than lowering.
std::vector<int64_t> peak_bytes_without_slots(const Schedule& schedule,
                                              const std::vector<StageFootprint>& footprints);

class ActivationPeaks {
 public:
  explicit ActivationPeaks(std::shared_ptr<const Schedule> schedule);

  /// The same, of one rank or of all.
  int64_t rank_peak_bytes(size_t rank, const std::vector<StageFootprint>& footprints) const;
  std::vector<int64_t> peak_bytes(const std::vector<StageFootprint>& footprints) const;
  /// Whether the peak of one rank, or of each, is within its limit: what is not is soon seen.
  bool rank_fits(size_t rank, const std::vector<StageFootprint>& footprints, int64_t limit_bytes) const;
  bool fit(const std::vector<StageFootprint>& footprints, const std::vector<int64_t>& limits_bytes) const;

  const Schedule& schedule() const { return *schedule_; }
  /// Of a rank, lowest first.
  const std::vector<int>& stages(size_t rank) const { return stages_[rank]; }
  /// For the size of a cache.
  size_t bytes() const;

 private:
  /// Micro-batches held while an action of `kind` runs on the rank's stage number `at`.
  struct Moment {
    ActionKind kind;
    int32_t at;
    std::vector<int32_t> saved, for_weight;  // by index into the rank's stages
    bool covers(const Moment& other) const;
  };
  void find_moments(size_t rank);
  void encode(size_t rank);
  // Something above `enough` where the peak is.
  int64_t peak_within(size_t rank, const std::vector<StageFootprint>& footprints, int64_t enough) const;
  int64_t peak_of_codes(size_t rank, const std::vector<StageFootprint>& footprints, int64_t enough) const;
  int64_t peak_of_moments(size_t rank, const std::vector<StageFootprint>& footprints, int64_t enough) const;

  std::shared_ptr<const Schedule> schedule_;
  std::vector<std::vector<int>> stages_;  // of each rank
  std::vector<std::vector<Moment>> moments_;
  // Rows by index into the rank's stages and kind, without repetitions that hold what was held before.
  std::vector<std::vector<uint16_t>> codes_;
};

}  // namespace mpt
