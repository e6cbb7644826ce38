// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/nothing_divides.h"

#include "base/clock.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "planner/search/leaves.h"
#include "planner/search/search.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

constexpr double kLongestListing = 2.0;  // seconds of each listing

using Words = std::vector<BoundWords>;

Words without(Words words, const std::string& name) {
  std::erase_if(words, [&](const BoundWords& w) { return w.name == name; });
  return words;
}

// Gives layouts to `visit` until it returns false: one for each sharding, or one for each leaf. Returns
// whether `visit` ended it.
template <class F>
bool list_layouts(const SearchProblem& problem, bool each_leaf, F&& visit,
                  NotDividing* not_dividing = nullptr) {
  const double end_s = now_s() + kLongestListing;
  bool stopped = false;
  ListedPart part;
  part.stopped = [&] { return stopped || now_s() > end_s; };
  std::map<std::pair<int64_t, int64_t>, std::vector<Leaf>> leaves;  // by their dependencies
  NotDividing noted;
  visit_degrees(
      problem, part,
      [&](const Layout& node, const std::vector<Sharding>& shardings) {
        const std::pair key{node.pipeline, micro_batches(node, problem.workload)};
        const auto [found, fresh] = leaves.try_emplace(key);
        if (fresh) found->second = leaves_of_degrees(problem, node, &noted);
        for (const Sharding& sharding : shardings) {
          const Layout sharded = with_sharding(node, sharding);
          for (const Leaf& leaf : found->second) {
            if (stopped) break;
            if (const auto refused = refused_below(problem, sharded, leaf)) {
              ++noted[refused->reason];
              continue;
            }
            stopped = !visit(with_leaf(problem, sharded, leaf));
            if (!each_leaf) break;
          }
        }
      },
      noted);
  if (not_dividing != nullptr) *not_dividing = std::move(noted);
  return stopped;
}

// The nearest batches for which layouts with all the bounds exist.
std::string other_batches(SearchProblem problem) {
  const std::vector<int64_t>& asked = problem.bounds.micro_batch;
  const int64_t micro_batch = asked.empty() ? 1 : asked.front();
  return nearest_batches(problem.workload.global_batch, micro_batch, micro_batch * problem.ranks,
                         [&, end_s = now_s() + kLongestListing](int64_t batch) {
                           problem.workload.global_batch = batch;
                           return now_s() < end_s && has_layouts(problem);
                         });
}

// The values of one option for which layouts with the other bounds exist. Of numbers: those nearest to the
// given one.
std::vector<std::string> possible_values(const SearchProblem& problem, const Words& all,
                                         const BoundWords& asked) {
  std::set<std::string> found;
  const bool of_leaf = asked.name == "schedule" || asked.name == "chunks" || asked.name == "recompute";
  list_layouts(bounded(problem, without(all, asked.name)), of_leaf, [&](const Layout& layout) {
    if (const std::string value = axis_word(asked.name, layout); !value.empty()) found.insert(value);
    return true;
  });
  const auto wanted = number_of<int64_t>(asked.values.front());
  if (!wanted) return {found.begin(), found.end()};
  std::set<int64_t> values;
  for (const std::string& word : found) values.insert(number_of<int64_t>(word).value_or(*wanted));
  const auto above = values.upper_bound(*wanted), from = values.lower_bound(*wanted);
  std::vector<std::string> nearest;
  if (from != values.begin()) nearest.push_back(std::to_string(*std::prev(from)));
  if (above != values.end()) nearest.push_back(std::to_string(*above));
  return nearest;
}

// A minimal set of bounds without a layout: without any one of them there are layouts.
Words fewest(const SearchProblem& problem, Words words) {
  for (size_t n = 0; n < words.size();) {
    const Words fewer = without(words, words[n].name);
    if (has_layouts(bounded(problem, fewer)))
      ++n;
    else
      words = fewer;
  }
  return words;
}

std::string remedy_of(const SearchProblem& problem, const Words& all, const Words& conflict) {
  std::vector<std::string> remedies;
  if (std::string batches = other_batches(problem); !batches.empty()) remedies.push_back(std::move(batches));
  for (const BoundWords& w : conflict) {
    std::vector<std::string> options;
    for (const std::string& value : possible_values(problem, all, w))
      options.push_back(fmt::format("--{} {}", w.name, value));
    if (!options.empty()) remedies.push_back(joined(options, " or "));
  }
  if (!remedies.empty())
    return fmt::format("{}{}", joined(remedies, ", or "),
                       conflict.size() > 1 || remedies.size() > 1 ? " instead" : " instead of it");
  Words rest = all;
  for (const BoundWords& w : conflict) rest = without(rest, w.name);
  return "leave out " + options_of(has_layouts(bounded(problem, rest)) ? conflict : all);
}

