// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace mpt {

/// On GPUs the vocabulary of every tensor rank is padded to a multiple of this. Products with an odd number
/// of columns are several times slower there: their kernels load single elements.
inline constexpr int64_t kVocabularyMultipleOnGpus = 128;

}  // namespace mpt
