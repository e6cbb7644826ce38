// SPDX-License-Identifier: Apache-2.0
#pragma once

// The answer on one screen: the task as understood, the recommended layout and its figures, alternatives,
// reasons, next commands, and one sentence of proof. Lines have at most kScreenColumns columns. Text that a
// plan does not hold is passed in. Details are in planner/explain/details.h.

#include <optional>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "core/layout.h"
#include "core/plan.h"

namespace mpt::planner {

/// The most lines of an answer, unless the user asks for more layouts.
inline constexpr size_t kScreenLines = 40;

struct NextCommand {
  std::string command, what_for;
};

struct ScreenOptions {
  Palette palette;
  std::vector<NextCommand> next;
  std::vector<std::string> notes;  // one sentence each
  std::optional<double> waited_s;  // until this answer; nothing: the search alone is timed
  std::string training;            // cost of a whole training; may be empty
  size_t lines = kScreenLines;     // at most; optional sections are shortened to it
};

/// Findings of observed runs, and the task as understood: model, cluster, batch, framework and precision, and
/// notes on the prices.
std::string describe_task(const Plan& plan, const Palette& palette = {});
/// "RECOMMENDED  tensor parallel 2, ..." and the short form. `more`: added after the short form.
std::string describe_choice(const std::string& heading, const Plan& plan, const Palette& palette = {},
                            const std::string& more = "");
/// Step, throughput, memory and the parts of the time, corrected by observed runs; then the risk of running
/// out of memory.
std::string describe_figures(const Plan& plan, const Palette& palette = {}, const std::string& training = "",
                             bool memory_by_kind = false);
/// "stage 7 needs 76.3 GiB per GPU, there are 74.0 GiB": for a layout that does not fit.
std::string describe_lack(const Rejection& lack, const ClusterSpec& cluster);
/// "It fits.", "May not fit (64%).", or the stage that lacks memory and how much.
std::string describe_verdict(const Plan& plan, const std::optional<Rejection>& rejection,
                             const Palette& palette = {});
/// Lines of "NEXT". The purpose of a command is on the same line if both fit.
std::string describe_next(const std::vector<NextCommand>& next, const Palette& palette = {});
/// Lines that begin with "NOTE".
std::string describe_notes(const std::vector<std::string>& notes, const Palette& palette = {});
/// "same memory", "1.6 GiB less".
std::string describe_memory_change(int64_t bytes, int64_t instead_of);

/// The plan's other layouts, one row each: all different, and different from the plan's. If the plan is not
/// safe in memory, the last one is.
struct Alternative {
  const RankedLayout* layout = nullptr;
  std::string trade;
};
std::vector<Alternative> alternatives(const Plan& plan);

std::string answer_screen(const Plan& plan, const ScreenOptions& options = {});

}  // namespace mpt::planner
