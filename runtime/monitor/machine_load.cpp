// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace mpt::runtime {
namespace {

double own_core_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::optional<CoreTime> core_time_now() {
  std::ifstream file("/proc/stat");
  return read_core_time(file);
}

}  // namespace

// proc(5): cpu user nice system idle iowait irq softirq steal guest guest_nice; user holds guest.
std::optional<CoreTime> read_core_time(std::istream& proc_stat) {
  std::string line, word;
  if (!std::getline(proc_stat, line)) return std::nullopt;
  std::istringstream words(line);
  words >> word;
  std::vector<double> ticks;
  for (double value = 0.0; words >> value;) ticks.push_back(value);
  if (word != "cpu" || ticks.size() < 8) return std::nullopt;
  const double second = double(sysconf(_SC_CLK_TCK));
  const double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return CoreTime{busy / second, (ticks[3] + ticks[4]) / second};
}

double others_share(const CoreTime& start, const CoreTime& end, double own_s) {
  const double busy = end.busy_s - start.busy_s, whole = busy + end.idle_s - start.idle_s;
  return whole > 0.0 ? std::clamp((busy - own_s) / whole, 0.0, 1.0) : 0.0;
}

MachineLoad::MachineLoad() : start_(core_time_now()), own_start_s_(own_core_seconds()) {}

double MachineLoad::others_share() const {
  const std::optional<CoreTime> end = core_time_now();
  return start_ && end ? runtime::others_share(*start_, *end, own_core_seconds() - own_start_s_) : 0.0;
}

}  // namespace mpt::runtime
