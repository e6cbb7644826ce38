// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/operator_runner.h"

#include <algorithm>
#include <numeric>

namespace mpt::profiler {
namespace {

using models::OperatorKind;
using runtime::Buffer;

// With a window, factor or cap where the model has one, which decide the kernel.
runtime::AttentionShape attention_shape(const models::OperatorShape& s) {
  const AttentionNeeds needs = models::attention_needs(s);
  return {s.batch,
          s.sequence,
          s.heads,
          s.kv_heads,
          s.head_dim,
          s.value_head_dim,
          needs.windowed ? s.inner : 0,
          s.scaled ? 1.0 / double(s.head_dim) : 0.0,
          s.capped ? 50.0 : 0.0};
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
  for (Buffer* buffer : {&a_, &b_, &c_, &d_, &e_}) {
    *buffer = Buffer(*device_, bytes);
    fill(*device_, type_, *buffer);
  }
  // They begin at zero, as in training: only then a device compares algorithms for their products.
  device_->zero(d_.data(), d_.bytes());
  const int64_t statistics = std::max(shape.rows * 2, shape.batch * shape.heads * shape.sequence);
  statistics_ = Buffer(*device_, statistics * size_of(state_type_of(type_)));
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

void OperatorRunner::run(Phase phase) {
  const runtime::LinearShape linear = linear_shape();
  switch (phase) {
    case Phase::forward:
      return forward();
    case Phase::backward:
      return backward();
    case Phase::input_gradient:
      return device_->run(type_, runtime::LinearBackwardInput{linear, a_.data(), b_.data(), c_.data()});
    case Phase::weight_gradient:
      return device_->run(type_,
                          runtime::LinearBackwardWeight{linear, a_.data(), b_.data(), d_.data(), nullptr});
  }
}

void OperatorRunner::forward() {
  const auto& s = shape_;
  switch (s.kind) {
    case OperatorKind::embedding:
      return device_->run(type_, runtime::EmbeddingForward{
                                     {s.rows, s.columns, 0, s.inner}, ids_.data(), a_.data(), b_.data()});
    case OperatorKind::norm:
      return device_->run(type_, runtime::NormForward{{model_.norm, s.rows, s.columns, model_.norm_epsilon},
                                                      a_.data(),
                                                      b_.data(),
                                                      nullptr,
                                                      c_.data(),
                                                      statistics_.data()});
    case OperatorKind::linear:
      return device_->run(type_,
                          runtime::LinearForward{linear_shape(), a_.data(), b_.data(), nullptr, c_.data()});
    case OperatorKind::rotary: {
      // The device rotates whole rows of queries, keys and values; the width of queries and keys is what
      // counts.
      const int64_t heads = std::max<int64_t>(1, s.columns / model_.attention().head_dim);
      const runtime::AttentionShape rows{1, s.rows, heads, 0, model_.attention().head_dim};
      const std::vector<double> frequencies(size_t(model_.attention().head_dim / 2), 0.01);
      std::vector<int32_t> positions(size_t(s.rows));
      std::iota(positions.begin(), positions.end(), 0);
      return device_->run(type_, runtime::Rotate{rows, {frequencies, positions}, 1, a_.data()});
    }
    case OperatorKind::attention:
      return device_->run(
          type_, runtime::AttentionForward{attention_shape(s), a_.data(), b_.data(), statistics_.data()});
    case OperatorKind::activation:
      return device_->run(type_,
                          runtime::ActivationForward{
                              {model_.mlp().activation, s.rows, s.columns, s.gated}, a_.data(), b_.data()});
    case OperatorKind::residual_add:
      return device_->run(type_, runtime::ResidualAdd{s.rows * s.columns, a_.data(), b_.data(), c_.data()});
    case OperatorKind::cross_entropy:
      return cross_entropy();
    default:
      return;
  }
}

// In one step where a rank has the whole vocabulary, as the head does it.
void OperatorRunner::cross_entropy() {
  const auto& s = shape_;
  auto* const loss = static_cast<double*>(loss_.data());
  if (s.columns >= model_.vocab)
    return device_->run(
        type_, runtime::LossOfAll{{s.rows, s.columns, model_.vocab}, ids_.data(), 1.0, a_.data(), loss});
  device_->run(type_, runtime::LossMaximum{{s.rows, s.columns, s.columns}, a_.data(), b_.data()});
  device_->run(type_,
               runtime::LossExponentials{
                   {s.rows, s.columns, s.columns, 0}, ids_.data(), b_.data(), a_.data(), statistics_.data()});
  device_->run(type_,
               runtime::LossGradient{
                   {s.rows, s.columns, s.columns, 0}, ids_.data(), statistics_.data(), 1.0, a_.data(), loss});
}

void OperatorRunner::backward() {
  const auto& s = shape_;
  switch (s.kind) {
    case OperatorKind::embedding:
      return device_->run(type_, runtime::EmbeddingBackward{
                                     {s.rows, s.columns, 0, s.inner}, ids_.data(), a_.data(), d_.data()});
    case OperatorKind::norm: {
      const runtime::NormShape norm{model_.norm, s.rows, s.columns, model_.norm_epsilon};
      device_->run(type_, runtime::NormBackwardInput{norm, a_.data(), b_.data(), c_.data(),
                                                     statistics_.data(), d_.data()});
      return device_->run(type_, runtime::NormBackwardWeight{norm, a_.data(), b_.data(), statistics_.data(),
                                                             e_.data(), nullptr});
    }
    case OperatorKind::rotary:
      return forward();
    case OperatorKind::attention:
      return device_->run(type_, runtime::AttentionBackward{attention_shape(s), a_.data(), b_.data(),
                                                            c_.data(), statistics_.data(), d_.data()});
    case OperatorKind::activation:
      return device_->run(
          type_, runtime::ActivationBackward{
                     {model_.mlp().activation, s.rows, s.columns, s.gated}, a_.data(), b_.data(), c_.data()});
    default:
      return;
  }
}

}  // namespace mpt::profiler
