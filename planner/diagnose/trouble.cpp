// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/trouble.h"

#include <fmt/ranges.h>

#include <cmath>
#include <regex>
#include <set>

#include "base/quantity.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

using frameworks::number_behind;

constexpr size_t kMostRanksNamed = 6;
constexpr size_t kMostShown = 160;
constexpr double kFall = 0.9;

// `forms`: texts of a line in lower case, with "|" between forms and "*" for any text within one. `needs`:
// nan for steps that are not finite, hosts for a plan of several.
struct Sign {
  const char* forms;
  std::string_view needs;
  const char *finding, *change, *source;
};
constexpr Sign kSigns[] = {
#include "generated/LogSigns.inc"
};

bool has_form(std::string_view line, std::string_view form) {
  const size_t end = std::min(form.find('*'), form.size()), at = line.find(form.substr(0, end));
  return at != std::string_view::npos &&
         (end == form.size() || has_form(line.substr(at + end), form.substr(end + 1)));
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The rank that PyTorch names, or else that of the launcher.
int64_t rank_of(const LogLine& line) {
  const auto named = number_behind(line.text, "[Rank ");
  return named && *named >= 0.0 && *named < 1e9 ? int64_t(*named) : line.rank;
}

std::string ranks_text(const std::set<int64_t>& ranks) {
  std::vector<int64_t> known(ranks.lower_bound(0), ranks.end());
  if (known.empty()) return "A rank";
  const size_t shown = std::min(known.size(), kMostRanksNamed);
  return fmt::format("Rank{} {}{}", known.size() > 1 ? "s" : "",
                     fmt::join(known.begin(), known.begin() + int64_t(shown), ", "),
                     shown < known.size() ? fmt::format(" and {} more", known.size() - shown) : "");
}

// The bytes after `key`, in GiB, MiB or KiB; 0 if there are none.
double bytes_behind(std::string_view line, std::string_view key) {
  const auto value = number_behind(line, key);
  if (!value || !(*value > 0.0) || !(*value < 1e9)) return 0.0;
  const std::string_view rest = line.substr(line.find(key) + key.size(), 40);
  const size_t unit = rest.find("iB");
  if (unit == std::string_view::npos || unit == 0) return 0.0;
  const char letter = rest[unit - 1];
  return letter == 'G' ? *value * double(kGiB) : letter == 'M' ? *value * double(kMiB) : 0.0;
}

// Format of releases before 2.2: "(GPU 3; 79.15 GiB total capacity; ...".
double capacity_before(std::string_view text) {
  const size_t end = text.find(" total capacity;"), begin = text.rfind("; ", end);
  const bool found = end != std::string_view::npos && begin != std::string_view::npos;
  return found ? bytes_behind(text.substr(begin, end - begin), "; ") : 0.0;
}

void add_out_of_memory(const frameworks::LogFile& file, const Plan& plan, std::vector<Trouble>& troubles) {
  size_t first = 0;
  std::set<int64_t> ranks;
  double asked = 0.0, room = 0.0;
  for (const LogLine& line : file.lines) {
    if (!has(line.text, "CUDA out of memory") && !has(line.text, "HIP out of memory") &&
        !has(line.text, "CUDA error: out of memory") && !has(line.text, "OutOfMemoryError"))
      continue;
    if (first == 0) first = line.number;
    ranks.insert(rank_of(line));
    asked = std::max(asked, bytes_behind(line.text, "Tried to allocate"));
    room = std::max({room, bytes_behind(line.text, "total capacity of"), capacity_before(line.text)});
  }
  if (first == 0) return;
  const double predicted = double(reports::peak_bytes(plan)), limit = double(plan.memory_limit_bytes);
  std::string text = fmt::format("{} ran out of GPU memory (line {})", ranks_text(ranks), first);
  if (asked > 0.0) text += fmt::format(", asking for {} more", format_bytes(asked));
  if (room > 0.0) text += fmt::format(" of {}", format_bytes(room));
  text += fmt::format("; the plan predicts {} of {}.", format_bytes(predicted), format_bytes(limit));
  std::string change = "compare the options of the run with those of the export";
  const std::string doubt = doubt_by_memory(plan, room > 0.0 ? room : limit, true);
  if (doubt.empty())
    change = fmt::format(
        "plan again with --memory {:.1f}GiB, or ask mpt-plan doctor --plan what takes less memory",
        std::floor(9.0 * predicted / double(kGiB)) / 10.0);
  troubles.push_back({doubt.empty() ? text : text + " " + doubt, change, true});
}

// What a rank waits for: a collective, its number in the group, and the elements that the rank sends.
struct Waiting {
  int64_t rank, number, sent;
  std::string operation;
};

int64_t count_behind(std::string_view line, std::string_view key) {
  const double value = number_behind(line, key).value_or(0.0);
  return value > 0.0 && value < 1e15 ? int64_t(value) : 0;
}

// What ranks that wait for the same kind of collective do not share.
void add_differences(const std::vector<Waiting>& waiting, Trouble& trouble) {
  const auto number = [](const Waiting& a, const Waiting& b) { return a.number < b.number; };
  const auto sent = [](const Waiting& a, const Waiting& b) { return a.sent < b.sent; };
  if (const auto [a, b] = std::minmax_element(waiting.begin(), waiting.end(), sent); a->sent < b->sent) {
    trouble.finding += fmt::format(" Rank {} sends {} elements, rank {} sends {}.", a->rank,
                                   format_count(a->sent), b->rank, format_count(b->sent));
    trouble.change +=
        "; compare what each rank sends with what the others expect, such as the splits of an "
        "all-to-all of experts (TORCH_DISTRIBUTED_DEBUG=DETAIL checks each collective)";
  }
  if (const auto [a, b] = std::minmax_element(waiting.begin(), waiting.end(), number);
      a->number < b->number) {
    trouble.finding += fmt::format(" Rank {} is at number {} of its group, rank {} at {}.", a->rank,
                                   format_count(a->number), b->rank, format_count(b->number));
    trouble.change += fmt::format("; look first at rank {}, which is behind", a->rank);
  }
}

void add_time_outs(const frameworks::LogFile& file, const Plan& plan, std::vector<Trouble>& troubles) {
  std::set<int64_t> ranks;
  std::vector<Waiting> waiting;  // for the operation of the first line
  std::string where;
  for (const LogLine& line : file.lines) {
    if (!has(line.text, "atchdog caught collective operation timeout")) continue;
    const std::string_view name =
        line.text.substr(std::min(line.text.find("OpType="), line.text.size() - 7) + 7);
    const Waiting w{rank_of(line), count_behind(line.text, "SeqNum="), count_behind(line.text, "NumelIn="),
                    printable(name.substr(0, std::min<size_t>(name.find_first_of(",) "), 40)))};
    const int64_t limit_ms = count_behind(line.text, "Timeout(ms)=");
    if (where.empty())
      where = fmt::format("line {}{}{}", line.number, w.operation.empty() ? "" : ", " + w.operation,
                          limit_ms > 0 ? fmt::format(", limit {:.0f} s", double(limit_ms) * 1e-3) : "");
    if (ranks.insert(w.rank).second && (waiting.empty() || w.operation == waiting.front().operation))
      waiting.push_back(w);
  }
  if (ranks.empty()) return;
  std::vector<int64_t> silent;
  for (int64_t rank = 0; rank < plan.layout.ranks() && silent.size() <= kMostRanksNamed; ++rank)
    if (!ranks.contains(rank)) silent.push_back(rank);
  const bool told = !ranks.contains(-1) && !silent.empty() && silent.size() <= kMostRanksNamed;
  troubles.push_back(
      {fmt::format("{} waited too long for a collective ({}).", ranks_text(ranks), where),
       "look for the rank that left: the first error of the log, a dead host, or a link that is down"});
  if (told)
    troubles.back().change = fmt::format(
        "look first at rank{} {}, which did not report it: it may be the one that the others waited for",
        silent.size() > 1 ? "s" : "", fmt::join(silent, ", "));
  add_differences(waiting, troubles.back());
}

std::string steps_text(const BadSteps& steps) {
  std::string count = fmt::format("{} step{}", format_count(steps.count), steps.count == 1 ? "" : "s");
  if (steps.first == 0) return count;
  return fmt::format("{} ({} step {})", count, steps.count == 1 ? "it is" : "the first is", steps.first);
}

}  // namespace

