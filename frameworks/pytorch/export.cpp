// SPDX-License-Identifier: Apache-2.0

// PyTorch: one file that trains the plan's model under torchrun with PyTorch 2.15 alone. It is made of
// frameworks/pytorch/trainer and the plan's constants, without code that the plan does not use.

#include "base/error.h"
#include "base/json.h"
#include "frameworks/export_targets.h"
#include "frameworks/framework.h"
#include "frameworks/pytorch/trainer_file.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "models/hf_weights.h"

namespace mpt::frameworks {
namespace {

bool runs_from_rows(const Layout& l) {
  return l.pipeline > 1 && needs_rows(*find_framework("pytorch"), l.schedule);
}

// Hugging Face's names of the weights. Models unknown to it get Llama's names.
std::string weight_names(const ModelSpec& m) {
  if (m.moe() != nullptr) return m.attention().query_key_norm == QueryKeyNorm::none ? "mixtral" : "qwen3_moe";
  return m.norm == NormKind::layer_norm && m.position == PositionKind::learned && !m.mlp().gated &&
                 m.attention().qkv_bias
             ? "gpt2"
             : "llama";
}

TrainerConditions trainer_conditions(const Plan& plan, bool refused) {
  const ModelSpec& m = plan.model;
  const Layout& l = plan.layout;
  const bool ring = l.context > 1 && l.context_method == ContextMethod::ring;
  const std::string weights = weight_names(m);
  return {{"pipeline", l.pipeline > 1},
          {"schedule class", l.pipeline > 1 && !runs_from_rows(l)},
          {"schedule rows", runs_from_rows(l)},
          {"tensor", l.tensor > 1},
          {"context", l.context > 1},
          {"context ring", ring},
          {"context all_to_all", l.context > 1 && !ring},
          {"shards", l.replicas() > 1 || l.precision != Precision::fp32},
          {"recompute", l.recompute == Recompute::full},
          {"fp16", l.precision == Precision::fp16},
          {"rotary", m.position == PositionKind::rotary},
          {"learned", m.position == PositionKind::learned},
          {"query key norm", m.attention().query_key_norm != QueryKeyNorm::none},
          {"gated", m.mlp().gated},
          {"experts", m.moe() != nullptr},
          {"normalized weights", m.moe() != nullptr && m.moe()->normalized},
          {"expert groups", m.moe() != nullptr && m.moe()->groups_per_token < m.moe()->expert_groups},
          {"weights mixtral", weights == "mixtral"},
          {"weights qwen3_moe", weights == "qwen3_moe"},
          {"refused", refused}};
}

// One key a line, without the name: the title has it.
std::string model_constant(const ModelSpec& model) {
  const Json fields = to_json(model);
  std::string text = "MODEL = {\n";
  for (const auto& [key, value] : fields.items())
    if (key != "name" && key != "type" && key != "hub_id")
      text += fmt::format("    \"{}\": {},\n", key, python_text(value));
  return text + "}\n";
}

std::string config_constant(const ModelSpec& model) {
  Json config = Json::object();
  try {
    config = parse_json(models::hugging_face_config(model), "config.json");
  } catch (const UserError&) {
    return "CONFIG = {}  # Hugging Face has no such model\n";
  }
  return fmt::format("CONFIG = {}  # config.json of a saved model\n", python_text(config));
}

std::string mesh_constants(const Layout& l) {
  const int64_t shard = sharing_data_ranks(l);
  const std::string data = fmt::format("{}, {}", l.data / shard, shard);
  const bool outermost = l.order == RankOrder::data_outermost;
  return fmt::format(
      "MESH = [{}, {}, {}, {}]\nAXES = [{}, \"cp\", \"tp\"]\n", outermost ? data : std::to_string(l.pipeline),
      outermost ? std::to_string(l.pipeline) : data, l.context, l.tensor,
      outermost ? "\"dp_replicate\", \"dp_shard\", \"pp\"" : "\"pp\", \"dp_replicate\", \"dp_shard\"");
}

// A line of actions for each pipeline rank, in PyTorch's notation.
std::string rows_constant(const Plan& plan) {
  return fmt::format("ROWS = [\n    \"{}\",\n]  # of each pipeline rank\n",
                     joined(schedule_lines(plan, ' '), "\",\n    \""));
}

std::string plan_constants(const Plan& plan, const std::string& refused) {
  const Layout& l = plan.layout;
  const Workload& w = plan.workload;
  Json recomputed = Json::array();
  for (size_t s = 0; s < l.layers_per_stage.size(); ++s)
    recomputed.push_back(l.recompute == Recompute::full ? recomputed_layers(l, s, l.layers_per_stage[s]) : 0);
  const std::string text = fmt::format(
      fmt::runtime(template_text("mpt_train_constants.py.in")), model_constant(plan.model),
      config_constant(plan.model), mesh_constants(l), w.sequence, w.global_batch, l.micro_batch,
      micro_batches(l, w), enum_name(l.precision), python_text(l.sequence_parallel),
      enum_name(l.context_method), python_text(l.zero == 3), python_text(Json(l.layers_per_stage)),
      python_text(recomputed), l.schedule, python_text(Json(plan.schedule.rank_of_stage)),
      runs_from_rows(l) ? rows_constant(plan) : "", layout_name(l), python_text(plan.prediction.step_time_s),
      plan.program_digest);
  return refused.empty() ? text : text + fmt::format("REFUSED = \"{}\"\n", comment_text(refused));
}

}  // namespace

Exported export_pytorch(const Plan& plan) {
  const auto rejection = cannot_run(find_export_target("pytorch"), plan);
  const std::string weights = weight_names(plan.model);
  const std::string names = weights == "qwen3_moe" ? "mixtral" : weights;
  std::vector<std::string> parts{"plan.py",    "model.py", "split.py", "weights_" + names + ".py",
                                 "weights.py", "data.py",  "train.py"};
  for (std::string& part : parts) part = trainer_part(part);
  Exported exported;
  exported.files.push_back({"mpt_train.py",
                            trainer_file(parts, trainer_conditions(plan, rejection.has_value()),
                                         fmt::format(fmt::runtime(template_text("mpt_train_head.py.in")),
                                                     export_title(plan), ranks_per_node(plan)),
                                         plan_constants(plan, rejection ? rejection->reason : "")),
                            true});
  return exported;
}

}  // namespace mpt::frameworks
