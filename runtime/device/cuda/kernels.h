// SPDX-License-Identifier: Apache-2.0
#pragma once

// The GPU's kernels, launched on a stream: bodies behind runtime/device/device.h, which documents the shapes.
// T is float, double, Bfloat16 or Half; S is State<T>. All pointers, lists of numbers included, are to device
// memory. Where a kernel needs room, `scratch` has the bytes that its function beside it names.

#include <span>

#include "runtime/device/cuda/launch.h"
#include "runtime/device/fp8.h"

namespace mpt::runtime::cuda {

template <class From, class To>
void convert(cudaStream_t, int64_t count, const From* from, To* to);
template <class From, class To>
void copy_columns(cudaStream_t, int64_t rows, int64_t columns, const From* from, int64_t from_stride, To* to,
                  int64_t to_stride);
template <class T>
void residual_add(cudaStream_t, int64_t count, const T* a, const T* b, T* y);
template <class T>
void bias_forward(cudaStream_t, int64_t rows, int64_t columns, const T* bias, T* y);
template <class T>
void activation_forward(cudaStream_t, const ActivationShape&, const T* x, T* y);
template <class T>
void activation_backward(cudaStream_t, const ActivationShape&, const T* dy, const T* x, T* dx);

/// Where a tensor in 8 bits goes: its numbers as they are and transposed, of which one may be null, and the
/// factor that gives them back.
struct Fp8Place {
  uint8_t* rows = nullptr;
  uint8_t* columns = nullptr;
  float* from_fp8 = nullptr;
};
/// Where a tensor's largest magnitude is or, if it is not `known`, where to leave it; null: nowhere.
struct Fp8Magnitude {
  float* at = nullptr;
  bool known = false;
};
/// x [rows, columns] in 8 bits, with its own scale. T is Bfloat16 or Half.
int64_t fp8_scratch_bytes();
template <class T>
void narrow_to_fp8(cudaStream_t, Fp8 format, int64_t rows, int64_t columns, const T* x,
                   const Fp8Magnitude& magnitude, const Fp8Place& to, void* scratch);

/// Room for the sums over rows below: up to two per column.
int64_t column_scratch_bytes(int64_t rows, int64_t columns);
template <class T>
void bias_backward(cudaStream_t, int64_t rows, int64_t columns, const T* dy, State<T>* dbias, void* scratch);
/// Of x; with `residual`, of their sum, which goes to `sum`.
template <class T>
void norm_forward(cudaStream_t, const NormShape&, const T* x, const T* residual, const T* scale,
                  const T* bias, T* sum, T* y, State<T>* statistics);
/// `residual` is added to dx if not null.
template <class T>
void norm_backward_input(cudaStream_t, const NormShape&, const T* dy, const T* x, const T* scale,
                         const State<T>* statistics, const T* residual, T* dx);
template <class T>
void norm_backward_weight(cudaStream_t, const NormShape&, const T* dy, const T* x, const State<T>* statistics,
                          State<T>* dscale, State<T>* dbias, void* scratch);
template <class T>
void head_norm_forward(cudaStream_t, const AttentionShape&, double epsilon, const T* query_scale,
                       const T* key_scale, T* qkv, T* kept);
int64_t head_norm_scratch_bytes(const AttentionShape&);
template <class T>
void head_norm_backward(cudaStream_t, const AttentionShape&, double epsilon, const T* query_scale,
                        const T* key_scale, const T* kept, T* dqkv, State<T>* dquery_scale,
                        State<T>* dkey_scale, void* scratch);

template <class T>
void rotary(cudaStream_t, const AttentionShape&, int64_t half, const double* frequencies,
            const int32_t* positions, double factor, int direction, T* qkv);

/// Where queries find their keys. `visible` [sequence]: how many of them each query sees, or null for causal;
/// `hidden`: how many first ones of these it does not, or null where the shape's window says it.
struct AttentionKeys {
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t row = 0;    // elements from one key to the next
  int64_t count = 0;  // of one sequence
  const int32_t* visible = nullptr;
  const int32_t* hidden = nullptr;
};
/// `join`: out and log_sum_exp hold those over earlier keys. Out is T or State<T>.
template <class T, class Out>
void attention_forward(cudaStream_t, const AttentionShape&, const T* q, const AttentionKeys&, bool join,
                       Out* out, State<T>* log_sum_exp);
struct AttentionGradients {
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t q_row = 0, kv_row = 0;
  bool add = false;  // to what stands there
};
/// Gradients are Out: T, or State<T> where blocks of keys add up. `delta` [b, a, s] is room for the kernels.
template <class T, class Out>
void attention_backward(cudaStream_t, const AttentionShape&, const T* dout, const T* q, const AttentionKeys&,
                        const T* out, const State<T>* log_sum_exp, const AttentionGradients&,
                        State<T>* delta);

template <class T>
void router_forward(cudaStream_t, const RouterShape&, const T* logits, State<T>* probabilities,
                    int32_t* chosen, State<T>* weights, const T* bias);
template <class T>
void router_backward(cudaStream_t, const RouterShape&, const State<T>* probabilities, const int32_t* chosen,
                     const State<T>* dweights, const State<T>* balance, T* dlogits);
template <class T>
void gather_rows(cudaStream_t, int64_t count, int64_t columns, const int32_t* rows, const T* x, T* y);
template <class T>
void sum_rows(cudaStream_t, int64_t tokens, int64_t top, int64_t columns, const int32_t* rows, const T* x,
              T* y);
template <class T>
void scale_rows(cudaStream_t, int64_t rows, int64_t columns, const State<T>* factors, const T* x, T* y);
template <class T>
void row_dots(cudaStream_t, int64_t rows, int64_t columns, const T* a, const T* b, State<T>* dots);

template <class T>
void embedding_forward(cudaStream_t, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                       const int32_t* ids, const T* table, T* y);
/// Tokens by their word: of words[w], a row of the table, tokens[starts[w]] .. tokens[starts[w + 1] - 1].
struct WordList {
  int64_t count = 0;  // of words
  const int32_t *words = nullptr, *starts = nullptr, *tokens = nullptr;
};
template <class T>
void embedding_backward(cudaStream_t, const WordList&, int64_t hidden, const T* dy, State<T>* dtable);
template <class T>
void position_forward(cudaStream_t, int64_t tokens, int64_t hidden, const int32_t* positions, const T* table,
                      T* y);

template <class T>
void loss_maximum(cudaStream_t, int64_t tokens, int64_t columns, int64_t used, const T* logits,
                  State<T>* maximum);
template <class T>
void loss_exponentials(cudaStream_t, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                       const int32_t* targets, const State<T>* maximum, T* logits, State<T>* sums);
/// losses [tokens].
template <class T>
void loss_gradient(cudaStream_t, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                   const int32_t* targets, const State<T>* sums, double scale, T* logits, double* losses);

/// The three at once; losses [tokens].
template <class T>
void loss_of_all(cudaStream_t, int64_t tokens, int64_t columns, int64_t used, const int32_t* targets,
                 double scale, T* logits, double* losses);

/// `copy` gets the new parameters if not null; the gradient becomes zero with `zeroes`.
template <class S, class T>
void adamw(cudaStream_t, int64_t count, const AdamW&, S* gradient, S* parameter, S* first_moment,
           S* second_moment, T* copy, bool zeroes);

/// *result = the sum over all stretches; `scratch` has room for kPartialSums doubles.
constexpr int64_t kPartialSums = 2048;
template <class T>
void sum_of_squares(cudaStream_t, std::span<const Stretch> stretches, double* scratch, double* result);
/// *result += the sum.
void add_sum(cudaStream_t, int64_t count, const double* data, double* result);

/// out[i - begin] = the sources' elements i joined in order, for begin <= i < end: what ranks of one process
/// do to each other's buffers.
constexpr int kMostSources = 64;
struct Sources {
  const void* at[kMostSources];
  int count = 0;
};
template <class T>
void reduce_in_order(cudaStream_t, const Sources&, bool maximum, int64_t begin, int64_t end, T* out);

}  // namespace mpt::runtime::cuda
