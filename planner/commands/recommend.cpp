// SPDX-License-Identifier: Apache-2.0

// mpt-plan recommend: chooses an offer of GPUs, and the number of nodes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "base/quantity.h"
#include "base/text.h"
#include "frameworks/readers/yaml_file.h"
#include "planner/answer/forward.h"
#include "planner/commands/commands.h"

namespace mpt::planner {
namespace {

struct RecommendOptions {
  PlanOptions base;
  ForwardQuestion question;
  std::vector<std::string> clusters;
  std::vector<double> prices;
  std::string offers;
};

double parse_days(const std::string& text, const std::string& option) {
  constexpr std::pair<std::string_view, double> units[] = {{"h", 1.0 / 24}, {"d", 1}, {"w", 7}};
  const auto [value, length] = leading_number(text);
  for (const auto& [unit, days] : units)
    if (value > 0.0 && value * days <= 1e6 && text.substr(length) == unit) return value * days;
  refuse_input(option, "\"" + text.substr(0, 40) + "\"", "days, weeks or hours, such as 14d, 2w or 36h");
}

// "dgx-h100:16": at most 16 such nodes.
Offer offer_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string nodes = colon == std::string::npos ? "" : text.substr(colon + 1);
  Offer offer{"", text.substr(0, colon), number_of<int64_t>(nodes).value_or(0), 0.0};
  if (offer.nodes < 1 || offer.nodes > 1'000'000)
    refuse_input("--cluster " + text, "no number of nodes", "how many of these nodes there are at most",
                 "for example --cluster dgx-h100:16");
  return offer;
}

std::vector<Offer> read_offers(const RecommendOptions& o) {
  std::vector<Offer> offers;
  if (!o.offers.empty()) {
    Json json = frameworks::read_yaml(o.offers);
    if (json.is_object() && json.size() == 1 && json.contains("offers")) json = Json(json["offers"]);
    offers = from_json<std::vector<Offer>>(json, o.offers);
  }
  if (o.prices.size() > 1 && o.prices.size() != o.clusters.size())
    refuse_input("--price", fmt::format("{} prices for {} clusters", o.prices.size(), o.clusters.size()),
                 "one for all, or one for each cluster in their order", "for example --price 2.5");
  for (size_t n = 0; n < o.clusters.size(); ++n) {
    offers.push_back(offer_of(o.clusters[n]));
    if (!o.prices.empty()) offers.back().price = o.prices[o.prices.size() == 1 ? 0 : n];
  }
  if (offers.empty())
    refuse_input("command line", "no GPUs are offered", "--cluster dgx-h100:16 or --offers FILE",
                 "see --help");
  for (Offer& offer : offers)
    if (offer.name.empty()) offer.name = offer.cluster;
  return offers;
}

void run(RecommendOptions& o) {
  o.question.request = o.base.request;
  o.question.offers = read_offers(o);
  for (const Offer& offer : o.question.offers) {  // errors before the work
    PlanRequest request = o.base.request;
    request.cluster = {fmt::format("{}:{}", offer.cluster, offer.nodes), {}};
    resolve_and_tell(request);
  }
  const ForwardAnswer answer = [&] {
    const Stoppable stoppable;
    return forward(o.question, progress_line());
  }();
  if (o.base.out.json) {
    fmt::print("{}\n", forward_json(answer).dump(1));
    return;
  }
  fmt::print("{}", describe_forward(o.question, answer));
  if (!answer.chosen) return;
  const ForwardPoint& p = answer.points[*answer.chosen];
  fmt::print(
      "{}",
      describe_next({{fmt::format("{} --cluster {} -o plan.json", o.base.again, p.cluster), "this plan"}}));
}

}  // namespace

std::function<int()> add_recommend(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "recommend", "Which GPUs, and how many, train a model by a date, for a budget, or at all");
  auto o = std::make_shared<RecommendOptions>();
  declare_problem(*command, o->base.request);
  for (const char* replaced : {"--cluster", "--gpus"}) command->remove_option(command->get_option(replaced));
#include "generated/OfferOptions.inc"
  constexpr const char* kGoal = "What is wanted (default: the fewest GPUs)";
  const auto add_goal = [&](const char* name, const char* what, double& value,
                            double (*read)(const std::string&, const std::string&), const char* unit) {
    add_reader(*command, name, what,
               [&value, read](const std::vector<std::string>& words, const std::string& option) {
                 value = read(words.back(), option);
               })
        ->type_name(unit)
        ->group(kGoal);
  };
  const auto count = [](const std::string& text, const std::string& option) {
    return parse_count(text, option);
  };
  add_goal("--tokens", "Tokens of the whole training, such as 1T", o->question.tokens, count, "COUNT");
  add_goal("--by", "Time that there is, such as 14d, 2w or 36h: the cheapest in time is looked for",
           o->question.days, parse_days, "TIME");
  add_goal("--budget", "What the training may cost, such as 100k: without --by the fastest is looked for",
           o->question.budget, count, "MONEY");
#include "generated/FailureOptions.inc"
  declare_bounds(*command, o->base.request);
  command->add_flag("--json", o->base.out.json, "Print the answer as JSON")->group(headings::kOutput);
  return done_by([command, o] {
    o->base.again =
        command_again(*command, "mpt-plan",
                      {"--cluster", "--offers", "--price", "--tokens", "--by", "--budget", "--json",
                       "--failure-hours", "--restart", "--checkpoint", "--spare-nodes"});
    run(*o);
  });
}

}  // namespace mpt::planner
