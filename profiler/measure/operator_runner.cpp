// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/operator_runner.h"

namespace mpt::profiler {
namespace {

using models::OperatorKind;

// Has window, factor and cap if the model has them, for they decide the kernel.
runtime::AttentionShape attention_shape(const models::OperatorShape& s) {
  const AttentionNeeds needs = models::attention_needs(s);
  runtime::AttentionShape shape{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, s.value_head_dim};
  if (needs.windowed) shape.window = s.inner;
  if (s.scaled) shape.scale = 1.0 / double(s.head_dim);
  if (s.capped) shape.cap = 50.0;
  return shape;
}

// Elements of the largest operand.
int64_t operand_elements(const models::OperatorShape& s) {
  if (s.kind == OperatorKind::attention) return attention_shape(s).tokens() * attention_shape(s).row();
  return std::max({s.rows * s.columns * (s.gated ? 2 : 1), s.rows * s.inner, s.columns * s.inner});
}

}  // namespace

OperatorRunner::OperatorRunner(const ModelSpec& model, const models::OperatorShape& shape,
                               const Target& target)
    : model_(model),
      shape_(shape),
      type_(target.type),
      device_(target.make_device()),
      loss_(*device_, int64_t(sizeof(double))) {
  *static_cast<double*>(loss_.data()) = 0.0;
  // Gradients of weights are wider than operands may be.
  const int64_t bytes = operand_elements(shape) * size_of(state_type_of(type_));
  for (runtime::Buffer* buffer : {&a_, &b_, &c_, &d_, &e_}) {
    *buffer = runtime::Buffer(*device_, bytes);
    fill(*device_, type_, *buffer);
  }
  // Zeros as in training: a device compares algorithms for its products only then.
  device_->zero(d_.data(), d_.bytes());
  const int64_t statistics = std::max(shape.rows * 2, shape.batch * shape.heads * shape.sequence);
  statistics_ = runtime::Buffer(*device_, statistics * size_of(state_type_of(type_)));
  device_->zero(statistics_.data(), statistics_.bytes());
  const int64_t words = shape.kind == OperatorKind::embedding
                            ? shape.inner
                            : std::max<int64_t>(1, std::min(shape.columns, model.vocab));
  for (int64_t t = 0; t < shape.rows; ++t) ids_.push_back(int32_t(t * 7919 % words));
}

std::vector<Phase> OperatorRunner::phases() const {
  switch (shape_.kind) {
    case OperatorKind::linear:
      return {Phase::forward, Phase::input_gradient, Phase::weight_gradient};
    case OperatorKind::router:
    case OperatorKind::expert_linear:
    case OperatorKind::index:
    case OperatorKind::convolution:
    case OperatorKind::recurrence:
      return {};
    case OperatorKind::residual_add:
    case OperatorKind::cross_entropy:
      return {Phase::forward};
    default:
      return {Phase::forward, Phase::backward};
  }
}

runtime::LinearShape OperatorRunner::linear_shape() const {
  return {shape_.rows, shape_.columns, shape_.inner, shape_.precision == Precision::fp8};
}
runtime::NormShape OperatorRunner::norm_shape() const {
  return {model_.norm, shape_.rows, shape_.columns, model_.norm_epsilon};
}
runtime::ActivationShape OperatorRunner::activation_shape() const {
  return {model_.mlp().activation, shape_.rows, shape_.columns, shape_.gated};
}

void OperatorRunner::run(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return forward();
    case Phase::backward:
      return backward();
    case Phase::input_gradient:
      return run(runtime::LinearBackwardInput{
          .shape = linear_shape(), .dy = a_.data(), .w = b_.data(), .dx = c_.data()});
    case Phase::weight_gradient:
      return run(runtime::LinearBackwardWeight{
          .shape = linear_shape(), .dy = a_.data(), .x = b_.data(), .dw = d_.data()});
  }
}

