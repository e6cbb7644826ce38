// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cupti_result.h>

#include <string_view>

#include "base/error.h"

namespace mpt::runtime {

/// A call that CUPTI refused.
class CuptiError : public RunError {
 public:
  CuptiError(CUptiResult result, std::string_view call);
  CUptiResult result() const { return result_; }

 private:
  CUptiResult result_;
};

void check_cupti(CUptiResult result, std::string_view call);

}  // namespace mpt::runtime
