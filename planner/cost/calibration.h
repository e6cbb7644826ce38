// SPDX-License-Identifier: Apache-2.0
#pragma once

// The numbers of the cost model that no kernel table holds. They are only in planner/cost/calibration.json,
// which is built in. It has unit, plausible range, origin and source of each.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// How a constant was found. measured: somebody measured exactly this. literature: documents or sources state
/// it, or it was counted in them. fitted: chosen by the error of predictions of published runs.
enum class ConstantOrigin { measured, literature, fitted };

}  // namespace mpt

namespace mpt::planner {

/// One constant of the file.
struct Constant {
#include "generated/Constant.inc"

  double least() const { return range.front(); }
  double most() const { return range.back(); }
};

/// Reads such a file. Throws UserError if a constant is missing or invalid.
std::vector<Constant> constants_from_text(const std::string& text, const std::string& file);
/// The constants of the file, in its order.
const std::vector<Constant>& constants();

/// The values, as prices read them. All are 0 before reading: take shipped_calibration() and change it.
struct Calibration {
#include "generated/calibration_fields.inc"  // written by cmake/constants.cmake: a double for each constant

  using Member = std::pair<const char*, double Calibration::*>;
  static std::span<const Member> members();

  /// Values outside their ranges are refused.
  static void describe(auto& v);
};

/// The values of the file.
const Calibration& shipped_calibration();
/// The values of the file, with changes by name from the JSON object in `file`. Throws UserError.
Calibration load_calibration(const std::string& file);

void Calibration::describe(auto& v) {
  for (size_t i = 0; i < members().size(); ++i) {
    const auto& [name, member] = members()[i];
    const Constant& c = constants()[i];
    v.field(name, member, c.meaning.c_str(), between(c.least(), c.most()));
  }
}

}  // namespace mpt::planner
