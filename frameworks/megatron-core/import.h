// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the imports of Megatron-LM and Megatron-Bridge: both end in the same settings.

#include <string>
#include <vector>

#include "frameworks/import.h"
#include "frameworks/megatron-core/flags.h"

namespace mpt::frameworks {

/// The model that the flags describe, in the dialect of a framework. Throws UserError for models other than
/// plain decoders, and for values that cannot be read. Adds a note for each setting that a ModelSpec does not
/// hold.
ModelSpec megatron_model(const MegatronFlags& flags, const std::string& framework,
                         std::vector<std::string>& notes);

/// Model, layout, batch and other settings that change memory and time. Without `model` the flags describe
/// the model.
Imported megatron_import(const MegatronFlags& flags, const std::string& framework,
                         std::optional<ModelSpec> model = std::nullopt);

/// The size of the embedding in the models of `tokenizer`, an id on the Hugging Face hub or a folder of that
/// name. Nothing if it is not known.
std::optional<int64_t> vocabulary_of_tokenizer(const std::string& tokenizer);

/// The tokenizer, if neither flags nor MPT know its size; empty if the size of the vocabulary is known.
std::string open_vocabulary(const MegatronFlags& flags);

}  // namespace mpt::frameworks
