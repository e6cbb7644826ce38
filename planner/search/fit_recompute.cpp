// SPDX-License-Identifier: Apache-2.0
#include "planner/search/fit_recompute.h"

#include <algorithm>

namespace mpt::planner {
namespace {

class Fitting {
 public:
  Fitting(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
          const ActivationPeaks& peaks, std::span<const StageSlots> slots)
      : model_(problem.model),
        split_(split),
        peaks_(peaks),
        slots_(slots),
        layout_(layout),
        contents_(stage_contents(problem.model, layout)),
        footprints_(contents_.size()),
        limits_(limits_of_ranks(problem, layout)) {
    layout_.recomputed_layers.assign(contents_.size(), 0);
  }

  std::optional<std::vector<int64_t>> run() {
    for (int rank = 0; rank < peaks_.schedule().ranks; ++rank) {
      if (!fit(rank)) return std::nullopt;
    }
    return layout_.recomputed_layers;
  }

 private:
  bool fit(int rank) {
    int64_t layers = 0;
    for (const int s : peaks_.stages(size_t(rank))) layers += contents_[size_t(s)].layer_count;
    if (!fits(rank, layers)) return false;
    int64_t low = 0, high = layers;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (fits(rank, middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return fits(rank, high);
  }

  // Most stages are like one that was asked for before.
  const StageFootprint& footprint(size_t s, int64_t recomputed) {
    for (const Known& k : known_) {
      if (k.recomputed == recomputed && models::stages_alike(model_, contents_[k.s], contents_[s]))
        return k.footprint;
    }
    return known_.emplace_back(s, recomputed, split_.pieces.footprint(layout_, contents_[s], s)).footprint;
  }

  // With `count` recomputed layers on the rank. A few more recomputed layers may need more workspace than
  // they save, so what is returned at last is checked again.
  bool fits(int rank, int64_t count) {
    int64_t slots = 0;
    for (const int stage : peaks_.stages(size_t(rank))) {
      const auto s = size_t(stage);
      const int64_t here = std::min(count, contents_[s].layer_count);
      count -= here;
      layout_.recomputed_layers[s] = here;
      footprints_[s] = footprint(s, here);
      if (!slots_.empty()) slots += slots_[s].total() * footprints_[s].slot_bytes();
    }
    return peaks_.rank_fits(size_t(rank), footprints_, limits_[size_t(rank)] - slots);
  }

  const ModelSpec& model_;
  const SplitModel& split_;
  const ActivationPeaks& peaks_;
  std::span<const StageSlots> slots_;
  Layout layout_;
  std::vector<StageContent> contents_;
  std::vector<StageFootprint> footprints_;
  struct Known {
    size_t s;
    int64_t recomputed;
    StageFootprint footprint;
  };
  std::vector<Known> known_;
  std::vector<int64_t> limits_;  // by rank
};

}  // namespace

std::optional<std::vector<int64_t>> fit_recompute(const SearchProblem& problem, const SplitModel& split,
                                                  const Layout& layout, const ActivationPeaks& peaks,
                                                  std::span<const StageSlots> slots) {
  return Fitting(problem, split, layout, peaks, slots).run();
}

}  // namespace mpt::planner
