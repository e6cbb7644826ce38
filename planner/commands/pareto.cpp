// SPDX-License-Identifier: Apache-2.0

// mpt-plan --pareto: the trade-off between time, memory and number of devices.

#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/commands/commands.h"
#include "planner/explain/utilisation.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

std::string table_of(const Front& front, const CostOptions& cost) {
  const std::string one = reports::device_word(front.fastest->cluster);
  std::vector<reports::Column> columns{{one + "s"}, {"step time"}, {"memory"}, {"tokens/s"}, {"per " + one}};
  if (!cost.tokens.empty()) columns.push_back({"days for " + cost.tokens});
  if (!cost.tokens.empty() && cost.price > 0.0) columns.push_back({"price"});
  columns.push_back({"layout", reports::Align::left});
  reports::Table table(std::move(columns));
  for (const RankedLayout& r : front.points) {
    std::vector<std::string> row{std::to_string(r.layout.ranks()), format_seconds(r.step_time_s),
                                 format_bytes(double(r.peak_bytes)), format_count(int64_t(r.tokens_per_s)),
                                 format_count(int64_t(r.tokens_per_s / double(r.layout.ranks())))};
    if (!cost.tokens.empty()) {
      const TrainingCost whole = training_cost(
          r.layout.ranks(), r.tokens_per_s, parse_count(cost.tokens, "--tokens"), cost.price, cost.goodput);
      row.push_back(format_days(whole.days));
      if (cost.price > 0.0) row.push_back(format_magnitude(whole.price));
    }
    row.push_back(layout_name(r.layout));
    table.add_row(std::move(row));
  }
  return table.text(screen_columns());
}

// A table of at most the rows that fit on a screen: of each number of GPUs the first, and each second, third
// and so on of the others. With -v all rows.
std::string shown_table(const Front& front, const PlanOptions& o) {
  constexpr ptrdiff_t kOtherLines = 12;
  Front shown = front;
  std::string table = table_of(shown, o.cost);
  for (size_t each = 2; !o.out.verbose && each < front.points.size() &&
                        std::count(table.begin(), table.end(), '\n') > ptrdiff_t(kScreenLines) - kOtherLines;
       ++each) {
    size_t n = 0;
    int64_t ranks = 0;
    shown.points.clear();
    for (const RankedLayout& r : front.points) {
      n = std::exchange(ranks, r.layout.ranks()) == r.layout.ranks() ? n + 1 : 0;
      if (n % each == 0) shown.points.push_back(r);
    }
    table = table_of(shown, o.cost);
  }
  if (shown.points.size() == front.points.size()) return table;
  return table + fmt::format("  {} of {} rows; -v prints all\n", shown.points.size(), front.points.size());
}

// Rows of one framework have the same range, so a sentence replaces a column.
std::string describe_range_of_days(const Front& front, const CostOptions& cost) {
  const RankedLayout& r = front.points.front();
  const Confidence& sure = r.confidence;
  if (cost.tokens.empty() || !sure.least_s || !sure.most_s) return "";
  return wrapped(fmt::format("8 of 10 trainings take {:.2f} to {:.2f} times the days and the price.",
                             *sure.least_s / r.step_time_s, *sure.most_s / r.step_time_s));
}

}  // namespace

void plan_front(const PlanOptions& o) {
  const auto resolved = resolve_and_tell(o.request);
  Front front = [&] {
    const Stoppable stoppable;
    return planner::front(*resolved, progress_line());
  }();
  if (!front.fastest) {
    plan(*resolved, progress_line());  // throws with the reason
    return;
  }
  std::string text;
  if (o.out.json) {
    text = Json{{"complete", front.complete}, {"front", to_json(front.points)}}.dump(1) + "\n";
  } else {
    text = describe_task(*front.fastest, Palette::of(stdout)) +
           "\nNothing is better in time, memory and number of GPUs than one of these:\n\n" +
           shown_table(front, o) +
           wrapped(
               "Each row is the fastest layout of that many GPUs within a limit of memory; each limit is "
               "four fifths of the one before. Short forms: docs/notation.md.") +
           describe_range_of_days(front, o.cost);
    if (!front.complete) text += "Stopped before the end: there may be more rows, and faster ones.\n";
  }
  write_files(o.out, *front.fastest, o.cost, &resolved->problem);
  print_answer(o.out, text);
}

}  // namespace mpt::planner
