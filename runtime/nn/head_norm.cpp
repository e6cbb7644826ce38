// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/head_norm.h"

namespace mpt::runtime {

HeadNorm::HeadNorm(const std::string& name, const RankSizes& sizes, Parameters& parameters, Device& device)
    : sizes_(sizes), parameters_(parameters), device_(device) {
  Parameter scale;
  scale.name = name + ".query_norm.scale";
  scale.global_rows = sizes.head_dim;
  scale.blocks = {{0, sizes.head_dim, 0, 1}};
  scale.initial_value = 1.0;
  scale.is_first_copy = sizes.tensor_rank == 0;
  scale.partial = sizes.tensor > 1;
  query_ = parameters.add(scale);
  scale.name = name + ".key_norm.scale";
  key_ = parameters.add(scale);
}

void HeadNorm::forward(void* qkv, Buffer& kept) {
  kept = Buffer(device_, sizes_.token_bytes((sizes_.heads + sizes_.kv_heads) * sizes_.head_dim));
  device_.head_norm_forward(sizes_.type, sizes_.attention(), sizes_.model.norm_epsilon,
                            parameters_.value(query_), parameters_.value(key_), qkv, kept.data());
}

void HeadNorm::backward_input(const Buffer& kept, void* dqkv, Buffer& d_scales) {
  const int64_t bytes = sizes_.head_dim * sizes_.state_unit();
  d_scales = Buffer(device_, 2 * bytes);
  device_.zero(d_scales.data(), 2 * bytes);
  device_.head_norm_backward(sizes_.type, sizes_.attention(), sizes_.model.norm_epsilon,
                             parameters_.value(query_), parameters_.value(key_), kept.data(), dqkv,
                             d_scales.data(), static_cast<char*>(d_scales.data()) + bytes);
}

void HeadNorm::backward_weight(const Buffer& d_scales) {
  const int64_t bytes = sizes_.head_dim * sizes_.state_unit();
  const char* part = static_cast<const char*>(d_scales.data());
  for (const int scale : {query_, key_}) {
    void* const gradient = parameters_.gradient(scale);
    device_.residual_add(parameters_.state_type(), sizes_.head_dim, gradient, part, gradient);
    part += bytes;
  }
}

}  // namespace mpt::runtime
