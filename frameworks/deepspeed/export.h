// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "frameworks/export.h"

namespace mpt::frameworks {

/// Keys of DeepSpeed's configuration that a plan decides on, those of its own pipelines aside.
Json deepspeed_config(const Plan& plan);

/// Of plans for other frameworks: what DeepSpeed does not have.
void add_deepspeed_warnings(const Plan& plan, std::vector<std::string>& warnings);

}  // namespace mpt::frameworks
