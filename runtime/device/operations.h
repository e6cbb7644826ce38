// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operators that layers are made of, each with its operands. One operator of a LayerProgram is one of
// them, so that a recording device sees exactly the program. Pointers are to device memory unless it is said
// otherwise, row-major; sizes are elements. Shapes are checked by the layers (runtime/nn), not again here.
//
// They run in the type of weights and activations. Gradients of weights, statistics of norms, log-sum-exp and
// the loss's maxima and sums are in state_type_of() it: float32 beside bfloat16 and float16.
//
// Legend: T tokens (rows), h hidden width, a query heads, k key-value heads, d head size, b batch, s
// sequence.

#include <cstdint>
#include <variant>

#include "runtime/device/mixer_shapes.h"
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
/// Makes `kept`, fp8_weight_bytes() of memory, what Fp8Kept::weight asks for, where that is of use.
struct NarrowWeight {
  LinearShape shape;
  const void* w = nullptr;
  void* kept = nullptr;
};
/// y[r] += bias for every row: the bias of a row-parallel layer, added once after its reduction.
struct BiasForward {
  int64_t rows = 0, columns = 0;
  const void* bias = nullptr;
  void* y = nullptr;
};
struct BiasBackward {
  int64_t rows = 0, columns = 0;
  const void* dy = nullptr;
  void* dbias = nullptr;
};
/// up = x w^T + bias, and y = the activation of it.
struct LinearActivationForward {
  LinearShape shape;
  ActivationShape activation;
  const void *x = nullptr, *w = nullptr, *bias = nullptr;
  void *up = nullptr, *y = nullptr;
};
/// dup = the gradient of up. dy is that of the product that takes the activation's output. `room` is for the
/// gradient of that output.
struct LinearActivationBackward {
  LinearShape shape;
  ActivationShape activation;
  const void *dy = nullptr, *w = nullptr, *up = nullptr;
  void *room = nullptr, *dup = nullptr;
};

/// `bias` is null for rms norm and for layer norm without bias. With `residual`: sum = x + residual, and the
/// norm of it; `sum` may be x or the residual.
struct NormForward {
  NormShape shape;
  const void *x = nullptr, *scale = nullptr, *bias = nullptr;
  void *y = nullptr, *statistics = nullptr;
  const void* residual = nullptr;
  void* sum = nullptr;
};
/// dx = the gradient through the norm + `residual`, the gradient beside it, which may be null.
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
/// Each query and key head of qkv is normalised by its root mean square, in place; `kept`
/// [b*s, (a + k) * d] gets what stood there.
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

// Queries of all heads are normalised together, and so are keys (OLMo 2). Their sums over heads are also
// sums over ranks, which lie between the two steps of either direction. Both are in full precision.
/// sums [T, 2]: of squares of queries, and of keys.
struct WideNormSquares {
  AttentionShape shape;
  const void* qkv = nullptr;
  void* sums = nullptr;
};
/// In place; `kept` [b*s, (a + k) * d] gets what stood there. `ranks` share the heads.
struct WideNormForward {
  AttentionShape shape;
  int64_t ranks = 1;
  double epsilon = 0.0;
  const void *sums = nullptr, *query_scale = nullptr, *key_scale = nullptr;
  void *qkv = nullptr, *kept = nullptr;
};
/// dots [T, 2]: of what was kept and the gradient times the scale.
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

/// Rotates queries and keys of qkv in place; `direction` -1 undoes it (the backward).
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
// Attention to one block of keys at a time (Liu et al. 2023, arXiv:2310.01889). `kv` [b*keys, k(d + e)]
// holds the block's keys and values. Sums over blocks are in full precision.
/// out [b*s, a*e] and log_sum_exp [b, a, s] become those over this block and the earlier ones; with `first`
/// there are none.
struct AttentionBlockForward {
  AttentionBlock block;
  const void *qkv = nullptr, *kv = nullptr;
  bool first = false;
  void *out = nullptr, *log_sum_exp = nullptr;
};
/// With the result over all blocks: dq [b*s, a*d] and dkv [b*keys, k(d + e)] get what this block adds.
struct AttentionBlockBackward {
  AttentionBlock block;
  const void *dout = nullptr, *qkv = nullptr, *kv = nullptr, *out = nullptr, *log_sum_exp = nullptr;
  void *dq = nullptr, *dkv = nullptr;
};
/// A learned logit of each head takes part in the softmax and sees no value (gpt-oss): out and log_sum_exp,
/// those without it, become those with it.
struct SinkForward {
  AttentionShape shape;
  const void* sinks = nullptr;
  void *out = nullptr, *log_sum_exp = nullptr;
};
/// With those results: dsinks [a], in full precision, is written.
struct SinkBackward {
  AttentionShape shape;
  const void *sinks = nullptr, *dout = nullptr, *out = nullptr, *log_sum_exp = nullptr;
  void* dsinks = nullptr;
};
/// qkv of attention whose keys and values were expanded from a latent: q [b*s, a(n + r)], expanded
/// [b*s, a(n + e)], key [b*s, r], the rotated part of all heads' keys.
struct LatentJoin {
  LatentShape shape;
  Rotation rotation;
  const void *q = nullptr, *expanded = nullptr, *key = nullptr;
  void* qkv = nullptr;
};
/// Their gradients from that of qkv; dkey is the sum over this rank's heads.
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

