// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mpt::frameworks {

/// Size of the embedding of the models that `tokenizer`, an id on the Hugging Face hub or a folder of that
/// name, comes with. Nothing where it is not known.
std::optional<int64_t> vocabulary_of_tokenizer(const std::string& tokenizer);

}  // namespace mpt::frameworks
