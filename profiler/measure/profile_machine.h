// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/hardware/profile.h"
#include "profiler/measure/target.h"
#include "runtime/comm/sockets/launch.h"

namespace mpt::profiler {

struct ProfileRequest {
  ModelSpec model;
  std::vector<int64_t> sequences;
  int64_t max_micro_batch = 8, max_tensor = 4, max_ranks = 4;
  Precision precision = Precision::fp32;
  Target target;       // in that precision
  bool quick = false;  // shorter samples, for a look or a test
  bool quiet = false;
  std::optional<runtime::Launch> launch{};  // this process is one of several
};

/// Powers of two up to `most` at which the largest piece can be timed in `memory_bytes`. Throws UserError if
/// a single sequence does not fit.
std::vector<int64_t> fitting_micro_batches(const ModelSpec& model, int64_t sequence, int64_t most,
                                           int64_t memory_bytes);

/// Measures this machine for a model. Of several processes the first one measures, and all of them together
/// measure the network. The others return no measurements. Throws UserError if the runtime cannot execute the
/// model, or if the model is too large to be timed.
Profile profile_machine(const ProfileRequest& request);

/// The summary that mpt-profile prints.
std::string profile_summary(const Profile& profile);

}  // namespace mpt::profiler
