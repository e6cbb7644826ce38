// SPDX-License-Identifier: Apache-2.0
#pragma once

// ActivationPeaks: the moments of a schedule at which a rank can hold the most, whatever its stages' bytes
// are, and its transfer slots. A search asks for the peak of one schedule under thousands of footprints; of
// the many actions of a rank only a few moments hold no less than every other one. With many chunks per rank
// they are not few, and the rows themselves are gone through.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/schedule.h"
#include "core/stage_footprint.h"
#include "core/step_program.h"

namespace mpt {

/// Peak bytes of each pipeline rank: what peak_bytes() says of the lowered program, and far cheaper than
/// lowering.
std::vector<int64_t> peak_bytes(const Schedule& schedule, const std::vector<StageFootprint>& footprints);

/// Footprints of a layout's stages: by stage, or, since most are alike, the different ones and which of them
/// each stage has. What it is made of must outlive it.
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

  /// The same, of one rank or of all.
  int64_t rank_peak_bytes(size_t rank, const FootprintsByStage& footprints) const;
  std::vector<int64_t> peak_bytes(const FootprintsByStage& footprints) const;
  /// Whether the peak of one rank, or of each, is within its limit: what is not is soon seen.
  bool rank_fits(size_t rank, const FootprintsByStage& footprints, int64_t limit_bytes) const;
  bool fit(const FootprintsByStage& footprints, std::span<const int64_t> limits_bytes) const;

  const Schedule& schedule() const { return *schedule_; }
  /// Transfer slots by stage: counted when they are first asked for, by one thread.
  const std::vector<StageSlots>& slots() const;
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
  };
  std::vector<Moment> find_moments(size_t rank) const;
  void add(size_t rank, const Moment& moment);
  // Something above `enough` where the peak is.
  int64_t peak_within(size_t rank, const FootprintsByStage& footprints, int64_t enough) const;
  int64_t peak_of_moments(size_t rank, const FootprintsByStage& footprints, int64_t enough) const;

  int64_t static_bytes(size_t rank, const FootprintsByStage& footprints) const;

  std::shared_ptr<const Schedule> schedule_;
  mutable std::vector<StageSlots> slots_;
  std::vector<std::vector<int>> stages_;  // of each rank
  // Of each rank its moments one after the other: stage and kind of action as a code, then what is held. None
  // of many chunks.
  std::vector<std::vector<int32_t>> moments_;
};

}  // namespace mpt
