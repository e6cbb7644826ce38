// SPDX-License-Identifier: Apache-2.0
#include "core/schedule_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "core/schedules/gpipe.h"
#include "core/schedules/interleaved.h"
#include "core/schedules/list_scheduler.h"
#include "core/schedules/one_f_one_b.h"
#include "core/schedules/v_shaped.h"
#include "core/schedules/zero_bubble.h"

namespace mpt {

const std::vector<ScheduleEntry>& schedule_catalog() {
  static const std::vector<ScheduleEntry> entries{
      {"gpipe", 1, 1, "Huang et al. 2019 (arXiv:1811.06965), section 2.3", generate_gpipe},
      {"1f1b", 1, 1, "Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.1", generate_one_f_one_b},
      {"interleaved", 2, 64, "Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.2", generate_interleaved},
      {"zb-h1", 1, 1, "Qi et al. 2023 (arXiv:2401.10241), section 2.1", generate_zb_h1, true},
      {"zb-h2", 1, 1, "Qi et al. 2023 (arXiv:2401.10241), section 2.2", generate_zb_h2, true},
      {"zb-v", 2, 2, "Qi et al. 2024 (arXiv:2405.15362), section 3", generate_zb_v, true, v_placement},
      {"v-half", 2, 2, "Qi et al. 2024 (arXiv:2405.15362), section 3", generate_v_half, true, v_placement},
      {"v-min", 2, 2, "Qi et al. 2024 (arXiv:2405.15362), section 3", generate_v_min, true, v_placement},
      {"dualpipe-v", 2, 2, "DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.1, cut in half",
       generate_dualpipe_v, true, v_placement},
      {"generated", 1, 64,
       "list scheduling with the layout's own durations (core/schedules/list_scheduler.h)", generate_list,
       true, generated_placement, true},
  };
  return entries;
}

const ScheduleEntry& leanest_schedule(const ScheduleEntry& entry, int chunks) {
  return entry.made_to_measure ? find_schedule(chunks == 1   ? "1f1b"
                                               : chunks == 2 ? "v-min"
                                                             : "interleaved",
                                               "leanest")
                               : entry;
}

const ScheduleEntry& find_schedule(const std::string& name, const std::string& where) {
  for (const ScheduleEntry& entry : schedule_catalog()) {
    if (entry.name == name) return entry;
  }
  throw UserError(Problem{
      where,
      fmt::format("unknown schedule \"{}\"{}", name.substr(0, 80), did_you_mean(name, schedule_names())),
      fmt::format("one of {}", fmt::join(schedule_names(), ", ")), ""});
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleEntry& entry : schedule_catalog()) names.push_back(entry.name);
  return names;
}

}  // namespace mpt
