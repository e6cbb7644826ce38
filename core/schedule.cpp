// SPDX-License-Identifier: Apache-2.0
#include "core/schedule.h"

#include <array>
#include <charconv>

#include "base/error.h"

namespace mpt {
namespace {

constexpr std::array<char, 4> kLetters{'F', 'B', 'I', 'W'};

// The time at which each stage and micro-batch finished each kind of action; -1 if it has not.
class Finished {
 public:
  explicit Finished(const Schedule& schedule)
      : micro_batches_(schedule.micro_batches),
        stages_(schedule.stages()),
        at_(size_t(stages_) * size_t(micro_batches_), {-1, -1, -1}) {}

  // Returns the time from which `action` may start, or -1 if one of its inputs is not done.
  int64_t ready(const Action& action) const {
    switch (action.kind) {
      case ActionKind::forward:
        return action.stage == 0 ? 0 : of(action.stage - 1, action.micro_batch, kForward);
      case ActionKind::backward:
      case ActionKind::input_gradient: {
        const int64_t own = of(action.stage, action.micro_batch, kForward);
        if (action.stage == stages_ - 1 || own < 0) return own;
        const int64_t next = of(action.stage + 1, action.micro_batch, kInputGradient);
        return next < 0 ? next : std::max(own, next);
      }
      case ActionKind::weight_gradient:
        return of(action.stage, action.micro_batch, kInputGradient);
    }
    return -1;
  }

  void finish(const Action& action, int64_t end) {
    const size_t kind = action.kind == ActionKind::forward           ? kForward
                        : action.kind == ActionKind::weight_gradient ? kWeightGradient
                                                                     : kInputGradient;
    at_[index(action.stage, action.micro_batch)][kind] = end;
  }

 private:
  static constexpr size_t kForward = 0, kInputGradient = 1, kWeightGradient = 2;

  size_t index(int stage, int micro_batch) const {
    return size_t(stage) * size_t(micro_batches_) + size_t(micro_batch);
  }
  int64_t of(int stage, int micro_batch, size_t kind) const { return at_[index(stage, micro_batch)][kind]; }

