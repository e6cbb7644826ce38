// SPDX-License-Identifier: Apache-2.0
#include "planner/observe/observed_plan.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "planner/explain/confidence.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

constexpr size_t kRows = 8;

std::string state_of(const CorrectedLayout& c) {
  if (c.out_of_memory) return "ran out of memory";
  if (c.ran) return "measured";
  return c.confidence.fits ? "fits: " + describe_likelihood(*c.confidence.fits) : "";
}

std::string order_table(const Corrected& corrected) {
  reports::Table table(reports::columns({"<layout", "predicted", "corrected", "8 in 10 cases", "<memory"}));
  for (size_t i = 0; i < corrected.layouts.size(); ++i) {
    const CorrectedLayout& c = corrected.layouts[i];
    const bool shown = i < kRows || c.ran || c.out_of_memory || int64_t(i) + 1 == corrected.measure_next;
    if (!shown) continue;
    table.add_row({layout_name(c.layout), format_seconds(c.predicted_s), format_seconds(c.step_time_s),
                   describe_range(c.confidence), state_of(c)});
  }
  return table.text(screen_columns());
}

std::string next_of(const Corrected& c, const Palette& palette) {
  const std::string now =
      fmt::format("Choosing now loses {} against the fastest, on average.", format_percent(c.loss));
  if (c.measure_next < 1) return wrapped(now + " No further run is worth its time.");
  const CorrectedLayout& next = c.layouts[size_t(c.measure_next - 1)];
  return palette.heading("MEASURE NEXT") + "\n" +
         wrapped(fmt::format("{}: {} After this run it is {}. Then add:", layout_name(next.layout), now,
                             format_percent(c.loss_after)),
                 "  ") +
         fmt::format("  --observed '{}=TIME,MEMORY'\n", layout_name(next.layout));
}

// The findings of the runs, the recommended layout, the corrected order, and the next layout to measure.
std::string observed_screen(const Plan& plan, const ScreenOptions& o) {
  const Corrected& corrected = *plan.corrected;
  std::string text = describe_task(plan, o.palette) + "\n" + describe_choice("RECOMMENDED", plan, o.palette) +
                     "\n" + describe_figures(plan, o.palette, o.training);
  text += describe_notes(o.notes, o.palette);
  if (corrected.layouts.size() > 1)  // else an estimate: there is no choice
    text += "\n" + o.palette.heading("CORRECTED ORDER") + "\n" + order_table(corrected) + "\n" +
            next_of(corrected, o.palette);
  return o.next.empty() ? text : text + "\n" + describe_next(o.next, o.palette);
}

}  // namespace

std::string plan_screen(const Plan& plan, const ScreenOptions& options) {
  return plan.corrected ? observed_screen(plan, options) : answer_screen(plan, options);
}

}  // namespace mpt::planner
