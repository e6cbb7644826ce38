// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/graph_recorder.h"
#include "runtime/device/cuda/per_thread.h"

namespace mpt::runtime::cuda {
namespace {

// Operators are recorded; everything else launches what was recorded first.
class GraphedDevice final : public CudaDevice {
 public:
  explicit GraphedDevice(std::unique_ptr<CudaDevice> device) : device_(std::move(device)) {}

  cudaStream_t stream() override { return now().stream(); }
  void wait_for(cudaEvent_t event) override { now().wait_for(event); }
  void set_watch(std::function<void(double)> watch) override { device_->set_watch(std::move(watch)); }
  int64_t scratch_bytes() const override { return device_->scratch_bytes(); }
  cudaGraphExec_t capture(const std::function<void()>& work) override { return now().capture(work); }
  void hold(bool held) override { now().hold(held); }

  // Memory comes and goes at once: what is recorded after an allocation comes after what had it before.
  void reserve(int64_t bytes) override { device_->reserve(bytes); }
  void* allocate(int64_t bytes) override { return device_->allocate(bytes); }
  void release(void* data, int64_t bytes) override { device_->release(data, bytes); }
  int64_t in_use_bytes() const override { return device_->in_use_bytes(); }
  int64_t peak_bytes() const override { return device_->peak_bytes(); }
  void reset_peak() override { device_->reset_peak(); }
  void* allocate_host(int64_t bytes) override { return device_->allocate_host(bytes); }
  void release_host(void* data) override { device_->release_host(data); }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    if (is_on_host(to) || is_on_host(from)) return now().copy(to, from, bytes);
    later(&Device::copy, to, from, bytes);
  }
  void zero(void* data, int64_t bytes) override { later(&Device::zero, data, bytes); }
  void upload(DataType type, const double* from, int64_t count, void* to) override {
    now().upload(type, from, count, to);
  }
  void download(DataType type, const void* from, int64_t count, double* to) override {
    now().download(type, from, count, to);
  }

