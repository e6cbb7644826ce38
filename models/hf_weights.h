// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names and shapes of weights in Hugging Face's published models, and of our weights. One table per weight
// serves both directions; "weights" in models/dialects/hugging_face.json has the properties of a family.
// transformers/models/{gpt2,llama,qwen2,qwen2_moe,qwen3,qwen3_next,qwen3_5,mixtral,gemma,gemma2,gemma3,
// smollm3,olmo2,olmo3,glm4_moe,gpt_oss,deepseek_v2,deepseek_v3}/modeling_*.py are the sources.

#include <functional>
#include <string>
#include <vector>

#include "core/model_spec.h"

namespace mpt::models {

/// Rows `row` .. `row` + `rows` of our weight [.., columns] are in the tensor `source`, which has `shape`.
/// The element of row r and column c is first + r row_stride + c column_stride. Entries with the same source
/// follow each other.
struct HuggingFaceTensor {
  std::string source;
  std::string name;
  int64_t row = 0, rows = 0, columns = 1;
  std::vector<int64_t> shape;
  int64_t first = 0, row_stride = 1, column_stride = 1;
  double added = 0.0;      // added to theirs to get ours: 1 if norms multiply by 1 + weight (Gemma)
  bool copy = false;       // the weight has another source, so a folder may lack this one
  bool of_module = false;  // of a next-token module

  int64_t element(int64_t r, int64_t c) const { return first + r * row_stride + c * column_stride; }
  /// Elements of the source.
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }
};

/// Whether a folder has a tensor of this name.
using HasTensor = std::function<bool(const std::string&)>;

/// Every tensor of the model, in model order. Throws UserError if no family of Hugging Face is like it.
/// Families of equal models may have one product where others have several. `has` selects the names that the
/// folder has; without it the names belong to hugging_face_config().
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelSpec& model, const HasTensor& has = nullptr);

/// The type that names the weights: the model's own type, or the first one that can describe the model.
/// Throws UserError as above.
std::string weight_type(const ModelSpec& model);

/// The config.json that belongs to these weights. Throws UserError as above.
std::string hugging_face_config(const ModelSpec& model);

}  // namespace mpt::models
