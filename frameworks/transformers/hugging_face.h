// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model as frameworks on Hugging Face's classes take it: by its id on the hub, or by a config.json.

#include <string>

#include "core/model_spec.h"
#include "frameworks/export.h"
#include "frameworks/import.h"

namespace mpt::frameworks {

/// The id on the hub that the model was asked for by; empty: by none, or it is another model by now.
std::string hub_id(const ModelSpec& model);

/// Whether a training script adds the plan's balance loss of experts: transformers does so only where
/// config.json has output_router_logits, which no file on the hub has.
enum class BalanceLoss { left_to_framework, trained };

/// Adds config.json to the files where the hub has no such model, or not with its balance loss; a warning
/// where no class has it. Returns what files call the model: its id on the hub, or the name of that file.
std::string add_hugging_face_model(const ModelSpec& model, const std::string& framework, Exported& exported,
                                   BalanceLoss balance = BalanceLoss::left_to_framework);

/// Sets the model that `reference` names in a file of `folder`: an id on the hub that we know, or a
/// config.json. Without a reference the config.json of the folder is the model's. Notes what is not known.
void set_hugging_face_model(Imported& in, const std::string& reference, const std::filesystem::path& folder);

}  // namespace mpt::frameworks
