// SPDX-License-Identifier: Apache-2.0

// mpt-plan recommend: chooses an offer of GPUs, and the number of nodes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>

#include "base/command_line.h"
#include "base/quantity.h"
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

struct TimeUnit {
  const char* name;
  double days;
};
constexpr TimeUnit kTimeUnits[] = {{"h", 1.0 / 24}, {"d", 1}, {"w", 7}};

double parse_days(const std::string& text, const std::string& option) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  for (const TimeUnit& unit : kTimeUnits) {
    if (error == std::errc() && value > 0.0 && value * unit.days <= 1e6 && end == &*text.end() - 1 &&
        text.back() == unit.name[0])
      return value * unit.days;
  }
  throw UserError(
      Problem{option, "\"" + text.substr(0, 40) + "\"", "days, weeks or hours, such as 14d, 2w or 36h", ""});
}

// "dgx-h100:16": at most 16 such nodes.
Offer offer_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  Offer offer{"", text.substr(0, colon), 0, 0.0};
  if (colon != std::string::npos)
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), offer.nodes);
  if (offer.nodes < 1 || offer.nodes > 1'000'000)
    throw UserError(Problem{"--cluster " + text, "no number of nodes",
                            "how many of these nodes there are at most",
                            "for example --cluster dgx-h100:16"});
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
    throw UserError(
        Problem{"--price", fmt::format("{} prices for {} clusters", o.prices.size(), o.clusters.size()),
                "one for all, or one for each cluster in their order", "for example --price 2.5"});
  for (size_t n = 0; n < o.clusters.size(); ++n) {
    offers.push_back(offer_of(o.clusters[n]));
    if (!o.prices.empty()) offers.back().price = o.prices[o.prices.size() == 1 ? 0 : n];
  }
  if (offers.empty())
    throw UserError(Problem{"command line", "no GPUs are offered", "--cluster dgx-h100:16 or --offers FILE",
                            "see --help"});
  for (Offer& offer : offers) {
    if (offer.name.empty()) offer.name = offer.cluster;
  }
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

void declare_failures(CLI::App& command, Failures& f) {
  const char* const group = "Failures, by Daly's model of checkpoints and restarts";
  add_number(command, "--failure-hours", f.device_hours, "GPU-hours between two failures", between(1.0, 1e12))
      ->group(group);
  add_number(command, "--restart", f.restart_s, "Seconds from a failure to the next step", between(0.0, 1e6))
      ->group(group);
  add_number(command, "--checkpoint", f.checkpoint_s, "Seconds for which training waits for a checkpoint",
             between(1e-3, 1e5))
      ->group(group);
  add_number(command, "--spare-nodes", f.spare_nodes, "Nodes that are paid for and wait", between(0.0, 1e6))
      ->group(group);
}

}  // namespace

std::function<int()> add_recommend(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "recommend", "Which GPUs, and how many, train a model by a date, for a budget, or at all");
  auto o = std::make_shared<RecommendOptions>();
  declare_problem(*command, o->base.request);
  for (const char* replaced : {"--cluster", "--gpus"}) command->remove_option(command->get_option(replaced));
  command->add_option("--cluster", o->clusters, "Nodes that can be had, such as dgx-h100:16,dgx-b200:8")
      ->delimiter(',')
      ->type_name("NODES")
      ->group("Where");
  command->add_option("--offers", o->offers, "File with such nodes: a list of name, cluster, nodes and price")
      ->type_name("FILE")
      ->group("Where");
  add_number(*command, "--price", o->prices,
             "Price of a GPU-hour, or one for each cluster, separated by commas", between(0.0, 1e6))
      ->delimiter(',')
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group("Where");
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
  declare_failures(*command, o->question.failures);
  declare_bounds(*command, o->base.request);
  command->add_flag("--json", o->base.out.json, "Print the answer as JSON")->group(headings::kOutput);
  command->footer(
      "Examples:\n"
      "  mpt-plan recommend --model llama3-8b --cluster dgx-h100:64 --price 2.5 --global-batch 512 \\\n"
      "      --tokens 1T --by 14d --budget 150k\n"
      "  mpt-plan recommend --model gpt-oss-120b --cluster dgx-h100:32 --global-batch 128");
  return done_by([command, o] {
    o->base.again =
        command_again(*command, "mpt-plan",
                      {"--cluster", "--offers", "--price", "--tokens", "--by", "--budget", "--json",
                       "--failure-hours", "--restart", "--checkpoint", "--spare-nodes"});
    run(*o);
  });
}

}  // namespace mpt::planner
