// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names and shapes of weights in Hugging Face's published models, beside ours. One table per weight says both
// ways; transformers/models/{gpt2,llama,qwen2,qwen3,mixtral}/modeling_*.py are the sources.

#include <string>
#include <vector>

#include "core/model_spec.h"

namespace mpt::models {

/// Rows `row` .. `row` + `rows` of our weight [.., columns] are the tensor `source`: [rows, columns], or
/// [columns, rows] where it is transposed (GPT-2's Conv1D), or [rows] where columns is 1.
struct HuggingFaceTensor {
  std::string source;
  std::string name;
  int64_t row = 0, rows = 0, columns = 1;
  bool transposed = false;
};

/// Every tensor of the model, in model order. Throws UserError if no family of Hugging Face is like it.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelSpec& model);

/// The model as a config.json that transformers reads: import_hugging_face() gives the same ModelSpec back.
/// Throws UserError as above.
std::string hugging_face_config(const ModelSpec& model);

}  // namespace mpt::models