void OperatorRunner::forward() {
  using namespace runtime;
  const auto& s = shape_;
  void *const a = a_.data(), *const b = b_.data(), *const c = c_.data(),
              *const statistics = statistics_.data();
  switch (s.kind) {
    case OperatorKind::embedding:
      return run(EmbeddingForward{.shape = table_shape(), .ids = ids_.data(), .table = a, .y = b});
    case OperatorKind::norm:
      return run(NormForward{.shape = norm_shape(), .x = a, .scale = b, .y = c, .statistics = statistics});
    case OperatorKind::linear:
      return run(LinearForward{.shape = linear_shape(), .x = a, .w = b, .y = c});
    case OperatorKind::rotary: {
      // The device rotates whole rows of queries, keys and values. Only the width of queries and keys counts
      // here.
      const int64_t heads = std::max<int64_t>(1, s.columns / model_.attention().head_dim);
      const AttentionShape rows{1, s.rows, heads, 0, model_.attention().head_dim};
      const std::vector<double> frequencies(size_t(model_.attention().head_dim / 2), 0.01);
      std::vector<int32_t> positions(size_t(s.rows));
      std::iota(positions.begin(), positions.end(), 0);
      return run(Rotate{.shape = rows, .rotation = {frequencies, positions}, .direction = 1, .qkv = a});
    }
    case OperatorKind::attention:
      return run(
          AttentionForward{.shape = attention_shape(s), .qkv = a, .out = b, .log_sum_exp = statistics});
    case OperatorKind::activation:
      return run(ActivationForward{.shape = activation_shape(), .x = a, .y = b});
    case OperatorKind::residual_add:
      return run(ResidualAdd{.count = s.rows * s.columns, .a = a, .b = b, .y = c});
    case OperatorKind::cross_entropy:
      return cross_entropy();
    default:
      return;
  }
}

// In one step if a rank has the whole vocabulary, as in the head.
void OperatorRunner::cross_entropy() {
  using namespace runtime;
  const int64_t rows = shape_.rows, columns = shape_.columns;
  auto* const loss = static_cast<double*>(loss_.data());
  if (columns >= model_.vocab)
    return run(LossOfAll{.shape = {rows, columns, model_.vocab},
                         .targets = ids_.data(),
                         .scale = 1.0,
                         .logits = a_.data(),
                         .loss = loss});
  const LossShape part{rows, columns, columns};
  run(LossMaximum{.shape = part, .logits = a_.data(), .maximum = b_.data()});
  run(LossExponentials{.shape = part,
                       .targets = ids_.data(),
                       .maximum = b_.data(),
                       .logits = a_.data(),
                       .sums = statistics_.data()});
  run(LossGradient{.shape = part,
                   .targets = ids_.data(),
                   .sums = statistics_.data(),
                   .scale = 1.0,
                   .logits = a_.data(),
                   .loss = loss});
}

void OperatorRunner::backward() {
  using namespace runtime;
  void *const a = a_.data(), *const b = b_.data(), *const c = c_.data(), *const d = d_.data();
  void* const statistics = statistics_.data();
  switch (shape_.kind) {
    case OperatorKind::embedding:
      return run(EmbeddingBackward{.shape = table_shape(), .ids = ids_.data(), .dy = a, .dtable = d});
    case OperatorKind::norm:
      run(NormBackwardInput{
          .shape = norm_shape(), .dy = a, .x = b, .scale = c, .statistics = statistics, .dx = d});
      return run(NormBackwardWeight{
          .shape = norm_shape(), .dy = a, .x = b, .statistics = statistics, .dscale = e_.data()});
    case OperatorKind::rotary:
      return forward();
    case OperatorKind::attention:
      return run(AttentionBackward{.shape = attention_shape(shape_),
                                   .dout = a,
                                   .qkv = b,
                                   .out = c,
                                   .log_sum_exp = statistics,
                                   .dqkv = d});
    case OperatorKind::activation:
      return run(ActivationBackward{.shape = activation_shape(), .dy = a, .x = b, .dx = c});
    default:
      return;
  }
}

}  // namespace mpt::profiler
