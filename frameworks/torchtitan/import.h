// SPDX-License-Identifier: Apache-2.0
#pragma once

// What both forms of torchtitan's configuration share: TOML until 0.2, Python since 0.3.

#include <string>
#include <vector>

#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

Imported import_torchtitan_toml(const std::filesystem::path& file);
/// `function`: the one that returns the configuration; empty: the last.
Imported import_torchtitan_python(const std::filesystem::path& file, const std::string& function = "");

/// A number, or 0 for -1, which leaves it open.
int64_t number_or_open(const Settings& config, const std::string& key, const FieldRule& rule);

/// Degrees of tensor, context, pipeline, expert and data parallelism, with a note on a file that asks for
/// deterministic kernels. Throws UserError.
void set_titan_degrees(const Settings& config, Imported& in);

/// Precision of a file without products in 8 bits.
Precision titan_plain_precision(const Settings& config);

/// Sequence and batch where the file counts sequences of a rank; without a global batch each rank takes its
/// local one once.
void set_titan_sequences(const Settings& config, Imported& in);

/// The model of that name and flavor; nothing where it is not known, and `in` says which that is.
std::optional<ModelSpec> titan_model_named(const std::string& name, const std::string& flavor, Imported& in);

struct TitanPipeline {
  std::string schedule = "1F1B";  // as PyTorch calls it
  bool has_csv = false;           // whose file is not read, or not known
  std::vector<int64_t> layers;    // of module_fqns_per_model_part; empty: not given
  int64_t layers_per_stage = 0;   // 0: not given
  int64_t less_first = 1, less_last = 1;
};

TitanPipeline titan_pipeline(const Settings& config);

/// Schedule, chunks and stages of a layout whose pipeline degree is set, stages by torchtitan's rule where no
/// list names them. Throws UserError at `where` for numbers that torchtitan refuses.
void set_titan_pipeline(Imported& in, const TitanPipeline& pipeline, const std::string& where);

}  // namespace mpt::frameworks