std::vector<Trouble> find_troubles(const frameworks::LogFile& file, const Plan& plan) {
  std::vector<Trouble> troubles;
  add_out_of_memory(file, plan, troubles);
  add_time_outs(file, plan, troubles);
  return troubles;
}

std::vector<Trouble> bad_steps(const BadSteps& not_finite, const BadSteps& skipped, Precision precision) {
  std::vector<Trouble> troubles;
  if (not_finite.count > 0)
    troubles.push_back(
        {fmt::format("{} had a loss or gradients that are not finite.", steps_text(not_finite)),
         "go back to a checkpoint before it; lower the learning rate, and check the data of that step"});
  if (skipped.count > 0) {
    const bool scaled = precision == Precision::fp16;
    troubles.push_back({fmt::format("{} left the weights as they were.", steps_text(skipped)),
                        scaled ? "a few at the start set fp16's loss scale; if they go on, train in bf16"
                               : "only fp16 has a loss scale to find: look for overflows, and compare the "
                                 "log's precision with the plan's"});
  }
  return troubles;
}

std::vector<Trouble> find_signs(const frameworks::LogFile& file, const Plan& plan, bool not_finite) {
  std::array<std::vector<std::string>, std::size(kSigns)> forms;
  const bool hosts = plan.cluster.nodes_of(plan.layout.ranks()) > 1;
  for (size_t i = 0; i < forms.size(); ++i)
    if (kSigns[i].needs == "" || (kSigns[i].needs == "nan" ? not_finite : hosts))
      forms[i] = split_at(kSigns[i].forms, '|');
  std::map<size_t, std::vector<const LogLine*>> seen;
  for (const LogLine& line : file.lines) {
    const std::string text = lower_case(std::string(line.text));
    const auto has = [&](const std::string& form) { return has_form(text, form); };
    const auto sign = find_if(forms, [&](const auto& any) { return any_of(any, has); });
    if (sign != forms.end()) seen[size_t(sign - forms.begin())].push_back(&line);
  }
  std::vector<Trouble> troubles;
  for (const auto& [i, lines] : seen)
    troubles.push_back(
        {fmt::format(
             "{} (line {}{}: \"{}\").",
             fmt::format(fmt::runtime(kSigns[i].finding), enum_name(plan.layout.precision)),
             lines.front()->number,
             lines.size() > 1 ? fmt::format(" and {} more", format_count(lines.size() - 1)) : "",
             printable(cut_text(lines.front()->text.substr(lines.front()->text.find_first_not_of(' ')),
                                kMostShown))),
         kSigns[i].change});
  return troubles;
}

