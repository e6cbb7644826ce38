// SPDX-License-Identifier: Apache-2.0
#include "planner/observe/observed_plan.h"

#include <cctype>
#include <numeric>

#include "base/quantity.h"
#include "core/ties.h"
#include "planner/answer/recommend.h"
#include "planner/explain/confidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/nothing_divides.h"
#include "planner/explain/plan_notes.h"
#include "planner/observe/next_run.h"
#include "planner/observe/observed_run.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

// Layouts of each search. The separate terms of layouts were tested on sets of at most this size.
constexpr size_t kKept = 12;
constexpr double kTenth = 1.2816;  // standard deviations beyond which a tenth is on each side

using Candidates = std::vector<Candidate>;

void add_new(Candidates found, Candidates& all) {
  for (Candidate& c : found) {
    const bool known =
        any_of(all, [&](const Candidate& other) { return other.estimate.layout == c.estimate.layout; });
    if (!known) all.push_back(std::move(c));
  }
}

double room_bytes(const SearchProblem& problem, const Layout& layout) {
  const std::vector<int64_t> limits = limits_of_ranks(without_margin(problem), layout);
  return double(*std::min_element(limits.begin(), limits.end()));
}

double log_room(const SearchProblem& problem, const Candidate& c) {
  return std::log(room_bytes(problem, c.estimate.layout) / double(c.evaluation.peak_bytes));
}

// Weighted sums of features, to describe the findings. The first is the average over all candidates. The
// others are the difference of candidates with more than the average of one feature from the rest.
struct Learned {
  std::vector<CorrectedPoint> points;
  std::vector<const char*> words;
};
Learned learned_points(const std::vector<std::vector<double>>& values, std::span<const Feature> features) {
  Learned learned;
  const auto mean = [&](size_t f, const auto& counts) {
    double sum = 0.0, n = 0.0;
    for (const auto& v : values) {
      if (!counts(v[f])) continue;
      sum += v[f];
      n += 1.0;
    }
    return n > 0.0 ? sum / n : 0.0;
  };
  std::vector<double> average;
  for (size_t f = 0; f < features.size(); ++f) average.push_back(mean(f, [](double) { return true; }));
  learned.points.push_back({average, ""});
  learned.words.push_back(nullptr);
  for (size_t f = 0; f < features.size(); ++f) {
    if (features[f].words == nullptr) continue;
    const auto has_more = [&](const std::vector<double>& v) { return v[f] > average[f]; };
    const auto having = size_t(std::count_if(values.begin(), values.end(), has_more));
    if (having == 0 || having == values.size()) continue;  // all have the same
    std::vector<double> more(features.size(), 0.0);
    more[f] = mean(f, [&](double x) { return x > average[f]; }) -
              mean(f, [&](double x) { return x <= average[f]; });
    learned.points.push_back({std::move(more), ""});
    learned.words.push_back(features[f].words);
  }
  return learned;
}

// The correction of one quantity. Its points are, in this order, candidates, runs, and the sums to describe.
struct Corrections {
  Posterior posterior;
  Learned learned;
  size_t first_run = 0, first_learned = 0;
  int64_t runs = 0;
};

using FeaturesOf = std::vector<double> (*)(const SearchProblem& problem, const Candidate& candidate);

Corrections corrections_of(const SearchProblem& problem, const Candidates& candidates,
                           const std::vector<Observation>& runs, FeaturesOf features_of,
                           std::span<const Feature> features, const CorrectionPrior& prior) {
  std::vector<CorrectedPoint> points;
  std::vector<std::vector<double>> values;
  for (const Candidate& c : candidates) {
    values.push_back(features_of(problem, c));
    points.push_back({values.back(), layout_name(c.estimate.layout)});
  }
  for (const Observation& o : runs)
    points.push_back({features_of(o.predicted.resolved->problem, o.predicted.candidate), o.run.layout});
  Learned learned = learned_points(values, features);
  const size_t first_learned = points.size();
  points.insert(points.end(), learned.points.begin(), learned.points.end());
  return {Posterior(points, prior), std::move(learned), candidates.size(), first_learned, 0};
}

