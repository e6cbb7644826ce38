// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device: memory with exact accounting, and the operators that layers are made of. One operator of a
// LayerProgram is one call here, so that a recording device sees exactly the program. Pointers are to device
// memory, row-major; sizes are elements. Shapes are checked by the layers (runtime/nn), not again here.
//
// `DataType` is that of weights and activations. Gradients of weights, statistics of norms, log-sum-exp and
// the loss's maxima and sums are in state_type_of() it: float32 beside bfloat16 and float16.
//
// Legend: T tokens (rows), h hidden width, a query heads, k key-value heads, d head size, b batch, s
// sequence.

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/allocation.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/mixer_shapes.h"
#include "runtime/device/operator_shapes.h"

namespace mpt::runtime {

struct AdamW {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;           // from 1, for bias correction
  double gradient_scale = 1;  // clipping factor
};

/// Where pieces of work begin and end in the streams of a device that runs behind its callers: each thread
/// that calls the device has a stream of its own, and its calls run in their order.
class WorkMarks {
 public:
  virtual ~WorkMarks() = default;
  /// Work of the last step is done; times count from here.
  virtual void begin_step() = 0;
  /// What the calling thread asks for from here on, or did up to here, is piece `number`.
  virtual void start(int64_t number) = 0;
  virtual void end(int64_t number) = 0;
  /// What the calling thread asks for next runs after piece `number`, which has its end.
  virtual void await(int64_t number) = 0;
  /// Returns when every piece that had its end is done. Throws RunError if one failed.
  virtual void finish() = 0;
  /// When piece `number` ran, in seconds of base/clock.h. After finish().
  virtual std::pair<double, double> time_s(int64_t number) const = 0;
};

/// `count` elements in a row.
struct Stretch {
  const void* data = nullptr;
  int64_t count = 0;
};

/// A copy of weights in a narrower type; null: there is none.
struct NarrowCopy {
  DataType type = DataType::float32;
  void* data = nullptr;
};

class Device {
 public:
  virtual ~Device() = default;

