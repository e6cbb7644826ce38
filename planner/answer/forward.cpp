// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/forward.h"

#include "base/interruption.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/explain/confidence.h"
#include "planner/explain/utilisation.h"
#include "profiler/hardware/catalog.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

constexpr double kSecondsPerHour = 3600.0;

ForwardPoint point_of(const ForwardQuestion& q, const Offer& offer, int64_t nodes, const Plan& plan) {
  ForwardPoint p;
  p.offer = offer.name;
  p.cluster = cluster_of(offer, nodes);
  p.nodes = nodes;
  p.gpus = plan.layout.ranks();
  p.layout = layout_name(plan.layout);
  p.step_time_s = plan.prediction.step_time_s;
  p.tokens_per_s = plan.prediction.tokens_per_s;
  p.goodput = goodput_of(q.failures, p.gpus);
  p.checkpoint_every_s = checkpoint_interval_s(q.failures, p.gpus);
  const double price = offer.price * double(nodes + q.failures.spare_nodes) / double(nodes);
  const TrainingCost cost = training_cost(plan, q.tokens, price, p.goodput);
  const Confidence& sure = plan.prediction.confidence;
  p.days = p.least_days = p.most_days = cost.days;
  p.price = p.most_price = cost.price;
  p.fits = sure.fits.value_or(1.0);
  if (sure.least_s) p.least_days *= *sure.least_s / p.step_time_s;
  if (sure.most_s) {
    p.most_days *= *sure.most_s / p.step_time_s;
    p.most_price *= *sure.most_s / p.step_time_s;
  }
  return p;
}

// Money, or GPU-hours if no price was given.
double cost_of(const ForwardPoint& p) { return p.price > 0.0 ? p.price : p.days * double(p.gpus); }

bool keeps(const ForwardQuestion& q, const ForwardPoint& p, bool likely) {
  return (!likely || p.fits >= MemoryMargin::kLikely) &&
         (q.days == 0.0 || (likely ? p.most_days : p.days) <= q.days) &&
         (q.budget == 0.0 || (likely ? p.most_price : p.price) <= q.budget);
}

bool better(const ForwardQuestion& q, const ForwardPoint& a, const ForwardPoint& b) {
  if (q.days > 0.0) return std::pair(cost_of(a), a.days) < std::pair(cost_of(b), b.days);
  if (q.budget > 0.0) return std::pair(a.days, cost_of(a)) < std::pair(b.days, cost_of(b));
  return std::tuple(a.gpus, cost_of(a), a.days) < std::tuple(b.gpus, cost_of(b), b.days);
}

std::optional<size_t> choose(const ForwardQuestion& q, const std::vector<ForwardPoint>& points, bool likely) {
  std::optional<size_t> best;
  for (size_t n = 0; n < points.size(); ++n)
    if (keeps(q, points[n], likely) && (!best || better(q, points[n], points[*best]))) best = n;
  return best;
}

void mark_front(std::vector<ForwardPoint>& points) {
  for (ForwardPoint& p : points)
    p.on_front = none_of(points.begin(), points.end(), [&](const auto& other) {
      return other.days <= p.days && cost_of(other) <= cost_of(p) &&
             (other.days < p.days || cost_of(other) < cost_of(p));
    });
}

// The plans on one offer, by the number of nodes.
struct OfferPlans {
  const ForwardQuestion& q;
  const Offer& offer;
  const Watch& watch;
  ForwardAnswer& answer;
  std::set<int64_t> tried = {};
  double peak_tokens_per_s = 0.0;  // of one node

  // From the most nodes to the fewest. Once the peak speed of the GPUs is known, it stops at the first count
  // that is too slow even at that speed.
  void add_usual() {
    std::vector<int64_t> counts = tried_nodes(offer.nodes);
    for (auto nodes = counts.rbegin(); nodes != counts.rend() && !stop_requested(); ++nodes) {
      const double least_days = q.tokens / (peak_tokens_per_s * double(*nodes)) / kSecondsPerHour / 24.0;
      if (q.days > 0.0 && peak_tokens_per_s > 0.0 && least_days > q.days) {
        tried.insert(*nodes);
        answer.without.push_back(fmt::format("{}, {} nodes and fewer: {} days even at the peak of their GPUs",
                                             offer.name, *nodes, format_days(least_days)));
        return;
      }
      add(*nodes);
    }
  }