Corrections corrected_times(const SearchProblem& problem, const Candidates& candidates,
                            const std::vector<Observation>& runs) {
  Corrections c =
      corrections_of(problem, candidates, runs, time_features_of, time_features(), published_priors().time);
  for (size_t r = 0; r < runs.size(); ++r) {
    if (!runs[r].measured.seconds) continue;
    const double predicted_s = runs[r].predicted.candidate.evaluation.step_time_s;
    c.posterior.observe(c.first_run + r, std::log(*runs[r].measured.seconds / predicted_s));
    ++c.runs;
  }
  return c;
}

Corrections corrected_memory(const SearchProblem& problem, const Candidates& candidates,
                             const std::vector<Observation>& runs) {
  Corrections c = corrections_of(problem, candidates, runs, memory_features_of, memory_features(),
                                 published_priors().memory);
  for (size_t r = 0; r < runs.size(); ++r) {
    const Candidate& predicted = runs[r].predicted.candidate;
    const auto peak = double(predicted.evaluation.peak_bytes);
    if (runs[r].measured.bytes)
      c.posterior.observe(c.first_run + r, std::log(double(*runs[r].measured.bytes) / peak));
    else if (runs[r].measured.out_of_memory)
      c.posterior.observe_at_least(c.first_run + r, log_room(runs[r].predicted.resolved->problem, predicted));
    else if (const double room = log_room(runs[r].predicted.resolved->problem, predicted); room < 0.0)
      c.posterior.observe_at_most(c.first_run + r, room);  // it ran, so the memory sufficed
    else
      continue;
    ++c.runs;
  }
  return c;
}

Candidates searched(const SearchProblem& problem, const Watch& watch, const std::string& what,
                    std::unique_ptr<ArrangedSearch>& search) {
  search = recommended_search(problem, kKept, watch, what);
  return search->result.best;
}

// Adds layouts that may fit by the correction of memory: those that are likely to, and those that may.
void add_by_memory(const Resolved& resolved, const Corrections& memory, const Watch& watch,
                   Candidates& candidates) {
  if (resolved.problem.cluster.mixed() || memory.runs == 0) return;
  const double mean = memory.posterior.mean(memory.first_learned);
  const double spread = std::sqrt(memory.posterior.run_variance(memory.first_learned));
  const auto usable = double(without_margin(resolved.problem).memory_limit_bytes);
  for (const double sure : {kTenth, 0.0}) {
    SearchProblem other = resolved.problem;
    other.memory_limit_bytes = int64_t(usable * std::exp(-mean - sure * spread));
    other.near_misses = false;
    std::unique_ptr<ArrangedSearch> search;
    add_new(searched(other, watch, "with the memory that runs took", search), candidates);
  }
}

const Observation* run_of(const std::vector<Observation>& runs, const Layout& layout,
                          const SearchProblem& problem) {
  const auto found = std::find_if(runs.rbegin(), runs.rend(), [&](const Observation& o) {
    const SearchProblem& ran = o.predicted.resolved->problem;
    return o.predicted.plan.layout == layout && ran.workload == problem.workload &&
           ran.model == problem.model;
  });
  return found == runs.rend() ? nullptr : &*found;
}

double likely_to_fit(const SearchProblem& problem, const Candidate& c, const Observation* run,
                     const Corrections& memory, size_t place) {
  if (run != nullptr) return run->measured.out_of_memory ? 0.0 : 1.0;
  if (memory.runs == 0) {
    const auto fits = ranked(c, problem, published_evidence()).confidence.fits;
    return fits.value_or(c.evaluation.peak_bytes <= problem.memory_limit_bytes ? 1.0 : 0.0);
  }
  return normal_share_below(log_room(problem, c), memory.posterior.mean(place),
                            memory.posterior.run_variance(place));
}

std::string percent_more(double log_ratio, const char* more, const char* less) {
  return fmt::format("{} {}", format_difference(std::abs(std::expm1(log_ratio))),
                     log_ratio > 0.0 ? more : less);
}

