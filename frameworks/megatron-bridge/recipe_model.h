// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/model_spec.h"

namespace mpt::frameworks {

/// The zoo's model of the recipe that a file calls, llama3_8b_pretrain_config() or
/// llm.llama3_8b.pretrain_recipe(), or of an id on the Hugging Face hub.
std::optional<ModelSpec> model_of_recipe(const std::string& text);

}  // namespace mpt::frameworks