  // Adds the number halfway from `nodes` to the next that was tried: a smaller one, or, where the fastest for
  // a budget is looked for, a larger. Whether there was one.
  bool add_beside(int64_t nodes) {
    const auto at = tried.find(nodes);
    int64_t next = nodes;
    if (q.days == 0.0 && q.budget > 0.0)
      next = std::next(at) == tried.end() ? nodes : *std::next(at);
    else
      next = at == tried.begin() ? 0 : *std::prev(at);
    if (std::abs(next - nodes) < 2) return false;
    add(nodes + (next - nodes) / 2);
    return true;
  }

  void add(int64_t nodes) {
    tried.insert(nodes);
    PlanRequest request = q.request;
    request.cluster = {cluster_of(offer, nodes), {}};
    PlanOrReason found = compare({request}, watch).front();
    if (!found.plan) {
      answer.without.push_back(fmt::format("{}, {} nodes: {}", offer.name, nodes, found.reason));
      return;
    }
    const Plan plan = as_observed(std::move(*found.plan));
    answer.points.push_back(point_of(q, offer, nodes, plan));
    const double used = model_flop_utilisation(plan);
    if (used > 0.0) peak_tokens_per_s = plan.prediction.tokens_per_s / used / double(nodes);
  }
};

std::string ranged(const ForwardPoint& p, double value) {
  const double per_day = p.days > 0.0 ? value / p.days : 0.0;
  const auto words = [&](double days) {
    return value == p.days ? format_days(days) : format_magnitude(days * per_day);
  };
  if (p.most_days == p.days) return words(p.days);
  return fmt::format("{} ({} to {})", words(p.days), words(p.least_days), words(p.most_days));
}

std::string table_of(const ForwardQuestion& q, const ForwardAnswer& a) {
  std::vector<reports::Column> columns{
      {"offer", reports::Align::left}, {"nodes"}, {"GPUs"}, {"step time"}, {"fits"}};
  if (q.tokens > 0.0)
    columns.insert(columns.end(), {{"goodput"}, {"days"}, {"cost"}, {"", reports::Align::left}});
  reports::Table table(std::move(columns));
  for (size_t n = 0; n < a.points.size(); ++n) {
    const ForwardPoint& p = a.points[n];
    std::vector<std::string> row{p.offer, format_count(p.nodes), format_count(p.gpus),
                                 format_seconds(p.step_time_s), describe_likelihood(p.fits)};
    if (q.tokens > 0.0) {
      const std::string cost = p.price > 0.0 ? ranged(p, p.price) : "-";
      const char* const mark = a.chosen == n ? "<-" : p.on_front ? "*" : "";
      row.insert(row.end(), {format_percent(p.goodput), ranged(p, p.days), cost, mark});
    }
    table.add_row(std::move(row));
  }
  return table.stacked(1, terminal_columns());
}

std::string describe_choice(const ForwardQuestion& q, const ForwardAnswer& a) {
  if (!a.chosen) {
    if (a.points.empty()) return "No layout fits on what is offered.\n";
    return wrapped(fmt::format("Nothing that is offered keeps {}.", q.budget == 0.0 ? "the deadline"
                                                                    : q.days == 0.0 ? "the budget"
                                                                                    : "deadline and budget"));
  }
  const ForwardPoint& p = a.points[*a.chosen];
  const char* const what = q.days > 0.0     ? "the cheapest in time"
                           : q.budget > 0.0 ? "the fastest for the budget"
                                            : "the fewest GPUs";
  std::string text = fmt::format("RECOMMENDED  {} of {}, {} GPUs: {}; fits: {}\n",
                                 p.nodes == 1 ? "1 node" : fmt::format("{} nodes", p.nodes), p.offer, p.gpus,
                                 what, describe_likelihood(p.fits));
  if (q.tokens > 0.0)
    text += wrapped(fmt::format("{} days{}; {} of the time trains, with a checkpoint every {:.0f} minutes",
                                ranged(p, p.days), p.price > 0.0 ? ", cost " + ranged(p, p.price) : "",
                                format_percent(p.goodput), p.checkpoint_every_s / 60.0),
                    "             ");
  if (!a.likely)
    text += wrapped("It keeps what was asked by the prediction; nothing does in nine of ten cases.",
                    "             ");
  return text + wrapped("layout " + p.layout, "             ");
}

}  // namespace

double checkpoint_interval_s(const Failures& f, int64_t gpus) {
  const double between = f.device_hours * kSecondsPerHour / double(gpus), saving = f.checkpoint_s;
  if (saving >= 2.0 * between) return between;
  const double share = saving / (2.0 * between);
  return std::sqrt(2.0 * saving * between) * (1.0 + std::sqrt(share) / 3.0 + share / 9.0) - saving;
}

