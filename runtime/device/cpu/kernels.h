// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CPU's kernels, for float and double: bodies behind runtime/device/device.h, which documents the shapes.
// Single-threaded and deterministic: a rank is a thread. Compiled with the machine's own instruction set.

#include <cstdint>

#include "runtime/device/device.h"

namespace mpt::runtime::cpu {

template <class T>
void linear_forward(const LinearShape& shape, const T* x, const T* w, const T* bias, T* y);
template <class T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* w, T* dx);
template <class T>
void linear_backward_weight(const LinearShape& shape, const T* dy, const T* x, T* dw, T* dbias);
template <class T>
void bias_forward(int64_t rows, int64_t columns, const T* bias, T* y);
template <class T>
void bias_backward(int64_t rows, int64_t columns, const T* dy, T* dbias);

template <class T>
void norm_forward(const NormShape& shape, const T* x, const T* scale, const T* bias, T* y, T* statistics);
template <class T>
void norm_backward_input(const NormShape& shape, const T* dy, const T* x, const T* scale, const T* statistics,
                         T* dx);
template <class T>
void norm_backward_weight(const NormShape& shape, const T* dy, const T* x, const T* statistics, T* dscale,
                          T* dbias);

template <class T>
void rotary(const AttentionShape& shape, const Rotation& rotation, int direction, T* qkv);
template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* out, T* log_sum_exp);
template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* qkv, const T* out,
                        const T* log_sum_exp, T* dqkv);

template <class T>
void attention_block_forward(const AttentionBlock& block, const T* qkv, const T* kv, bool first, T* out,
                             T* log_sum_exp);
template <class T>
void attention_block_backward(const AttentionBlock& block, const T* dout, const T* qkv, const T* kv,
                              const T* out, const T* log_sum_exp, T* dq, T* dkv);

template <class T>
void head_norm_forward(const AttentionShape& shape, double epsilon, const T* query_scale, const T* key_scale,
                       T* qkv, T* kept);
template <class T>
void head_norm_backward(const AttentionShape& shape, double epsilon, const T* query_scale, const T* key_scale,
                        const T* kept, T* dqkv, T* dquery_scale, T* dkey_scale);

template <class T>
void router_forward(const RouterShape&, const T* logits, T* probabilities, int32_t* chosen, T* weights,
                    const T* bias);
template <class T>
void router_backward(const RouterShape&, const T* probabilities, const int32_t* chosen, const T* dweights,
                     const T* balance, T* dlogits);
template <class T>
void gather_rows(int64_t count, int64_t columns, const int32_t* rows, const T* x, T* y);
template <class T>
void sum_rows(int64_t tokens, int64_t top, int64_t columns, const int32_t* rows, const T* x, T* y);
template <class T>
void scale_rows(int64_t rows, int64_t columns, const T* factors, const T* x, T* y);
template <class T>
void row_dots(int64_t rows, int64_t columns, const T* a, const T* b, T* dots);

template <class T>
void activation_forward(const ActivationShape& shape, const T* x, T* y);
template <class T>
void activation_backward(const ActivationShape& shape, const T* dy, const T* x, T* dx);
template <class T>
void residual_add(int64_t count, const T* a, const T* b, T* y);

template <class T>
void embedding_forward(int64_t tokens, int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                       const T* table, T* y);
template <class T>
void embedding_backward(int64_t tokens, int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                        const T* dy, T* dtable);
template <class T>
void position_forward(int64_t tokens, int64_t hidden, const int32_t* positions, const T* table, T* y);
template <class T>
void position_backward(int64_t tokens, int64_t hidden, const int32_t* positions, const T* dy, T* dtable);

template <class T>
void loss_maximum(int64_t tokens, int64_t columns, int64_t used, const T* logits, T* maximum);
template <class T>
void loss_exponentials(int64_t tokens, int64_t columns, int64_t used, int64_t first, const int32_t* targets,
                       const T* maximum, T* logits, T* sums);
template <class T>
double loss_gradient(int64_t tokens, int64_t columns, int64_t used, int64_t first, const int32_t* targets,
                     const T* sums, double scale, T* logits);

template <class T>
double capped_loss_gradient(int64_t tokens, int64_t columns, int64_t used, int64_t first,
                            const int32_t* targets, const T* maximum, const T* sums, double scale, double cap,
                            T* logits);

template <class T>
void scale(int64_t count, double factor, const T* x, T* y);
template <class T>
void soft_cap(int64_t count, double cap, T* x);
template <class T>
void sink_forward(const AttentionShape& shape, const T* sinks, T* out, T* log_sum_exp);
template <class T>
void sink_backward(const AttentionShape& shape, const T* sinks, const T* dout, const T* out,
                   const T* log_sum_exp, T* dsinks);
template <class T>
void latent_join(const LatentShape& shape, const Rotation& rotation, const T* q, const T* expanded,
                 const T* key, T* qkv);
template <class T>
void latent_split(const LatentShape& shape, const Rotation& rotation, const T* dqkv, T* dq, T* dexpanded,
                  T* dkey);
template <class T>
void wide_norm_squares(const AttentionShape& shape, const T* qkv, T* sums);
template <class T>
void wide_norm_forward(const AttentionShape& shape, int64_t ranks, double epsilon, const T* sums,
                       const T* query_scale, const T* key_scale, T* qkv, T* kept);
template <class T>
void wide_norm_dots(const AttentionShape& shape, const T* query_scale, const T* key_scale, const T* kept,
                    const T* dqkv, T* dots);
template <class T>
void wide_norm_backward(const AttentionShape& shape, int64_t ranks, double epsilon, const T* sums,
                        const T* dots, const T* query_scale, const T* key_scale, const T* kept, T* dqkv,
                        T* dquery_scale, T* dkey_scale);
template <class T>
void weighted_bias_forward(int64_t rows, int64_t columns, const T* factors, const T* bias, T* y);
template <class T>
void weighted_bias_backward(int64_t rows, int64_t columns, const T* factors, const T* bias, const T* dy,
                            T* dbias, T* dfactors);

template <class T>
void adamw(int64_t count, const AdamW& options, const T* gradient, T* parameter, T* first_moment,
           T* second_moment);
template <class T>
double sum_of_squares(int64_t count, const T* data);

}  // namespace mpt::runtime::cpu
