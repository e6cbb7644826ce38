// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operators that layers consist of, each with its operands. Each operator of a LayerProgram is one of
// them, so a recording device sees exactly the program. Pointers are to device memory unless stated
// otherwise, row-major; sizes are in elements. The layers (runtime/nn) check shapes; the operators do not.
//
// They run in the type of weights and activations. Gradients of weights, statistics of norms, log-sum-exp and
// the loss's maxima and sums have the type that state_type_of() gives: float32 for bfloat16 and float16.
//
// Legend: T tokens (rows), h hidden width, a query heads, k key-value heads, d head size, b batch, s
// sequence.

#include <cstdint>
#include <variant>

#include "runtime/device/operator_shapes.h"

namespace mpt::runtime {

struct AdamW {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;           // from 1, for bias correction
  double gradient_scale = 1;  // clipping factor
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

// Linear layers. `bias` may be null. Weight gradients accumulate; input gradients are written.
struct LinearForward {
  LinearShape shape;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;
  void* y = nullptr;
};
struct LinearBackwardInput {
  LinearShape shape;
  const void *dy = nullptr, *w = nullptr;
  void* dx = nullptr;
};
struct LinearBackwardWeight {
  LinearShape shape;
  const void *dy = nullptr, *x = nullptr;
  void *dw = nullptr, *dbias = nullptr;
};
/// Both gradients: products of 8 bits narrow dy once.
struct LinearBackward {
  LinearShape shape;
  const void *dy = nullptr, *w = nullptr;
  void* dx = nullptr;
  const void* x = nullptr;
  void *dw = nullptr, *dbias = nullptr;
};
/// Fills `kept`, fp8_weight_bytes() of memory, for Fp8Kept::weight, if the device uses it.
struct NarrowWeight {
  LinearShape shape;
  const void* w = nullptr;
  void* kept = nullptr;
};
/// y[r] += factors[r] bias for every row; `factors`, in full precision, may be null: 1. A row-parallel layer
/// adds its bias once, after its reduction. Biases of experts are multiplied by the copy's weight.
struct BiasForward {
  int64_t rows = 0, columns = 0;
  const void *factors = nullptr, *bias = nullptr;
  void* y = nullptr;
};
struct BiasBackward {
  int64_t rows = 0, columns = 0;
  const void* dy = nullptr;
  void* dbias = nullptr;
};
/// up = x w^T + bias, and y = activation of up.
struct LinearActivationForward {
  LinearShape shape;
  ActivationShape activation;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;
  void *up = nullptr, *y = nullptr;
};
/// dup = the gradient of up. dy is the gradient of the output of the product that reads y. `room` is memory
/// for the gradient of y.
struct LinearActivationBackward {
  LinearShape shape;
  ActivationShape activation;
  const void *dy = nullptr, *w = nullptr, *up = nullptr;
  void *room = nullptr, *dup = nullptr;
};

/// `bias` is null for rms norm and for layer norm without bias. With `residual`: sum = x + residual, and y is
/// the norm of the sum. `sum` may be x or the residual.
struct NormForward {
  NormShape shape;
  const void *x = nullptr, *scale = nullptr, *bias = nullptr;
  void *y = nullptr, *statistics = nullptr;
  const void* residual = nullptr;
  void* sum = nullptr;
};
/// dx = the gradient through the norm + `residual`, the gradient of the residual path, which may be null.
struct NormBackwardInput {
  NormShape shape;
  const void *dy = nullptr, *x = nullptr, *scale = nullptr, *statistics = nullptr;
  void* dx = nullptr;
  const void* residual = nullptr;
};
/// dscale and dbias accumulate if not null.
struct NormBackwardWeight {
  NormShape shape;
  const void *dy = nullptr, *x = nullptr, *statistics = nullptr;
  void *dscale = nullptr, *dbias = nullptr;
};
/// Each query and key head of qkv is normalised by its root mean square, in place; `kept` [b*s, (a + k) * d]
/// gets the old values.
struct HeadNormForward {
  AttentionShape shape;
  double epsilon = 0.0;
  const void *query_scale = nullptr, *key_scale = nullptr;
  void *qkv = nullptr, *kept = nullptr;
};
/// dqkv in place; the scales' gradients accumulate.
struct HeadNormBackward {
  AttentionShape shape;
  double epsilon = 0.0;
  const void *query_scale = nullptr, *key_scale = nullptr, *kept = nullptr;
  void *dqkv = nullptr, *dquery_scale = nullptr, *dkey_scale = nullptr;
};

// Queries of all heads are normalised together, and so are keys (OLMo 2). Their sums over heads are also sums
// over ranks, between the two steps of either direction. Both sums are in full precision.
/// sums [T, 2]: the sums of squares of queries, and of keys.
struct WideNormSquares {
  AttentionShape shape;
  const void* qkv = nullptr;
  void* sums = nullptr;
};
/// In place; `kept` [b*s, (a + k) * d] gets the old values. `ranks` share the heads.
struct WideNormForward {
  AttentionShape shape;
  int64_t ranks = 1;
  double epsilon = 0.0;
  const void *sums = nullptr, *query_scale = nullptr, *key_scale = nullptr;
  void *qkv = nullptr, *kept = nullptr;
};
/// dots [T, 2]: the dot products of the kept values with the gradient times the scale.
struct WideNormDots {
  AttentionShape shape;
  const void *query_scale = nullptr, *key_scale = nullptr, *kept = nullptr, *dqkv = nullptr;
  void* dots = nullptr;
};
/// dqkv in place; the scales' gradients accumulate.
struct WideNormBackward {
  AttentionShape shape;
  int64_t ranks = 1;
  double epsilon = 0.0;
  const void *sums = nullptr, *dots = nullptr, *query_scale = nullptr, *key_scale = nullptr, *kept = nullptr;
  void *dqkv = nullptr, *dquery_scale = nullptr, *dkey_scale = nullptr;
};

/// Rotates queries and keys of qkv in place; `direction` -1 reverses it (the backward).
struct Rotate {
  AttentionShape shape;
  Rotation rotation;
  int direction = 1;
  void* qkv = nullptr;
};
/// out [b*s, a*e]; log_sum_exp [b, a, s]. Causal.
struct AttentionForward {
  AttentionShape shape;
  const void* qkv = nullptr;
  void *out = nullptr, *log_sum_exp = nullptr;
};
struct AttentionBackward {
  AttentionShape shape;
  const void *dout = nullptr, *qkv = nullptr, *out = nullptr, *log_sum_exp = nullptr;
  void* dqkv = nullptr;
};
// Attention to one block of keys at a time (Liu et al. 2023, arXiv:2310.01889). `kv` [b*keys, k(d + e)] holds
// the block's keys and values. Sums over blocks are in full precision.
/// out [b*s, a*e] and log_sum_exp [b, a, s] are updated to include this block; with `first` there are no
/// earlier blocks.
/// there are none.
struct AttentionBlockForward {
  AttentionBlock block;
  const void *qkv = nullptr, *kv = nullptr;
  bool first = false;
  void *out = nullptr, *log_sum_exp = nullptr;
};
/// From the result over all blocks: this block's part is added to dq [b*s, a*d] and dkv [b*keys, k(d + e)].
struct AttentionBlockBackward {
  AttentionBlock block;
  const void *dout = nullptr, *qkv = nullptr, *kv = nullptr, *out = nullptr, *log_sum_exp = nullptr;
  void *dq = nullptr, *dkv = nullptr;
};
/// A learned logit of each head joins the softmax and has no value (gpt-oss). out and log_sum_exp are updated
/// from those without it to those with it.
struct SinkForward {
  AttentionShape shape;
  const void* sinks = nullptr;
  void *out = nullptr, *log_sum_exp = nullptr;
};
/// From the results with it: writes dsinks [a], in full precision.
struct SinkBackward {
  AttentionShape shape;
  const void *sinks = nullptr, *dout = nullptr, *out = nullptr, *log_sum_exp = nullptr;
  void* dsinks = nullptr;
};
/// qkv of attention with keys and values expanded from a latent: q [b*s, a(n + r)], expanded [b*s, a(n + e)],
/// key [b*s, r], the rotated part of the keys, shared by all heads.
struct LatentJoin {
  LatentShape shape;
  Rotation rotation;
  const void *q = nullptr, *expanded = nullptr, *key = nullptr;
  void* qkv = nullptr;
};
/// Their gradients from the gradient of qkv; dkey is the sum over this rank's heads.
struct LatentSplit {
  LatentShape shape;
  Rotation rotation;
  const void* dqkv = nullptr;
  void *dq = nullptr, *dexpanded = nullptr, *dkey = nullptr;
};
/// to[r, 0 .. columns] = from[r, 0 .. columns], converted from the operator's type; strides in elements.
struct CopyColumns {
  DataType to_type = DataType::float32;
  int64_t rows = 0, columns = 0;
  const void* from = nullptr;
  int64_t from_stride = 0;
  void* to = nullptr;
  int64_t to_stride = 0;
};

// Mixture of experts. Copies are rows of tokens that go through experts; `chosen` and other lists of numbers
// are in host memory, for they decide which kernels run.
/// probabilities [T, E] = softmax or sigmoid of logits, in full precision. chosen [T, k]: the experts with
/// the k largest sums of probability and `bias` [E], which may be null, in the token's groups, largest first
/// (ties, of groups too: the lower number). weights [T, k], in full precision: their probabilities, scaled to
/// sum up to 1 if normalized, times the shape's scale.
struct RouterForward {
  RouterShape shape;
  const void* logits = nullptr;
  void* probabilities = nullptr;
  int32_t* chosen = nullptr;
  void* weights = nullptr;
  const void* bias = nullptr;
};
/// dlogits from the gradient of the weights. `balance` [sequences, E] is added to the gradient of the
/// probabilities of all tokens of a sequence; it may be null.
struct RouterBackward {
  RouterShape shape;
  const void* probabilities = nullptr;
  const int32_t* chosen = nullptr;
  const void *dweights = nullptr, *balance = nullptr;
  void* dlogits = nullptr;
};
/// y[i] = x[rows[i]].
struct GatherRows {
  int64_t count = 0, columns = 0;
  const int32_t* rows = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
};
/// y[t] = sum over j < top of x[rows[t * top + j]].
struct SumRows {
  int64_t tokens = 0, top = 0, columns = 0;
  const int32_t* rows = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
};
/// y[i] = factors[i] x[i]; factors in full precision; y may be x.
struct ScaleRows {
  int64_t rows = 0, columns = 0;
  const void *factors = nullptr, *x = nullptr;
  void* y = nullptr;
};
/// dots[i] = a[i] . b[i], in full precision.
struct RowDots {
  int64_t rows = 0, columns = 0;
  const void *a = nullptr, *b = nullptr;
  void* dots = nullptr;
};
/// Of a bias with factors: dbias += factors[r] dy[r], and dfactors[r] += dy[r] . bias; either may be null.
struct WeightedBiasBackward {
  int64_t rows = 0, columns = 0;
  const void *factors = nullptr, *bias = nullptr, *dy = nullptr;
  void *dbias = nullptr, *dfactors = nullptr;
};

struct ActivationForward {
  ActivationShape shape;
  const void* x = nullptr;
  void* y = nullptr;
};
struct ActivationBackward {
  ActivationShape shape;
  const void *dy = nullptr, *x = nullptr;
  void* dx = nullptr;
};
/// y = a + b, `count` elements; y may be a or b.
struct ResidualAdd {
  int64_t count = 0;
  const void *a = nullptr, *b = nullptr;
  void* y = nullptr;
};
/// y = factor x, `count` elements; y may be x.
struct Scale {
  int64_t count = 0;
  double factor = 1.0;
  const void* x = nullptr;
  void* y = nullptr;
};
/// x = cap tanh(x / cap), in place.
struct SoftCap {
  int64_t count = 0;
  double cap = 0.0;
  void* x = nullptr;
};

/// y [T, h] = rows of `table` by token. Tokens outside [first, first + rows) give zeros (other ranks hold
/// them).
struct EmbeddingForward {
  TableShape shape;
  const int32_t* ids = nullptr;
  const void* table = nullptr;
  void* y = nullptr;
};
/// `ids` is in host memory: the tokens that share a row decide which kernels run.
struct EmbeddingBackward {
  TableShape shape;
  const int32_t* ids = nullptr;
  const void* dy = nullptr;
  void* dtable = nullptr;
};
/// y[i] += table[positions[i]], and its gradient. `positions` [T] is in host memory.
struct PositionForward {
  int64_t tokens = 0, hidden = 0;
  const int32_t* positions = nullptr;
  const void* table = nullptr;
  void* y = nullptr;
};
struct PositionBackward {
  int64_t tokens = 0, hidden = 0;
  const int32_t* positions = nullptr;
  const void* dy = nullptr;
  void* dtable = nullptr;
};

// Vocabulary-parallel cross entropy. There is an all-reduce between each two of the three steps.
/// maximum [T]: of this rank's logits.
struct LossMaximum {
  LossShape shape;
  const void* logits = nullptr;
  void* maximum = nullptr;
};
/// Replaces logits by exp(logit - maximum). sums [2, T]: their sum, and the target's (logit - maximum) if
/// this rank has the target.
struct LossExponentials {
  LossShape shape;
  const int32_t* targets = nullptr;
  const void* maximum = nullptr;
  void *logits = nullptr, *sums = nullptr;
};
/// Replaces logits by the loss's gradient times `scale`. Adds the sum of the token losses to *loss, memory of
/// allocate_host(), which is valid after synchronize(). If `cap` is above 0, the logits were capped softly by
/// it, and `maximum` is the one of LossExponentials.
struct LossGradient {
  LossShape shape;
  const int32_t* targets = nullptr;
  const void* sums = nullptr;
  double scale = 1.0;
  void* logits = nullptr;
  double* loss = nullptr;
  double cap = 0.0;
  const void* maximum = nullptr;
};
/// The three steps at once, if one rank has the whole vocabulary.
struct LossOfAll {
  LossShape shape;
  const int32_t* targets = nullptr;
  double scale = 1.0;
  void* logits = nullptr;
  double* loss = nullptr;
};

/// The optimizer step of one range of weights. `copy` gets the new weights if there is one, and `zeroes` sets
/// the gradient to zero. Runs in the type of the optimizer's state.
struct AdamStep {
  int64_t count = 0;
  AdamW options;
  void *gradient = nullptr, *parameter = nullptr, *first_moment = nullptr, *second_moment = nullptr;
  NarrowCopy copy{};
  bool zeroes = false;
};

// Parts of mixers of linear cost, and gates (runtime/device/operator_shapes.h). Weights' gradients
// accumulate, in full precision. `room`: memory for the number of such elements that the shape gives.
struct ConvolutionForward {
  ConvolutionShape shape;
  const void *x = nullptr, *w = nullptr;
  void* y = nullptr;
};
/// dx has the stride of x; bytes between its rows do not change.
struct ConvolutionBackward {
  ConvolutionShape shape;
  const void *dy = nullptr, *x = nullptr, *w = nullptr;
  void *dx = nullptr, *dw = nullptr;
};
struct DeltaForward {
  DeltaShape shape;
  DeltaInputs in;
  void *out = nullptr, *room = nullptr;
};
struct DeltaBackward {
  DeltaShape shape;
  DeltaInputs in;
  const void* dout = nullptr;
  DeltaGradients d;
  void* room = nullptr;
};
struct GatedNormForward {
  GatedNormShape shape;
  const void *x = nullptr, *gate = nullptr, *scale = nullptr;
  void* y = nullptr;
};
struct GatedNormBackward {
  GatedNormShape shape;
  const void *dy = nullptr, *x = nullptr, *gate = nullptr, *scale = nullptr;
  void *dx = nullptr, *dgate = nullptr, *dscale = nullptr;
};
struct GateForward {
  GateShape shape;
  const void *x = nullptr, *gate = nullptr;
  void* y = nullptr;
};
/// dx may be dy.
struct GateBackward {
  GateShape shape;
  const void *dy = nullptr, *x = nullptr, *gate = nullptr;
  void *dx = nullptr, *dgate = nullptr;
};

/// All operations, each as `of` shows it. A device that computes one in parts declares a function for it,
/// too, and does not define it.
#define MPT_OPERATIONS(of)                                                                                   \
  of(LinearForward), of(LinearBackwardInput), of(LinearBackwardWeight), of(LinearBackward),                  \
      of(NarrowWeight), of(BiasForward), of(BiasBackward), of(LinearActivationForward),                      \
      of(LinearActivationBackward), of(NormForward), of(NormBackwardInput), of(NormBackwardWeight),          \
      of(HeadNormForward), of(HeadNormBackward), of(WideNormSquares), of(WideNormForward), of(WideNormDots), \
      of(WideNormBackward), of(Rotate), of(AttentionForward), of(AttentionBackward),                         \
      of(AttentionBlockForward), of(AttentionBlockBackward), of(SinkForward), of(SinkBackward),              \
      of(LatentJoin), of(LatentSplit), of(CopyColumns), of(RouterForward), of(RouterBackward),               \
      of(GatherRows), of(SumRows), of(ScaleRows), of(RowDots), of(WeightedBiasBackward),                     \
      of(ActivationForward), of(ActivationBackward), of(ResidualAdd), of(Scale), of(SoftCap),                \
      of(EmbeddingForward), of(EmbeddingBackward), of(PositionForward), of(PositionBackward),                \
      of(LossMaximum), of(LossExponentials), of(LossGradient), of(LossOfAll), of(AdamStep),                  \
      of(ConvolutionForward), of(ConvolutionBackward), of(DeltaForward), of(DeltaBackward),                  \
      of(GatedNormForward), of(GatedNormBackward), of(GateForward), of(GateBackward)
#define MPT_OPERATION_ITSELF(operation) operation
using Operation = std::variant<MPT_OPERATIONS(MPT_OPERATION_ITSELF)>;

}  // namespace mpt::runtime
