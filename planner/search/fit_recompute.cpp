// SPDX-License-Identifier: Apache-2.0
#include "planner/search/layout_resolver.h"

#include "frameworks/supports/supports.h"

namespace mpt::planner {
namespace {

using frameworks::PartialRecompute;

class RecomputeFitter {
 public:
  RecomputeFitter(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                  const StageKinds& stages, const ActivationPeaks& peaks, bool all_fit)
      : split_(split),
        stages_(stages),
        peaks_(peaks),
        all_fit_(all_fit),
        rule_(problem.framework ? problem.framework->abilities.partial_recompute : PartialRecompute::any),
        layout_(layout),
        counts_(stages.kind_of_stage.size(), 0),
        footprint_of_stage_(counts_.size(), 0),
        limits_(limits_of_ranks(problem, layout)) {
    layout_.recomputed_layers = {0};
    size_t footprints = 0;
    for (const StageContent& content : stages.contents) {
      most_ = std::max(most_, content.layer_count);
      first_footprint_.push_back(footprints);
      footprints += size_t(content.layer_count) + 1;
    }
    footprints_.resize(footprints);
    has_footprint_.resize(footprints, false);
  }

  FitOutcome run(const std::function<bool(std::span<const int64_t>)>& too_slow) {
    const bool by_rank = rule_ == PartialRecompute::any;
    for (int rank = 0; rank < peaks_.schedule().ranks; ++rank) {
      if (by_rank ? !fit_rank(rank) : !fit_level(rank)) return FitOutcome::over_memory;
      if (rank == 0 && too_slow && too_slow(counts_)) return FitOutcome::too_slow;
    }
    return by_rank || raise_level() ? FitOutcome::some_layers : FitOutcome::over_memory;
  }
  /// Of each virtual stage.
  const std::vector<int64_t>& recomputed_layers() const { return counts_; }

 private:
  int64_t layers_of(size_t s) const { return stages_.contents[stages_.kind_of_stage[s]].layer_count; }

  bool fit_rank(int rank) {
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

  // One level holds for all stages: the lowest with which this rank fits, of those that the ranks before
  // need.
  bool fit_level(int rank) {
    if (!all_fit_ && !fits_at(rank, most_)) return false;
    int64_t high = most_;
    while (level_ < high) {
      const int64_t asked = (level_ + high) / 2;
      if (fits_at(rank, asked))
        high = asked;
      else
        level_ = asked + 1;
    }
    fits_at(rank, level_);  // sets the counts
    return true;
  }

  // A higher level may need more workspace than it saves, so every rank is asked at the last one.
  bool raise_level() {
    for (; level_ <= most_; ++level_) {
      bool all = true;
      for (int rank = 0; rank < peaks_.schedule().ranks && all; ++rank) all = fits_at(rank, level_);
      if (all) return true;
    }
    return false;
  }

  bool fits_at(int rank, int64_t level) {
    for (const int stage : peaks_.stages(size_t(rank))) {
      const auto s = size_t(stage);
      set_count(s, frameworks::recomputed_at_level(rule_, level, most_, layers_of(s)));
    }
    return peaks_.rank_fits(size_t(rank), {footprints_, footprint_of_stage_}, limits_[size_t(rank)]);
  }

  void set_count(size_t s, int64_t recomputed) {
    counts_[s] = recomputed;
    footprint_of_stage_[s] = footprint(stages_.kind_of_stage[s], recomputed);
  }

  // Index of the footprint of a stage with as many recomputed layers.
  uint16_t footprint(uint16_t kind, int64_t recomputed) {
    const size_t index = first_footprint_[kind] + size_t(recomputed);
    if (!has_footprint_[index]) {
      has_footprint_[index] = true;
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
      set_count(s, here);
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
  const PartialRecompute rule_;
  Layout layout_;                // of one stage, as far as recompute goes
  int64_t most_ = 0;             // layers of the largest stage
  int64_t level_ = 0;            // of partial recompute, where one holds for all stages
  int64_t last_ = 0;             // recomputed layers of the rank that was fitted last
  std::vector<int64_t> counts_;  // by stage, like the next
  std::vector<uint16_t> footprint_of_stage_;
  // Of each kind of stage one after the other, by number of recomputed layers.
  std::vector<size_t> first_footprint_;
  std::vector<StageFootprint> footprints_;
  std::vector<bool> has_footprint_;
  std::vector<int64_t> limits_;  // by rank
};

}  // namespace

FitOutcome fit_recompute(const SearchProblem& problem, const SplitModel& split, Layout& layout,
                         const StageKinds& stages, const ActivationPeaks& peaks, bool all_fit,
                         const std::function<bool(std::span<const int64_t>)>& too_slow) {
  layout.recompute = Recompute::full;
  layout.recomputed_layers.clear();
  RecomputeFitter fitter(problem, split, layout, stages, peaks, all_fit);
  const FitOutcome outcome = fitter.run(too_slow);
  if (outcome != FitOutcome::some_layers) return outcome;
  layout.recomputed_layers = fitter.recomputed_layers();
  const auto& counts = layout.recomputed_layers;
  const bool none = all_of(counts, [](int64_t n) { return n == 0; });
  return none || counts == layout.layers_per_stage ? FitOutcome::duplicate : FitOutcome::some_layers;
}

}  // namespace mpt::planner
