// SPDX-License-Identifier: Apache-2.0
#pragma once

// PlanRequest: all that a user can ask of the planner, and nothing else. Its field list is the JSON of
// --request, the options of mpt-plan, the schema and the page docs/requests.md. planner/api.h answers it.

#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/cluster_spec.h"
#include "core/layout.h"
#include "core/model_spec.h"

namespace mpt {

enum class Switch { off, on };
/// each: a token is sent once for every expert that it goes to. once: once for every GPU or node.
enum class Dispatch { each, once };

/// Headings of the options. Groups that begin with "More" are shown by --help-all alone.
namespace headings {
inline constexpr const char* kWhat = "What to train";
inline constexpr const char* kMoreWhat = "More about what runs the plan";
inline constexpr const char* kWhere = "Where";
inline constexpr const char* kMoreWhere = "More about where";
inline constexpr const char* kRestrict =
    "Restrict the search, values separated by commas (default: everything)";
inline constexpr const char* kMoreRestrict = "More limits of the search";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kMoreOutput = "More output";
}  // namespace headings

/// Values that a degree or switch of the layout may take; empty: every value.
struct SearchBounds {
#include "generated/SearchBounds.inc"
};

/// Limit on the sequences of a step, and on the tokens of a sequence.
inline constexpr int64_t kMostSequences = int64_t{1} << 28;

/// Measurements of a run. Fields that it leaves out are as in the request.
struct ObservedRun {
#include "generated/ObservedRun.inc"
};

struct PlanRequest {
#include "generated/PlanRequest.inc"
};

/// Reads a request, or the one that a plan of format "mpt-plan" answers. Throws UserError with every problem.
PlanRequest load_request(const std::string& file);
std::string request_to_text(const PlanRequest& request);

}  // namespace mpt
