// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is known of training frameworks, by name: models/frameworks/*.json, built in.

#include <string>
#include <vector>

#include "base/json.h"
#include "core/cluster_spec.h"
#include "core/execution.h"

namespace mpt::models {

/// What people call one framework: its name here, the export for it (empty: none), and other names.
struct FrameworkName {
  std::string framework, export_target;
  std::vector<std::string> aliases;

  template <class V>
  static void describe(V& v) {
    using T = FrameworkName;
    v.field("framework", &T::framework, "its name in models/frameworks/");
    v.field("export", &T::export_target, "what exports to it; empty: nothing");
    v.field("aliases", &T::aliases, "what else people call it");
  }
};
/// models/framework_names.json, the one vocabulary of --framework and export --to.
const std::vector<FrameworkName>& framework_vocabulary();
/// The row of a framework's name or alias; nothing for an unknown one.
const FrameworkName* find_framework_name(const std::string& name);

/// "mpt", this project's own runtime, or one of models/frameworks/, by name or alias. Throws UserError that
/// names `where` otherwise.
Execution load_framework(const std::string& name, const std::string& where);
std::vector<std::string> framework_names();

/// With other values of its fields, each "name=value" as in the file of a framework. Throws UserError that
/// names `where` for an unknown field or a value that it cannot have.
Execution with_changes(const Execution& execution, const std::vector<std::string>& changes,
                       const std::string& where);

/// With the values of a JSON object of its fields, "framework" among them: then that framework's others.
/// Throws UserError that names the field under `where`.
Execution with_fields(const Execution& execution, const Json& fields, const std::string& where);

/// From Blackwell on products read a matrix of one scale in either order (NVIDIA/TransformerEngine,
/// docs/features/low_precision_training, "Handling transposes").
inline void set_device(Execution& execution, const DeviceSpec& device) {
  execution.fp8_in_any_order = device.mxfp8;
}

/// Tokens go once to a device that holds several of their experts, as HybridEP sends them, whose kernels
/// leave the room that products in fp8 take.
inline void send_tokens_once(Execution& execution) {
  execution.deduplicates_dispatch = true;
  execution.pads_expert_rows = false;
}

}  // namespace mpt::models