  void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) override {
    later(&Device::convert, from_type, from, to_type, to, count);
  }
  void linear_forward(DataType type, const LinearShape& shape, const void* x, const void* w, const void* bias,
                      void* y) override {
    later(&Device::linear_forward, type, shape, x, w, bias, y);
  }
  void linear_backward_input(DataType type, const LinearShape& shape, const void* dy, const void* w,
                             void* dx) override {
    later(&Device::linear_backward_input, type, shape, dy, w, dx);
  }
  void linear_backward_weight(DataType type, const LinearShape& shape, const void* dy, const void* x,
                              void* dw, void* dbias) override {
    later(&Device::linear_backward_weight, type, shape, dy, x, dw, dbias);
  }
  void linear_backward(DataType type, const LinearShape& shape, const void* dy, const void* w, void* dx,
                       const void* x, void* dw, void* dbias) override {
    later(&Device::linear_backward, type, shape, dy, w, dx, x, dw, dbias);
  }
  void narrow_weight(DataType type, const LinearShape& shape, const void* w, void* kept) override {
    later(&Device::narrow_weight, type, shape, w, kept);
  }
  void bias_forward(DataType type, int64_t rows, int64_t columns, const void* bias, void* y) override {
    later(&Device::bias_forward, type, rows, columns, bias, y);
  }
  void bias_backward(DataType type, int64_t rows, int64_t columns, const void* dy, void* dbias) override {
    later(&Device::bias_backward, type, rows, columns, dy, dbias);
  }
  void linear_activation_forward(DataType type, const LinearShape& shape, const ActivationShape& activation,
                                 const void* x, const void* w, const void* bias, void* up, void* y) override {
    later(&Device::linear_activation_forward, type, shape, activation, x, w, bias, up, y);
  }
  void linear_activation_backward(DataType type, const LinearShape& shape, const ActivationShape& activation,
                                  const void* dy, const void* w, const void* up, void* room,
                                  void* dup) override {
    later(&Device::linear_activation_backward, type, shape, activation, dy, w, up, room, dup);
  }
  void norm_forward(DataType type, const NormShape& shape, const void* x, const void* scale, const void* bias,
                    void* y, void* statistics) override {
    later(&Device::norm_forward, type, shape, x, scale, bias, y, statistics);
  }
  void norm_backward_input(DataType type, const NormShape& shape, const void* dy, const void* x,
                           const void* scale, const void* statistics, void* dx) override {
    later(&Device::norm_backward_input, type, shape, dy, x, scale, statistics, dx);
  }
  void norm_backward_weight(DataType type, const NormShape& shape, const void* dy, const void* x,
                            const void* statistics, void* dscale, void* dbias) override {
    later(&Device::norm_backward_weight, type, shape, dy, x, statistics, dscale, dbias);
  }
  void residual_norm_forward(DataType type, const NormShape& shape, const void* a, const void* b,
                             const void* scale, const void* bias, void* sum, void* y,
                             void* statistics) override {
    later(&Device::residual_norm_forward, type, shape, a, b, scale, bias, sum, y, statistics);
  }
  void norm_backward_residual(DataType type, const NormShape& shape, const void* dy, const void* x,
                              const void* scale, const void* statistics, const void* residual,
                              void* dx) override {
    later(&Device::norm_backward_residual, type, shape, dy, x, scale, statistics, residual, dx);
  }
  void rotary(DataType type, const AttentionShape& shape, const Rotation& rotation, int direction,
              void* qkv) override {
    later(&Device::rotary, type, shape, rotation, direction, qkv);
  }
  void attention_forward(DataType type, const AttentionShape& shape, const void* qkv, void* out,
                         void* log_sum_exp) override {
    later(&Device::attention_forward, type, shape, qkv, out, log_sum_exp);
  }
  void attention_backward(DataType type, const AttentionShape& shape, const void* dout, const void* qkv,
                          const void* out, const void* log_sum_exp, void* dqkv) override {
    later(&Device::attention_backward, type, shape, dout, qkv, out, log_sum_exp, dqkv);
  }
  void attention_block_forward(DataType type, const AttentionBlock& block, const void* qkv, const void* kv,
                               bool first, void* out, void* log_sum_exp) override {
    later(&Device::attention_block_forward, type, block, qkv, kv, first, out, log_sum_exp);
  }
  void attention_block_backward(DataType type, const AttentionBlock& block, const void* dout, const void* qkv,
                                const void* kv, const void* out, const void* log_sum_exp, void* dq,
                                void* dkv) override {
    later(&Device::attention_block_backward, type, block, dout, qkv, kv, out, log_sum_exp, dq, dkv);
  }
  void copy_columns(DataType from_type, DataType to_type, int64_t rows, int64_t columns, const void* from,
                    int64_t from_stride, void* to, int64_t to_stride) override {
    later(&Device::copy_columns, from_type, to_type, rows, columns, from, from_stride, to, to_stride);
  }
  void head_norm_forward(DataType type, const AttentionShape& shape, double epsilon, const void* query_scale,
                         const void* key_scale, void* qkv, void* kept) override {
    later(&Device::head_norm_forward, type, shape, epsilon, query_scale, key_scale, qkv, kept);
  }
  void head_norm_backward(DataType type, const AttentionShape& shape, double epsilon, const void* query_scale,
                          const void* key_scale, const void* kept, void* dqkv, void* dquery_scale,
                          void* dkey_scale) override {
    later(&Device::head_norm_backward, type, shape, epsilon, query_scale, key_scale, kept, dqkv, dquery_scale,
          dkey_scale);
  }
  void scale_rows(DataType type, int64_t rows, int64_t columns, const void* factors, const void* x,
                  void* y) override {
    later(&Device::scale_rows, type, rows, columns, factors, x, y);
  }
  void row_dots(DataType type, int64_t rows, int64_t columns, const void* a, const void* b,
                void* dots) override {
    later(&Device::row_dots, type, rows, columns, a, b, dots);
  }
  void activation_forward(DataType type, const ActivationShape& shape, const void* x, void* y) override {
    later(&Device::activation_forward, type, shape, x, y);
  }
  void activation_backward(DataType type, const ActivationShape& shape, const void* dy, const void* x,
                           void* dx) override {
    later(&Device::activation_backward, type, shape, dy, x, dx);
  }
  void residual_add(DataType type, int64_t count, const void* a, const void* b, void* y) override {
    later(&Device::residual_add, type, count, a, b, y);
  }
  void loss_maximum(DataType type, int64_t tokens, int64_t columns, int64_t used, const void* logits,
                    void* maximum) override {
    later(&Device::loss_maximum, type, tokens, columns, used, logits, maximum);
  }