  int micro_batches_, stages_;
  std::vector<std::array<int64_t, 3>> at_;
};

struct Cell {
  int rank;
  int index;
};

std::string defect_at(const Schedule& schedule, Cell cell, const std::string& what) {
  const Action& action = schedule.rows[size_t(cell.rank)][size_t(cell.index)];
  return fmt::format("schedule \"{}\", rank {}, action {} ({}): {}\n{}", schedule.name, cell.rank, cell.index,
                     action_to_text(action, true), what, schedule_grid(schedule, cell.rank, cell.index));
}

std::optional<std::string> find_shape_defect(const Schedule& schedule) {
  if (schedule.ranks < 1 || schedule.chunks < 1 || schedule.micro_batches < 1)
    return "a schedule needs at least one rank, chunk and micro-batch";
  if (schedule.rank_of_stage.size() != size_t(schedule.stages()) ||
      schedule.rows.size() != size_t(schedule.ranks))
    return fmt::format("schedule \"{}\" has {} rows and {} placed stages for {} ranks and {} chunks",
                       schedule.name, schedule.rows.size(), schedule.rank_of_stage.size(), schedule.ranks,
                       schedule.chunks);
  std::vector<int> held(size_t(schedule.ranks), 0);
  for (const int rank : schedule.rank_of_stage) {
    if (rank < 0 || rank >= schedule.ranks) return fmt::format("a stage is placed on rank {}", rank);
    if (++held[size_t(rank)] > schedule.chunks)
      return fmt::format("rank {} holds more than {} stages", rank, schedule.chunks);
  }
  return std::nullopt;
}

// Each stage and micro-batch: exactly one F, and exactly one B or one I and one W.
std::optional<std::string> find_count_defect(const Schedule& schedule) {
  std::vector<std::array<uint8_t, 4>> seen(size_t(schedule.stages()) * size_t(schedule.micro_batches));
  const auto counts = [&](const Action& a) -> auto& {
    return seen[size_t(a.stage) * size_t(schedule.micro_batches) + size_t(a.micro_batch)];
  };
  for (int r = 0; r < schedule.ranks; ++r)
    for (int i = 0; i < int(schedule.rows[size_t(r)].size()); ++i) {
      const Action& a = schedule.rows[size_t(r)][size_t(i)];
      if (a.stage < 0 || a.stage >= schedule.stages() || a.micro_batch < 0 ||
          a.micro_batch >= schedule.micro_batches)
        return defect_at(schedule, {r, i}, "no such stage or micro-batch");
      if (schedule.rank_of_stage[size_t(a.stage)] != r)
        return defect_at(
            schedule, {r, i},
            fmt::format("stage {} is on rank {}", a.stage, schedule.rank_of_stage[size_t(a.stage)]));
      if (counts(a)[size_t(a.kind)]++ > 0) return defect_at(schedule, {r, i}, "the same action twice");
    }
  for (int s = 0; s < schedule.stages(); ++s)
    for (int m = 0; m < schedule.micro_batches; ++m) {
      const auto& c = counts({ActionKind::forward, s, m});
      const bool whole = c[1] == 1 && c[2] == 0 && c[3] == 0;
      const bool split = c[1] == 0 && c[2] == 1 && c[3] == 1;
      if (c[0] == 1 && (whole || split)) continue;
      return fmt::format(
          "schedule \"{}\": stage {}, micro-batch {} needs one F and either one B or one I and one W; "
          "it has F {}, B {}, I {}, W {}\n{}",
          schedule.name, s, m, c[0], c[1], c[2], c[3], schedule_grid(schedule));
    }
  return std::nullopt;
}

}  // namespace

std::vector<int> round_robin_placement(int ranks, int chunks) {
  std::vector<int> placement;
  for (int s = 0; s < ranks * chunks; ++s) placement.push_back(s % ranks);
  return placement;
}

std::vector<int> v_placement(int ranks, int chunks) {
  MPT_CHECK(chunks == 2, "a V has two stages per rank, not {}", chunks);
  std::vector<int> placement;
  for (int s = 0; s < 2 * ranks; ++s) placement.push_back(s < ranks ? s : 2 * ranks - 1 - s);
  return placement;
}

std::string action_to_text(const Action& action, bool with_stage) {
  const char letter = kLetters[size_t(action.kind)];
  return with_stage ? fmt::format("{}{}{}", action.stage, letter, action.micro_batch)
                    : fmt::format("{}{}", letter, action.micro_batch);
}

std::string row_to_text(const std::vector<Action>& row, bool with_stage) {
  return joined(mapped<std::string>(row, [&](const auto& a) { return action_to_text(a, with_stage); }), " ");
}

std::optional<std::vector<Action>> row_from_text(std::string_view text, int own_stage, std::string* bad) {
  std::vector<Action> row;
  while (true) {
    const size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return row;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    Action action{ActionKind::forward, own_stage, -1};
    const char* const end = word.data() + word.size();
    const char* at = word.data();
    if (*at >= '0' && *at <= '9') at = std::from_chars(at, end, action.stage).ptr;
    const auto letter = at == end ? kLetters.end() : std::find(kLetters.begin(), kLetters.end(), *at);
    bool good = letter != kLetters.end();
    if (good) {
      action.kind = ActionKind(letter - kLetters.begin());
      const auto [stop, error] = std::from_chars(at + 1, end, action.micro_batch);
      good = error == std::errc{} && stop == end && action.micro_batch >= 0;
    }
    if (!good) {
      if (bad != nullptr) *bad = std::string(word.substr(0, 40));
      return std::nullopt;
    }
    row.push_back(action);
  }
}

int64_t nominal_duration(ActionKind kind) { return kind == ActionKind::backward ? 2 : 1; }

NominalPlacement place_nominally(const Schedule& schedule) {
  NominalPlacement placement;
  placement.start.resize(schedule.rows.size());
  placement.stuck_at.assign(schedule.rows.size(), 0);
  std::vector<int64_t> rank_free(schedule.rows.size(), 0);
  Finished finished(schedule);
  bool progress = true;
  while (progress) {
    progress = false;
    for (size_t r = 0; r < schedule.rows.size(); ++r) {
      size_t& next = placement.stuck_at[r];
      while (next < schedule.rows[r].size()) {
        const Action& action = schedule.rows[r][next];
        const int64_t ready = finished.ready(action);
        if (ready < 0) break;
        const int64_t start = std::max(ready, rank_free[r]);
        rank_free[r] = start + nominal_duration(action.kind);
        finished.finish(action, rank_free[r]);
        placement.start[r].push_back(start);
        placement.order.emplace_back(int(r), int(next));
        ++next;
        progress = true;
      }
    }
  }
  for (size_t r = 0; r < schedule.rows.size() && placement.stuck_rank < 0; ++r)
    if (placement.stuck_at[r] < schedule.rows[r].size()) placement.stuck_rank = int(r);
  return placement;
}

std::optional<std::string> find_defect(const Schedule& schedule) {
  if (auto defect = find_shape_defect(schedule)) return defect;
  if (auto defect = find_count_defect(schedule)) return defect;
  const NominalPlacement placement = place_nominally(schedule);
  if (placement.stuck_rank < 0) return std::nullopt;
  return defect_at(schedule, {placement.stuck_rank, int(placement.stuck_at[size_t(placement.stuck_rank)])},
                   "waits for ever: what it needs comes later or waits for it");
}

std::string schedule_grid(const Schedule& schedule, int marked_rank, int marked_index) {
  constexpr int kWidth = 24;  // actions shown around the mark
  std::string grid;
  const int from = std::max(0, marked_index - kWidth / 2);
  for (int r = 0; r < int(schedule.rows.size()); ++r) {
    grid += fmt::format("  rank {:>2}:{}", r, from > 0 ? " ..." : "");
    const auto& row = schedule.rows[size_t(r)];
    for (int i = from; i < int(row.size()) && i < from + kWidth; ++i) {
      const std::string text = action_to_text(row[size_t(i)], schedule.chunks > 1);
      grid += r == marked_rank && i == marked_index ? fmt::format(" [{}]", text) : " " + text;
    }
    grid += int(row.size()) > from + kWidth ? " ...\n" : "\n";
  }
  return grid;
}

}  // namespace mpt