  // Memory. Sizes are rounded up to kAllocationUnit; blocks are aligned to it and cached for reuse.
  /// Takes `bytes` for blocks to come, as far as there are so many. Before the first of them.
  virtual void reserve(int64_t bytes) { (void)bytes; }
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) = 0;
  virtual int64_t in_use_bytes() const = 0;
  virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* data, int64_t bytes) = 0;
  /// Memory of the host that copies to and from the device reach directly. The device does not count it.
  virtual void* allocate_host(int64_t bytes) {
    return ::operator new(size_t(rounded_bytes(bytes)), std::align_val_t(kAllocationUnit));
  }
  virtual void release_host(void* data) { ::operator delete(data, std::align_val_t(kAllocationUnit)); }
  /// Between the host's doubles and device memory of `type`, rounded to nearest.
  virtual void upload(DataType type, const double* from, int64_t count, void* to) = 0;
  virtual void download(DataType type, const void* from, int64_t count, double* to) = 0;
  /// float32 to a narrower type, or back.
  virtual void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) = 0;

  // Linear layers. `bias` may be null. Weight gradients accumulate; input gradients are written.
  virtual void linear_forward(DataType, const LinearShape&, const void* x, const void* w, const void* bias,
                              void* y) = 0;
  virtual void linear_backward_input(DataType, const LinearShape&, const void* dy, const void* w,
                                     void* dx) = 0;
  virtual void linear_backward_weight(DataType, const LinearShape&, const void* dy, const void* x, void* dw,
                                      void* dbias) = 0;
  /// Both gradients: products of 8 bits narrow dy once.
  virtual void linear_backward(DataType, const LinearShape&, const void* dy, const void* w, void* dx,
                               const void* x, void* dw, void* dbias);
  /// Makes `kept`, fp8_weight_bytes() of memory, what Fp8Kept::weight asks for, where that is of use.
  virtual void narrow_weight(DataType, const LinearShape&, const void* w, void* kept) { (void)w, (void)kept; }
  /// y[r] += bias for every row: the bias of a row-parallel layer, added once after its reduction.
  virtual void bias_forward(DataType, int64_t rows, int64_t columns, const void* bias, void* y) = 0;
  virtual void bias_backward(DataType, int64_t rows, int64_t columns, const void* dy, void* dbias) = 0;
  /// up = x w^T + bias, and y = the activation of it.
  virtual void linear_activation_forward(DataType, const LinearShape&, const ActivationShape&, const void* x,
                                         const void* w, const void* bias, void* up, void* y);
  /// dup = the gradient of up. dy is that of the product that takes the activation's output. `room` is for
  /// the gradient of that output.
  virtual void linear_activation_backward(DataType, const LinearShape&, const ActivationShape&,
                                          const void* dy, const void* w, const void* up, void* room,
                                          void* dup);

  // Norms. `bias` is null for rms norm and for layer norm without bias.
  virtual void norm_forward(DataType, const NormShape&, const void* x, const void* scale, const void* bias,
                            void* y, void* statistics) = 0;
  /// dx is written; dscale and dbias accumulate if not null.
  virtual void norm_backward_input(DataType, const NormShape&, const void* dy, const void* x,
                                   const void* scale, const void* statistics, void* dx) = 0;
  virtual void norm_backward_weight(DataType, const NormShape&, const void* dy, const void* x,
                                    const void* statistics, void* dscale, void* dbias) = 0;
  /// sum = a + b, and the norm of it; `sum` may be a or b.
  virtual void residual_norm_forward(DataType, const NormShape&, const void* a, const void* b,
                                     const void* scale, const void* bias, void* sum, void* y,
                                     void* statistics);
  /// dx = the gradient through the norm + `residual`, the gradient beside it.
  virtual void norm_backward_residual(DataType, const NormShape&, const void* dy, const void* x,
                                      const void* scale, const void* statistics, const void* residual,
                                      void* dx);

  /// Rotates queries and keys of qkv in place; `direction` -1 undoes it (the backward).
  virtual void rotary(DataType, const AttentionShape&, const Rotation&, int direction, void* qkv) = 0;
  /// out [b*s, a*e]; log_sum_exp [b, a, s]. Causal.
  virtual void attention_forward(DataType, const AttentionShape&, const void* qkv, void* out,
                                 void* log_sum_exp) = 0;
  virtual void attention_backward(DataType, const AttentionShape&, const void* dout, const void* qkv,
                                  const void* out, const void* log_sum_exp, void* dqkv) = 0;

  // Attention to one block of keys at a time (Liu et al. 2023, arXiv:2310.01889). `kv` [b*keys, k(d + e)]
  // holds the block's keys and values. Sums over blocks are in full precision.
  /// out [b*s, a*e] and log_sum_exp [b, a, s] become those over this block and the earlier ones; with `first`
  /// there are none.
  virtual void attention_block_forward(DataType, const AttentionBlock&, const void* qkv, const void* kv,
                                       bool first, void* out, void* log_sum_exp) = 0;
  /// With the result over all blocks: dq [b*s, a*d] and dkv [b*keys, k(d + e)] get what this block adds.
  virtual void attention_block_backward(DataType, const AttentionBlock&, const void* dout, const void* qkv,
                                        const void* kv, const void* out, const void* log_sum_exp, void* dq,
                                        void* dkv) = 0;
  /// to[r, 0 .. columns] = from[r, 0 .. columns], converted; strides in elements.
  virtual void copy_columns(DataType from_type, DataType to_type, int64_t rows, int64_t columns,
                            const void* from, int64_t from_stride, void* to, int64_t to_stride) = 0;

  /// Each query and key head of qkv is normalised by its root mean square, in place; `kept`
  /// [b*s, (a + k) * d] gets what stood there.
  virtual void head_norm_forward(DataType, const AttentionShape&, double epsilon, const void* query_scale,
                                 const void* key_scale, void* qkv, void* kept) = 0;
  /// dqkv in place; the scales' gradients accumulate.
  virtual void head_norm_backward(DataType, const AttentionShape&, double epsilon, const void* query_scale,
                                  const void* key_scale, const void* kept, void* dqkv, void* dquery_scale,
                                  void* dkey_scale) = 0;

  // Mixture of experts. Copies are rows of tokens on their way through experts; `chosen` and other lists of
  // numbers are in host memory, for they decide what runs.
  /// probabilities [T, E] = softmax or sigmoid of logits, in full precision; chosen [T, k]: those of the k
  /// largest sums of probability and `bias` [E], which may be null, in the token's groups, largest first
  /// (ties, of groups too: the lower number); weights [T, k], in full precision: their probabilities, scaled
  /// to sum up to 1 if normalized, times the shape's scale.
  virtual void router_forward(DataType, const RouterShape&, const void* logits, void* probabilities,
                              int32_t* chosen, void* weights, const void* bias = nullptr) = 0;
  /// dlogits from the gradient of the weights. `balance` [sequences, E] is added to that of the probabilities
  /// of all tokens of a sequence; null: nothing is.
  virtual void router_backward(DataType, const RouterShape&, const void* probabilities, const int32_t* chosen,
                               const void* dweights, const void* balance, void* dlogits) = 0;
  /// y[i] = x[rows[i]].
  virtual void gather_rows(DataType, int64_t count, int64_t columns, const int32_t* rows, const void* x,
                           void* y) = 0;
  /// y[t] = sum over j < top of x[rows[t * top + j]].
  virtual void sum_rows(DataType, int64_t tokens, int64_t top, int64_t columns, const int32_t* rows,
                        const void* x, void* y) = 0;
  /// y[i] = factors[i] x[i]; factors in full precision; y may be x.
  virtual void scale_rows(DataType, int64_t rows, int64_t columns, const void* factors, const void* x,
                          void* y) = 0;
  /// dots[i] = a[i] . b[i], in full precision.
  virtual void row_dots(DataType, int64_t rows, int64_t columns, const void* a, const void* b,
                        void* dots) = 0;

  virtual void activation_forward(DataType, const ActivationShape&, const void* x, void* y) = 0;
  virtual void activation_backward(DataType, const ActivationShape&, const void* dy, const void* x,
                                   void* dx) = 0;

  /// y = a + b, `count` elements; y may be a or b.
  virtual void residual_add(DataType, int64_t count, const void* a, const void* b, void* y) = 0;

  /// y [T, h] = rows of `table` by token; tokens outside [first, first + rows) give zeros (other ranks hold
  /// them).
  virtual void embedding_forward(DataType, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                                 const int32_t* ids, const void* table, void* y) = 0;
  /// `ids` is in host memory: which tokens share a row decides what runs.
  virtual void embedding_backward(DataType, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                                  const int32_t* ids, const void* dy, void* dtable) = 0;
  /// y[i] += table[positions[i]]; and its gradient. `positions` [T] is in host memory.
  virtual void position_forward(DataType, int64_t tokens, int64_t hidden, const int32_t* positions,
                                const void* table, void* y) = 0;
  virtual void position_backward(DataType, int64_t tokens, int64_t hidden, const int32_t* positions,
                                 const void* dy, void* dtable) = 0;

  // Vocabulary-parallel cross entropy over logits [T, columns], of which the first `used` columns are real
  // words, the words first .. first + used of the vocabulary. The three steps have an all-reduce between
  // them.
  /// maximum [T]: of this rank's logits.
  virtual void loss_maximum(DataType, int64_t tokens, int64_t columns, int64_t used, const void* logits,
                            void* maximum) = 0;
  /// logits become exp(logit - maximum); sums [2, T]: their sum, and the target's (logit - maximum) if it is
  /// here.
  virtual void loss_exponentials(DataType, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                                 const int32_t* targets, const void* maximum, void* logits, void* sums) = 0;
  /// logits become the loss's gradient times `scale`. The sum of the token losses is added to *loss, which is
  /// memory of allocate_host(): it is there after synchronize().
  virtual void loss_gradient(DataType, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                             const int32_t* targets, const void* sums, double scale, void* logits,
                             double* loss) = 0;
  /// The three at once, where one rank has the whole vocabulary.
  virtual void loss_of_all(DataType, int64_t tokens, int64_t columns, int64_t used, const int32_t* targets,
                           double scale, void* logits, double* loss);

  /// Returns when what the calling thread asked for is done.
  virtual void synchronize() {}
  /// Whether the first use of a kernel may wait for all work of the GPU, transfers among it.
  virtual bool waits_to_load_kernels() const { return false; }
  /// Marks of `count` pieces of work, for a device that works behind its callers; null: work is done when a
  /// call returns.
  virtual std::unique_ptr<WorkMarks> make_marks(int64_t count) {
    (void)count;
    return nullptr;
  }

  // Optimizer, over flat buffers.
  virtual void adamw(DataType, int64_t count, const AdamW&, const void* gradient, void* parameter,
                     void* first_moment, void* second_moment) = 0;
  /// The step of one range of weights, with what follows it: `copy` gets the
  /// new weights if there is one, and the gradient becomes zero with `zeroes`.
  virtual void adamw_step(DataType, int64_t count, const AdamW&, void* gradient, void* parameter,
                          void* first_moment, void* second_moment, const NarrowCopy& copy, bool zeroes);
  virtual double sum_of_squares(DataType, int64_t count, const void* data) = 0;
  /// The same of several stretches together.
  virtual double squared_norm(DataType type, std::span<const Stretch> parts) {
    double sum = 0.0;
    for (const Stretch& part : parts) sum += sum_of_squares(type, part.count, part.data);
    return sum;
  }

  /// y = factor x, `count` elements; y may be x.
  virtual void scale(DataType, int64_t count, double factor, const void* x, void* y) = 0;
  /// x = cap tanh(x / cap), in place.
  virtual void soft_cap(DataType, int64_t count, double cap, void* x) = 0;
  /// loss_gradient() of logits that were capped softly; `maximum` is that of loss_exponentials().
  virtual void capped_loss_gradient(DataType, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                                    const int32_t* targets, const void* maximum, const void* sums,
                                    double scale, double cap, void* logits, double* loss) = 0;

  /// A learned logit of each head takes part in the softmax and sees no value (gpt-oss): out and log_sum_exp,
  /// those without it, become those with it.
  virtual void sink_forward(DataType, const AttentionShape&, const void* sinks, void* out,
                            void* log_sum_exp) = 0;
  /// With those results: dsinks [a], in full precision, is written.
  virtual void sink_backward(DataType, const AttentionShape&, const void* sinks, const void* dout,
                             const void* out, const void* log_sum_exp, void* dsinks) = 0;

  /// qkv of attention whose keys and values were expanded from a latent: q [b*s, a(n + r)], expanded
  /// [b*s, a(n + e)], key [b*s, r], the rotated part of all heads' keys.
  virtual void latent_join(DataType, const LatentShape&, const Rotation&, const void* q, const void* expanded,
                           const void* key, void* qkv) = 0;
  /// Their gradients from that of qkv; dkey is the sum over this rank's heads.
  virtual void latent_split(DataType, const LatentShape&, const Rotation&, const void* dqkv, void* dq,
                            void* dexpanded, void* dkey) = 0;

  // Queries of all heads are normalised together, and so are keys (OLMo 2). Their sums over heads are also
  // sums over ranks, which lie between the two steps of either direction. Both are in full precision.
  /// sums [T, 2]: of squares of queries, and of keys.
  virtual void wide_norm_squares(DataType, const AttentionShape&, const void* qkv, void* sums) = 0;
  /// In place; `kept` [b*s, (a + k) * d] gets what stood there. `ranks` share the heads.
  virtual void wide_norm_forward(DataType, const AttentionShape&, int64_t ranks, double epsilon,
                                 const void* sums, const void* query_scale, const void* key_scale, void* qkv,
                                 void* kept) = 0;
  /// dots [T, 2]: of what was kept and the gradient times the scale.
  virtual void wide_norm_dots(DataType, const AttentionShape&, const void* query_scale, const void* key_scale,
                              const void* kept, const void* dqkv, void* dots) = 0;
  /// dqkv in place; the scales' gradients accumulate.
  virtual void wide_norm_backward(DataType, const AttentionShape&, int64_t ranks, double epsilon,
                                  const void* sums, const void* dots, const void* query_scale,
                                  const void* key_scale, const void* kept, void* dqkv, void* dquery_scale,
                                  void* dkey_scale) = 0;

  // Biases of experts: a copy's weight, in full precision, multiplies them, too.
  /// y[r] += factors[r] bias.
  virtual void weighted_bias_forward(DataType, int64_t rows, int64_t columns, const void* factors,
                                     const void* bias, void* y) = 0;
  /// dbias += factors[r] dy[r], and dfactors[r] += dy[r] . bias; either may be null.
  virtual void weighted_bias_backward(DataType, int64_t rows, int64_t columns, const void* factors,
                                      const void* bias, const void* dy, void* dbias, void* dfactors) = 0;

  // Parts of mixers of linear cost, and gates (runtime/device/mixer_shapes.h). Weights' gradients accumulate,
  // in full precision. `room`: as many such numbers as the shape says.
  virtual void convolution_forward(DataType, const ConvolutionShape&, const void* x, const void* w,
                                   void* y) = 0;
  /// dx has the stride of x; bytes between its rows do not change.
  virtual void convolution_backward(DataType, const ConvolutionShape&, const void* dy, const void* x,
                                    const void* w, void* dx, void* dw) = 0;
  virtual void delta_forward(DataType, const DeltaShape&, const DeltaInputs&, void* out, void* room) = 0;
  virtual void delta_backward(DataType, const DeltaShape&, const DeltaInputs&, const void* dout,
                              const DeltaGradients&, void* room) = 0;
  virtual void gated_norm_forward(DataType, const GatedNormShape&, const void* x, const void* gate,
                                  const void* scale, void* y) = 0;
  virtual void gated_norm_backward(DataType, const GatedNormShape&, const void* dy, const void* x,
                                   const void* gate, const void* scale, void* dx, void* dgate,
                                   void* dscale) = 0;
  virtual void gate_forward(DataType, const GateShape&, const void* x, const void* gate, void* y) = 0;
  /// dx may be dy.
  virtual void gate_backward(DataType, const GateShape&, const void* dy, const void* x, const void* gate,
                             void* dx, void* dgate) = 0;
};

