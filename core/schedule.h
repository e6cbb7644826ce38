// SPDX-License-Identifier: Apache-2.0
#pragma once

// Schedule: for each pipeline rank an ordered list of actions. It has no times and no transfers; lower()
// (core/lower.h) turns it into a StepProgram. Generators are in core/schedules/ and listed in
// core/schedule_catalog.h; no other code may depend on a schedule's name.
//
// Text form of an action, the one that PyTorch's pipelining reads: stage, kind, micro-batch: "2F0", "0B3".
// With one stage per rank the stage is left out in a row: "F0 F1 B0 B1".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

/// forward F; backward B = input gradient and weight gradient in one; I and W: the two apart.
enum class ActionKind : uint8_t { forward, backward, input_gradient, weight_gradient };

struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;  // virtual stage, in model order
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};

struct Schedule {
  std::string name;
  int ranks = 1;   // pipeline ranks
  int chunks = 1;  // virtual stages per rank
  int micro_batches = 1;
  std::vector<int> rank_of_stage;         // ranks * chunks entries
  std::vector<std::vector<Action>> rows;  // one per rank, in order of execution

  int stages() const { return ranks * chunks; }
  bool operator==(const Schedule&) const = default;
};

/// Stage s on rank s % ranks: the placement of GPipe, 1F1B and interleaved 1F1B.
std::vector<int> round_robin_placement(int ranks, int chunks);
/// Two chunks per rank in a V: stage s on rank s on the way up, on rank 2 ranks - 1 - s on the way down.
std::vector<int> v_placement(int ranks, int chunks);

std::string action_to_text(const Action& action, bool with_stage);
std::string row_to_text(const std::vector<Action>& row, bool with_stage);
/// Reads a row; an action without a stage gets `own_stage`. Returns nothing for a malformed action, and
/// stores its text in `bad`.
std::optional<std::vector<Action>> row_from_text(std::string_view text, int own_stage, std::string* bad);

/// Nominal start of every action, in units where a forward lasts 1 and a full backward 2 and transfers
/// nothing. placement[r][i] belongs to rows[r][i]. If the schedule cannot be executed to its end,
/// `stuck_rank` is the first rank that waits for ever, at action `stuck_at[rank]`.
struct NominalPlacement {
  std::vector<std::vector<int64_t>> start;
  std::vector<std::pair<int, int>> order;  // (rank, index) in an order that respects every dependency
  std::vector<size_t> stuck_at;
  int stuck_rank = -1;
};
NominalPlacement place_nominally(const Schedule& schedule);
int64_t nominal_duration(ActionKind kind);

/// Proves the schedule complete (each stage and micro-batch has one F and one B, or one I and one W, on its
/// rank), ordered and free of deadlock. Returns a text of the defect, with the grid and the cell marked.
std::optional<std::string> find_defect(const Schedule& schedule);

/// The rows as a grid, one line for each rank; the marked action is in brackets.
std::string schedule_grid(const Schedule& schedule, int marked_rank = -1, int marked_index = -1);

}  // namespace mpt
