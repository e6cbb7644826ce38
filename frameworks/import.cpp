// SPDX-License-Identifier: Apache-2.0
#include "frameworks/import.h"

#include "frameworks/dialects.h"
#include "frameworks/export.h"
#include "frameworks/framework.h"

namespace mpt::frameworks {

void check_stages(const Layout& layout, const ModelSpec& model, const std::string& where) {
  const int64_t most = model.layers.count() + 2;  // the embedding and the head may each be a stage
  if (layout.stages() <= most) return;
  throw FrameworkRefusal(where, fmt::format("{} stages for {} layers", layout.stages(), model.layers.count()),
                         fmt::format("at most {}", most), "fewer pipeline ranks or virtual stages");
}

void check_imported(const Imported& in, const std::string& file) {
  if (in.model) {
    try {
      from_json<ModelSpec>(to_json(*in.model), file);
      validate_model(*in.model, file);
    } catch (const UserError& error) {  // sizes that do not divide each other
      throw FrameworkRefusal(error.problems().front());
    }
  }
  Layout layout = in.layout;
  layout.data = std::max<int64_t>(1, layout.data);
  if (const auto rejection = check_degrees(layout))
    throw FrameworkRefusal(file, rejection->reason,
                           fmt::format("degrees whose product is at most {} ranks", kMostRanks));
  Workload workload = in.workload;
  workload.global_batch = std::max<int64_t>(1, workload.global_batch);
  from_json<Workload>(to_json(workload), file);
}

void set_fsdp(Imported& in, const FsdpRanks& ranks, const std::string& file) {
  Layout& l = in.layout;
  l.data = ranks.replicate * ranks.shard;
  if (l.data > kMostRanks)
    refuse_input(file, fmt::format("{} x {} replicas", ranks.replicate, ranks.shard),
                 fmt::format("at most {} data-parallel ranks", kMostRanks));
  l.zero = ranks.shard == 1 && l.context == 1 ? 0 : ranks.reshard ? 3 : 2;
  if (ranks.shard > 0 || ranks.replicate > 1) in.shard_groups = ranks.replicate;
  l.overlap_gradient_reduce = l.overlap_parameter_gather = true;
}

void defer_gradient_sums(const std::string& key, const char* value, Imported& in) {
  in.defers_gradient_sums = true;
  in.notes.push_back(fmt::format(
      "gradients of several micro-batches stay whole on each GPU until the last one; {}: {} shares "
      "out those of each",
      key, value));
}

void run_pipeline_again(int64_t micro_batches, const char* key, Imported& in) {
  in.at_once = std::max<int64_t>(1, micro_batches);
  const int64_t whole = in.at_once * in.layout.micro_batch * in.layout.data;  // 0: replicas are left open
  if (whole > 0 && in.workload.global_batch <= whole) return;
  in.notes.push_back(fmt::format(
      "the pipeline fills and drains for every {} micro-batches. One such run and an optimizer update are "
      "priced{}. A step is one run if {} is a rank's part of the global batch",
      in.at_once, whole > 0 ? fmt::format("; a step has {} runs", in.workload.global_batch / whole) : "",
      key));
}

Precision precision_named(const std::string& name, const std::string& where) {
  if (const auto precision = enum_value<Precision>(name)) return *precision;
  refuse_input(where, fmt::format("\"{}\"", cut_text(name, 40)), one_of(enum_names<Precision>()));
}

void set_optimizer(Imported& in, const std::string& name) {
  static const Json rows = parse_json(template_text("optimizers.json"), "optimizers.json").at("names");
  const Json& row = *find_if(rows, [small = lower_case(name)](const Json& one) {
    return small.find(one["word"].get_ref<const std::string&>()) != std::string::npos;
  });
  in.layout.training.edit().optimizer = *enum_value<OptimizerKind>(row.value("kind", "adamw"));
  if (row.contains("unknown"))
    in.unknown.push_back(fmt::format("optimizer {:.40}, {}", name, row.value("unknown", "")));
  if (row.contains("note"))
    in.notes.push_back(fmt::format("optimizer {:.40}: {}", name, row.value("note", "")));
}

void note_left_out(const Settings& settings, const std::string& framework, Imported& in) {
  std::string noted;
  for (const std::string& key : dialect_of(framework).not_taken_over) {
    const Json* const value = settings.find(key);
    if (value != nullptr && *value != false && *value != 1 && *value != "none" && *value != "NO" &&
        *value != "no")
      noted += (noted.empty() ? "not taken over: " : ", ") + key;
  }
  if (!noted.empty()) in.notes.push_back(noted);
}

void set_whole_experts(Layout& layout) {
  layout.expert_tensor = layout.expert > 1 && layout.tensor > 1 ? 1 : 0;
}

std::string schedule_of_torch(const std::string& framework, const std::string& torch_class,
                              const std::string& where) {
  std::string planned;
  for (const ScheduleAbility& s : framework_named(framework, where).abilities.schedules) {
    const std::string known = torch_class_of(s.schedule);
    if (known.empty()) continue;
    if (lower_case(known) == lower_case(torch_class)) return s.schedule;
    planned += (planned.empty() ? "" : ", ") + known;
  }
  throw NotJudged(where, fmt::format("schedule \"{}\"", cut_text(torch_class, 40)),
                  "one that MPT plans: " + planned);
}

int64_t chunks_of_stages(const Imported& in, int64_t layers, int64_t each, const std::string& rounds,
                         const std::string& where) {
  const int64_t ranks = in.layout.pipeline;
  const bool single = in.layout.schedule == "1f1b" || in.layout.schedule == "gpipe";
  if (each == 0 || !in.model) return single ? 1 : 2;
  const int64_t stages = (layers + each - 1) / each;
  const int64_t chunks = (stages + (rounds == "up" ? ranks - 1 : 0)) / ranks;
  if (chunks == 0 || (chunks == 1) != single || (rounds != "up" && rounds != "down" && stages % ranks != 0))
    throw FrameworkRefusal(where, fmt::format("{} stages of {} layers", stages, each),
                           fmt::format("stages of {} for {} ranks", in.layout.schedule, ranks));
  return chunks;
}

void set_stages(Imported& in, const std::vector<int64_t>& layers, const std::string& where) {
  Layout& l = in.layout;
  if (!layers.empty()) {
    if (int64_t(layers.size()) % l.pipeline != 0)
      throw FrameworkRefusal(where, fmt::format("{} stages", layers.size()),
                             fmt::format("a multiple of {} pipeline ranks", l.pipeline));
    l.chunks = int64_t(layers.size()) / l.pipeline;
    l.layers_per_stage = layers;
  }
  if (!in.model) return;
  check_stages(l, *in.model, where);
  if (layers.empty()) l.layers_per_stage = even_stages(in.model->layers.count(), l.stages());
  if (const auto sum = sum_of<int64_t>(l.layers_per_stage, std::identity()); sum != in.model->layers.count())
    throw FrameworkRefusal(where, fmt::format("{} layers in its stages", sum),
                           fmt::format("the {} layers of {}", in.model->layers.count(), in.model->name));
}

}  // namespace mpt::frameworks
