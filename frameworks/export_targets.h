// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whom a plan can be exported to: the frameworks of frameworks/registry.h, fine-tuners and launchers.

#include <optional>
#include <string>
#include <vector>

#include "frameworks/export.h"

namespace mpt::frameworks {

struct ExportTarget {
  const char* name;
  const char* what;  // one line for people, with the framework's version
  Exported (*write)(const Plan& plan);
  bool tuner = false;  // trains by Hugging Face's Trainer, and takes plans for it only
};

/// The export that NEXT names: of the plan's framework, or of a tuner if only a tuner can write the plan, or
/// if `asked` names it. Null: none writes the plan.
const ExportTarget* usual_target(const Plan& plan, const std::string& asked = "");

/// Frameworks with an export (frameworks/registry.h), then the launchers.
const std::vector<ExportTarget>& export_targets();
/// The target of that name or framework's alias. Throws UserError for others.
const ExportTarget& find_export_target(const std::string& name);
/// The export of a framework by its name or alias; null if it has none.
const ExportTarget* export_target_of(const std::string& framework);
/// Whether step time and memory of plans for `framework` also hold for the target. Launchers start any
/// framework.
bool takes_plans_of(const ExportTarget& target, const std::string& framework);

/// Why the target's framework cannot train the plan as it is; nothing if it can, and for launchers. If the
/// plan is for another framework, overlaps that this one decides may differ: they change no result.
std::optional<Rejection> cannot_run(const ExportTarget& target, const Plan& plan);

}  // namespace mpt::frameworks
