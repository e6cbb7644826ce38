// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/plan.h"

namespace mpt {

/// One sentence: what became of every layout of the search, and how far a plan of `step_time_s` is from the
/// fastest. `waited_s`: how long somebody waited for the answer, said in place of what the search took.
std::string describe_certificate(const SearchCertificate& certificate, double step_time_s,
                                 std::optional<double> waited_s = {});

}  // namespace mpt