  void scale(DataType type, int64_t count, double factor, const void* x, void* y) override {
    later(&Device::scale, type, count, factor, x, y);
  }
  void soft_cap(DataType type, int64_t count, double cap, void* x) override {
    later(&Device::soft_cap, type, count, cap, x);
  }
  void sink_forward(DataType type, const AttentionShape& shape, const void* sinks, void* out,
                    void* log_sum_exp) override {
    later(&Device::sink_forward, type, shape, sinks, out, log_sum_exp);
  }
  void sink_backward(DataType type, const AttentionShape& shape, const void* sinks, const void* dout,
                     const void* out, const void* log_sum_exp, void* dsinks) override {
    later(&Device::sink_backward, type, shape, sinks, dout, out, log_sum_exp, dsinks);
  }
  void latent_join(DataType type, const LatentShape& shape, const Rotation& rotation, const void* q,
                   const void* expanded, const void* key, void* qkv) override {
    later(&Device::latent_join, type, shape, rotation, q, expanded, key, qkv);
  }
  void latent_split(DataType type, const LatentShape& shape, const Rotation& rotation, const void* dqkv,
                    void* dq, void* dexpanded, void* dkey) override {
    later(&Device::latent_split, type, shape, rotation, dqkv, dq, dexpanded, dkey);
  }
  void wide_norm_squares(DataType type, const AttentionShape& shape, const void* qkv, void* sums) override {
    later(&Device::wide_norm_squares, type, shape, qkv, sums);
  }
  void wide_norm_forward(DataType type, const AttentionShape& shape, int64_t ranks, double epsilon,
                         const void* sums, const void* query_scale, const void* key_scale, void* qkv,
                         void* kept) override {
    later(&Device::wide_norm_forward, type, shape, ranks, epsilon, sums, query_scale, key_scale, qkv, kept);
  }
  void wide_norm_dots(DataType type, const AttentionShape& shape, const void* query_scale,
                      const void* key_scale, const void* kept, const void* dqkv, void* dots) override {
    later(&Device::wide_norm_dots, type, shape, query_scale, key_scale, kept, dqkv, dots);
  }
  void wide_norm_backward(DataType type, const AttentionShape& shape, int64_t ranks, double epsilon,
                          const void* sums, const void* dots, const void* query_scale, const void* key_scale,
                          const void* kept, void* dqkv, void* dquery_scale, void* dkey_scale) override {
    later(&Device::wide_norm_backward, type, shape, ranks, epsilon, sums, dots, query_scale, key_scale, kept,
          dqkv, dquery_scale, dkey_scale);
  }
  void weighted_bias_forward(DataType type, int64_t rows, int64_t columns, const void* factors,
                             const void* bias, void* y) override {
    later(&Device::weighted_bias_forward, type, rows, columns, factors, bias, y);
  }
  void weighted_bias_backward(DataType type, int64_t rows, int64_t columns, const void* factors,
                              const void* bias, const void* dy, void* dbias, void* dfactors) override {
    later(&Device::weighted_bias_backward, type, rows, columns, factors, bias, dy, dbias, dfactors);
  }
  void convolution_forward(DataType type, const ConvolutionShape& shape, const void* x, const void* w,
                           void* y) override {
    later(&Device::convolution_forward, type, shape, x, w, y);
  }
  void convolution_backward(DataType type, const ConvolutionShape& shape, const void* dy, const void* x,
                            const void* w, void* dx, void* dw) override {
    later(&Device::convolution_backward, type, shape, dy, x, w, dx, dw);
  }
  void delta_forward(DataType type, const DeltaShape& shape, const DeltaInputs& in, void* out,
                     void* room) override {
    later(&Device::delta_forward, type, shape, in, out, room);
  }
  void delta_backward(DataType type, const DeltaShape& shape, const DeltaInputs& in, const void* dout,
                      const DeltaGradients& d, void* room) override {
    later(&Device::delta_backward, type, shape, in, dout, d, room);
  }
  void gated_norm_forward(DataType type, const GatedNormShape& shape, const void* x, const void* gate,
                          const void* scale, void* y) override {
    later(&Device::gated_norm_forward, type, shape, x, gate, scale, y);
  }
  void gated_norm_backward(DataType type, const GatedNormShape& shape, const void* dy, const void* x,
                           const void* gate, const void* scale, void* dx, void* dgate,
                           void* dscale) override {
    later(&Device::gated_norm_backward, type, shape, dy, x, gate, scale, dx, dgate, dscale);
  }
  void gate_forward(DataType type, const GateShape& shape, const void* x, const void* gate,
                    void* y) override {
    later(&Device::gate_forward, type, shape, x, gate, y);
  }
  void gate_backward(DataType type, const GateShape& shape, const void* dy, const void* x, const void* gate,
                     void* dx, void* dgate) override {
    later(&Device::gate_backward, type, shape, dy, x, gate, dx, dgate);
  }

