// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/operator_runner.h"

#include <algorithm>
#include <numeric>

#include "runtime/device/cpu/cpu_device.h"

namespace mpt::profiler {
namespace {

using models::OperatorKind;
using runtime::Buffer;
constexpr auto kType = runtime::DataType::float32;

runtime::AttentionShape attention_shape(const models::OperatorShape& s) {
  return {s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim};
}

// Elements of the largest operand.
int64_t operand_elements(const models::OperatorShape& s) {
  if (s.kind == OperatorKind::attention)
    return s.batch * s.sequence * (s.heads + 2 * s.kv_heads) * s.head_dim;
  return std::max({s.rows * s.columns * (s.gated ? 2 : 1), s.rows * s.inner, s.columns * s.inner});
}

}  // namespace

OperatorRunner::OperatorRunner(const ModelSpec& model, const models::OperatorShape& shape)
    : model_(model), shape_(shape), device_(runtime::make_cpu_device()) {
  const int64_t bytes = operand_elements(shape) * 4;
  for (Buffer* buffer : {&a_, &b_, &c_, &d_, &e_}) {
    *buffer = Buffer(*device_, bytes);
    auto* values = static_cast<float*>(buffer->data());
    for (int64_t i = 0; i < bytes / 4; ++i) values[i] = float(i * 31 % 1009) / 1009.0f - 0.5f;
  }
  const int64_t statistics = std::max(shape.rows * 2, shape.batch * shape.heads * shape.sequence);
  statistics_ = Buffer(*device_, statistics * 4);
  device_->zero(statistics_.data(), statistics_.bytes());
  const int64_t words =
      shape.kind == OperatorKind::embedding ? shape.inner : std::max<int64_t>(1, shape.columns);
  for (int64_t t = 0; t < shape.rows; ++t) ids_.push_back(int32_t(t * 7919 % words));
}

std::vector<Phase> OperatorRunner::phases() const {
  switch (shape_.kind) {
    case OperatorKind::linear:
      return {Phase::forward, Phase::input_gradient, Phase::weight_gradient};
    case OperatorKind::router:
    case OperatorKind::expert_linear:
      return {};
    case OperatorKind::residual_add:
    case OperatorKind::cross_entropy:
      return {Phase::forward};
    default:
      return {Phase::forward, Phase::backward};
  }
}

void OperatorRunner::run(Phase phase) {
  const runtime::LinearShape linear{shape_.rows, shape_.columns, shape_.inner};
  switch (phase) {
    case Phase::forward:
      return forward();
    case Phase::backward:
      return backward();
    case Phase::input_gradient:
      return device_->linear_backward_input(kType, linear, a_.data(), b_.data(), c_.data());
    case Phase::weight_gradient:
      return device_->linear_backward_weight(kType, linear, a_.data(), b_.data(), d_.data(), nullptr);
  }
}

void OperatorRunner::forward() {
  const auto& s = shape_;
  switch (s.kind) {
    case OperatorKind::embedding:
      return device_->embedding_forward(kType, s.rows, s.columns, 0, s.inner, ids_.data(), a_.data(),
                                        b_.data());
    case OperatorKind::norm:
      return device_->norm_forward(kType, {model_.norm, s.rows, s.columns, model_.norm_epsilon}, a_.data(),
                                   b_.data(), nullptr, c_.data(), statistics_.data());
    case OperatorKind::linear:
      return device_->linear_forward(kType, {s.rows, s.columns, s.inner}, a_.data(), b_.data(), nullptr,
                                     c_.data());
    case OperatorKind::rotary: {
      // The device rotates whole rows of queries, keys and values; the width of queries and keys is what
      // counts.
      const int64_t heads = std::max<int64_t>(1, s.columns / model_.head_dim);
      const runtime::AttentionShape rows{1, s.rows, heads, 0, model_.head_dim};
      const std::vector<double> frequencies(size_t(model_.head_dim / 2), 0.01);
      std::vector<int32_t> positions(size_t(s.rows));
      std::iota(positions.begin(), positions.end(), 0);
      return device_->rotary(kType, rows, {frequencies, positions}, 1, a_.data());
    }
    case OperatorKind::attention:
      return device_->attention_forward(kType, attention_shape(s), a_.data(), b_.data(), statistics_.data());
    case OperatorKind::activation:
      return device_->activation_forward(kType, {model_.activation, s.rows, s.columns, s.gated}, a_.data(),
                                         b_.data());
    case OperatorKind::residual_add:
      return device_->residual_add(kType, s.rows * s.columns, a_.data(), b_.data(), c_.data());
    case OperatorKind::cross_entropy:
      device_->loss_maximum(kType, s.rows, s.columns, s.columns, a_.data(), b_.data());
      device_->loss_exponentials(kType, s.rows, s.columns, s.columns, 0, ids_.data(), b_.data(), a_.data(),
                                 statistics_.data());
      device_->loss_gradient(kType, s.rows, s.columns, s.columns, 0, ids_.data(), statistics_.data(), 1.0,
                             a_.data());
      return;
    default:
      return;
  }
}

void OperatorRunner::backward() {
  const auto& s = shape_;
  switch (s.kind) {
    case OperatorKind::embedding:
      return device_->embedding_backward(kType, s.rows, s.columns, 0, s.inner, ids_.data(), a_.data(),
                                         d_.data());
    case OperatorKind::norm: {
      const runtime::NormShape norm{model_.norm, s.rows, s.columns, model_.norm_epsilon};
      device_->norm_backward_input(kType, norm, a_.data(), b_.data(), c_.data(), statistics_.data(),
                                   d_.data());
      return device_->norm_backward_weight(kType, norm, a_.data(), b_.data(), statistics_.data(), e_.data(),
                                           nullptr);
    }
    case OperatorKind::rotary:
      return forward();
    case OperatorKind::attention:
      return device_->attention_backward(kType, attention_shape(s), a_.data(), b_.data(), c_.data(),
                                         statistics_.data(), d_.data());
    case OperatorKind::activation:
      return device_->activation_backward(kType, {model_.activation, s.rows, s.columns, s.gated}, a_.data(),
                                          b_.data(), c_.data());
    default:
      return;
  }
}

}  // namespace mpt::profiler
