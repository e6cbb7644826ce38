// SPDX-License-Identifier: Apache-2.0
#include "planner/recipes/check_report.h"

#include <cctype>

#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/version.h"
#include "reports/html.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

constexpr int kCheckVersion = 1;
constexpr const char* kSarifSchema =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

std::string explanation(const CheckedRecipe& c) {
  return c.remedy.empty() ? c.reason : fmt::format("{}: {}", c.reason, c.remedy);
}

size_t count_of(const CheckReport& report, RecipeVerdict verdict) {
  return size_t(std::count_if(report.recipes.begin(), report.recipes.end(),
                              [&](const CheckedRecipe& c) { return c.verdict == verdict; }));
}

std::string summary(const CheckReport& report) {
  const size_t all = report.recipes.size();
  std::string text = fmt::format("{} {} on {}: {} fit", all, all == 1 ? "recipe" : "recipes", report.cluster,
                                 count_of(report, RecipeVerdict::fits));
  for (const RecipeVerdict verdict : {RecipeVerdict::illegal, RecipeVerdict::does_not_fit,
                                      RecipeVerdict::cannot_judge, RecipeVerdict::not_read}) {
    if (const size_t count = count_of(report, verdict); count > 0)
      text +=
          fmt::format(", {} {}", count,
                      verdict == RecipeVerdict::does_not_fit && count > 1 ? "do not fit" : words_of(verdict));
  }
  text += ".";
  if (!report.others.empty())
    text += fmt::format(" {} {} without a recipe.", report.others.size(),
                        report.others.size() == 1 ? "file" : "files");
  return text;
}

reports::Table check_table(const CheckReport& report) {
  std::vector<reports::Column> columns = reports::columns(
      {"<recipe", "<verdict", "<framework", "<layout", "GPUs", "step time", "idle", "memory"});
  if (!report.base.empty()) columns.push_back({"against the base", reports::Align::left});
  reports::Table table(columns);
  for (const CheckedRecipe& c : report.recipes) {
    const bool priced = c.step_time_s > 0.0;
    std::vector<std::string> row{c.recipe,
                                 words_of(c.verdict),
                                 c.framework,
                                 c.layout.empty() ? "-" : c.layout,
                                 c.gpus > 0 ? format_count(c.gpus) : "-",
                                 priced ? format_seconds(c.step_time_s) : "-",
                                 priced ? format_percent(c.idle_share) : "-",
                                 priced ? format_bytes(double(c.peak_bytes)) : "-"};
    if (!report.base.empty()) row.push_back(c.change.empty() ? "same" : c.change);
    table.add_row(std::move(row));
  }
  return table;
}

// URI of a path, which may contain any byte.
std::string uri_of(const std::string& path) {
  static const std::string kPlain = "-._~/";
  std::string uri;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || kPlain.find(c) != std::string::npos;
    uri += plain && byte < 0x80 ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return path.starts_with('/') ? "file://" + uri : uri;
}

std::string junit_case(const CheckedRecipe& c) {
  const std::string head = fmt::format("    <testcase classname=\"{}\" name=\"{}\"",
                                       reports::escape_html(c.framework), reports::escape_html(c.recipe));
  if (c.verdict == RecipeVerdict::fits) {
    const auto costs = fmt::format("{}, {} per step, {} of {}", c.layout, format_seconds(c.step_time_s),
                                   format_bytes(double(c.peak_bytes)), format_bytes(double(c.limit_bytes)));
    return head + fmt::format(">\n      <system-out>{}{}</system-out>\n    </testcase>\n",
                              reports::escape_html(costs),
                              c.change.empty() ? "" : reports::escape_html("; " + c.change));
  }
  const char* const element = c.verdict >= RecipeVerdict::cannot_judge ? "error" : "failure";
  return head + fmt::format(">\n      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n    </testcase>\n",
                            element, enum_name(c.verdict), reports::escape_html(c.reason),
                            reports::escape_html(explanation(c)));
}

struct SarifRule {
  const char *id, *text, *level;
};
constexpr SarifRule kSarifRules[] = {
#include "generated/SarifRules.inc"
};

