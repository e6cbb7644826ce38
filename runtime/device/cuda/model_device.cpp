// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/model_device.h"

#include "runtime/device/cuda/dispatch.h"
#include "runtime/device/cuda/model_kernels.h"

namespace mpt::runtime::cuda {
namespace {

// A pointer to elements of whatever type the kernel takes.
struct Data {
  void* at;
  template <class T>
  operator T*() const {  // NOLINT(google-explicit-constructor): it stands for any of them
    return static_cast<T*>(at);
  }
};
Data any(const void* data) { return {const_cast<void*>(data)}; }

}  // namespace

void ModelDevice::scale(DataType type, int64_t count, double factor, const void* x, void* y) {
  MPT_DISPATCH(type, cuda::scale<T>(stream(), count, factor, any(x), any(y)));
}

void ModelDevice::soft_cap(DataType type, int64_t count, double cap, void* x) {
  MPT_DISPATCH(type, cuda::soft_cap<T>(stream(), count, cap, any(x)));
}

void ModelDevice::sink_forward(DataType type, const AttentionShape& s, const void* sinks, void* out,
                               void* log_sum_exp) {
  MPT_DISPATCH(type, cuda::sink_forward<T>(stream(), s, any(sinks), any(out), any(log_sum_exp)));
}

void ModelDevice::sink_backward(DataType type, const AttentionShape& s, const void* sinks, const void* dout,
                                const void* out, const void* log_sum_exp, void* dsinks) {
  MPT_DISPATCH(type, cuda::sink_backward<T>(stream(), s, any(sinks), any(dout), any(out), any(log_sum_exp),
                                            any(dsinks)));
}

void ModelDevice::latent_join(DataType type, const LatentShape& s, const Rotation& r, const void* q,
                              const void* expanded, const void* key, void* qkv) {
  const void* const frequencies = kept(r.frequencies.data(), int64_t(r.frequencies.size_bytes()));
  const void* const positions = kept(r.positions.data(), int64_t(r.positions.size_bytes()));
  MPT_DISPATCH(type, cuda::latent_join<T>(stream(), s, any(frequencies), any(positions), r.factor, any(q),
                                          any(expanded), any(key), any(qkv)));
}

void ModelDevice::latent_split(DataType type, const LatentShape& s, const Rotation& r, const void* dqkv,
                               void* dq, void* dexpanded, void* dkey) {
  const void* const frequencies = kept(r.frequencies.data(), int64_t(r.frequencies.size_bytes()));
  const void* const positions = kept(r.positions.data(), int64_t(r.positions.size_bytes()));
  MPT_DISPATCH(type, cuda::latent_split<T>(stream(), s, any(frequencies), any(positions), r.factor, any(dqkv),
                                           any(dq), any(dexpanded), any(dkey)));
}

void ModelDevice::wide_norm_squares(DataType type, const AttentionShape& s, const void* qkv, void* sums) {
  MPT_DISPATCH(type, cuda::wide_norm_squares<T>(stream(), s, any(qkv), any(sums)));
}

void ModelDevice::wide_norm_forward(DataType type, const AttentionShape& s, int64_t ranks, double epsilon,
                                    const void* sums, const void* query_scale, const void* key_scale,
                                    void* qkv, void* kept_values) {
  MPT_DISPATCH(type, cuda::wide_norm_forward<T>(stream(), s, ranks, epsilon, any(sums), any(query_scale),
                                                any(key_scale), any(qkv), any(kept_values)));
}

void ModelDevice::wide_norm_dots(DataType type, const AttentionShape& s, const void* query_scale,
                                 const void* key_scale, const void* kept_values, const void* dqkv,
                                 void* dots) {
  MPT_DISPATCH(type, cuda::wide_norm_dots<T>(stream(), s, any(query_scale), any(key_scale), any(kept_values),
                                             any(dqkv), any(dots)));
}

void ModelDevice::wide_norm_backward(DataType type, const AttentionShape& s, int64_t ranks, double epsilon,
                                     const void* sums, const void* dots, const void* query_scale,
                                     const void* key_scale, const void* kept_values, void* dqkv,
                                     void* dquery_scale, void* dkey_scale) {
  MPT_DISPATCH(type, cuda::wide_norm_backward<T>(stream(), s, ranks, epsilon, any(sums), any(dots),
                                                 any(query_scale), any(key_scale), any(kept_values),
                                                 any(dqkv), any(dquery_scale), any(dkey_scale)));
}

void ModelDevice::weighted_bias_forward(DataType type, int64_t rows, int64_t columns, const void* factors,
                                        const void* bias, void* y) {
  MPT_DISPATCH(type,
               cuda::weighted_bias_forward<T>(stream(), rows, columns, any(factors), any(bias), any(y)));
}

void ModelDevice::weighted_bias_backward(DataType type, int64_t rows, int64_t columns, const void* factors,
                                         const void* bias, const void* dy, void* dbias, void* dfactors) {
  MPT_DISPATCH(type, cuda::weighted_bias_backward<T>(stream(), rows, columns, any(factors), any(bias),
                                                     any(dy), any(dbias), any(dfactors)));
}

}  // namespace mpt::runtime::cuda
