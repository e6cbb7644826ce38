// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/profile.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace mpt::profiler {

MachineDescription describe_machine() {
  MachineDescription machine;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; machine.device.empty() && std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) machine.device = line.substr(line.find(':') + 2);
  utsname system{};
  uname(&system);
  if (machine.device.empty()) machine.device = system.machine;
  machine.system = fmt::format("{} {}, {}", system.sysname, system.release, "g++ " __VERSION__);
#ifdef MPT_WITHOUT_THREADS
  machine.cores = 1;
#else
  // The cores that this process may use: in a container fewer than the machine has.
  cpu_set_t allowed;
  machine.cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                      : sysconf(_SC_NPROCESSORS_ONLN);
#endif
  machine.memory_bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return machine;
}

}  // namespace mpt::profiler
