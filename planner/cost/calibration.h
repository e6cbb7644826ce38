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
  std::string name;
  double value = 0.0;
  std::string unit;
  std::vector<double> range;  // least and most plausible value, which limit a fit
  ConstantOrigin origin = ConstantOrigin::measured;
  std::string meaning, source;
  std::vector<std::string> fitted_to;  // families of published runs; empty if it was not fitted
  // For fitted constants: families with the steps that depend on it most, and their other properties.
  std::vector<std::string> decided_by;
  std::string apart;

  double least() const { return range.front(); }
  double most() const { return range.back(); }

  static void describe(auto& v) {
    using T = Constant;
    v.field("name", &T::name, "as in Calibration");
    v.field("value", &T::value, "in its unit");
    v.field("unit", &T::unit, "of value and range");
    v.field("range", &T::range, "least and most that are plausible");
    v.field("origin", &T::origin, "measured, literature or fitted");
    v.field("meaning", &T::meaning, "what it is", long_text());
    v.field("source", &T::source, "where the value is from, and why it is plausible", long_text());
    v.field("fitted_to", &T::fitted_to, "families of published runs", optional_field());
    v.field("decided_by", &T::decided_by, "families whose steps depend on it most (benchmarks/constants.py)",
            optional_field());
    v.field("apart", &T::apart, "what else these runs have alone, and what runs without it tell",
            optional_field(long_text()));
  }
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
