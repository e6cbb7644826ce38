// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan.h"
#include "runtime/data/dataset.h"

namespace mpt::test {

/// A text file as the data of a plan.
inline runtime::Dataset make_dataset(const std::string& file, const Plan& plan, uint64_t seed) {
  runtime::DatasetOptions options;
  options.parts = {{1.0, {file}}};
  options.format = runtime::DataFormat::text;  // of any vocabulary
  options.sequence = plan.workload.sequence;
  options.vocab = plan.model.vocab;
  options.further = plan.model.next_token_layers;
  options.seed = seed;
  return runtime::Dataset(options, runtime::DataSplit::training);
}

}  // namespace mpt::test