/// Memory from a device, given back at the end of its life.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, int64_t bytes) : device_(&device), bytes_(bytes), data_(device.allocate(bytes)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(static_cast<Buffer&&>(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) device_->release(data_, bytes_);
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset() { *this = Buffer(); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  Device* device_ = nullptr;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
};

inline void Device::linear_backward(DataType type, const LinearShape& s, const void* dy, const void* w,
                                    void* dx, const void* x, void* dw, void* dbias) {
  linear_backward_input(type, s, dy, w, dx);
  linear_backward_weight(type, s, dy, x, dw, dbias);
}

inline void Device::linear_activation_forward(DataType type, const LinearShape& s,
                                              const ActivationShape& activation, const void* x, const void* w,
                                              const void* bias, void* up, void* y) {
  linear_forward(type, s, x, w, bias, up);
  activation_forward(type, activation, up, y);
}

inline void Device::linear_activation_backward(DataType type, const LinearShape& s,
                                               const ActivationShape& activation, const void* dy,
                                               const void* w, const void* up, void* room, void* dup) {
  linear_backward_input(type, s, dy, w, room);
  activation_backward(type, activation, room, up, dup);
}

inline void Device::residual_norm_forward(DataType type, const NormShape& s, const void* a, const void* b,
                                          const void* scale, const void* bias, void* sum, void* y,
                                          void* statistics) {
  residual_add(type, s.rows * s.columns, a, b, sum);
  norm_forward(type, s, sum, scale, bias, y, statistics);
}

