// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeepSpeed's configuration, for its own export and import and those of the Hugging Face Trainer.

#include <optional>

#include "core/plan.h"
#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// The keys of DeepSpeed's configuration that a plan decides, without those of DeepSpeed's pipelines.
Json deepspeed_config(const Plan& plan);

/// The program that trains with a configuration.
struct DeepSpeedRun {
  int64_t pipeline = 1;                             // ranks, with equal stages
  std::optional<Precision> trainer = std::nullopt;  // the Trainer's, for "auto"
  int64_t ranks = 0;                                // 0: not known
  bool fills = false;  // the Trainer or accelerate sets keys that the file leaves out
};

/// Layout and batch of DeepSpeed's configuration, and why DeepSpeed refuses it. Throws UserError.
Imported read_deepspeed(const Settings& config, const DeepSpeedRun& run);

}  // namespace mpt::frameworks
