// SPDX-License-Identifier: Apache-2.0

// mpt-plan export --smoke: the plan once more, small enough for two CPU processes.

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/terminal.h"
#include "frameworks/export.h"
#include "planner/commands/commands.h"

namespace mpt::planner {
namespace {

// What widths and heads are divided by. An even number of heads is left, each as large as before.
int64_t divisor_of(const ModelSpec& m) {
  const int64_t heads = m.attention().heads;
  int64_t by = std::max<int64_t>(1, std::min(m.hidden / 256, heads / 4));
  while (by > 1 && (m.hidden % by != 0 || heads % (2 * by) != 0)) --by;
  return by;
}

// Fields of a model and its layers: at most these values, or where these are 0, divided.
Json shrunk(Json fields, int64_t by) {
  static const Json most = parse_json(frameworks::template_text("smoke.json"), "smoke.json").at("most");
  for (auto& [key, value] : fields.items()) {
    if (value.is_structured()) value = shrunk(value, by);
    const auto limit = most.find(key);
    if (limit == most.end() || !value.is_number_integer()) continue;
    const auto size = value.get<int64_t>();
    value = std::min(size, *limit > 0 ? limit->get<int64_t>() : std::max<int64_t>(2, size / by));
  }
  return fields;
}

// The first axis that has several ranks gets two, with its settings in the plan.
SearchBounds two_ranks(const Layout& l) {
  const bool stages = l.pipeline > 1, parts = !stages && l.context > 1;
  const bool split = !stages && !parts && l.tensor > 1;
  SearchBounds b;
  b.pipeline = {stages + 1};
  b.context = {parts + 1};
  b.tensor = {split + 1};
  b.recomputes = {l.recompute};
  if (stages) b.schedules = {l.schedule};
  if (parts) b.context_methods = {l.context_method};
  if (split) b.sequence_parallel = {l.sequence_parallel ? Switch::on : Switch::off};
  if (!stages && !split) b.zero = {l.zero};
  if (!stages && !split && !parts) b.expert = {std::min<int64_t>(2, l.expert)};
  return b;
}

}  // namespace

Plan smoke_plan(const Plan& plan) {
  ModelSpec model = plan.model;
  const auto& kinds = plan.model.layers.kinds;
  model.layers = LayerList::of(
      4, [&](int64_t l) { return std::next(kinds.begin(), l * int64_t(kinds.size()) / 4)->second; });
  const int64_t by = divisor_of(model);
  if (model.embedding_scale) *model.embedding_scale /= std::sqrt(double(by));  // often the root of the width
  PlanRequest small;
  small.model = {model.name, from_json<ModelSpec>(shrunk(to_json(model), by), model.name)};
  small.framework = plan.layout.execution->framework;
  small.cluster.name = "dgx-h100:1";  // its prices are not printed
  small.gpus = 2;
  small.precision = Precision::fp32;
  small.sequence = 64;
  small.global_batch = 8;
  small.bounds = two_ranks(plan.layout);
  return estimate(small).plan;
}

std::string smoke_command(const std::string& target, const Plan& plan, const std::string& folder) {
  static const Json table = parse_json(frameworks::template_text("smoke.json"), "smoke.json");
  const Json& entry = table.at(target);
  std::string lacks = entry.value("lacks", ""), text = entry.value("command", "");
  if (plan.layout.pipeline > 1) lacks = entry.value("lacks_with_stages", lacks);
  if (plan.layout.training->adapts()) lacks = "adapters, which start from trained weights";
  if (lacks.empty()) return with_value(text, "@folder@", shell_word(folder));
  std::vector<std::string> others;
  for (const auto& [name, other] : table.items())
    if (other.contains("command")) others.push_back(name);
  refuse_input("--smoke --to " + target, lacks, one_of(others), "leave --smoke out: the export is for GPUs");
}

}  // namespace mpt::planner
