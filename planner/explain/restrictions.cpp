// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/restrictions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace mpt::planner {
namespace {

using Words = std::vector<std::string>;

Words words(const std::vector<int64_t>& values) {
  Words all;
  for (const int64_t value : values) all.push_back(std::to_string(value));
  return all;
}
template <class E>
Words words(const std::vector<E>& values) {
  Words all;
  for (const E value : values) all.push_back(enum_name(value));
  return all;
}
Words words(const std::vector<std::string>& values) { return values; }
Words words(const std::vector<bool>& values) {
  Words all;
  for (const bool value : values) all.emplace_back(value ? "on" : "off");
  return all;
}

std::string word(int64_t value) { return std::to_string(value); }
std::string word(bool value) { return value ? "on" : "off"; }

struct Axis {
  const char* name;
  Words (*allowed)(const SpaceBounds&);
  std::string (*of)(const Layout&);  // empty: the layout has no such axis
};

using B = SpaceBounds;
using L = Layout;
const Axis kAxes[] = {
    {"tp", [](const B& b) { return words(b.tensor); }, [](const L& l) { return word(l.tensor); }},
    {"sp", [](const B& b) { return words(b.sequence_parallel); },
     [](const L& l) { return l.tensor > 1 ? word(l.sequence_parallel) : ""; }},
    {"cp", [](const B& b) { return words(b.context); }, [](const L& l) { return word(l.context); }},
    {"cp-method", [](const B& b) { return words(b.context_methods); },
     [](const L& l) { return l.context > 1 ? enum_name(l.context_method) : ""; }},
    {"pp", [](const B& b) { return words(b.pipeline); }, [](const L& l) { return word(l.pipeline); }},
    {"chunks", [](const B& b) { return words(b.chunks); }, [](const L& l) { return word(l.chunks); }},
    {"schedule", [](const B& b) { return words(b.schedules); },
     [](const L& l) { return l.pipeline > 1 ? l.schedule : ""; }},
    {"dp", [](const B& b) { return words(b.data); }, [](const L& l) { return word(l.data); }},
    {"zero", [](const B& b) { return words(b.zero); }, [](const L& l) { return word(l.zero); }},
    {"offload", [](const B& b) { return words(b.offload); },
     [](const L& l) { return word(l.offload_optimizer); }},
    {"order", [](const B& b) { return words(b.orders); },
     [](const L& l) { return l.pipeline > 1 && l.data > 1 ? enum_name(l.order) : ""; }},
    {"ep", [](const B& b) { return words(b.expert); }, [](const L& l) { return word(l.expert); }},
    {"etp", [](const B& b) { return words(b.expert_tensor); },
     [](const L& l) { return l.expert > 1 ? word(l.expert_split()) : ""; }},
    {"micro-batch", [](const B& b) { return words(b.micro_batch); },
     [](const L& l) { return word(l.micro_batch); }},
    {"recompute", [](const B& b) { return words(b.recomputes); },
     [](const L& l) { return enum_name(l.recompute); }}};

}  // namespace

std::map<std::string, std::string> restrictions_of(const SpaceBounds& bounds) {
  std::map<std::string, std::string> restrictions;
  for (const Axis& axis : kAxes) {
    const Words allowed = axis.allowed(bounds);
    if (!allowed.empty()) restrictions[axis.name] = fmt::format("{}", fmt::join(allowed, ","));
  }
  return restrictions;
}

std::vector<std::string> broken_restrictions(const std::map<std::string, std::string>& restrictions,
                                             const Layout& layout) {
  std::vector<std::string> broken;
  for (const Axis& axis : kAxes) {
    const auto found = restrictions.find(axis.name);
    const std::string value = axis.of(layout);
    if (found == restrictions.end() || value.empty()) continue;
    const Words allowed = values_of(found->second);
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
      broken.push_back(fmt::format("--{} {}", axis.name, found->second));
  }
  return broken;
}

std::vector<std::string> values_of(const std::string& restriction) {
  std::vector<std::string> values;
  for (size_t begin = 0; begin <= restriction.size();) {
    const size_t end = std::min(restriction.find(',', begin), restriction.size());
    values.push_back(restriction.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

}  // namespace mpt::planner
