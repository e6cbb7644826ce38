// SPDX-License-Identifier: Apache-2.0

// The options that mpt-plan's commands share, in the order of their help. Those of a request come from its
// field list.

#include <CLI/CLI.hpp>
#include <map>

#include "base/command_line.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/words.h"
#include "core/schedule_catalog.h"
#include "planner/commands/command_line.h"
#include "planner/observe/observed_run.h"
#include "planner/request/resolve.h"

namespace mpt::planner {
namespace {

constexpr const char* kLayout = "Layout";

// The values that an estimate uses for bounds that are not given.
const std::map<std::string, const char*>& usual_values() {
  static const std::map<std::string, const char*> usual{
#include "generated/UsualValues.inc"
  };
  return usual;
}

// Options with a second name.
std::string option_names(const std::string& field) {
  return field == "gpus" ? "--gpus,--ranks" : option_of(field);
}
std::string described(const std::string& field, const char* doc) {
  if (field != "schedule") return doc;
  return fmt::format("{}: {}", doc, joined(schedule_names(), ", "));
}

// Visitor that declares an option for each field that is one.
template <class T>
struct Declarer {
  CLI::App& app;
  PlanRequest& request;
  T& target;
  bool searches = false;    // ranks several layouts, too
  bool one_layout = false;  // bounds have one value each

  template <class M>
  void field(const char* name, M T::*member, const char* doc, FieldRule rule) {
    const bool is_output = rule.heading == headings::kOutput || rule.heading == headings::kMoreOutput;
    if (rule.heading == nullptr || (is_output && !searches)) return;
    const std::string field = name;
    using E = typename detail::ElementOf<M>::type;
    if constexpr (std::is_class_v<E> && !std::is_same_v<E, std::string>) {
      return;  // no word can express a whole struct
    } else if constexpr (std::is_same_v<M, bool>) {
      app.add_flag(option_names(field), target.*member, doc)->group(rule.heading);
    } else {
      constexpr bool is_list = is_a<M, std::vector>;
      const auto read = [&to = request, field, one = one_layout](const CLI::results_t& words) {
        set_option(to, option_of(field).substr(2), joined(words, ","), one);
        return true;
      };
      std::string what = described(field, doc);
      if (one_layout) what += fmt::format(" (default: {})", usual_values().at(field));
      CLI::Option* option = app.add_option(option_names(field), read, what)
                                ->type_name(rule.placeholder)
                                ->group(one_layout ? kLayout : rule.heading);
      option->expected(1);
      if (is_list && !one_layout) option->expected(1, CLI::detail::expected_max_vector_size)->delimiter(',');
      if (is_list && !one_layout) option->allow_extra_args(false);
    }
  }
  template <class M, class Other>
  void field(const char*, M Other::*, const char*, FieldRule) {}
};

}  // namespace

void declare_problem(CLI::App& app, PlanRequest& request, bool searches) {
  Declarer<PlanRequest> declarer{app, request, request, searches};
  PlanRequest::describe(declarer);
}

void declare_bounds(CLI::App& app, PlanRequest& request) {
  Declarer<SearchBounds> declarer{app, request, request.bounds};
  SearchBounds::describe(declarer);
}

void declare_layout(CLI::App& app, PlanRequest& request) {
  Declarer<SearchBounds> declarer{app, request, request.bounds, false, true};
  SearchBounds::describe(declarer);
}

void declare_observed(CLI::App& app, PlanOptions& o) {
#include "generated/RunOfPlanOptions.inc"
}

void read_runs(PlanOptions& o, const std::string& plan) {
  for (const std::string& word : o.observed)
    for (ObservedRun& run : read_observed(word, "--observed", plan))
      o.request.observed.push_back(std::move(run));
}

void declare_request_file(CLI::App& app, PlanOptions& o) {
  app.add_option_function<std::string>(
         "--request",
         [&o](const std::string& file) {
           o.request = load_request(file);
           o.request_file = file;
         },
         "A request or plan to answer; other options change it (docs/requests.md)")
      ->type_name("FILE")
      ->trigger_on_parse()
      ->group(headings::kWhat);
#include "generated/PrintRequestOptions.inc"
}

void declare_outputs(CLI::App& app, OutputOptions& o) {
#include "generated/PlanFileOptions.inc"
}

void declare_cost(CLI::App& app, CostOptions& o) {
  const auto read_tokens = [&o](const std::vector<std::string>& words, const std::string& option) {
    o.tokens = words.back();
    parse_count(o.tokens, option);  // throws before the work, not after it
  };
#include "generated/PriceOptions.inc"
}

void declare(CLI::App& app, PlanOptions& o) {
  declare_request_file(app, o);
  declare_problem(app, o.request, true);
  declare_bounds(app, o.request);
  declare_outputs(app, o.out);
  declare_cost(app, o.cost);
  declare_observed(app, o);
#include "generated/SimulateOptions.inc"
}

void declare_known(CLI::App& app, std::string& plan, std::string& profile, std::string& kernels) {
#include "generated/KnownPlanOptions.inc"
}

void refuse_beside(const CLI::App& app, const std::string& option, const std::string& why,
                   const std::function<bool(const CLI::Option&)>& excludes) {
  for (const CLI::Option* other : app.get_options()) {
    const std::string name = other->get_name();
    if (other->count() == 0 || name == option || !excludes(*other)) continue;
    refuse_input(option, "excludes " + name, "one or the other", fmt::format("leave {} out: {}", name, why));
  }
}

void check_from(const CLI::App& app, const PlanOptions& o) {
  if (o.from.empty()) return;
  const std::vector<std::string> beside{"--output", "--report", "--trace", "--json", "--verbose"};
  refuse_beside(app, "--from", "a plan holds its model, cluster and layout",
                [&](const CLI::Option& other) { return !contains(beside, other.get_name()); });
}

}  // namespace mpt::planner
