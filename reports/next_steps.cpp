// SPDX-License-Identifier: Apache-2.0
#include "reports/next_steps.h"

#include <fmt/format.h>

#include <cmath>

#include "base/quantity.h"
#include "reports/utilisation.h"

namespace mpt::reports {
namespace {

// A measured step that differs this much from its prediction, as a share, needs an explanation.
constexpr double kFarOff = 0.1;

NextStep how_to_run(const Plan& plan, const std::string& export_target) {
  const std::string& framework = plan.layout.execution->framework;
  if (framework == Execution{}.framework)
    return {"Run it", "With your own files as data (docs/training.md):",
            fmt::format("mpt-run plan.json {} --steps 100", data_options(plan))};
  if (!export_target.empty())
    return {"Run it", fmt::format("Write the launch files for {}:", framework),
            fmt::format("mpt-plan export plan.json --to {},slurm -o run", export_target)};
  return {"Run it",
          fmt::format("No export writes {}. Others do, with other step times and memory:", framework),
          "mpt-plan export --help"};
}

// A layout of the ranking that needs clearly less memory.
const RankedLayout* roomier(const Plan& plan) {
  const double most = kRoomierShare * double(peak_bytes(plan));
  return first_if(plan.ranking, [&](const RankedLayout& r) {
    return double(r.peak_bytes) < most && r.layout.ranks() == plan.layout.ranks();
  });
}

// In the form of --memory, rounded up, so that a layout of this size fits.
std::string whole_size(double bytes) {
  return bytes < 10.0 * double(kGiB)
             ? fmt::format("{:.0f}MiB", std::ceil(bytes / double(kMiB)))
             : fmt::format("{:.1f}GiB", std::ceil(10.0 * bytes / double(kGiB)) / 10.0);
}

// Suggests a limit only if a layout is known to fit it.
NextStep if_memory_runs_out(const Plan& plan) {
  const std::string title = "If it runs out of memory", again = "mpt-plan --request plan.json ";
  const RankedLayout* other = roomier(plan);
  if (other == nullptr)
    return {title,
            "No layout on these GPUs is known that needs a tenth less. Plan for more of them, or for shorter "
            "sequences:",
            again + "--cluster LARGER"};
  return {title,
          fmt::format("Plan again with a lower limit. {} fits: {} per step, {} of memory.",
                      layout_name(other->layout), format_seconds(other->step_time_s),
                      format_bytes(double(other->peak_bytes))),
          again + "--memory " + whole_size(double(other->peak_bytes))};
}

}  // namespace

int64_t token_bytes(const Plan& plan) {
  return plan.model.vocab == 256 ? 1 : plan.model.vocab > 65536 ? 4 : 2;
}

std::string data_options(const Plan& plan) {
  const int64_t bytes = token_bytes(plan);
  return bytes == 1 ? "--data FILE" : fmt::format("--data FILE --data-format uint{}", 8 * bytes);
}

std::vector<NextStep> next_steps(const Plan& plan, const std::string& export_target) {
  return {how_to_run(plan, export_target),
          if_memory_runs_out(plan),
          {"Ask why not something else", "Any kind of layout, by the names of the layout options:",
           "mpt-plan explain plan.json --why-not tp=8"}};
}

std::vector<NextStep> next_steps(const Plan& plan, const RunResult& result) {
  std::vector<NextStep> steps{{"Find what the run lost", "From the log that mpt-run --log wrote:",
                               "mpt-plan diagnose plan.json LOG.jsonl"}};
  const double measured = median_step_time_s(result), predicted = plan.prediction.step_time_s;
  if (std::abs(measured / predicted - 1.0) > kFarOff && plan.cost.source == "profile")
    steps.push_back(
        {"Measure the machine again",
         "Measured and predicted differ by more than a tenth. While nothing else uses the machine:",
         "mpt-profile --model MODEL --seq TOKENS -o profile.json"});
  steps.push_back({"Go on in another layout",
                   "Checkpoints know no layout: any plan of the model takes them up.",
                   "mpt-run other.json --checkpoints FOLDER --resume auto"});
  return steps;
}

}  // namespace mpt::reports