// If every given degree has one value: their product, and how it relates to the number of ranks.
std::string degrees_in_the_way(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  const std::pair<const char*, const std::vector<int64_t>*> degrees[] = {
      {"--tp", &b.tensor}, {"--cp", &b.context}, {"--pp", &b.pipeline}, {"--dp", &b.data}};
  std::vector<std::string> given;
  int64_t product = 1;
  for (const auto& [name, values] : degrees) {
    if (values->empty()) continue;
    if (values->size() > 1) return "";
    given.push_back(fmt::format("{} {}", name, values->front()));
    product *= std::min<int64_t>(values->front(), 10'000'000);
    if (product > 100'000'000) break;
  }
  const std::string options = joined(given, " x ");
  if (product > problem.ranks)
    return fmt::format("{} needs {}, there {} {}", options, counted_devices(product, problem),
                       problem.ranks == 1 ? "is" : "are", format_count(problem.ranks));
  if (product <= 1 || problem.ranks % product != 0)
    return product <= 1 ? ""
                        : fmt::format("{} cannot be split into groups of {}{}",
                                      counted_devices(problem.ranks, problem), options,
                                      given.size() == 1 ? "" : fmt::format(" = {}", format_count(product)));
  if (product == problem.ranks || b.data.empty()) return "";
  return fmt::format("{} uses {} of {}", options, format_count(product),
                     counted_devices(problem.ranks, problem));
}

// Why layouts of the problem do not divide: reasons that name what was asked, then the most frequent first.
std::string frequent_reasons(const SearchProblem& problem) {
  NotDividing reasons;
  list_layouts(
      problem, false, [](const Layout&) { return false; }, &reasons);
  constexpr size_t kMost = 3;
  std::vector<std::tuple<bool, int64_t, std::string>> sorted;
  for (const auto& [reason, count] : reasons) {
    // Ahead of others: what names what was asked for, or how to have it.
    const auto is_in = [&r = reason](const std::string& word) { return r.find(word) != std::string::npos; };
    sorted.emplace_back(!is_in("--execution") && !any_of(problem.bounds.schedules, is_in), -count, reason);
  }
  std::sort(sorted.begin(), sorted.end());
  auto told = mapped<std::string>(sorted, [](const auto& row) { return std::get<std::string>(row); });
  const size_t more = told.size() - std::min(kMost, told.size());
  told.resize(told.size() - more);
  if (more > 0) told.push_back(fmt::format("and {} more", more));
  return joined(told, "; ");
}

// The rule of model, batch or framework that a layout with the values breaks.
std::string broken_by(const SearchProblem& problem, const Layout& layout) {
  if (const auto r = check_layout(problem.model, layout, problem.workload)) return r->reason;
  const auto r = problem.refused([&](const frameworks::Framework& f) {
    // A lack of the model cannot be changed by a layout.
    return frameworks::supports_model(f, problem.model, problem.precision)
               ? std::optional<Rejection>()
               : frameworks::supports(f, problem.model, layout, problem.workload);
  });
  return r ? r->reason : "";
}

std::optional<Layout> layout_asked_for(const SearchProblem& problem) {
  try {
    return layout_of_bounds(problem);
  } catch (const UserError&) {
    return std::nullopt;  // degrees, or chunks of a schedule, that no layout has
  }
}

// The rule that most layouts with the values break. Settings that are not given are tried both ways.
std::string broken_rule(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  const auto asked = layout_asked_for(problem);
  if (!asked) return "";
  NotDividing broken;
  for (int64_t zero = 0; zero <= 3; ++zero)
    for (const bool sequence_parallel : {false, true}) {
      Layout layout = *asked;
      layout.precision = problem.precision;
      if (b.zero.empty()) layout.zero = zero;
      if (b.sequence_parallel.empty()) layout.sequence_parallel = sequence_parallel && layout.tensor > 1;
      layout.shard = layout.zero > 0 ? layout.replicas() : 1;
      problem.set_overlaps(layout);
      const std::string reason = broken_by(problem, layout);
      if (reason.empty()) return "";
      ++broken[reason];
    }
  return max_by(broken, [](const auto& reason) { return reason.second; })->first;
}

