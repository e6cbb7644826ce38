// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/quantity.h"
#include "core/rank_grid.h"
#include "models/footprint.h"

namespace mpt::runtime {
namespace {

struct RankRange {
  int64_t begin = 0, end = 0;
};

// Launchers number the processes of a host consecutively.
RankRange ranks_of_host(const Plan& plan, const std::optional<Launch>& launch) {
  if (!launch) return {0, plan.layout.ranks()};
  const int64_t each = plan.layout.ranks() / launch->processes;
  const int64_t first = std::max(0, launch->process - launch->process_of_host);
  return {first * each, std::min<int64_t>(first + launch->processes_of_host, launch->processes) * each};
}

}  // namespace

int64_t machine_memory_bytes() {
  int64_t bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream(file) >> limit && limit > 0) bytes = std::min(bytes, limit);  // "max": no limit
  }
  return bytes;
}

int64_t needed_memory_bytes(const Plan& plan, const std::optional<Launch>& launch) {
  Plan own = plan;
  own.layout.execution = Execution{};
  own.layout.offload_optimizer = false;  // offloaded state is also in this machine's memory
  own.footprints = models::stage_footprints(plan.model, own.layout, plan.workload);
  const std::vector<int64_t> peaks = peak_bytes(program_of(own));
  const RankGrid grid(plan.layout);
  const RankRange ranks = ranks_of_host(plan, launch);
  int64_t bytes = 0;
  for (int64_t rank = ranks.begin; rank < ranks.end; ++rank)
    bytes += peaks[size_t(grid.coordinates(rank).pipeline)];
  return bytes;
}

void check_memory(const Plan& plan, const std::optional<Launch>& launch, int64_t available,
                  const std::string& file) {
  const int64_t needed = needed_memory_bytes(plan, launch);
  if (needed <= available) return;
  const RankRange ranks = ranks_of_host(plan, launch);
  refuse_input(file + " at /layout",
               fmt::format("the {} ranks on this machine need {} of memory", ranks.end - ranks.begin,
                           format_bytes(double(needed))),
               fmt::format("at most {}, which this machine has", format_bytes(double(available))),
               "plan for this machine (mpt-plan --cluster this-machine), or distribute the ranks over more "
               "hosts (torchrun, mpirun, srun)");
}

}  // namespace mpt::runtime
