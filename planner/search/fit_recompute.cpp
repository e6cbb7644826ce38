// SPDX-License-Identifier: Apache-2.0
#include "planner/search/fit_recompute.h"

#include <algorithm>

namespace mpt::planner {
namespace {

class Fitting {
 public:
  Fitting(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
          const StageKinds& stages, const ActivationPeaks& peaks, bool all_fit)
      : split_(split),
        stages_(stages),
        peaks_(peaks),
        all_fit_(all_fit),
        layout_(layout),
        counts_(stages.kind_of_stage.size(), 0),
        footprint_of_stage_(counts_.size(), 0),
        limits_(limits_of_ranks(problem, layout)) {
    layout_.recomputed_layers = {0};
    size_t footprints = 0;
    for (const StageContent& content : stages.contents) {
      first_footprint_.push_back(footprints);
      footprints += size_t(content.layer_count) + 1;
    }
    footprints_.resize(footprints);
    known_.resize(footprints, false);
  }

  FittedRecompute run(const FirstRankIsTooSlow& too_slow) {
    for (int rank = 0; rank < peaks_.schedule().ranks; ++rank) {
      if (!fit(rank)) return {FittedRecompute::Known::over_memory, {}};
      if (rank == 0 && too_slow && too_slow(counts_)) return {FittedRecompute::Known::too_slow, {}};
    }
    return {FittedRecompute::Known::fitted, std::move(counts_)};
  }

 private:
  int64_t layers_of(size_t s) const { return stages_.contents[stages_.kind_of_stage[s]].layer_count; }

  bool fit(int rank) {
    int64_t layers = 0;
    for (const int s : peaks_.stages(size_t(rank))) layers += layers_of(size_t(s));
    if (!all_fit_ && !fits(rank, layers)) return false;
    int64_t low = 0, high = layers;
    // A rank needs as many as the one before, or one fewer, far more often than any other number.
    bool near = true;
    int64_t asked = last_;
    while (low < high) {
      asked = std::clamp(asked, low, high - 1);
      if (fits(rank, asked)) {
        high = asked;
        asked = near ? high - 1 : (low + high) / 2;
      } else {
        low = asked + 1;
        asked = (low + high) / 2;
      }
      near = false;
    }
    last_ = high;
    recompute(rank, high);
    return true;
  }

  // Index of the footprint of a stage with as many recomputed layers.
  uint16_t footprint(uint16_t kind, int64_t recomputed) {
    const size_t index = first_footprint_[kind] + size_t(recomputed);
    if (!known_[index]) {
      known_[index] = true;
      layout_.recomputed_layers.front() = recomputed;
      footprints_[index] = split_.pieces.footprint(layout_, stages_.contents[kind], 0);
    }
    return uint16_t(index);
  }

  // Of the rank's layers the first `count`.
  void recompute(int rank, int64_t count) {
    for (const int stage : peaks_.stages(size_t(rank))) {
      const auto s = size_t(stage);
      const int64_t here = std::min(count, layers_of(s));
      count -= here;
      counts_[s] = here;
      footprint_of_stage_[s] = footprint(stages_.kind_of_stage[s], here);
    }
  }

  // With `count` recomputed layers on the rank. A few more recomputed layers may need more workspace than
  // they save, so what is chosen at last is always one that was asked for.
  bool fits(int rank, int64_t count) {
    recompute(rank, count);
    return peaks_.rank_fits(size_t(rank), {footprints_, footprint_of_stage_}, limits_[size_t(rank)]);
  }

  const SplitModel& split_;
  const StageKinds& stages_;
  const ActivationPeaks& peaks_;
  const bool all_fit_;
  Layout layout_;                // of one stage, as far as recompute goes
  int64_t last_ = 0;             // recomputed layers of the rank that was fitted last
  std::vector<int64_t> counts_;  // by stage, like the next
  std::vector<uint16_t> footprint_of_stage_;
  // Of each kind of stage one after the other, by number of recomputed layers.
  std::vector<size_t> first_footprint_;
  std::vector<StageFootprint> footprints_;
  std::vector<bool> known_;
  std::vector<int64_t> limits_;  // by rank
};

}  // namespace

FittedRecompute fit_recompute(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                              const StageKinds& stages, const ActivationPeaks& peaks, bool all_fit,
                              const FirstRankIsTooSlow& too_slow) {
  return Fitting(problem, split, layout, stages, peaks, all_fit).run(too_slow);
}

}  // namespace mpt::planner
