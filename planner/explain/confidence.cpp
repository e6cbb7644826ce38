// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/confidence.h"

#include <cmath>
#include <set>

#include "base/quantity.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {
namespace {

// A step takes less than the range for this share of the weight, and more for the same share.
constexpr double kTail = 0.1;
// Sums of weights have rounding errors.
constexpr double kRounding = 1e-9;

using Values = std::vector<double> (*)(const SourceEvidence&);

std::vector<double> step_times(const SourceEvidence& s) { return s.step_time; }

std::vector<double> memory_used(const SourceEvidence& s) {
  std::vector<double> used = s.peak_memory;
  if (s.failed.empty() || s.failed.front() > 1.0) return used;
  for (const double share : s.failed) {  // a predicted failure shows nothing
    if (share <= 1.0) used.push_back(1.0 / share);
  }
  used.insert(used.end(), size_t(s.ran), 1.0);
  return used;
}

// Beyond this number, further runs of a source show no more about other sources' runs.
constexpr size_t kMostRuns = 16;

Spread spread_of(const RunsLike& like, const std::vector<Evidence>& all, Values values,
                 double NewKind::*deviation) {
  Spread own, pool;
  for (const Evidence& e : all) {
    const bool alike =
        e.kind.framework == like.kind.framework && e.kind.has_experts() == like.kind.has_experts();
    const bool as_narrow = e.kind.is_narrow() == like.kind.is_narrow();
    for (const SourceEvidence& s : e.sources) {
      const std::vector<double> of_source = values(s);
      if (of_source.empty() || s.source == like.left_out) continue;
      const double weight = std::sqrt(double(std::min(of_source.size(), kMostRuns))) *
                            (as_narrow ? 1.0 : Spread::kOtherPrecision);
      pool.add(of_source, weight);
      if (alike) own.add(of_source, weight);
    }
  }
  if (pool.empty()) return own;
  own.append(pool, Spread::kPooled / pool.weight());
  std::set<size_t> parts;
  for (const NewPart& part : new_parts(like, all)) parts.insert(part.part);
  double variance = 0.0;
  for (const size_t part : parts) variance += std::pow(new_kind_deviations().at(part).*deviation, 2);
  return variance > 0.0 ? own.widened(std::sqrt(variance)) : own;
}

bool is_own(const std::string& framework) { return framework == Execution{}.framework; }

// On CPUs mpt-run has only its tensors. The memory of GPU drivers and libraries is not known exactly.
bool counts_exactly(const Predicted& p) { return p.on_cpus && is_own(p.like.kind.framework); }

RunsLike runs_like(const Plan& plan) { return {kind_of(plan.model, plan.layout), ""}; }

double room_bytes(const Plan& plan) {
  return double(tensor_bytes(plan.cluster.device, plan.layout.execution));
}

std::string runs_counted(const std::vector<SourceEvidence>& own, Values values) {
  size_t runs = 0;
  std::set<std::string> sources;
  for (const SourceEvidence& s : own) {
    runs += values(s).size();
    if (!values(s).empty()) sources.insert(s.source);
  }
  return fmt::format("{} run{} of {} source{}", runs, runs == 1 ? "" : "s", sources.size(),
                     sources.size() == 1 ? "" : "s");
}

// Sources of runs of the plan's framework, and with experts if the plan has them.
std::vector<SourceEvidence> sources_of(const Plan& plan, const std::vector<Evidence>& all) {
  std::vector<SourceEvidence> own;
  for (const Evidence& e : all)
    if (e.kind.framework == plan.layout.execution->framework &&
        e.kind.has_experts() == (plan.model.moe() != nullptr))
      own.insert(own.end(), e.sources.begin(), e.sources.end());
  return own;
}

std::string step_line(const Plan& plan, const std::vector<SourceEvidence>& own,
                      const std::vector<Evidence>& all) {
  if (plan.cost.source == "profile") return "step time: no run tells, the prices are of your own profile";
  if (plan.cost.source == "roofline")
    return fmt::format("step time: no run tells, {} is priced by its peak rates alone",
                       plan.cluster.device.name);
  const Spread spread = step_spread(runs_like(plan), all);
  if (spread.empty()) return "step time: no published run";
  const auto [low, high] = step_range(spread);
  return fmt::format("step time: 8 of 10 steps take {:.2f} to {:.2f} times the prediction ({})", low, high,
                     runs_counted(own, step_times));
}

std::string failed_line(const Plan& plan, const std::vector<SourceEvidence>& own) {
  size_t failed = 0, accepted = 0;
  double leanest = 1.0;
  for (const SourceEvidence& s : own)
    for (const double share : s.failed) {
      ++failed;
      accepted += share <= 1.0 ? 1 : 0;
      leanest = std::min(leanest, share);
    }
  if (failed == 0) return "";
  std::string text = fmt::format("out of memory: {} of {} run{} that ran out {} predicted to fit", accepted,
                                 failed, failed == 1 ? "" : "s", accepted == 1 ? "was" : "were");
  if (accepted == 0 || plan.cluster.mixed()) return text;
  return text + fmt::format(", at {} of memory or more; this plan is at {}", format_percent(leanest),
                            format_percent(predicted_by(plan).memory_share));
}

}  // namespace

