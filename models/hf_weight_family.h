// SPDX-License-Identifier: Apache-2.0
#pragma once

// WeightFamily: the Hugging Face architecture whose weights a model has, by what its layers are made of.

#include "core/model_spec.h"

namespace mpt::models {

enum class WeightFamily {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  mixtral,
  qwen2_moe,
  qwen3_moe,
  qwen3_next,
  qwen3_5_text,
  smollm3,
  gemma,
  gemma2,
  gemma3_text,
  olmo2,
  olmo3,
  glm4_moe,
  gpt_oss,
  granite,
  deepseek_v2,
  deepseek_v3
};

/// Throws UserError if no family of Hugging Face is like it.
WeightFamily weight_family_of(const ModelSpec& model);

}  // namespace mpt::models
