// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/head_norm.h"

namespace mpt::runtime {

HeadNorm::HeadNorm(const std::string& name, const PartContext& context) : Part(context) {
  query_ = add(name + ".query_norm.scale", sizes_.heads);
  key_ = add(name + ".key_norm.scale", sizes_.kv_heads);
}

int HeadNorm::add(const std::string& name, int64_t heads) {
  const int64_t own = width(heads);
  return parameters_.add(whole() ? split_vector(name, own, 1.0)
                                 : whole_vector(name, own, sizes_.tensor > 1, 1.0));
}

void HeadNorm::sum_over_ranks(void* numbers) {
  if (group_.size() == 1) return;
  group_.all_reduce(numbers, 2 * sizes_.tokens, state_type_of(sizes_.type), ReduceOperation::sum);
}

void HeadNorm::forward(void* qkv, Saved& saved) {
  const AttentionShape shape = sizes_.attention();
  const double epsilon = sizes_.model.norm_epsilon;
  saved.kept = tokens_by(shape.rotated());
  const void *const query = parameters_.value(query_), *const key = parameters_.value(key_);
  if (!whole())
    return run(HeadNormForward{.shape = shape,
                               .epsilon = epsilon,
                               .query_scale = query,
                               .key_scale = key,
                               .qkv = qkv,
                               .kept = saved.kept.data()});
  saved.sums = Buffer(device_, sizes_.state_bytes(2));
  run(WideNormSquares{.shape = shape, .qkv = qkv, .sums = saved.sums.data()});
  sum_over_ranks(saved.sums.data());
  run(WideNormForward{.shape = shape,
                      .ranks = group_.size(),
                      .epsilon = epsilon,
                      .sums = saved.sums.data(),
                      .query_scale = query,
                      .key_scale = key,
                      .qkv = qkv,
                      .kept = saved.kept.data()});
}

void HeadNorm::backward_input(void* dqkv, Saved& saved) {
  const AttentionShape shape = sizes_.attention();
  const double epsilon = sizes_.model.norm_epsilon;
  const int64_t unit = sizes_.state_unit(), queries = width(sizes_.heads) * unit;
  saved.d_scales = Buffer(device_, queries + width(sizes_.kv_heads) * unit);
  device_.zero(saved.d_scales.data(), saved.d_scales.bytes());
  void* const d_query = saved.d_scales.data();
  void* const d_key = beyond(d_query, queries);
  const void *const query = parameters_.value(query_), *const key = parameters_.value(key_);
  if (!whole())
    return run(HeadNormBackward{.shape = shape,
                                .epsilon = epsilon,
                                .query_scale = query,
                                .key_scale = key,
                                .kept = saved.kept.data(),
                                .dqkv = dqkv,
                                .dquery_scale = d_query,
                                .dkey_scale = d_key});
  const Buffer dots(device_, sizes_.state_bytes(2));
  run(WideNormDots{.shape = shape,
                   .query_scale = query,
                   .key_scale = key,
                   .kept = saved.kept.data(),
                   .dqkv = dqkv,
                   .dots = dots.data()});
  sum_over_ranks(dots.data());
  run(WideNormBackward{.shape = shape,
                       .ranks = group_.size(),
                       .epsilon = epsilon,
                       .sums = saved.sums.data(),
                       .dots = dots.data(),
                       .query_scale = query,
                       .key_scale = key,
                       .kept = saved.kept.data(),
                       .dqkv = dqkv,
                       .dquery_scale = d_query,
                       .dkey_scale = d_key});
}

void HeadNorm::backward_weight(const Saved& saved) {
  const char* part = static_cast<const char*>(saved.d_scales.data());
  for (const auto& [scale, count] :
       {std::pair{query_, width(sizes_.heads)}, std::pair{key_, width(sizes_.kv_heads)}}) {
    add_gradient(scale, count, part);
    part += count * sizes_.state_unit();
  }
}

}  // namespace mpt::runtime
