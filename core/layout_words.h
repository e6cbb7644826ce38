// SPDX-License-Identifier: Apache-2.0
#pragma once

// A layout in words, for people who do not read its short form (layout_name, docs/notation.md). The one home
// of these words: terminal and reports use it.

#include <string>
#include <vector>

#include "core/layout.h"

namespace mpt {

/// Its parts, such as "tensor parallel 4 with sequence parallel", "ZeRO 1"; never empty. `workload`: says how
/// many micro-batches there are; may be null.
std::vector<std::string> layout_words(const Layout& layout, const Workload* workload = nullptr);
/// The parts in one line, separated by commas.
std::string describe_layout_in_words(const Layout& layout, const Workload* workload = nullptr);
/// "no recompute", "recompute of up to 3 layers per stage", "selective recompute of core_attn".
std::string describe_recompute(const Layout& layout);
/// "10 layers a stage", "layers 9 10 10 9"; empty where they are not known yet.
std::string describe_layers_per_stage(const Layout& layout);

}  // namespace mpt
