// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plans for tests of the runtime: real footprints and schedule, made-up durations. No planner involved.

#include <functional>

#include "core/plan.h"

namespace mpt::test {

struct WantedPlan {
  ModelSpec model;
  Workload workload{8, 16};
  int64_t tensor = 1, pipeline = 1, data = 1, chunks = 1, micro_batch = 1;
  std::string schedule = "1f1b";
  Recompute recompute = Recompute::none;
  bool sequence_parallel = false;
  int64_t zero = 0, shard = 0;  // shard 0: all replicas
  Precision precision = Precision::fp32;
  RankOrder order = RankOrder::pipeline_outermost;
  std::vector<int64_t> layers_per_stage{}, recomputed_layers{};  // empty: even, all
  int64_t expert = 1, context = 1;
  ContextMethod context_method = ContextMethod::ring;
  bool overlap_gradient_reduce = false, overlap_parameter_gather = false, overlap_tensor = false;
  int64_t expert_tensor = 1;  // of experts that are spread over ranks
  bool offload_optimizer = false;
  int64_t vocabulary_multiple = 1;
};

Plan make_plan(const WantedPlan& request);

/// GPT-2 style: layer norm, learned positions, biases, tied; vocabulary 256 (bytes), hidden 32, 4 heads.
ModelSpec little_gpt(int64_t layers = 4);
/// Llama style: rms norm, rotary, grouped queries, gated MLP, untied; the same sizes.
ModelSpec little_llama(int64_t layers = 4);
/// Mixtral style: as little_llama with 4 experts, 2 for each token, and a strong load-balancing loss.
ModelSpec little_mixtral(int64_t layers = 4);
/// As little_mixtral with 12 experts in 4 groups, 4 of 2 groups for each token.
ModelSpec little_grouped(int64_t layers = 4);
/// Qwen3 style: as little_llama with norms on query and key heads, tied, and Llama 3.1's rotary scaling.
ModelSpec little_qwen(int64_t layers = 4);

/// Gemma 3 and 2 style: norms on both sides, windows with positions of their own in every second layer, soft
/// caps, factors on embedding and scores.
ModelSpec little_gemma(int64_t layers = 4);
/// OLMo 2 style: norms behind attention and MLP, and over all queries and keys.
ModelSpec little_olmo(int64_t layers = 4);
/// gpt-oss style: windows in every second layer, sinks, YaRN, experts with biases and limits.
ModelSpec little_oss(int64_t layers = 4);
/// DeepSeek-V3 style: latent attention, a dense layer below experts in groups with a bias that moves their
/// choice, and a shared one.
ModelSpec little_deepseek(int64_t layers = 4);
/// The same with a next-token module.
ModelSpec little_predicting(int64_t layers = 4);
/// Cohere style: one norm for attention and MLP side by side, every second layer without positions.
ModelSpec little_parallel(int64_t layers = 4);
/// Qwen3.5 style: as little_llama, but three of four layers have Gated DeltaNet in place of attention, and
/// the second of them has a wider MLP.
ModelSpec little_hybrid(int64_t layers = 4);
/// Qwen3-Next style: three of four layers have Gated DeltaNet, the others gates and norms on the heads of
/// attention; experts beside shared ones that have a gate.
ModelSpec little_next(int64_t layers = 4);
/// The same model of so many layers, its own repeated or cut.
ModelSpec with_layers(ModelSpec model, int64_t layers);
/// Where `dense` says so, a dense MLP twice as wide as an expert takes the place of experts.
ModelSpec with_dense_layers(ModelSpec model, const std::function<bool(int64_t)>& dense);

}  // namespace mpt::test
