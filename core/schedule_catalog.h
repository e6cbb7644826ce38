// SPDX-License-Identifier: Apache-2.0
#pragma once

// The table of schedules: name, requirements, paper, generator. Adding a schedule is one file in
// core/schedules/ and one row in schedule_catalog.cpp.

#include <string>
#include <vector>

#include "core/schedule.h"

namespace mpt {

struct ScheduleEntry {
  std::string name;
  int min_chunks;
  int max_chunks;
  std::string source;  // where the schedule is described
  Schedule (*generate)(int ranks, int chunks, int micro_batches);
};

const std::vector<ScheduleEntry>& schedule_catalog();

/// Throws UserError naming `where` and the nearest known schedule.
const ScheduleEntry& find_schedule(const std::string& name, const std::string& where);
std::vector<std::string> schedule_names();

}  // namespace mpt