std::vector<Trouble> falling_speed(const frameworks::LogFile& file) {
  static const std::regex form(
      R"((?:(\d{1,5})[ -]*nodes?\b|n?nodes?[^\w]{0,3}(\d{1,5})\b).*?\b([\d,]*\.?\d+) *(k? ?(?:tok|sample|[tp]?flop)\w*(?: per |/) *s\S*))",
      std::regex::icase);
  std::map<int64_t, std::pair<double, size_t>> speeds;  // of a GPU, and the line
  for (const LogLine& line : file.lines) {
    const std::string text(cut_text(line.text, kMostShown));
    std::smatch found;
    if (!std::regex_search(text, found, form)) continue;
    const std::string unit = lower_case(found[4]);
    const int64_t nodes = std::max(1, std::stoi(found[found[1].matched ? 1 : 2]));
    const double of_all = has_form(unit, "gpu") || has_form(unit, "flop") ? 1.0 : double(nodes);
    speeds[nodes] = {number_behind(found[3].str(), "").value_or(0.0) / of_all, line.number};
  }
  if (speeds.empty()) return {};
  const auto& [few, fast] = *speeds.begin();
  const auto& [many, slow] = *speeds.rbegin();
  if (!(slow.first < kFall * fast.first)) return {};
  return {
      {fmt::format(
           "A GPU's speed falls as nodes are added: on {} nodes (line {}) it is {} of that on {} (line {}).",
           format_count(many), slow.second, format_percent(slow.first / fast.first), format_count(few),
           fast.second),
       "time the links: all_reduce_perf of nccl-tests on as many nodes, where NCCL_DEBUG=INFO must not name "
       "the network Socket; keep tensor and expert ranks inside a node, and give each GPU more tokens in a "
       "step; mpt-plan compare with both clusters says what falls by prediction"}};
}

}  // namespace mpt::planner
