// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/constants.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

std::string range_text(const Constant& c) { return fmt::format("{:.4g} to {:.4g}", c.least(), c.most()); }

}  // namespace

int print_constants(const Calibration& calibration, bool json) {
  std::vector<Constant> all = constants();
  for (size_t i = 0; i < all.size(); ++i) all[i].value = calibration.*Calibration::members()[i].second;
  if (json) {
    fmt::print("{}\n", to_json(all).dump(1));
    return kExitOk;
  }
  reports::Table table({{"constant", reports::Align::left},
                        {"value"},
                        {"unit", reports::Align::left},
                        {"plausible", reports::Align::left},
                        {"origin", reports::Align::left},
                        {"meaning", reports::Align::left}});
  for (const Constant& c : all) {
    table.add_row(
        {c.name, fmt::format("{:.4g}", c.value), c.unit, range_text(c), enum_name(c.origin), c.meaning});
  }
  fmt::print("{}", table.text());
  return kExitOk;
}

}  // namespace mpt::planner
