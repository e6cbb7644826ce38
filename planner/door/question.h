// SPDX-License-Identifier: Apache-2.0
#pragma once

// A question to the planner, and what answers it. Include this only from .cpp files, as base/json.h.

#include <string>
#include <vector>

#include "base/json.h"
#include "planner/api.h"

namespace mpt::planner {

struct DoorQuestion {
  std::string action;
  Json request, plan;
  std::vector<Json> requests;
  Json log;
  std::string layout, log_name = "log", measured, profile, kernels, folder;
  std::vector<std::string> to, gpus;
  bool search = true;
  int64_t nvlinks = -1;  // of the GPU that has fewest; below 0: not known

  template <class V>
  static void describe(V& v) {
    using T = DoorQuestion;
    v.field("do", &T::action, "what to do");
    v.field("request", &T::request, "as docs/request.schema.json; model and cluster may be as in files",
            optional_field());
    v.field("requests", &T::requests, "several of them", optional_field());
    v.field("plan", &T::plan, "as docs/plan.schema.json", optional_field());
    v.field("layout", &T::layout, "the layouts that are asked about, such as tp=8,pp=4", optional_field());
    v.field("log", &T::log, "what a run wrote", optional_field());
    v.field("log_name", &T::log_name, "its name in errors", optional_field(long_text()));
    v.field("measured", &T::measured, "a figure of a run with its unit", optional_field());
    v.field("search", &T::search, "whether to look for a better layout", optional_field());
    v.field("profile", &T::profile, "file of the plan's prices", optional_field(long_text()));
    v.field("kernels", &T::kernels, "file of the plan's prices", optional_field(long_text()));
    v.field("to", &T::to, "whom to export to", optional_field());
    v.field("folder", &T::folder, "where to write exports", optional_field(long_text()));
    v.field("gpus", &T::gpus, "the driver's names of a machine's GPUs", optional_field());
    v.field("nvlinks", &T::nvlinks, "NVLinks that are up, of the GPU that has fewest", optional_field());
  }
};

struct DoorAction {
  const char* name;
  std::vector<std::string> needs, takes;  // fields of the question
  Json (*answer)(const DoorQuestion& question, const Watch& watch);
};
const std::vector<DoorAction>& door_actions();

}  // namespace mpt::planner