inline void Device::norm_backward_residual(DataType type, const NormShape& s, const void* dy, const void* x,
                                           const void* scale, const void* statistics, const void* residual,
                                           void* dx) {
  norm_backward_input(type, s, dy, x, scale, statistics, dx);
  residual_add(type, s.rows * s.columns, dx, residual, dx);
}

inline void Device::adamw_step(DataType state, int64_t count, const AdamW& options, void* gradient,
                               void* parameter, void* first_moment, void* second_moment,
                               const NarrowCopy& copy, bool zeroes) {
  adamw(state, count, options, gradient, parameter, first_moment, second_moment);
  if (copy.data != nullptr) convert(state, parameter, copy.type, copy.data, count);
  if (zeroes) zero(gradient, count * size_of(state));
}

inline void Device::loss_of_all(DataType type, int64_t tokens, int64_t columns, int64_t used,
                                const int32_t* targets, double scale, void* logits, double* loss) {
  const int64_t unit = size_of(state_type_of(type));
  const Buffer maximum(*this, tokens * unit), sums(*this, 2 * tokens * unit);
  loss_maximum(type, tokens, columns, used, logits, maximum.data());
  loss_exponentials(type, tokens, columns, used, 0, targets, maximum.data(), logits, sums.data());
  loss_gradient(type, tokens, columns, used, 0, targets, sums.data(), scale, logits, loss);
}

/// The host's memory for copies of a device, given back at the end of its life.
class HostBuffer {
 public:
  HostBuffer(Device& device, int64_t bytes) : device_(&device), data_(device.allocate_host(bytes)) {}
  HostBuffer(HostBuffer&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  HostBuffer& operator=(HostBuffer&&) = delete;
  ~HostBuffer() {
    if (data_ != nullptr) device_->release_host(data_);
  }

  void* data() const { return data_; }

 private:
  Device* device_;
  void* data_;
};

}  // namespace mpt::runtime
