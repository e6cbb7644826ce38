// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProgramCache: schedules and the structure of their programs, which many layouts of a search share. Bytes
// are not part of it: the same schedule holds different bytes under every split.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "core/activation_peaks.h"
#include "core/layout.h"
#include "core/schedule.h"
#include "core/schedule_catalog.h"
#include "core/stage_footprint.h"
#include "core/step_program.h"
#include "planner/cost/step_cost.h"
#include "planner/simulate/simulator.h"
#include "planner/simulate/slow_paths.h"

namespace mpt::planner {

/// Footprints that give a program its structure and no bytes.
std::vector<StageFootprint> structure_footprints(const Layout& layout, bool tied);

/// By the catalog; of a schedule that is made to measure, the leanest named one of its placement.
Schedule named_schedule(const Layout& layout, int64_t micro_batches);
struct StepTask {
  const Layout& layout;
  int64_t micro_batches = 1;
  bool tied = false;  // whether the model ties its embeddings
  const StepCost& cost;
  Contention contention;
  double limit_s = 0.0;  // nothing slower is wanted
};

/// Keeps its memory from step to step.
struct SimulatedStep {
  std::shared_ptr<const StepProgram> program;
  int64_t more_micro_batches = 0;  // of the step, beyond the program's
  std::vector<double> durations_s;
  Timeline timeline;         // of the program; it ends early where the step is too slow
  double step_time_s = 0.0;  // above the limit or infinite where the step is too slow
};

class ProgramCache {
 public:
  /// Of a layout whose schedule is made to measure: the leanest named one in its place.
  std::shared_ptr<const Schedule> schedule(const Layout& layout, int64_t micro_batches);
  std::shared_ptr<const ActivationPeaks> peaks(const Layout& layout, int64_t micro_batches);
  /// The same where it is at hand, else null.
  std::shared_ptr<const ActivationPeaks> known_peaks(const Layout& layout, int64_t micro_batches) const;
  /// `tied`: the model ties its embeddings.
  std::shared_ptr<const StepProgram> program(const Layout& layout, int64_t micro_batches, bool tied);
  /// By a few rounds of micro-batches where those tell the time, or that it is above the limit.
  void simulate(const StepTask& task, SimulatedStep& step);
  /// What is known of that program, which itself may be gone.
  SlowPaths& slow_paths(const Layout& layout, int64_t micro_batches, bool tied) {
    return slow_paths_[key_of(layout, micro_batches, tied)];
  }

 private:
  struct Key {
    const ScheduleEntry* schedule;
    int64_t pipeline, chunks, micro_batches;
    bool equal_rounds, reduces, gathers, tied, overlap_transfer;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const Layout& layout, int64_t micro_batches, bool tied);

  template <class T>
  struct Entries {
    std::map<Key, std::shared_ptr<const T>> by_key;
    std::list<Key> oldest_first;
    size_t bytes = 0;
  };
  template <class T, class Make>
  static std::shared_ptr<const T> kept(Entries<T>& entries, const Key& key, Make&& make);

  static Key schedule_key(const Layout& layout, int64_t micro_batches);
  static Key peaks_key(const Layout& layout, int64_t micro_batches);

  Entries<Schedule> schedules_;
  Entries<ActivationPeaks> peaks_;
  Entries<StepProgram> programs_;
  std::map<Key, SlowPaths> slow_paths_;
};

}  // namespace mpt::planner
