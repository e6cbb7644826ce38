// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// Layout and batch of DeepSpeed's configuration; `pipeline` ranks have equal stages. Throws UserError.
Imported read_deepspeed(const Settings& config, int64_t pipeline);

}  // namespace mpt::frameworks
