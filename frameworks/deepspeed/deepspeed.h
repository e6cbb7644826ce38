// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeepSpeed's configuration, for its own export and import and for those of the Hugging Face Trainer.

#include <optional>

#include "frameworks/export.h"
#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// Keys of DeepSpeed's configuration that a plan decides on, those of its own pipelines aside.
Json deepspeed_config(const Plan& plan);

/// Of plans for other frameworks: what DeepSpeed does not have.
void add_deepspeed_warnings(const Plan& plan, std::vector<std::string>& warnings);

/// Layout and batch of DeepSpeed's configuration; `pipeline` ranks have equal stages. `trainer` is the
/// Trainer's precision, which "auto" means. Throws UserError.
Imported read_deepspeed(const Settings& config, int64_t pipeline, std::optional<Precision> trainer = {});

}  // namespace mpt::frameworks
