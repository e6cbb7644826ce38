// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "profiler/hardware/profile.h"

namespace mpt::profiler {

struct ProfileRequest {
  ModelSpec model;
  int64_t sequence = 0;
  int64_t max_micro_batch = 8;
  int64_t max_tensor = 4;
  int64_t max_ranks = 4;
  bool quick = false;  // shorter samples, for a look or a test
  bool quiet = false;
};

/// Measures this machine for a model. Throws UserError if the runtime cannot execute the model.
Profile profile_machine(const ProfileRequest& request);

/// The summary that mpt-profile prints.
std::string profile_summary(const Profile& profile);

}  // namespace mpt::profiler