// The findings for one quantity: for all layouts, then for the two features that differ most.
std::string change_words(const Corrections& c, const char* all, const char* more, const char* less) {
  constexpr double kWorthSaying = 0.01;
  constexpr size_t kMost = 2;
  const auto mean = [&](size_t i) { return c.posterior.mean(c.first_learned + i); };
  std::string text = fmt::format("{} {} than predicted", all, percent_more(mean(0), more, less));
  std::vector<size_t> order(c.learned.words.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  sort_by(order, [&](size_t n) { return -std::abs(mean(n)); });
  for (size_t i = 0; i < std::min(kMost, order.size()); ++i) {
    if (std::abs(mean(order[i])) < kWorthSaying) break;
    text += fmt::format("{} layouts with {} another {}", i == 0 ? ";" : ",", c.learned.words[order[i]],
                        percent_more(mean(order[i]), "more", "less"));
  }
  return text + ".";
}

std::vector<std::string> learned(const Corrections& times, const Corrections& memory, size_t runs) {
  const std::string from = fmt::format("From {} run{}: ", runs, runs == 1 ? "" : "s");
  std::vector<std::string> sentences;
  if (times.runs > 0) sentences.push_back(change_words(times, "this cluster is", "slower", "faster"));
  if (memory.runs > 0) sentences.push_back(change_words(memory, "a GPU needs", "more memory", "less memory"));
  for (size_t i = 0; i < sentences.size(); ++i) {
    if (i == 0)
      sentences[i] = from + sentences[i];
    else
      sentences[i].front() = char(std::toupper(sentences[i].front()));
  }
  return sentences;
}

// The candidates, with the evidence of runs for each.
struct Answer {
  Candidates candidates;
  std::vector<Observation> runs;
  std::vector<Choosable> choosable;
  std::vector<const Observation*> run_of_candidate;
};

Answer choosable_of(const Resolved& resolved, Candidates candidates, std::vector<Observation> runs,
                    const Corrections& memory) {
  Answer a{std::move(candidates), std::move(runs), {}, {}};
  const SearchProblem& problem = resolved.problem;
  for (size_t i = 0; i < a.candidates.size(); ++i) {
    const Candidate& c = a.candidates[i];
    const Observation* run = run_of(a.runs, c.estimate.layout, problem);
    a.run_of_candidate.push_back(run);
    a.choosable.push_back({{time_features_of(problem, c), layout_name(c.estimate.layout)},
                           c.evaluation.step_time_s,
                           likely_to_fit(problem, c, run, memory, i),
                           run != nullptr && run->measured.seconds.has_value()});
  }
  return a;
}

CorrectedLayout corrected_layout(const Answer& a, const Posterior& posterior, const Corrections& memory,
                                 size_t place) {
  const Candidate& c = a.candidates[place];
  const Choosable& choosable = a.choosable[place];
  const Observation* const run = a.run_of_candidate[place];
  CorrectedLayout out{c.estimate.layout, choosable.predicted_s, 0.0, {}, 0, choosable.ran, false};
  const double mean = std::log(choosable.predicted_s) + posterior.mean(place);
  const double spread = kTenth * std::sqrt(posterior.run_variance(place));
  out.step_time_s = std::exp(mean);
  out.confidence = {std::exp(mean - spread), std::exp(mean + spread), choosable.likely_to_fit};
  out.out_of_memory = run != nullptr && run->measured.out_of_memory;
  if (memory.runs == 0) return out;
  out.peak_bytes = int64_t(double(c.evaluation.peak_bytes) * std::exp(memory.posterior.mean(place)));
  if (run == nullptr || run->measured.bytes) return out;
  // A run's evidence on a limit is certain.
  const auto room = int64_t(room_bytes(run->predicted.resolved->problem, c.estimate.layout));
  out.peak_bytes = out.out_of_memory ? std::max(out.peak_bytes, room) : std::min(out.peak_bytes, room);
  return out;
}

Corrected corrected(const Answer& a, const Corrections& times, const Corrections& memory, size_t first,
                    std::vector<size_t>& order) {
  Corrected out;
  out.runs = int64_t(a.runs.size());
  out.learned = learned(times, memory, a.runs.size());
  const NextRun next = next_run(a.choosable, times.posterior, first);
  std::vector<CorrectedLayout> all;
  for (size_t i = 0; i < a.candidates.size(); ++i)
    all.push_back(corrected_layout(a, times.posterior, memory, i));
  order.resize(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return (x == first) != (y == first) ? x == first : all[x].step_time_s < all[y].step_time_s;
  });
  for (size_t place = 0; place < order.size(); ++place) {
    if (next.layout == order[place]) out.measure_next = int64_t(place) + 1;
    out.layouts.push_back(all[order[place]]);
  }
  out.loss = next.loss;
  out.loss_after = next.loss_after;
  out.likely_loss = next.likely_loss;
  return out;
}

