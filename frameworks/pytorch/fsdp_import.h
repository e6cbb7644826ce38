// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the imports of frameworks on PyTorch's FSDP share.

#include <string>

#include "frameworks/import.h"

namespace mpt::frameworks {

struct FsdpRanks {
  int64_t replicate = 1;
  int64_t shard = 0;    // 0: what the ranks leave
  bool reshard = true;  // after a layer's forward
};

/// Data-parallel degree, ZeRO stage and shares of an imported layout, whose context degree is set; and the
/// communication that FSDP runs beside compute. Throws UserError for more ranks than there are.
void set_fsdp(Imported& in, const FsdpRanks& ranks, const std::string& file);

/// "bf16", as in a plan. Throws UserError.
Precision precision_named(const std::string& name, const std::string& where);

/// Where a rank spreads experts, each is whole; else experts are split as the dense layers are.
void set_whole_experts(Layout& layout);

/// Stages by numbers of layers: sets chunks, and checks the number of stages. Empty: even ones of `chunks`.
void set_stages(Imported& in, const std::vector<int64_t>& layers, const std::string& where);

}  // namespace mpt::frameworks
