// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/nothing_divides.h"

#include <fmt/format.h>

#include "base/interruption.h"
#include "base/quantity.h"
#include "reports/utilisation.h"

namespace mpt::planner {

Problem why_nothing_fits(const SearchResult& result, const SearchProblem& problem) {
  if (stop_requested())
    return {
        "interrupted",
        fmt::format("after {} no layout that fits was found yet", format_seconds(result.certificate.seconds)),
        "", ""};
  if (!result.certificate.optimal)
    return {"--time-limit",
            fmt::format("the search was stopped after {} without a layout that fits",
                        format_seconds(result.certificate.seconds)),
            "more time", "raise it, or bound the space with --tp, --pp and the like"};
  if (result.over_memory.empty()) return nothing_divides(problem);
  const NearMiss& family = result.over_memory.front();
  const bool host = family.nearest.constraint == "host memory";
  const char* const one = host ? "host" : reports::device_word(problem.cluster);
  return {"memory",
          fmt::format("{} needs at least {} per {} on {}; there are {}", problem.model.name,
                      format_bytes(family.nearest.needed), one, counted_devices(problem.ranks, problem),
                      format_bytes(host ? family.nearest.available : double(problem.memory_limit_bytes))),
          fmt::format("a layout that fits; of {} the smallest is {} ({})",
                      format_count(result.certificate.layouts), layout_name(family.layout),
                      family.nearest.reason),
          problem.cluster.device.kind == DeviceKind::cpu
              ? "the ranks share this machine's memory: plan for GPUs, such as --cluster dgx-h100:1, or a "
                "smaller model"
              : "use more GPUs (--cluster), a shorter --seq, a smaller --global-batch, or --lora 16"};
}

}  // namespace mpt::planner
