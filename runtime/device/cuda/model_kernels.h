// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels of what some models add to the usual operators; as kernels.h.

#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

template <class T>
void scale(cudaStream_t, int64_t count, double factor, const T* x, T* y);
template <class T>
void soft_cap(cudaStream_t, int64_t count, double cap, T* x);
/// losses [tokens].
template <class T>
void capped_loss_gradient(cudaStream_t, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                          const int32_t* targets, const State<T>* maximum, const State<T>* sums, double scale,
                          double cap, T* logits, double* losses);

template <class T>
void sink_forward(cudaStream_t, const AttentionShape&, const T* sinks, T* out, State<T>* log_sum_exp);
template <class T>
void sink_backward(cudaStream_t, const AttentionShape&, const T* sinks, const T* dout, const T* out,
                   const State<T>* log_sum_exp, State<T>* dsinks);

/// Frequencies, `rope` / 2 of them, and positions are in device memory.
template <class T>
void latent_join(cudaStream_t, const LatentShape&, const double* frequencies, const int32_t* positions,
                 double factor, const T* q, const T* expanded, const T* key, T* qkv);
template <class T>
void latent_split(cudaStream_t, const LatentShape&, const double* frequencies, const int32_t* positions,
                  double factor, const T* dqkv, T* dq, T* dexpanded, T* dkey);

template <class T>
void wide_norm_squares(cudaStream_t, const AttentionShape&, const T* qkv, State<T>* sums);
template <class T>
void wide_norm_forward(cudaStream_t, const AttentionShape&, int64_t ranks, double epsilon,
                       const State<T>* sums, const T* query_scale, const T* key_scale, T* qkv, T* kept);
template <class T>
void wide_norm_dots(cudaStream_t, const AttentionShape&, const T* query_scale, const T* key_scale,
                    const T* kept, const T* dqkv, State<T>* dots);
template <class T>
void wide_norm_backward(cudaStream_t, const AttentionShape&, int64_t ranks, double epsilon,
                        const State<T>* sums, const State<T>* dots, const T* query_scale, const T* key_scale,
                        const T* kept, T* dqkv, State<T>* dquery_scale, State<T>* dkey_scale);

template <class T>
void weighted_bias_forward(cudaStream_t, int64_t rows, int64_t columns, const State<T>* factors,
                           const T* bias, T* y);
template <class T>
void weighted_bias_backward(cudaStream_t, int64_t rows, int64_t columns, const State<T>* factors,
                            const T* bias, const T* dy, State<T>* dbias, State<T>* dfactors);

}  // namespace mpt::runtime::cuda
