// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelDevice: the operators of a GPU that only some models need; they take nothing but a stream, and lists
// that stay in device memory.

#include "runtime/device/cuda/cuda_device.h"

namespace mpt::runtime::cuda {

class ModelDevice : public CudaDevice {
 public:
  void scale(DataType, int64_t count, double factor, const void* x, void* y) override;
  void soft_cap(DataType, int64_t count, double cap, void* x) override;
  void sink_forward(DataType, const AttentionShape&, const void* sinks, void* out,
                    void* log_sum_exp) override;
  void sink_backward(DataType, const AttentionShape&, const void* sinks, const void* dout, const void* out,
                     const void* log_sum_exp, void* dsinks) override;
  void latent_join(DataType, const LatentShape&, const Rotation&, const void* q, const void* expanded,
                   const void* key, void* qkv) override;
  void latent_split(DataType, const LatentShape&, const Rotation&, const void* dqkv, void* dq,
                    void* dexpanded, void* dkey) override;
  void wide_norm_squares(DataType, const AttentionShape&, const void* qkv, void* sums) override;
  void wide_norm_forward(DataType, const AttentionShape&, int64_t ranks, double epsilon, const void* sums,
                         const void* query_scale, const void* key_scale, void* qkv, void* kept) override;
  void wide_norm_dots(DataType, const AttentionShape&, const void* query_scale, const void* key_scale,
                      const void* kept, const void* dqkv, void* dots) override;
  void wide_norm_backward(DataType, const AttentionShape&, int64_t ranks, double epsilon, const void* sums,
                          const void* dots, const void* query_scale, const void* key_scale, const void* kept,
                          void* dqkv, void* dquery_scale, void* dkey_scale) override;
  void weighted_bias_forward(DataType, int64_t rows, int64_t columns, const void* factors, const void* bias,
                             void* y) override;
  void weighted_bias_backward(DataType, int64_t rows, int64_t columns, const void* factors, const void* bias,
                              const void* dy, void* dbias, void* dfactors) override;

 protected:
  /// A list of the host's memory, in device memory for as long as the device lives.
  virtual const void* kept(const void* list, int64_t bytes) = 0;
};

}  // namespace mpt::runtime::cuda
