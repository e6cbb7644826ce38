// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "runtime/device/backend.h"
#include "tests/support/make_plan.h"

namespace mpt::test {

/// What a short training on a fixed text gives, step by step.
struct Curve {
  std::vector<double> loss, norm;
  int64_t peak_bytes = 0;
};

/// On `backend`; null: on the CPU. `on_step` is called after each step. Throws what the training throws.
Curve loss_curve(const WantedPlan& request, runtime::Backend* backend, int64_t steps,
                 const std::function<void()>& on_step = {});

}  // namespace mpt::test