// Index of the SARIF rule; nothing for recipes that need no result.
std::optional<size_t> rule_of_recipe(const CheckedRecipe& c) {
  if (c.verdict == RecipeVerdict::illegal) return 0;
  if (c.verdict == RecipeVerdict::does_not_fit) return 1;
  if (c.verdict >= RecipeVerdict::cannot_judge) return 2;
  if (c.change.starts_with('+') && c.change.find("% step time") != std::string::npos) return 3;
  return std::nullopt;
}

Json sarif_result(const CheckedRecipe& c, size_t rule) {
  const std::string text = c.verdict == RecipeVerdict::fits ? c.change : explanation(c);
  return Json{{"ruleId", kSarifRules[rule].id},
              {"ruleIndex", rule},
              {"level", kSarifRules[rule].level},
              {"message", {{"text", printable(fmt::format("{}: {}", c.recipe, text))}}},
              {"locations", Json::array({Json{{"physicalLocation",
                                               {{"artifactLocation", {{"uri", uri_of(c.file.string())}}},
                                                {"region", {{"startLine", 1}}}}}}})},
              {"partialFingerprints", {{"recipe/v1", printable(c.recipe) + " " + kSarifRules[rule].id}}}};
}

Json sarif_driver() {
  Json rules = Json::array();
  for (const SarifRule& rule : kSarifRules)
    rules.push_back({{"id", rule.id},
                     {"shortDescription", {{"text", rule.text}}},
                     {"defaultConfiguration", {{"level", rule.level}}}});
  return Json{{"name", "mpt-plan check"}, {"version", kVersion}, {"rules", std::move(rules)}};
}

}  // namespace

std::string check_screen(const CheckReport& report, bool verbose) {
  std::string text;
  if (!report.recipes.empty()) text += check_table(report).text() + "\n";
  for (const CheckedRecipe& c : report.recipes) {
    if (c.verdict != RecipeVerdict::fits)
      text += wrapped(printable(fmt::format("{}: {}: {}", c.recipe, words_of(c.verdict), explanation(c))));
    if (!verbose) continue;
    for (const std::string& note : c.notes) text += wrapped(printable(c.recipe + ": note: " + note));
  }
  for (const std::string& name : report.removed) text += wrapped(printable(name + ": removed"));
  for (const auto& file : report.others)
    if (verbose) text += printable(file.string()) + ": no recipe\n";
  return text + wrapped(printable(summary(report)));
}

std::string junit_text(const CheckReport& report) {
  const size_t errors =
      count_of(report, RecipeVerdict::cannot_judge) + count_of(report, RecipeVerdict::not_read);
  const size_t failures =
      count_of(report, RecipeVerdict::illegal) + count_of(report, RecipeVerdict::does_not_fit);
  const auto cases = sum_of<std::string>(report.recipes, junit_case);
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\"", report.recipes.size(), failures, errors);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {0}>\n  <testsuite name=\"mpt-plan check\" "
      "{0} skipped=\"0\">\n{1}  </testsuite>\n</testsuites>\n",
      counts, cases);
}

std::string sarif_text(const CheckReport& report) {
  Json results = Json::array();
  for (const CheckedRecipe& c : report.recipes)
    if (const auto rule = rule_of_recipe(c)) results.push_back(sarif_result(c, *rule));
  const Json run{{"tool", {{"driver", sarif_driver()}}}, {"results", std::move(results)}};
  return json_text(Json{{"$schema", kSarifSchema}, {"version", "2.1.0"}, {"runs", Json::array({run})}}, 1) +
         "\n";
}

std::string check_json_text(const CheckReport& report) {
  Json json{{"format", "mpt-plan-check"}, {"version", kCheckVersion}, {"cluster", report.cluster}};
  if (!report.base.empty()) json["base"] = report.base;
  json["counts"] = Json::object();
  for (const auto& [verdict, name] : EnumNames<RecipeVerdict>::table())
    json["counts"][name] = count_of(report, verdict);
  json["recipes"] = to_json(report.recipes);
  json["removed"] = report.removed;
  json["others"] = Json::array();
  for (const std::filesystem::path& file : report.others) json["others"].push_back(file.string());
  return json_text(json, 1) + "\n";
}

}  // namespace mpt::planner
