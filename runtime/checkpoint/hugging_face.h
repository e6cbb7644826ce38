// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weights in Hugging Face's form: config.json, and model.safetensors or its shards with
// model.safetensors.index.json. They can be read into any layout, and written from any checkpoint.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/hf_weights.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_source.h"

namespace mpt::runtime {

class HuggingFaceWeights final : public TensorSource {
 public:
  /// Opens the weights of `model` in `folder`. Throws UserError if there are none, or if one is missing or
  /// has another shape. All next-token modules may be missing: transformers writes none.
  HuggingFaceWeights(const std::filesystem::path& folder, const ModelSpec& model);

  /// Moments are not published: asking for one is a UserError.
  void read(TensorKind kind, const std::string& name, const ShardBlock& block, double* out) const override;
  bool lacks(const std::string& name) const override { return lacking_.contains(name); }
  bool lacks_modules() const { return !lacking_.empty(); }
  /// The model's tensors under the folder's names.
  const std::vector<models::HuggingFaceTensor>& tensors() const { return tensors_; }

 private:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
    std::string name;
  };
  struct Placed {
    models::HuggingFaceTensor tensor;
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  std::optional<Place> find(const std::string& source) const;
  void place(const models::HuggingFaceTensor& tensor);
  static void read_part(const Placed& placed, const ShardBlock& part, double* to);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<models::HuggingFaceTensor> tensors_;
  std::map<std::string, std::vector<Placed>> placed_;  // by MPT's name
  std::set<std::string> lacking_;                      // MPT's names of weights that no module there has
};

struct HuggingFaceExport {
  std::optional<DataType> type{};          // none: that of `like`, else float32
  int64_t shard_bytes = int64_t{5} << 30;  // transformers' own limit of a file
  // A Hugging Face folder. The export gets its tokenizer, generation_config.json and numbers of special
  // tokens. Empty: none.
  std::filesystem::path like{};
  std::filesystem::path tokenizer{};  // a tokenizer.json in the place of that one
};

/// Writes the weights of `model` from `source` into a new `folder`. Throws UserError if the folder holds
/// weights already, RunError if it cannot be written. Returns the files written.
std::vector<std::filesystem::path> export_hugging_face(const TensorSource& source, const ModelSpec& model,
                                                       const std::filesystem::path& folder,
                                                       HuggingFaceExport options);

}  // namespace mpt::runtime
