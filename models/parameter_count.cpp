// SPDX-License-Identifier: Apache-2.0
#include "models/parameter_count.h"

#include "models/layer_program.h"

namespace mpt::models {
namespace {

void add(const LayerProgram& program, const ModelSpec& model, ParameterCount& count) {
  for (const Operator& op : program.operators) {
    count.total += op.parameters;
    const bool expert = op.shape.kind == OperatorKind::expert_linear;
    count.active +=
        expert ? op.parameters / model.moe->experts * model.moe->experts_per_token : op.parameters;
    if (op.name == "embedding" || op.name == "head.output") count.embedding += op.parameters;
  }
}

}  // namespace

ParameterCount count_parameters(const ModelSpec& model) {
  const Layout whole;
  ParameterCount count;
  add(embedding_program(model, whole, 1), model, count);
  add(head_program(model, whole, 1), model, count);
  if (model.tied_embeddings) {
    for (int64_t* sum : {&count.total, &count.active, &count.embedding}) *sum -= model.vocab * model.hidden;
  }
  for (int64_t layer = 0; layer < model.layers; ++layer)
    add(layer_program(model, layer, whole, 1), model, count);
  return count;
}

}  // namespace mpt::models