constexpr size_t kRows = 8;

std::string state_of(const CorrectedLayout& c) {
  if (c.out_of_memory) return "ran out of memory";
  return c.ran ? "measured" : c.confidence.fits ? "fits: " + describe_likelihood(*c.confidence.fits) : "";
}

std::string order_table(const Corrected& corrected) {
  reports::Table table(reports::columns({"<layout", "predicted", "corrected", "8 in 10 cases", "<memory"}));
  for (size_t i = 0; i < corrected.layouts.size(); ++i) {
    const CorrectedLayout& c = corrected.layouts[i];
    if (i >= kRows && !c.ran && !c.out_of_memory && int64_t(i) + 1 != corrected.measure_next) continue;
    table.add_row({layout_name(c.layout), format_seconds(c.predicted_s), format_seconds(c.step_time_s),
                   describe_range(c.confidence), state_of(c)});
  }
  return table.text(screen_columns());
}

std::string next_of(const Corrected& c, const Palette& palette) {
  const std::string now =
      fmt::format("Choosing now loses {} against the fastest, on average.", format_percent(c.loss));
  if (c.measure_next < 1) return wrapped(now + " No further run is worth its time.");
  const CorrectedLayout& next = c.layouts[size_t(c.measure_next - 1)];
  return palette.heading("MEASURE NEXT") + "\n" +
         wrapped(fmt::format("{}: {} After this run it is {}. Then add:", layout_name(next.layout), now,
                             format_percent(c.loss_after)),
                 "  ") +
         fmt::format("  --observed '{}=TIME,MEMORY'\n", layout_name(next.layout));
}

// The findings of the runs, the recommended layout, the corrected order, and the next layout to measure.
std::string observed_screen(const Plan& plan, const ScreenOptions& o) {
  const Corrected& corrected = *plan.corrected;
  std::string text = describe_task(plan, o.palette) + "\n" + describe_choice("RECOMMENDED", plan, o.palette) +
                     "\n" + describe_figures(plan, o.palette, o.training);
  text += describe_notes(o.notes, o.palette);
  if (corrected.layouts.size() > 1)  // else an estimate: there is no choice
    text += "\n" + o.palette.heading("CORRECTED ORDER") + "\n" + order_table(corrected) + "\n" +
            next_of(corrected, o.palette);
  return o.next.empty() ? text : text + "\n" + describe_next(o.next, o.palette);
}

}  // namespace

size_t recommended(std::span<const Choosable> layouts, const Posterior& posterior) {
  std::vector<size_t> safe(layouts.size());
  std::iota(safe.begin(), safe.end(), 0);
  std::erase_if(safe, [&](size_t i) { return layouts[i].likely_to_fit < MemoryMargin::kLikely; });
  if (safe.empty())
    return size_t(max_by(layouts, [](const Choosable& c) { return c.likely_to_fit; }) - layouts.begin());
  const auto log_s = [&](size_t i) { return std::log(layouts[i].predicted_s) + posterior.mean(i); };
  const auto faster = [&](size_t a, size_t b) { return log_s(a) < log_s(b); };
  const size_t fastest = *std::min_element(safe.begin(), safe.end(), faster);
  std::erase_if(safe, [&](size_t i) { return !layouts[i].ran || log_s(i) > log_s(fastest) + kEqualTimes; });
  return safe.empty() ? fastest : *std::min_element(safe.begin(), safe.end(), faster);
}

