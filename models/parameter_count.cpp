// SPDX-License-Identifier: Apache-2.0
#include "models/parameter_count.h"

#include "models/layer_kinds.h"
#include "models/layer_program.h"

namespace mpt::models {
namespace {

// `moe`: the layer's experts, if it has any. `times`: the number of such pieces.
void add(const LayerProgram& program, const MixtureOfExperts* moe, int64_t times, ParameterCount& count) {
  for (const Operator& op : program.operators) {
    count.total += times * op.parameters;
    const bool expert = op.shape.kind == OperatorKind::expert_linear;
    count.active += times * (expert ? op.parameters / moe->experts * moe->experts_per_token : op.parameters);
    if (op.module == Module::token_table || op.module == Module::head_output)
      count.embedding += times * op.parameters;
  }
}

}  // namespace

ParameterCount count_parameters(const ModelSpec& model) {
  const Layout whole;
  ParameterCount count;
  add(embedding_program(model, whole, 1), nullptr, 1, count);
  add(head_program(model, whole, 1), nullptr, 1, count);
  if (model.tied_embeddings)
    for (int64_t* sum : {&count.total, &count.active, &count.embedding}) *sum -= model.vocab * model.hidden;
  const LayerKinds kinds(model);
  for (size_t k = 0; k < kinds.size(); ++k) {
    const LayerKind& kind = kinds.kind(k);
    add(layer_program(model, kind, whole, 1), kind.moe ? &*kind.moe : nullptr, kinds.all()[k], count);
  }
  return count;
}

}  // namespace mpt::models
