// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "profiler/hardware/profile.h"
#include "profiler/measure/target.h"

namespace mpt::profiler {

struct ProfileRequest {
  ModelSpec model;
  int64_t sequence = 0;
  int64_t max_micro_batch = 8;
  int64_t max_tensor = 4;
  int64_t max_ranks = 4;
  Precision precision = Precision::fp32;
  Target target;       // in that precision
  bool quick = false;  // shorter samples, for a look or a test
  bool quiet = false;
};

/// Powers of two up to `most` whose largest piece can be timed in `memory_bytes`. Throws UserError if not
/// even one sequence can.
std::vector<int64_t> fitting_micro_batches(const ModelSpec& model, int64_t sequence, int64_t most,
                                           int64_t memory_bytes);

/// Measures this machine for a model. Throws UserError if the runtime cannot execute the model.
Profile profile_machine(const ProfileRequest& request);

/// The summary that mpt-profile prints.
std::string profile_summary(const Profile& profile);

}  // namespace mpt::profiler
