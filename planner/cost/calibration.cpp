// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/calibration.h"

#include "base/json.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& calibration_files();  // generated

namespace {

// Members in the order of the file.
constexpr Calibration::Member kMembers[] = {
#include "generated/calibration_members.inc"
};

void check_constant(const Constant& c, const std::string& at, JsonProblems& problems) {
  if (c.range.size() != 2 || c.least() > c.most())
    problems.add(at + "/range", fmt::format("{} numbers", c.range.size()), "the least and the most");
  else if (c.value < c.least() || c.value > c.most())
    problems.add(at + "/value", fmt::format("{}", c.value), fmt::format("{} to {}", c.least(), c.most()));
  const bool fitted = c.origin == ConstantOrigin::fitted;
  if (fitted == c.fitted_to.empty())
    problems.add(at + "/fitted_to", fitted ? "nothing" : "runs",
                 fitted ? "the families that it was fitted to" : "nothing: only fitted constants have it");
  if (fitted == (c.decided_by.empty() || c.apart.empty()))
    problems.add(at + "/decided_by", fitted ? "nothing, or no \"apart\"" : "runs",
                 fitted ? "the families whose runs decide it, and what else sets these apart"
                        : "nothing: only fitted constants have it");
}

}  // namespace

std::vector<Constant> constants_from_text(const std::string& text, const std::string& file) {
  auto all = from_json<std::vector<Constant>>(parse_json(text, file), file);
  JsonProblems problems(file);
  for (size_t i = 0; i < std::max(all.size(), std::size(kMembers)); ++i) {
    const std::string at = fmt::format("/{}", i);
    const std::string expected = i < std::size(kMembers) ? kMembers[i].first : "no further constant";
    if (const std::string found = i < all.size() ? all[i].name : "nothing"; found != expected) {
      problems.add(at, found, expected, "name the constants in the order of planner/cost/calibration.json");
      break;
    }
    check_constant(all[i], at, problems);
  }
  problems.throw_if_any();
  return all;
}

const std::vector<Constant>& constants() {
  static const std::vector<Constant> all = [] {
    const auto& [file, text] = calibration_files().front();
    return constants_from_text(std::string(text), std::string(file));
  }();
  return all;
}

std::span<const Calibration::Member> Calibration::members() { return kMembers; }

const Calibration& shipped_calibration() {
  static const Calibration values = [] {
    Calibration c;
    for (size_t i = 0; i < constants().size(); ++i) c.*kMembers[i].second = constants()[i].value;
    return c;
  }();
  return values;
}

Calibration load_calibration(const std::string& file) {
  Json changes = load_json(file);
  if (!changes.is_object()) return from_json<Calibration>(changes, file);  // this refuses it
  Json whole = to_json(shipped_calibration());
  whole.update(changes);
  return from_json<Calibration>(whole, file);
}

}  // namespace mpt::planner
