// SPDX-License-Identifier: Apache-2.0
#pragma once

// ActivationPeaks: the bytes that ranks hold at most under a schedule, for any bytes of its stages, and its
// transfer slots. A search asks whether thousands of footprints fit under one schedule. Most answers need no
// walk along a rank's row: its fullest moment holds too much already, or the most of each count is little.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/action_memory.h"
#include "core/step_program.h"

namespace mpt {

/// Peak bytes of each pipeline rank. The result is that of peak_bytes() for the lowered program, and is far
/// cheaper than lowering.
std::vector<int64_t> peak_bytes(const Schedule& schedule, const std::vector<StageFootprint>& footprints);

/// Footprints of a layout's stages: by stage, or, since most are equal, the different ones and their index by
/// stage. The arguments of the constructors must outlive it.
class FootprintsByStage {
 public:
  FootprintsByStage(const std::vector<StageFootprint>& of_stages) : footprints_(of_stages) {}
  FootprintsByStage(std::span<const StageFootprint> different, std::span<const uint16_t> of_stage)
      : footprints_(different), of_stage_(of_stage) {}
  const StageFootprint& operator[](size_t stage) const {
    return footprints_[of_stage_.empty() ? stage : of_stage_[stage]];
  }

 private:
  std::span<const StageFootprint> footprints_;
  std::span<const uint16_t> of_stage_;
};

class ActivationPeaks {
 public:
  explicit ActivationPeaks(std::shared_ptr<const Schedule> schedule);

  /// The peak of one rank, or of all.
  int64_t rank_peak_bytes(size_t rank, const FootprintsByStage& footprints) const;
  std::vector<int64_t> peak_bytes(const FootprintsByStage& footprints) const;
  /// Whether the peak of one rank, or of each, is within its limit. Stops at the first excess.
  bool rank_fits(size_t rank, const FootprintsByStage& footprints, int64_t limit_bytes) const;
  bool fit(const FootprintsByStage& footprints, std::span<const int64_t> limits_bytes) const;

  const Schedule& schedule() const { return *schedule_; }
  /// Transfer slots by stage. One thread counts them at the first call.
  const std::vector<StageSlots>& slots() const;
  /// Stages of a rank, lowest first.
  const std::vector<int>& stages(size_t rank) const { return stages_[rank]; }
  /// Size in bytes, for the size of a cache.
  size_t bytes() const;

 private:
  /// Counts of a rank, by index into its stages: micro-batches that are saved, those kept for their weight
  /// gradient, and 1 with late gradients.
  struct Counts {
    explicit Counts(size_t stages) : saved(stages, 0), for_weight(stages, 0), gradients(stages, 0) {}
    std::vector<int32_t> saved, for_weight, gradients;
  };
  struct Rank {
    explicit Rank(size_t stages) : fullest(stages), most(stages) {}
    std::vector<uint16_t> row;  // codes of its actions
    uint16_t code = 0;          // of the action at the fullest moment
    Counts fullest, most;       // of all moments: the one that holds most, and the most of each count
  };
  Rank rank_of(const std::vector<Action>& row, const std::vector<int>& stages) const;
  // The peak, or a value above `enough` if the peak is above it.
  int64_t peak_within(size_t rank, const FootprintsByStage& footprints, int64_t enough) const;
  static int64_t bytes_of(const Counts& counts, const std::vector<int>& stages,
                          const FootprintsByStage& footprints);

  int64_t static_bytes(size_t rank, const FootprintsByStage& footprints) const;

  std::shared_ptr<const Schedule> schedule_;
  mutable std::vector<StageSlots> slots_;
  std::vector<std::vector<int>> stages_;  // stages of each rank
  std::vector<Rank> ranks_;
};

}  // namespace mpt
