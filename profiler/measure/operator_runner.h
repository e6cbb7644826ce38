// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorRunner: runs one operator of a LayerProgram through the runtime's device, on buffers that it owns.

#include <memory>
#include <vector>

#include "models/operator.h"
#include "profiler/hardware/profile.h"
#include "profiler/measure/target.h"

namespace mpt::profiler {

class OperatorRunner {
 public:
  OperatorRunner(const ModelSpec& model, const models::OperatorShape& shape, const Target& target = {});

  /// Phases that this operator has on this device; none for operators of mixtures of experts.
  std::vector<Phase> phases() const;
  void run(Phase phase);
  void synchronize() { device_->synchronize(); }

 private:
  runtime::LinearShape linear_shape() const;
  runtime::NormShape norm_shape() const;
  runtime::ActivationShape activation_shape() const;
  runtime::TableShape table_shape() const { return {shape_.rows, shape_.columns, 0, shape_.inner}; }
  void run(const runtime::Operation& operation) { device_->run(type_, operation); }
  void forward();
  void cross_entropy();
  void backward();

  ModelSpec model_;
  models::OperatorShape shape_;
  runtime::DataType type_;
  std::unique_ptr<runtime::Device> device_;
  runtime::Buffer a_, b_, c_, d_, e_, statistics_;
  runtime::HostBuffer loss_;
  std::vector<int32_t> ids_;
};

}  // namespace mpt::profiler
