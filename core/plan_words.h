// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layouts, confidence and the proof of a search in words.

#include <optional>
#include <string>
#include <vector>

#include "core/confidence.h"
#include "core/layout.h"
#include "core/plan.h"

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

/// "97%", rounded down; "over 99%".
std::string describe_likelihood(double probability);
/// "26.9 to 31.4 s"; empty where no run tells.
std::string describe_range(const Confidence& confidence);

/// One sentence: what became of every layout of the search, and how far a plan of `step_time_s` is from the
/// fastest. `waited_s`: how long somebody waited for the answer, said in place of what the search took.
std::string describe_certificate(const SearchCertificate& certificate, double step_time_s,
                                 std::optional<double> waited_s = {});

}  // namespace mpt
