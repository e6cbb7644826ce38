// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/describe_model.h"

#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/footprint.h"
#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "models/parameter_count.h"

namespace mpt::planner {
namespace {

// FLOP of one sequence, by operator.
struct OperatorWork {
  std::string kind;
  double forward = 0.0, backward = 0.0, square = 0.0;
};
using Work = std::map<std::string, OperatorWork>;

// FLOP of the scores of all pairs of tokens. Kernels leave out later tokens.
double square_flop(const models::OperatorShape& s, int64_t sequence) {
  const double scores =
      2.0 * double(sequence) * double(sequence) * double(s.heads) * double(s.head_dim + s.value_head_dim);
  if (s.kind == models::OperatorKind::attention) return scores;
  return s.kind == models::OperatorKind::index ? scores + 2.0 * double(s.rows) * double(s.inner) : 0.0;
}

void add(const models::LayerProgram& program, double times, int64_t sequence, Work& work) {
  for (const models::Operator& op : program.operators) {
    OperatorWork& sum = work[std::string(op.name)];
    sum.kind = enum_name(op.shape.kind);
    sum.forward += times * models::forward_flop(op.shape);
    sum.backward += times * (models::input_gradient_flop(op.shape) + models::weight_gradient_flop(op.shape));
    sum.square += times * square_flop(op.shape, sequence);
  }
}

Json work_of(const ModelSpec& m, const models::LayerKinds& kinds, int64_t sequence) {
  Work work;
  add(models::embedding_program(m, Layout{}, sequence), 1.0, sequence, work);
  for (size_t k = 0; k < kinds.size(); ++k)
    add(models::layer_program(m, kinds.kind(k), Layout{}, sequence), double(kinds.all()[k]), sequence, work);
  add(models::head_program(m, Layout{}, sequence), 1.0, sequence, work);
  Json operators = Json::array();
  double forward = 0.0, backward = 0.0;
  for (const auto& [name, w] : work) {
    forward += w.forward;
    backward += w.backward;
    if (w.forward + w.backward == 0.0) continue;
    Json entry{{"name", name}, {"kind", w.kind}, {"forward_flop", w.forward}, {"backward_flop", w.backward}};
    if (w.square > 0.0) entry["forward_square_flop"] = w.square;
    operators.push_back(std::move(entry));
  }
  return {{"sequence", sequence},
          {"forward_flop_per_token", forward / double(sequence)},
          {"backward_flop_per_token", backward / double(sequence)},
          {"operators", std::move(operators)}};
}

Json kinds_of(const ModelSpec& m, const models::LayerKinds& kinds) {
  Layout layout;
  layout.precision = Precision::bf16;
  const int64_t sequence = std::min<int64_t>(4096, m.max_positions);
  Json list = Json::array();
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto program = models::layer_program(m, kinds.kind(k), layout, sequence);
    Json kept = Json::object();
    for (const auto& [recompute, name] : EnumNames<Recompute>::table())
      kept[name] = double(models::saved_bytes(program, recompute)) / double(sequence);
    list.push_back({{"name", kinds.name(k)},
                    {"layers", kinds.all()[k]},
                    {"parameters", models::parameters(program)},
                    {"kept_bytes_per_token", std::move(kept)}});
  }
  return list;
}

// Each framework's verdict on the model.
Json verdicts_on(const ModelSpec& m) {
  Json list = Json::array();
  for (const frameworks::Framework& framework : frameworks::known_frameworks()) {
    const ModelSpec trained = frameworks::trained_by(framework, m);
    Json row = to_json(frameworks::verdict_on(framework, trained));
    row["framework"] = framework.name;
    row["next_token_layers"] = trained.next_token_layers;
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

Json stage_counts(const ModelSpec& m, int64_t stages) {
  Layout layout;
  layout.pipeline = stages;
  layout.layers_per_stage = even_stages(m.layers.count(), stages);
  const models::StagePieces pieces(m, layout, 1);
  Json list = Json::array();
  for (const StageContent& content : stage_contents(m, layout))
    list.push_back({{"layers", content.layer_count}, {"parameters", pieces.parameters(content).total()}});
  return list;
}

Json model_counts(const models::ImportedModel& read, const std::vector<int64_t>& sequences, int64_t stages) {
  const ModelSpec& m = read.model;
  const models::ParameterCount count = models::count_parameters(m);
  const models::LayerKinds kinds(m);
  Json work = Json::array();
  for (const int64_t sequence : sequences) work.push_back(work_of(m, kinds, sequence));
  Json text{{"model", parse_json(model_spec_to_text(m), m.name)},
            {"parameters",
             {{"total", count.total}, {"active", count.active}, {"embedding_and_head", count.embedding}}},
            {"kinds", kinds_of(m, kinds)},
            {"work", std::move(work)},
            {"towers", to_json(read.towers)},
            {"frameworks", verdicts_on(m)},
            {"not_read", read.ignored},
            {"notes", read.notes}};
  if (stages > 1) text["stages"] = stage_counts(m, stages);
  return text;
}

}  // namespace mpt::planner
