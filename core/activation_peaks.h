// SPDX-License-Identifier: Apache-2.0
#pragma once

// ActivationPeaks: the moments of a schedule at which a rank can hold the most, for any bytes of its stages,
// and its transfer slots. A search asks for the peak of one schedule under thousands of footprints. Only a
// few moments of a rank can be its peak: every other one holds no more than one of these. With many chunks
// per rank they are not few, and the rows themselves are evaluated.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/schedule.h"
#include "core/stage_footprint.h"
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
  /// Counts that a rank holds while an action runs. The code has stage, kind, and whether it makes first
  /// gradients.
  struct Moment {
    int32_t code;
    std::vector<int32_t> saved, for_weight, gradients;  // by index into the rank's stages
  };
  std::vector<Moment> find_moments(size_t rank) const;
  void add(size_t rank, const Moment& moment);
  // The peak, or a value above `enough` if the peak is above it.
  int64_t peak_within(size_t rank, const FootprintsByStage& footprints, int64_t enough) const;
  int64_t peak_of_moments(size_t rank, const FootprintsByStage& footprints, int64_t enough) const;

  bool has_late_gradients(size_t rank, const FootprintsByStage& footprints) const;
  int64_t static_bytes(size_t rank, const FootprintsByStage& footprints) const;

  std::shared_ptr<const Schedule> schedule_;
  mutable std::vector<StageSlots> slots_;
  std::vector<std::vector<int>> stages_;  // stages of each rank
  // The moments of each rank, one after the other: the code, then the counts. Empty for schedules of many
  // chunks.
  std::vector<std::vector<int32_t>> moments_;
};

}  // namespace mpt
