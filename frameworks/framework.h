// SPDX-License-Identifier: Apache-2.0
#pragma once

// The training frameworks that plans are made for: frameworks/*/framework.json, built in.

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "core/cluster_spec.h"
#include "frameworks/supports/abilities.h"

namespace mpt::frameworks {

/// In the order of their names.
const std::vector<Framework>& known_frameworks();
std::vector<std::string> framework_names(const std::function<bool(const Framework&)>& wanted =
                                             [](const Framework&) { return true; });

/// mpt-run.
const Framework& own_runtime();
/// The default on GPUs.
const Framework& usual_framework();

/// The framework of that name or alias, optionally with its version, "megatron-core==0.19.2". Null for an
/// unknown name, and for a version other than the known one.
const Framework* find_framework(const std::string& name);

/// By name or alias. Throws UserError at `where` for an unknown one.
const Framework& framework_named(const std::string& name, const std::string& where);
/// Its kernels, bytes and host costs, as that alias has them. Throws UserError as framework_named() does.
Execution load_framework(const std::string& name, const std::string& where);

/// `execution` with other values of its fields, each "name=value" as in a framework's file. Throws UserError
/// at `where` for an unknown field or a value out of its range.
Execution with_changes(const Execution& execution, const std::vector<std::string>& changes,
                       const std::string& where);

/// `execution` with the fields of a JSON object. With "framework" among them, fields that are not given take
/// that framework's values. Throws UserError that names the field under `where`.
Execution with_fields(const Execution& execution, const Json& fields, const std::string& where);

/// From Blackwell on, products read a matrix with one scale in either order (NVIDIA/TransformerEngine,
/// docs/features/low_precision_training, "Handling transposes").
inline void set_device(Execution& execution, const DeviceSpec& device) {
  execution.kernels.fp8_in_any_order = device.mxfp8;
}

}  // namespace mpt::frameworks
