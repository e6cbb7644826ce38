// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/json.h"
#include "frameworks/import.h"

namespace mpt::frameworks {

/// Sets the adapters of a configuration's `peft`: null, a name, or a call as python_value() reads it. Notes
/// tell what is not understood. Throws UserError, with `place`, where no layer gets any.
void set_bridge_adapters(const Json& peft, const std::string& place, Imported& in);

}  // namespace mpt::frameworks
