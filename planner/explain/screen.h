// SPDX-License-Identifier: Apache-2.0
#pragma once

// The answer on one screen: what was understood, the recommended layout, what it takes, what else there is,
// why, what to type next, and one sentence of proof. Lines of at most kScreenColumns; what a plan does not
// hold comes in as text. Details are in planner/explain/details.h.

#include <optional>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "core/layout.h"
#include "core/plan.h"

namespace mpt::planner {

/// No answer has more lines, unless more layouts were asked for.
inline constexpr size_t kScreenLines = 40;

struct NextCommand {
  std::string command, what_for;
};

struct ScreenOptions {
  Palette palette;
  std::vector<NextCommand> next;
  std::vector<std::string> notes;  // one sentence each
  std::optional<double> waited_s;  // until this answer; nothing: the search alone is timed
  std::string training;            // what a whole training takes; may be empty
  size_t lines = kScreenLines;     // at most, where the sections that may be shorter are
};

/// What observed runs show, and what was understood: model, cluster, batch, framework and precision, and what
/// to know of the prices.
std::string describe_task(const Plan& plan, const Palette& palette = {});
/// "RECOMMENDED  tensor parallel 2, ..." and the short form. `more`: said behind the short form.
std::string describe_choice(const std::string& heading, const Plan& plan, const Palette& palette = {},
                            const std::string& more = "");
/// Step, throughput, memory and where the time goes, as observed runs correct them; then the risk of running
/// out of memory.
std::string describe_figures(const Plan& plan, const Palette& palette = {}, const std::string& training = "",
                             bool memory_by_kind = false);
/// "stage 7 needs 76.3 GiB per GPU, there are 74.0 GiB": of a layout that does not fit.
std::string describe_lack(const Rejection& lack, const ClusterSpec& cluster);
/// "It fits.", "May not fit (64%).", or which stage lacks how much memory.
std::string describe_verdict(const Plan& plan, const std::optional<Rejection>& rejection,
                             const Palette& palette = {});
/// Lines of "NEXT": what a command is for stands beside it where both fit in a line.
std::string describe_next(const std::vector<NextCommand>& next, const Palette& palette = {});
/// Lines that begin with "NOTE".
std::string describe_notes(const std::vector<std::string>& notes, const Palette& palette = {});
/// "same memory", "1.6 GiB less".
std::string describe_memory_change(int64_t bytes, int64_t instead_of);

/// The plan's other layouts, one row each: no two alike, and none like the plan's own. Last the one that is
/// safe in memory where the plan is not.
struct Alternative {
  const RankedLayout* layout = nullptr;
  std::string trade;
};
std::vector<Alternative> alternatives(const Plan& plan);

std::string answer_screen(const Plan& plan, const ScreenOptions& options = {});

}  // namespace mpt::planner