NextRun next_run(std::span<const Choosable> layouts, const Posterior& posterior, size_t recommended) {
  constexpr double kMayFit = 0.5, kWorthARun = 1e-4;
  // A layout that certainly does not fit is no choice; its time counts as endless.
  constexpr double kEndless = 1e3;
  LogTimes log_times(Eigen::Index(layouts.size()));
  for (size_t i = 0; i < layouts.size(); ++i) {
    const bool may = layouts[i].likely_to_fit >= kMayFit || i == recommended;
    log_times(Eigen::Index(i)) = may ? std::log(layouts[i].predicted_s) : kEndless;
  }
  NextRun next;
  const DrawnLosses drawn = draw_losses(log_times, posterior, recommended);
  next.loss = next.loss_after = drawn.mean();
  next.likely_loss = drawn.losses[drawn.losses.size() * 95 / 100];
  const auto ran = [](const Choosable& c) { return c.ran; };
  if (next.loss < kWorthARun) return next;
  if (!any_of(layouts, ran)) next.layout = recommended;
  double most = kWorthARun;
  std::optional<size_t> best;
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (layouts[i].ran || log_times(Eigen::Index(i)) == kEndless || next.layout.value_or(i) != i) continue;
    if (const double worth = layouts[i].likely_to_fit * worth_of_run(log_times, posterior, i); worth > most) {
      most = worth;
      best = i;
    }
  }
  if (!next.layout) next.layout = best;
  if (best) next.loss_after = std::max(0.0, next.loss - most);
  return next;
}

std::optional<Plan> observed_plan(const Resolved& resolved, const Watch& watch, Problem& why) {
  std::unique_ptr<ArrangedSearch> search, roomier;
  Candidates candidates = searched(resolved.problem, watch, "", search);
  if (has_default_margin(resolved))
    add_new(searched(without_margin(resolved.problem), watch, "without a margin", roomier), candidates);
  std::vector<Observation> runs;
  for (const auto& run : resolved.request.observed) runs.push_back(observation_of(run, resolved, candidates));
  add_by_memory(resolved, corrected_memory(search->problem, candidates, runs), watch, candidates);
  for (const Observation& o : runs) {
    const SearchProblem& ran = o.predicted.resolved->problem;
    if (ran.workload == search->problem.workload && ran.model == search->problem.model &&
        ran.ranks == search->problem.ranks)
      add_new({o.predicted.candidate}, candidates);
  }
  why = why_nothing_fits(search->result, search->problem);
  if (candidates.empty()) return std::nullopt;
  const Corrections memory = corrected_memory(search->problem, candidates, runs);
  const Corrections times = corrected_times(search->problem, candidates, runs);
  const Answer answer = choosable_of(resolved, std::move(candidates), std::move(runs), memory);
  const size_t first = recommended(answer.choosable, times.posterior);
  std::vector<size_t> order;
  const Corrected all = corrected(answer, times, memory, first, order);
  search->result.best.clear();
  for (size_t i = 0; i < std::min(order.size(), std::max<size_t>(1, size_t(resolved.request.top))); ++i)
    search->result.best.push_back(answer.candidates[order[i]]);
  Plan plan = plan_of(*search, resolved.request);
  plan.request.observed = mapped<ObservedRun>(answer.runs, &Observation::run);
  plan.notes = with_kernel_note(resolved.notes, plan);
  plan.corrected = all;
  return plan;
}

void correct(const PlanRequest& asked, Estimated& e) {
  const auto resolved = resolve(asked);  // the estimate's may be the part of the cluster that its layout uses
  if (std::string unlike = drop_unlike_runs(*resolved); !unlike.empty() && !contains(e.plan.notes, unlike))
    e.plan.notes.push_back(std::move(unlike));
  std::vector<Observation> runs;
  for (const ObservedRun& run : resolved->request.observed)
    runs.push_back(observation_of(run, *resolved, {e.candidate}));
  if (runs.empty()) return;
  const SearchProblem& problem = e.resolved->problem;
  const Candidates one{e.candidate};
  const Corrections memory = corrected_memory(problem, one, runs);
  const Corrections times = corrected_times(problem, one, runs);
  const Answer answer = choosable_of(*e.resolved, one, std::move(runs), memory);
  std::vector<size_t> order;
  e.plan.corrected = corrected(answer, times, memory, 0, order);
  e.plan.request.observed = mapped<ObservedRun>(answer.runs, &Observation::run);
}

std::string plan_screen(const Plan& plan, const ScreenOptions& options) {
  return plan.corrected ? observed_screen(plan, options) : answer_screen(plan, options);
}

}  // namespace mpt::planner