void Spread::add(const std::vector<double>& values, double weight) {
  for (const double value : values) values_.push_back({value, weight / double(values.size())});
}

void Spread::append(const Spread& other, double factor) {
  for (const Weighed& v : other.values_) values_.push_back({v.value, v.weight * factor});
}

Spread Spread::widened(double deviation) const {
  // Middles of five equal parts of a normal distribution.
  constexpr double kNormal[] = {-1.2815515655446004, -0.5244005127080407, 0.0, 0.5244005127080407,
                                1.2815515655446004};
  Spread wider;
  for (const Weighed& v : values_)
    for (const double z : kNormal)
      wider.values_.push_back({v.value * std::exp(deviation * z), v.weight / double(std::size(kNormal))});
  return wider;
}

double Spread::weight() const { return sum_of<double>(values_, &Weighed::weight); }

double Spread::quantile(double share) const {
  std::vector<Weighed> ascending = values_;
  sort_by(ascending, [](const Weighed& w) { return w.value; });
  const double wanted = (share - kRounding) * weight();
  double below = 0.0;
  for (const Weighed& v : ascending) {
    below += v.weight;
    if (below >= wanted) return v.value;
  }
  return ascending.back().value;
}

double Spread::share_within(double value) const {
  const auto within =
      sum_of<double>(values_, [&](const Weighed& v) { return v.value <= value ? v.weight : 0.0; });
  return std::min(1.0, within / weight());
}

Spread step_spread(const RunsLike& like, const std::vector<Evidence>& all) {
  return spread_of(like, all, step_times, &NewKind::step_time);
}

Spread memory_spread(const RunsLike& like, const std::vector<Evidence>& all) {
  return spread_of(like, all, memory_used, &NewKind::peak_memory);
}

std::vector<NewPart> new_parts(const RunsLike& like, const std::vector<Evidence>& all) {
  std::vector<RunKind> told, same;
  for (const Evidence& e : all) {
    const auto counts = [&](const SourceEvidence& s) { return s.source != like.left_out; };
    if (!any_of(e.sources, counts)) continue;
    told.push_back(e.kind);
    if (e.kind.framework == like.kind.framework) same.push_back(e.kind);
  }
  std::vector<NewPart> parts;
  if (same.empty()) parts.push_back({0, like.kind.framework});
  size_t number = 0;
  for (const auto part : {&RunKind::layers, &RunKind::precision, &RunKind::training}) {
    ++number;
    std::set<std::string> known;
    for (const RunKind& kind : same.empty() ? told : same)
      known.insert((kind.*part).begin(), (kind.*part).end());
    for (const auto& value : like.kind.*part)
      if (!known.contains(value)) parts.push_back({number, value});
  }
  return parts;
}

StepRange step_range(const Spread& spread) { return {spread.quantile(kTail), spread.quantile(1.0 - kTail)}; }

bool errors_are_known(const std::string& prices, const std::string& framework) {
  return prices != "profile" && prices != "roofline" && !is_own(framework);
}

