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

/// The parts of a layout, such as "tensor parallel 4 with sequence parallel", "ZeRO 1"; never empty. With a
/// `workload`, which may be null, the number of micro-batches is included.
std::vector<std::string> layout_words(const Layout& layout, const Workload* workload = nullptr);
/// The parts in one line, separated by commas.
std::string describe_layout_in_words(const Layout& layout, const Workload* workload = nullptr);
/// "no recompute", "recompute of up to 3 layers per stage", "selective recompute of core_attn".
std::string describe_recompute(const Layout& layout);
/// What waits in the host's memory, of a layout that offloads: "optimizer in host memory".
const char* describe_offload(const Layout& layout);
/// "10 layers a stage", "layers 9 10 10 9"; empty if they are not known yet.
std::string describe_layers_per_stage(const Layout& layout);

/// "97%", rounded down; "over 99%".
std::string describe_likelihood(double probability);
/// "26.9 to 31.4 s"; empty if no run supports a range.
std::string describe_range(const Confidence& confidence);

/// One sentence: the counts of the search, and the distance of a plan of `step_time_s` from the fastest.
/// `waited_s`: how long the user waited for the answer; it replaces the time of the search.
std::string describe_certificate(const SearchCertificate& certificate, double step_time_s,
                                 std::optional<double> waited_s = {});

}  // namespace mpt
