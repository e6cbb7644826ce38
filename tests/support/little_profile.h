// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "profiler/hardware/profile.h"
#include "tests/support/make_plan.h"

namespace mpt::test {

/// One entry of each kind that CPU ranks have.
inline profiler::Profile little_profile() {
  using namespace profiler;
  Profile profile;
  profile.date = "2026-01-02T03:04:05Z";
  profile.mpt_version = "0.1.0";
  profile.machine = {"cpu", DeviceKind::cpu, "system", 2, 1 << 30};
  profile.model = little_gpt();
  profile.sequence = 32;
  profile.memory_bandwidth_bytes_per_s = 1e10;
  profile.matmul_flop_per_s = 5e10;
  profile.optimizer_s_per_parameter = 1e-9;
  profile.gradient_norm_s_per_parameter = 1e-10;
  profile.dispatch_s = 1e-6;
  profile.rate_by_active_ranks = {1.0, 0.9};
  profile.pieces = {{Piece::layer, Phase::backward, 4, 2, Recompute::full, 1.25e-3, 0.01}};
  models::OperatorShape shape;
  shape.rows = shape.columns = shape.inner = 64;
  profile.operators = {{shape, Phase::forward, 1e-5, 0.1}};
  profile.transport = {{TransportOperation::all_reduce, 2, 1024, 1e-6, 0.2}};
  return profile;
}

}  // namespace mpt::test
