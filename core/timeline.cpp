// SPDX-License-Identifier: Apache-2.0
#include "core/timeline.h"

#include <numeric>

namespace mpt {

double step_time_s(const Timeline& timeline) {
  if (timeline.spans.empty()) return 0.0;
  double first = std::numeric_limits<double>::infinity();
  double last = 0.0;
  for (const Span& span : timeline.spans) {
    first = std::min(first, span.start_s);
    last = std::max(last, span.end_s);
  }
  return last - first;
}

double bubble_share(const StepProgram& program, const Timeline& timeline, double times, double step_s) {
  const double step = step_s > 0.0 ? step_s : step_time_s(timeline);
  if (step <= 0.0) return 0.0;
  std::vector<double> busy_s(size_t(program.ranks), 0.0);
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (i.is_compute())
      busy_s[size_t(program.lanes(id).front().rank)] +=
          (i.micro_batch < 0 ? 1.0 : times) * timeline.spans[size_t(id)].seconds();
  }
  return 1.0 - std::accumulate(busy_s.begin(), busy_s.end(), 0.0) / (step * program.ranks);
}

}  // namespace mpt
