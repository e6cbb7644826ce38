// SPDX-License-Identifier: Apache-2.0

// mpt-plan recommend: chooses an offer of GPUs, and the number of nodes.

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

std::vector<Offer> read_offers(const RecommendOptions& o) {
  std::vector<Offer> offers;
  if (!o.offers.empty()) {
    Json json = frameworks::read_yaml(o.offers);
    if (json.is_object() && json.size() == 1 && json.contains("offers")) json = Json(json["offers"]);
    offers = from_json<std::vector<Offer>>(json, o.offers);
  }
  check_prices(o.prices, o.clusters.size());
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

int run(RecommendOptions& o) {
  o.question.request = o.base.request;
  o.question.offers = read_offers(o);
  for (const Offer& offer : o.question.offers) {  // errors before the work
    PlanRequest request = o.base.request;
    request.cluster = {cluster_of(offer, offer.nodes), {}};
    resolve_and_tell(request);
  }
  const ForwardAnswer answer = [&] {
    const Stoppable stoppable;
    return forward(o.question, progress_line());
  }();
  if (o.base.out.json) {
    fmt::print("{}\n", forward_json(answer).dump(1));
    return answer.chosen ? 0 : 4;
  }
  fmt::print("{}", describe_forward(o.question, answer));
  if (!answer.chosen) return 4;
  const ForwardPoint& p = answer.points[*answer.chosen];
  fmt::print(
      "{}",
      describe_next({{fmt::format("{} --cluster {} -o plan.json", o.base.again, p.cluster), "this plan"}}));
  return 0;
}

}  // namespace

std::function<int()> add_recommend(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "recommend", "Which GPUs, and how many, train a model by a date, for a budget, or at all");
  auto o = std::make_shared<RecommendOptions>();
  declare_problem(*command, o->base.request);
  for (const char* replaced : {"--cluster", "--gpus"}) command->remove_option(command->get_option(replaced));
#include "generated/OfferOptions.inc"
  const auto into = [](double& value, double (*read)(const std::string&, const std::string&)) {
    return [&value, read](const std::vector<std::string>& words, const std::string& option) {
      value = read(words.back(), option);
    };
  };
  const auto count = [](const std::string& text, const std::string& option) {
    return parse_count(text, option);
  };
#include "generated/FailureOptions.inc"
#include "generated/GoalOptions.inc"
  declare_bounds(*command, o->base.request);
#include "generated/RecommendOutputs.inc"
  return [command, o] {
    o->base.again =
        command_again(*command, "mpt-plan",
                      {"--cluster", "--offers", "--price", "--tokens", "--by", "--budget", "--json",
                       "--failure-hours", "--restart", "--checkpoint", "--spare-nodes"});
    return run(*o);
  };
}

}  // namespace mpt::planner