Confidence confidence(const Predicted& p, const std::vector<Evidence>& all) {
  Confidence sure;
  if (errors_are_known(p.prices, p.like.kind.framework)) {
    const Spread spread = step_spread(p.like, all);
    if (!spread.empty()) {
      const auto [low, high] = step_range(spread);
      sure.least_s = low * p.step_time_s;
      sure.most_s = high * p.step_time_s;
      for (const NewPart& part : new_parts(p.like, all)) sure.new_in.push_back(part.value);
    }
  }
  if (!(p.memory_share > 0.0)) return sure;
  const Spread used = memory_spread(p.like, all);
  if (!used.empty()) sure.fits = used.share_within(1.0 / p.memory_share);
  if (counts_exactly(p)) sure.fits = p.memory_share <= 1.0 ? 1.0 : 0.0;
  return sure;
}

int64_t MemoryMargin::safe_bytes(int64_t usable_bytes) const {
  if (factor <= 1.0) return usable_bytes;
  return int64_t(std::floor(10.0 * double(usable_bytes) / factor / double(kGiB)) / 10.0 * double(kGiB));
}

bool may_not_fit(const Confidence& sure) { return sure.fits && *sure.fits < MemoryMargin::kLikely; }

MemoryMargin memory_margin(const RunsLike& like, const std::vector<Evidence>& all) {
  const Spread used = memory_spread(like, all);
  if (used.empty()) return {};
  return {std::max(1.0, used.quantile(MemoryMargin::kLikely))};
}

Predicted predicted_by(const Plan& plan) {
  const DeviceKind kind = plan.cluster.device.kind;
  auto rooms = communicator_bytes(plan.model, plan.cluster, plan.layout, plan.workload.sequence);
  for (int64_t& room : rooms) room = int64_t(room_bytes(plan)) - room;
  const double share = plan.cluster.mixed() ? 0.0 : fullest_share(plan.prediction.memory, rooms);
  return {runs_like(plan), plan.cost.source, plan.prediction.step_time_s, share, kind == DeviceKind::cpu};
}

std::string MemoryRisk::option() const {
  return fmt::format("--memory={:.1f}GiB", double(safe_bytes) / double(kGiB));
}

std::optional<MemoryRisk> memory_risk(const Plan& plan, const std::vector<Evidence>& all) {
  const Predicted predicted = predicted_by(plan);
  const auto fits = confidence(predicted, all).fits;
  if (!fits || *fits >= MemoryMargin::kLikely || counts_exactly(predicted)) return std::nullopt;
  return MemoryRisk{fmt::format("memory is {} full: {} likely to fit", format_percent(predicted.memory_share),
                                describe_likelihood(*fits)),
                    memory_margin(predicted.like, all).safe_bytes(int64_t(room_bytes(plan)))};
}

std::string describe_new_kind(const Plan& plan) {
  std::vector<std::string> words = plan.prediction.confidence.new_in;
  if (words.empty()) return "";
  const std::string& framework = plan.layout.execution->framework;
  std::erase(words, framework);
  return fmt::format("No published run is of this kind ({}{}{}): the range is wide.", joined(words, ", "),
                     words.empty() ? "" : " with ", framework);
}

std::string describe_step(double step_time_s, const Confidence& c) {
  std::string text = format_seconds(step_time_s);
  const std::string range = describe_range(c);
  if (!range.empty()) text += fmt::format(", {} in 8 of 10 cases", range);
  if (c.fits) text += fmt::format("; fits: {}", describe_likelihood(*c.fits));
  return text;
}

std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all) {
  if (is_own(plan.layout.execution->framework) || all.empty()) return {};
  const std::vector<SourceEvidence> own = sources_of(plan, all);
  std::vector<std::string> lines{fmt::format(
      "Published runs of {}, models {} experts, and MPT's predictions of them{}",
      plan.layout.execution->framework, plan.model.moe() != nullptr ? "with" : "without",
      own.empty() ? ": none, so those of all frameworks count" : ": few, so those of all frameworks count")};
  lines.push_back(step_line(plan, own, all));
  if (const std::string failed = failed_line(plan, own); !failed.empty()) lines.push_back(failed);
  const Spread used = memory_spread(runs_like(plan), all);
  if (used.empty()) return lines;
  lines.push_back(fmt::format("memory: 9 of 10 runs use at most {:.2f} times the prediction ({})",
                              used.quantile(MemoryMargin::kLikely), runs_counted(own, memory_used)));
  if (const auto fits = confidence(predicted_by(plan), all).fits)
    lines.back() += fmt::format("; this plan is {} likely to fit", describe_likelihood(*fits));
  return lines;
}

}  // namespace mpt::planner
