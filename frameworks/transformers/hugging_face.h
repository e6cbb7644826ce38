// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model for frameworks on Hugging Face's classes: its id on the hub, or a config.json.

#include <string>

#include "core/model_spec.h"
#include "frameworks/export.h"
#include "frameworks/import.h"

namespace mpt::frameworks {

/// The hub id that the user named; empty: none, or the model has been changed since.
std::string hub_id(const ModelSpec& model);

/// Whether the file of its id is of a class with towers that AutoModelForCausalLM does not have (transformers
/// 5.24.0, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES).
bool has_another_class_on_the_hub(const ModelSpec& model);

/// Whether a training script adds the plan's balance loss of experts. transformers adds it only if
/// config.json has output_router_logits, and no file on the hub has it.
enum class BalanceLoss { left_to_framework, trained };

/// Adds config.json to the files if the hub has no such model, or not with its balance loss. Adds a warning
/// if no class has it. Returns the model's name in the files: its hub id, or the name of that file.
std::string add_hugging_face_model(const ModelSpec& model, const std::string& framework, Exported& exported,
                                   BalanceLoss balance = BalanceLoss::left_to_framework);

/// Sets the model that `reference` names in a file of `folder`: a known hub id, or a config.json. Without a
/// reference the folder's config.json is read. Notes unknown models.
void set_hugging_face_model(Imported& in, const std::string& reference, const std::filesystem::path& folder);

}  // namespace mpt::frameworks