// Mixture of experts. Copies are rows of tokens on their way through experts; `chosen` and other lists of
// numbers are in host memory, for they decide what runs.
/// probabilities [T, E] = softmax or sigmoid of logits, in full precision; chosen [T, k]: those of the k
/// largest sums of probability and `bias` [E], which may be null, in the token's groups, largest first
/// (ties, of groups too: the lower number); weights [T, k], in full precision: their probabilities, scaled
/// to sum up to 1 if normalized, times the shape's scale.
struct RouterForward {
  RouterShape shape;
  const void* logits = nullptr;
  void* probabilities = nullptr;
  int32_t* chosen = nullptr;
  void* weights = nullptr;
  const void* bias = nullptr;
};
/// dlogits from the gradient of the weights. `balance` [sequences, E] is added to that of the probabilities
/// of all tokens of a sequence; null: nothing is.
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
// Biases of experts: a copy's weight, in full precision, multiplies them, too.
/// y[r] += factors[r] bias.
struct WeightedBiasForward {
  int64_t rows = 0, columns = 0;
  const void *factors = nullptr, *bias = nullptr;
  void* y = nullptr;
};
/// dbias += factors[r] dy[r], and dfactors[r] += dy[r] . bias; either may be null.
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

/// y [T, h] = rows of `table` by token; tokens outside [first, first + rows) give zeros (other ranks hold
/// them).
struct EmbeddingForward {
  TableShape shape;
  const int32_t* ids = nullptr;
  const void* table = nullptr;
  void* y = nullptr;
};
/// `ids` is in host memory: which tokens share a row decides what runs.
struct EmbeddingBackward {
  TableShape shape;
  const int32_t* ids = nullptr;
  const void* dy = nullptr;
  void* dtable = nullptr;
};
/// y[i] += table[positions[i]]; and its gradient. `positions` [T] is in host memory.
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

// Vocabulary-parallel cross entropy. The three steps have an all-reduce between them.
/// maximum [T]: of this rank's logits.
struct LossMaximum {
  LossShape shape;
  const void* logits = nullptr;
  void* maximum = nullptr;
};
/// logits become exp(logit - maximum); sums [2, T]: their sum, and the target's (logit - maximum) if it is
/// here.
struct LossExponentials {
  LossShape shape;
  const int32_t* targets = nullptr;
  const void* maximum = nullptr;
  void *logits = nullptr, *sums = nullptr;
};
/// logits become the loss's gradient times `scale`. The sum of the token losses is added to *loss, which is
/// memory of allocate_host(): it is there after synchronize(). Of logits that were capped softly, by `cap`
/// above 0, `maximum` is that of LossExponentials.
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
/// The three at once, where one rank has the whole vocabulary.
struct LossOfAll {
  LossShape shape;
  const int32_t* targets = nullptr;
  double scale = 1.0;
  void* logits = nullptr;
  double* loss = nullptr;
};

/// The step of one range of weights, with what follows it: `copy` gets the new weights if there is one, and
/// the gradient becomes zero with `zeroes`. Runs in the type of the optimizer's state.
struct AdamStep {
  int64_t count = 0;
  AdamW options;
  void *gradient = nullptr, *parameter = nullptr, *first_moment = nullptr, *second_moment = nullptr;
  NarrowCopy copy{};
  bool zeroes = false;
};

// Parts of mixers of linear cost, and gates (runtime/device/mixer_shapes.h). Weights' gradients accumulate,
// in full precision. `room`: as many such numbers as the shape says.
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

using Operation =
    std::variant<LinearForward, LinearBackwardInput, LinearBackwardWeight, LinearBackward, NarrowWeight,
                 BiasForward, BiasBackward, LinearActivationForward, LinearActivationBackward, NormForward,
                 NormBackwardInput, NormBackwardWeight, HeadNormForward, HeadNormBackward, WideNormSquares,
                 WideNormForward, WideNormDots, WideNormBackward, Rotate, AttentionForward, AttentionBackward,
                 AttentionBlockForward, AttentionBlockBackward, SinkForward, SinkBackward, LatentJoin,
                 LatentSplit, CopyColumns, RouterForward, RouterBackward, GatherRows, SumRows, ScaleRows,
                 RowDots, WeightedBiasForward, WeightedBiasBackward, ActivationForward, ActivationBackward,
                 ResidualAdd, Scale, SoftCap, EmbeddingForward, EmbeddingBackward, PositionForward,
                 PositionBackward, LossMaximum, LossExponentials, LossGradient, LossOfAll, AdamStep,
                 ConvolutionForward, ConvolutionBackward, DeltaForward, DeltaBackward, GatedNormForward,
                 GatedNormBackward, GateForward, GateBackward>;

}  // namespace mpt::runtime
