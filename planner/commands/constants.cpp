// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/constants.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

// The constants of the cost model, as Calibration describes them.
class ConstantLister {
 public:
  explicit ConstantLister(const Calibration& values) : values_(values) {}
  void field(const char* name, double Calibration::*member, const char* meaning, const FieldRule& rule) {
    list_[name] = {
        {"value", values_.*member}, {"least", rule.minimum}, {"most", rule.maximum}, {"meaning", meaning}};
  }
  const Json& list() const { return list_; }

 private:
  const Calibration& values_;
  Json list_ = Json::object();
};

}  // namespace

int print_constants(const Calibration& calibration, bool json) {
  ConstantLister lister(calibration);
  Calibration::describe(lister);
  if (json) {
    fmt::print("{}\n", lister.list().dump(1));
    return kExitOk;
  }
  reports::Table table({{"constant", reports::Align::left},
                        {"value"},
                        {"plausible", reports::Align::left},
                        {"meaning", reports::Align::left}});
  for (const auto& [name, c] : lister.list().items()) {
    const auto number = [&c = c](const char* key) { return fmt::format("{:.4g}", c[key].get<double>()); };
    table.add_row(
        {name, number("value"), number("least") + " to " + number("most"), c["meaning"].get<std::string>()});
  }
  fmt::print("{}", table.text());
  return kExitOk;
}

}  // namespace mpt::planner