// If no bounds are given, the job itself is the obstacle.
Problem job_in_the_way(const SearchProblem& problem) {
  std::vector<std::string> remedies;
  if (std::string batches = other_batches(problem); !batches.empty()) remedies.push_back(std::move(batches));
  if (problem.framework) {
    SearchProblem free = problem;
    free.framework.reset();
    if (has_layouts(free)) remedies.emplace_back("another --framework, or --beyond-framework");
  }
  if (remedies.empty())
    remedies.push_back(fmt::format("another number of {}s", reports::device_word(problem.cluster)));
  return {"layouts",
          fmt::format("none divides the model and the batch over {}: {}",
                      counted_devices(problem.ranks, problem), frequent_reasons(problem)),
          "", joined(remedies, ", or ")};
}

}  // namespace

std::vector<BoundWords> asked_bounds(const SearchProblem& problem) {
  Words words = bound_words(problem.bounds);
  for (const BoundWords& own : bound_words(problem.own_bounds)) words = without(std::move(words), own.name);
  return words;
}

SearchProblem bounded(SearchProblem problem, std::vector<BoundWords> words) {
  if (!problem.meant.empty()) problem.meant = words;
  for (const BoundWords& own : bound_words(problem.own_bounds)) words.push_back(own);
  std::vector<std::string> parts;
  for (const auto& w : words)
    for (const auto& value : w.values) parts.push_back(w.name + "=" + value);
  problem.bounds = parts.empty() ? SearchBounds{} : parse_bounds(joined(parts, ","), "");
  return problem;
}

std::string nearest_batches(int64_t batch, int64_t unit, int64_t most,
                            const std::function<bool(int64_t)>& divides) {
  std::string below, above;
  const auto find = [&](int64_t other, std::string& found) {
    if (found.empty() && other > 0 && other != batch && divides(other))
      found = fmt::format("--global-batch {}", other);
  };
  for (int64_t step = unit; step <= most; step += unit) {
    if (most % step != 0) continue;
    find(batch / step * step, below);
    find((batch + step - 1) / step * step, above);
  }
  return below.empty() || above.empty() ? below + above : below + " or " + above;
}

std::string counted_devices(int64_t count, const SearchProblem& problem) {
  return fmt::format("{} {}{}", format_count(count), reports::device_word(problem.cluster),
                     count == 1 ? "" : "s");
}

bool has_layouts(const SearchProblem& problem) {
  return list_layouts(problem, false, [](const Layout&) { return false; });
}

Problem nothing_divides(const SearchProblem& problem) {
  const Words all = asked_bounds(problem);
  const Words conflict = fewest(problem, all);
  if (conflict.empty()) return job_in_the_way(bounded(problem, {}));
  SearchProblem asked = bounded(problem, conflict);
  // No method does, and this one was asked for.
  asked.bounds.context_methods = problem.bounds.context_methods;
  std::string reason = degrees_in_the_way(asked);
  if (reason.empty()) reason = broken_rule(asked);
  if (reason.empty()) reason = frequent_reasons(asked);
  return {options_of(conflict), reason, "", remedy_of(problem, all, conflict)};
}

Problem why_nothing_fits(const SearchResult& result, const SearchProblem& problem) {
  if (stop_requested())
    return {
        "interrupted",
        fmt::format("after {} no layout that fits was found yet", format_seconds(result.certificate.seconds)),
        "", ""};
  if (!result.certificate.optimal)
    return {"--time-limit",
            fmt::format("the search was stopped after {} without a layout that fits",
                        format_seconds(result.certificate.seconds)),
            "more time", "raise it, or bound the space with --tp, --pp and the like"};
  if (result.over_memory.empty()) return nothing_divides(problem);
  const NearMiss& family = result.over_memory.front();
  const bool host = family.nearest.constraint == "host memory";
  const char* const one = host ? "host" : reports::device_word(problem.cluster);
  return {"memory",
          fmt::format("{} needs at least {} per {} on {}; there are {}", problem.model.name,
                      format_bytes(family.nearest.needed), one, counted_devices(problem.ranks, problem),
                      format_bytes(host ? family.nearest.available : double(problem.memory_limit_bytes))),
          fmt::format("a layout that fits; of {} the smallest is {} ({})",
                      format_count(result.certificate.layouts), layout_name(family.layout),
                      family.nearest.reason),
          problem.cluster.device.kind == DeviceKind::cpu
              ? "the ranks share this machine's memory: plan for GPUs, such as --cluster dgx-h100:1, or a "
                "smaller model"
              : fmt::format("use more GPUs (--cluster){} a shorter --seq",
                            problem.workload.global_batch > 1 ? ", a smaller --global-batch, or" : " or")};
}

}  // namespace mpt::planner
