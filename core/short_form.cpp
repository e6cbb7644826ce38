// SPDX-License-Identifier: Apache-2.0
#include "core/short_form.h"

#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/words.h"
#include "core/schedule_catalog.h"

namespace mpt {
namespace {

std::vector<std::string> parts_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> parts;
  for (std::string part; in >> part;) parts.push_back(part);
  return parts;
}

int64_t number_in(const std::smatch& match, size_t group, const std::string& where) {
  return detail::element_of_word<int64_t>(match[group], where, between(0, double(kMostRanks)));
}

using Read = void (*)(ShortForm& form, const std::smatch& match, const std::string& where);
struct Part {
  std::string pattern;
  Read read;
};

// Reads the degree after a prefix.
template <std::vector<int64_t> SearchBounds::*kDegree>
void read_degree(ShortForm& form, const std::smatch& match, const std::string& where) {
  form.bounds.*kDegree = {number_in(match, 1, where)};
}

const std::vector<Part>& part_table() {
  static const std::vector<Part> table{
      {R"(tp(\d+)(\+sp)?)",
       [](ShortForm& f, const std::smatch& m, const std::string& where) {
         read_degree<&SearchBounds::tensor>(f, m, where);
         if (m[2].matched) f.bounds.sequence_parallel = {Switch::on};
       }},
      {R"(cp(\d+)(a2a)?)",
       [](ShortForm& f, const std::smatch& m, const std::string& where) {
         read_degree<&SearchBounds::context>(f, m, where);
         f.bounds.context_methods = {m[2].matched ? ContextMethod::all_to_all : ContextMethod::ring};
       }},
      {R"(pp(\d+))", read_degree<&SearchBounds::pipeline>},
      {R"(dp(\d+))", read_degree<&SearchBounds::data>},
      {R"(ep(\d+))", read_degree<&SearchBounds::expert>},
      {R"(etp(\d+))", read_degree<&SearchBounds::expert_tensor>},
      {R"(zero([0-3])(?:/(\d+))?)",
       [](ShortForm& f, const std::smatch& m, const std::string& where) {
         read_degree<&SearchBounds::zero>(f, m, where);
         if (m[2].matched) f.shard = number_in(m, 2, where);
       }},
      {R"(mbs(\d+))", read_degree<&SearchBounds::micro_batch>},
      {R"(x(\d+))", read_degree<&SearchBounds::chunks>},
      {"dp-outermost", [](ShortForm& f, const std::smatch&,
                          const std::string&) { f.bounds.orders = {RankOrder::data_outermost}; }},
      {"offload",
       [](ShortForm& f, const std::smatch&, const std::string&) { f.bounds.offload = {Switch::on}; }},
      {R"(recompute=(\d+)/stage)",
       [](ShortForm& f, const std::smatch& m, const std::string& where) {
         f.bounds.recomputes = {Recompute::full};
         f.recomputed_layers = number_in(m, 1, where);
       }},
      {R"(recompute=(none|selective|full))",
       [](ShortForm& f, const std::smatch& m, const std::string&) {
         f.bounds.recomputes = {*enum_value<Recompute>(m[1].str())};
       }},
      {R"(recompute=([a-z_+]+))",
       [](ShortForm& f, const std::smatch& m, const std::string&) {
         f.bounds.recomputes = {Recompute::selective};
         std::string names = m[1];
         std::replace(names.begin(), names.end(), '+', ' ');
         f.recompute_modules = parts_of(names);
       }},
      {joined(schedule_names(), "|"), [](ShortForm& f, const std::smatch& m, const std::string& where) {
         f.bounds.schedules = {find_schedule(m[0], where.c_str()).name};
       }}};
  return table;
}

}  // namespace

Layout ShortForm::complete(Layout layout) const {
  if (shard > 0) layout.shard = shard;
  for (size_t s = 0; recomputed_layers && s < layout.layers_per_stage.size(); ++s)
    layout.recomputed_layers.push_back(std::min(*recomputed_layers, layout.layers_per_stage[s]));
  return layout;
}

ShortForm parse_short_form(const std::string& text, const std::string& where) {
  ShortForm form;
  std::set<const Part*> seen;
  const auto refuse = [&](const std::string& part, const char* expected) {
    refuse_input(where, fmt::format("'{}' in the layout '{}'", part, text), expected,
                 "docs/notation.md has all parts; mpt-plan prints layouts in this form");
  };
  for (const std::string& part : parts_of(text)) {
    std::smatch match;
    const auto& table = part_table();
    const auto found =
        find_if(table, [&](const Part& p) { return std::regex_match(part, match, std::regex(p.pattern)); });
    if (found == table.end()) refuse(part, "a part of a short form, such as tp2, pp8, zero1 or mbs1");
    if (!seen.insert(&*found).second) refuse(part, "each part once");
    found->read(form, match, where);
  }
  if (seen.empty()) refuse("", "a layout, such as tp2 pp8 mbs1");
  return form;
}

bool is_short_form(const std::string& text) {
  static const std::regex first(R"(\s*(?:tp|cp|pp|dp|ep|etp|zero|mbs)\d.*)");
  return std::regex_match(text, first);
}

std::string sorted_parts(const std::string& text) {
  std::vector<std::string> parts = parts_of(text);
  std::sort(parts.begin(), parts.end());
  return joined(parts, " ");
}

}  // namespace mpt