  // These read lists in host memory, give the host numbers, or never come twice with the same arguments.
  void router_forward(DataType type, const RouterShape& s, const void* logits, void* probabilities,
                      int32_t* chosen, void* weights, const void* bias) override {
    now().router_forward(type, s, logits, probabilities, chosen, weights, bias);
  }
  void router_backward(DataType type, const RouterShape& s, const void* probabilities, const int32_t* chosen,
                       const void* dweights, const void* balance, void* dlogits) override {
    now().router_backward(type, s, probabilities, chosen, dweights, balance, dlogits);
  }
  void gather_rows(DataType type, int64_t count, int64_t columns, const int32_t* rows, const void* x,
                   void* y) override {
    now().gather_rows(type, count, columns, rows, x, y);
  }
  void sum_rows(DataType type, int64_t tokens, int64_t top, int64_t columns, const int32_t* rows,
                const void* x, void* y) override {
    now().sum_rows(type, tokens, top, columns, rows, x, y);
  }
  void embedding_forward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                         const int32_t* ids, const void* table, void* y) override {
    now().embedding_forward(type, tokens, hidden, first, rows, ids, table, y);
  }
  void embedding_backward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                          const int32_t* ids, const void* dy, void* dtable) override {
    now().embedding_backward(type, tokens, hidden, first, rows, ids, dy, dtable);
  }
  void position_forward(DataType type, int64_t tokens, int64_t hidden, const int32_t* positions,
                        const void* table, void* y) override {
    now().position_forward(type, tokens, hidden, positions, table, y);
  }
  void position_backward(DataType type, int64_t tokens, int64_t hidden, const int32_t* positions,
                         const void* dy, void* dtable) override {
    now().position_backward(type, tokens, hidden, positions, dy, dtable);
  }
  void loss_exponentials(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                         const int32_t* targets, const void* maximum, void* logits, void* sums) override {
    now().loss_exponentials(type, tokens, columns, used, first, targets, maximum, logits, sums);
  }
  void loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                     const int32_t* targets, const void* sums, double scale, void* logits,
                     double* loss) override {
    now().loss_gradient(type, tokens, columns, used, first, targets, sums, scale, logits, loss);
  }
  void capped_loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                            const int32_t* targets, const void* maximum, const void* sums, double scale,
                            double cap, void* logits, double* loss) override {
    now().capped_loss_gradient(type, tokens, columns, used, first, targets, maximum, sums, scale, cap, logits,
                               loss);
  }
  void loss_of_all(DataType type, int64_t tokens, int64_t columns, int64_t used, const int32_t* targets,
                   double scale, void* logits, double* loss) override {
    now().loss_of_all(type, tokens, columns, used, targets, scale, logits, loss);
  }
  void adamw(DataType type, int64_t count, const AdamW& options, const void* gradient, void* parameter,
             void* first_moment, void* second_moment) override {
    now().adamw(type, count, options, gradient, parameter, first_moment, second_moment);
  }
  void adamw_step(DataType state, int64_t count, const AdamW& options, void* gradient, void* parameter,
                  void* first_moment, void* second_moment, const NarrowCopy& copy, bool zeroes) override {
    now().adamw_step(state, count, options, gradient, parameter, first_moment, second_moment, copy, zeroes);
  }
  double sum_of_squares(DataType type, int64_t count, const void* data) override {
    return now().sum_of_squares(type, count, data);
  }
  double squared_norm(DataType type, std::span<const Stretch> parts) override {
    return now().squared_norm(type, parts);
  }

  void move(void* to, const void* from, int64_t bytes) override { now().move(to, from, bytes); }
  void reduce(DataType type, ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin,
              int64_t end, void* to) override {
    now().reduce(type, operation, parts, begin, end, to);
  }
  void finish() override { now().finish(); }

  void synchronize() override { now().synchronize(); }
  bool waits_to_load_kernels() const override { return device_->waits_to_load_kernels(); }
  std::unique_ptr<WorkMarks> make_marks(int64_t count) override;

  /// The device, with nothing left to launch in the calling thread's stream.
  CudaDevice& now() {
    recorders_.mine().flush();
    return *device_;
  }

 private:
  template <class... Parameters, class... Arguments>
  void later(void (Device::*op)(Parameters...), Arguments&&... arguments) {
    recorders_.mine().add(op, std::forward<Arguments>(arguments)...);
  }

  const std::unique_ptr<CudaDevice> device_;
  PerThread<GraphRecorder> recorders_{[this] { return std::make_unique<GraphRecorder>(*device_); }};
};

// Marks stand behind what was asked for before them.
class GraphedMarks final : public WorkMarks {
 public:
  GraphedMarks(GraphedDevice& device, std::unique_ptr<WorkMarks> marks)
      : device_(device), marks_(std::move(marks)) {}

  void begin_step() override { now().begin_step(); }
  void start(int64_t number) override { now().start(number); }
  void end(int64_t number) override { now().end(number); }
  void await(int64_t number) override { now().await(number); }
  void finish() override { now().finish(); }
  std::pair<double, double> time_s(int64_t number) const override { return marks_->time_s(number); }

 private:
  WorkMarks& now() {
    device_.now();
    return *marks_;
  }

  GraphedDevice& device_;
  const std::unique_ptr<WorkMarks> marks_;
};

std::unique_ptr<WorkMarks> GraphedDevice::make_marks(int64_t count) {
  return std::make_unique<GraphedMarks>(*this, device_->make_marks(count));
}

}  // namespace

std::unique_ptr<CudaDevice> make_graphed_device(std::unique_ptr<CudaDevice> device) {
  return std::make_unique<GraphedDevice>(std::move(device));
}

}  // namespace mpt::runtime::cuda
