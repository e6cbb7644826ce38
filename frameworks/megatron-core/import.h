// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the imports of Megatron-LM and Megatron-Bridge share: both end in the same settings.

#include <string>
#include <vector>

#include "frameworks/import.h"
#include "frameworks/megatron-core/flags.h"

namespace mpt::frameworks {

/// The model that the flags describe, in the dialect of a framework. Throws UserError for models that are no
/// plain decoders, and for values that cannot be read; adds a note for each setting that a ModelSpec does not
/// hold.
ModelSpec megatron_model(const MegatronFlags& flags, const std::string& framework,
                         std::vector<std::string>& notes);

/// Model, layout, batch and what else changes memory and time. The flags describe the model, unless one is
/// given.
Imported megatron_import(const MegatronFlags& flags, const std::string& framework,
                         std::optional<ModelSpec> model = std::nullopt);

/// Size of the embedding of the models that `tokenizer`, an id on the Hugging Face hub or a folder of that
/// name, comes with. Nothing where it is not known.
std::optional<int64_t> vocabulary_of_tokenizer(const std::string& tokenizer);

/// The tokenizer whose size nobody says and nobody knows; empty where the vocabulary is clear.
std::string open_vocabulary(const MegatronFlags& flags);

}  // namespace mpt::frameworks