double goodput_of(const Failures& f, int64_t gpus) {
  const double between = f.device_hours * kSecondsPerHour / double(gpus);
  const double interval = checkpoint_interval_s(f, gpus);
  return interval /
         (between * std::exp(f.restart_s / between) * std::expm1((interval + f.checkpoint_s) / between));
}

Offer offer_of(const std::string& text) {
  const std::string read = profiler::load_cluster(text, {}).name;
  const std::string name = read.find(':') == std::string::npos ? text : read;  // a file's has no count
  const size_t colon = name.rfind(':');
  const std::string count = colon == std::string::npos || name == text + ":1" ? "" : name.substr(colon + 1);
  const size_t each = std::min(count.find('x'), count.size());
  Offer offer{text, name.substr(0, colon), number_of<int64_t>(count.substr(0, each)).value_or(0), 0.0};
  if (offer.nodes < 1)
    refuse_input("--cluster " + text, "no number of nodes", "how many of these nodes there are at most",
                 "for example --cluster dgx-h100:16");
  if (each < count.size())
    offer.cluster += ":" + count.substr(each);  // GPUs of each node
  else
    offer.name = offer.cluster;
  return offer;
}

std::string cluster_of(const Offer& offer, int64_t nodes) {
  const size_t each = offer.cluster.find(":x");
  return fmt::format("{}:{}{}", offer.cluster.substr(0, each), nodes,
                     each == std::string::npos ? "" : offer.cluster.substr(each + 1));
}

std::vector<int64_t> tried_nodes(int64_t most) {
  constexpr int64_t kAll = 16;
  std::vector<int64_t> counts;
  for (int64_t nodes = 1; nodes < std::min(most, kAll); ++nodes) counts.push_back(nodes);
  for (int64_t power = kAll; power < most; power *= 2) {
    counts.push_back(power);
    if (power / 2 * 3 < most) counts.push_back(power / 2 * 3);
  }
  counts.push_back(most);
  return counts;
}

ForwardAnswer forward(const ForwardQuestion& q, const Watch& watch) {
  if (q.tokens == 0.0 && (q.days > 0.0 || q.budget > 0.0))
    refuse_input("--tokens", "missing", "tokens of the whole training, such as 1T",
                 "without a deadline and a budget the fewest GPUs are looked for");
  ForwardAnswer answer;
  std::vector<OfferPlans> offers;
  for (const Offer& offer : q.offers) {
    if (q.budget > 0.0 && offer.price == 0.0)
      refuse_input("price of " + offer.name, "missing", "the price of a GPU-hour",
                   "give it with --price, or in the file of --offers");
    offers.push_back({q, offer, watch, answer});
    offers.back().add_usual();
  }
  for (bool more = true; more;) {
    answer.chosen = choose(q, answer.points, true);
    answer.likely = answer.chosen.has_value();
    if (!answer.likely) answer.chosen = choose(q, answer.points, false);
    if (!answer.chosen || stop_requested()) break;
    const ForwardPoint& p = answer.points[*answer.chosen];
    more = find_if(offers, [&](const OfferPlans& o) { return o.offer.name == p.offer; })->add_beside(p.nodes);
  }
  sort_by(answer.points, [&](const ForwardPoint& p) {
    return std::pair(find_if(q.offers, [&](const Offer& o) { return o.name == p.offer; }), p.nodes);
  });
  if (answer.chosen) answer.chosen = choose(q, answer.points, answer.likely);
  mark_front(answer.points);
  return answer;
}

Json forward_json(const ForwardAnswer& answer) {
  Json json{{"points", to_json(answer.points)}, {"likely", answer.likely}, {"without", answer.without}};
  if (answer.chosen) json["chosen"] = *answer.chosen;
  return json;
}

std::string describe_forward(const ForwardQuestion& q, const ForwardAnswer& a) {
  std::string text = describe_choice(q, a) + "\n" + (a.points.empty() ? "" : table_of(q, a));
  if (q.tokens > 0.0) {
    text +=
        wrapped("<- recommended; * nothing else is as fast for less. Ranges hold 8 of 10 published runs.");
    text += wrapped(fmt::format(
        "Goodput by Daly's model: a failure every {} GPU-hours, {} to restart, {} to save. Evaluation and "
        "queues are not in it.",
        format_magnitude(q.failures.device_hours), format_seconds(q.failures.restart_s),
        format_seconds(q.failures.checkpoint_s)));
  }
  for (const std::string& why : a.without) text += wrapped(why, "  - ");
  return text;
}

}  // namespace mpt::planner
