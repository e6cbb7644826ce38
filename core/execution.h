// SPDX-License-Identifier: Apache-2.0
#pragma once

// Execution: what a framework does with a layout, as far as time and memory depend on it: which kernels it
// has, what it keeps for backward, in which precision it holds states. The defaults are this project's own
// runtime; the values of other frameworks are knowledge and live in frameworks/. Each kind of
// knowledge is a struct of its own; in files their fields stand side by side.

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace mpt {

/// flash: scores never reach memory (arXiv:2205.14135). cudnn: the same, by the kernels of cuDNN 9 for
/// Hopper, and from 9.17 for Blackwell, whose rates in training were measured. unfused: two batched products
/// with scores, softmax and dropout between them in memory, over the full square of the sequence (Megatron-LM
/// before 2023). plain: unfused, and copying, masking and softmax are kernels of PyTorch's own. flash1 and
/// flash2: FlashAttention-1 and 2, which are not written for Hopper and later. own: this project's runtime on
/// GPUs, kernel by kernel as core/runtime_attention.h has it.
enum class AttentionKernel { flash, cudnn, flash1, flash2, unfused, plain, own };
inline bool writes_scores(AttentionKernel kernel) {
  return kernel == AttentionKernel::unfused || kernel == AttentionKernel::plain;
}
/// fused: norms, activations and rotary embedding are one kernel each. compiled: chains of them are fused
/// with each other (torch.compile). eager: every elementary operation is a kernel of its own.
enum class ElementwiseKernels { fused, compiled, eager };
/// What the loss keeps of the logits, which have vocabulary / tensor columns. own: as this project's runtime.
/// fused: the gradient in place of the logits. fp32: logits in fp32 and their softmax beside them. chunked:
/// head and loss go over some tokens at a time, and no more logits exist than of those.
enum class LossKernel { own, fused, fp32, chunked };

MPT_ENUM_NAMES(AttentionKernel, {AttentionKernel::flash, "flash"}, {AttentionKernel::cudnn, "cudnn"},
               {AttentionKernel::flash1, "flash1"}, {AttentionKernel::flash2, "flash2"},
               {AttentionKernel::unfused, "unfused"}, {AttentionKernel::plain, "plain"},
               {AttentionKernel::own, "own"});
MPT_ENUM_NAMES(ElementwiseKernels, {ElementwiseKernels::fused, "fused"},
               {ElementwiseKernels::compiled, "compiled"}, {ElementwiseKernels::eager, "eager"});
MPT_ENUM_NAMES(LossKernel, {LossKernel::own, "own"}, {LossKernel::fused, "fused"}, {LossKernel::fp32, "fp32"},
               {LossKernel::chunked, "chunked"});

/// Which kernels a framework has.
struct Kernels {
  AttentionKernel attention = AttentionKernel::flash;
  ElementwiseKernels elementwise = ElementwiseKernels::fused;
  LossKernel loss = LossKernel::own;
  bool dropout = false;  // masks of one byte are kept
  // What only some models do (OperatorShape::extra) has kernels of its own, plain ones.
  bool extras_apart = false;
  bool graphs = false;          // kernels are launched by the device from a graph
  bool early_products = false;  // matrix products of cuBLAS 11, until 2022
  bool fuses_experts = false;   // what experts multiply is narrowed to fp8 within their products
  // In fp8 each expert's rows are copied into as many as its products take, and back.
  bool pads_expert_rows = false;
  // Where products run in fp8, the attention core does too, and the product of the head.
  bool fp8_attention = false;
  bool fp8_head = false;
  // The device multiplies matrices in fp8 with one scale in any order: no transposed copy of a weight is
  // kept.
  bool fp8_in_any_order = false;
  // Tensor ranks gather the logits, and each computes the loss over the whole vocabulary.
  bool gathers_logits = false;
  // The vocabulary's table is padded to a multiple of this for every tensor rank.
  int64_t vocabulary_multiple = 1;

  bool operator==(const Kernels&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = Kernels;
    v.field("attention", &T::attention, "flash, cudnn, flash1, flash2, unfused, plain or own",
            optional_field());
    v.field("elementwise", &T::elementwise, "fused, compiled or eager", optional_field());
    v.field("loss", &T::loss, "own, fused or fp32", optional_field());
    v.field("dropout", &T::dropout, "dropout masks are kept", optional_field());
    v.field("extras_apart", &T::extras_apart,
            "experts' biases, limits of activations and scaled rotary positions have kernels of their own",
            optional_field());
    v.field("graphs", &T::graphs, "kernels are launched from graphs", optional_field());
    v.field("early_products", &T::early_products, "matrix products of cuBLAS 11", optional_field());
    v.field("fuses_experts", &T::fuses_experts, "experts' products narrow their inputs to fp8 themselves",
            optional_field());
    v.field("pads_expert_rows", &T::pads_expert_rows,
            "in fp8 experts' rows are copied to multiples of what products take", optional_field());
    v.field("fp8_attention", &T::fp8_attention, "where products run in fp8, attention does too",
            optional_field());
    v.field("fp8_head", &T::fp8_head, "where products run in fp8, the head's does too", optional_field());
    v.field("fp8_in_any_order", &T::fp8_in_any_order,
            "fp8 with one scale for a matrix is multiplied in any order, as the device does",
            optional_field());
    v.field("gathers_logits", &T::gathers_logits, "tensor ranks gather the logits before the loss",
            optional_field());
    v.field("vocabulary_multiple", &T::vocabulary_multiple,
            "the vocabulary is padded to a multiple of this for every tensor rank",
            optional_field(between(1, 1 << 20)));
  }
};

/// What stays in memory from forward to backward, beyond what operators need.
struct Kept {
  // A received tensor is what the stage's first layer keeps, and a sent one is freed: no buffers of their
  // own.
  bool receives_in_place = false;
  // Routers' scores multiply what experts give, which is kept for the scores' gradients; else scores multiply
  // within the experts.
  bool keeps_expert_outputs = false;
  // Full recompute runs the whole layer again, its last projection too; else it stops at the last operator
  // that keeps something for backward.
  bool recomputes_whole_layer = false;
  // Selective recompute keeps the attention core's output, which the projection behind it reads; else the
  // core gives it anew.
  bool keeps_core_output = false;
  // Selective recompute keeps a layer's input and the output of every second product, counted from the first,
  // beside the attention core's, and runs the rest again.
  bool keeps_every_second_product = false;
  // Products add weight gradients to the gradient buffers themselves and leave an empty gradient to autograd:
  // one for each shape of a layer's weights stays, and the head's comes and goes.
  bool empty_gradients = false;
  // With LossKernel::fp32: fp32 copies of the logits that are alive while the loss is computed. One: it
  // becomes the softmax and then the gradient in place.
  int64_t logit_copies = 1;
  // Where weight gradients are computed apart, only products' inputs and the gradients of their outputs wait
  // for them (arXiv:2401.10241, section 2.1); else everything that backward needs does.
  bool frees_after_input_gradient = false;
  // What products in fp8 keep of their input for backward is in 8 bits; else in the activations' 16, and
  // narrowed again there.
  bool keeps_fp8_inputs = false;
  // Per token and hidden unit: what a layer keeps beyond what its operators need.
  int64_t extra_kept_bytes = 0;
  // Per element: what an RMS norm of eager kernels keeps beyond its input. 0: such a norm has one kernel all
  // the same.
  int64_t rms_norm_bytes = 0;

  bool operator==(const Kept&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = Kept;
    v.field("receives_in_place", &T::receives_in_place, "received tensors are kept as they are",
            optional_field());
    v.field("keeps_expert_outputs", &T::keeps_expert_outputs,
            "what experts give is kept for the gradients of their scores", optional_field());
    v.field("recomputes_whole_layer", &T::recomputes_whole_layer,
            "full recompute runs the last projection again", optional_field());
    v.field("keeps_core_output", &T::keeps_core_output,
            "selective recompute keeps the attention core's output", optional_field());
    v.field("keeps_every_second_product", &T::keeps_every_second_product,
            "selective recompute keeps every second product's output", optional_field());
    v.field("empty_gradients", &T::empty_gradients, "an empty gradient for each shape of weight stays",
            optional_field());
    v.field("logit_copies", &T::logit_copies, "fp32 copies of the logits beside them",
            optional_field(between(0, 16)));
    v.field("frees_after_input_gradient", &T::frees_after_input_gradient,
            "only what weight gradients read waits for them", optional_field());
    v.field("keeps_fp8_inputs", &T::keeps_fp8_inputs, "products in fp8 keep their input in 8 bits",
            optional_field());
    v.field("extra_kept_bytes", &T::extra_kept_bytes,
            "bytes that a layer keeps per token and hidden unit beside", optional_field(between(0, 1000)));
    v.field("rms_norm_bytes", &T::rms_norm_bytes,
            "bytes per element that an RMS norm of eager kernels keeps beyond its input",
            optional_field(between(0, 16)));
  }
};

/// Bytes per parameter of weights, gradients and the optimizer's state.
struct StateBytes {
  // Bytes per parameter in mixed precision. 0: as this project's runtime, 2 + 4 + 12.
  int64_t weight_bytes = 0;
  int64_t fp8_weight_bytes = 0;  // the same where products run in fp8; 0: as many
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t reduced_bytes = 0;  // of a gradient on its way; 0: 4

  bool operator==(const StateBytes&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = StateBytes;
    v.field("weight_bytes", &T::weight_bytes, "bytes of one weight; 0: by precision",
            optional_field(between(0, 64)));
    v.field("fp8_weight_bytes", &T::fp8_weight_bytes,
            "bytes of one weight where products run in fp8; 0: as many", optional_field(between(0, 64)));
    v.field("gradient_bytes", &T::gradient_bytes, "bytes of one gradient; 0: by precision",
            optional_field(between(0, 64)));
    v.field("optimizer_bytes", &T::optimizer_bytes,
            "bytes of one parameter's optimizer state; 0: by precision", optional_field(between(0, 64)));
    v.field("reduced_bytes", &T::reduced_bytes, "bytes of one gradient while it is reduced; 0: 4",
            optional_field(between(0, 8)));
  }
};

/// How ranks talk to each other.
struct Traffic {
  // Between stages each tensor rank sends its share, and the receivers gather it inside the node
  // (arXiv:2104.04473, section 4.1).
  bool scatters_transfers = false;
  // Input gradients are summed over tensor ranks beside the weight gradient's product.
  bool sums_beside_weight_gradient = false;
  // Queries, keys and values, and both halves of a gated MLP, are modules of their own, each of which sums
  // its input's gradient over tensor ranks.
  bool sums_each_projection = false;
  // In a pipeline, sharded weights stay whole between the micro-batches of a step, and gradients are summed
  // whole and scattered behind the last (pytorch, distributed/pipelining/stage.py).
  bool keeps_gathered_in_pipeline = false;
  // Where gradients are scattered in a part of the replicas, the sum over the parts is taken piece by piece
  // beside the last backward, too (pytorch, HYBRID_SHARD); else behind it.
  bool sums_shares_in_backward = false;
  // Share of the network's rate that gathers of sharded weights and scatters of their gradients reach.
  double sharded_network_rate = 1.0;
  // A token that goes to several experts of one device is sent there once.
  bool deduplicates_dispatch = false;
  bool balanced_experts = false;  // routing is forced to an even load, as benchmarks do
  // Copies of tokens that a rank of spread experts gets, over an even share: what the fullest one needs room
  // for. The router decides it.
  double expert_load = 1.0;

  bool operator==(const Traffic&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = Traffic;
    v.field("scatters_transfers", &T::scatters_transfers, "tensor ranks send shares between stages",
            optional_field());
    v.field("sums_beside_weight_gradient", &T::sums_beside_weight_gradient,
            "input gradients are summed over tensor ranks beside the weight gradient's product",
            optional_field());
    v.field("sums_each_projection", &T::sums_each_projection,
            "input gradients of queries, keys, values and an MLP's halves are summed one by one",
            optional_field());
    v.field("keeps_gathered_in_pipeline", &T::keeps_gathered_in_pipeline,
            "in a pipeline sharded weights and gradients stay whole between micro-batches", optional_field());
    v.field("sums_shares_in_backward", &T::sums_shares_in_backward,
            "gradients' shares are summed beside the last backward", optional_field());
    v.field("sharded_network_rate", &T::sharded_network_rate,
            "of the network's rate, what gathers of sharded weights reach",
            optional_field(between(0.05, 1.0)));
    v.field("deduplicates_dispatch", &T::deduplicates_dispatch,
            "tokens go once to a device that holds several experts", optional_field());
    v.field("balanced_experts", &T::balanced_experts, "routing is forced to an even load", optional_field());
    v.field("expert_load", &T::expert_load,
            "copies that the fullest rank of spread experts gets, over an even share",
            optional_field(between(1.0, 1e4)));
  }
};

/// What the host's side of a step takes.
struct HostTimes {
  /// Time of the host per kernel, in microseconds: interpreter, dispatcher and driver together.
  double launch_us = 0.0;
  // And for a layer of experts, forward and backward together, beyond its kernels: routing, counts that are
  // waited for, permutation and modules of every expert.
  double expert_layer_us = 0.0;
  double micro_batch_us = 0.0;     // and per micro-batch and stage: scheduling, waiting for messages
  double step_ms = 0.0;            // and per step: data, optimizer's checks, logging
  bool blocking_launches = false;  // the host waits for each kernel: its own time adds to theirs

  bool operator==(const HostTimes&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = HostTimes;
    v.field("launch_us", &T::launch_us, "host's microseconds per kernel", optional_field(between(0, 1e4)));
    v.field("expert_layer_us", &T::expert_layer_us, "host's microseconds per layer of experts, both ways",
            optional_field(between(0, 1e6)));
    v.field("micro_batch_us", &T::micro_batch_us, "host's microseconds per micro-batch and stage",
            optional_field(between(0, 1e6)));
    v.field("step_ms", &T::step_ms, "host's milliseconds per step", optional_field(between(0, 1e5)));
    v.field("blocking_launches", &T::blocking_launches, "the host waits for each kernel", optional_field());
  }
};

/// What a rank's process holds beside its tensors.
struct Allocator {
  /// Beside its tensors a rank's process holds what the driver, its context and the communication library
  /// take, and what the allocator cannot use.
  double context_gib = 0.0;
  double allocator_slack = 0.0;  // share of the tensors
  // What the allocator has beside, cached, and gives back before it fails: read as used, but not needed.
  // Share of the tensors.
  double allocator_cache = 0.0;

  bool operator==(const Allocator&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = Allocator;
    v.field("context_gib", &T::context_gib, "GiB of a process beside its tensors",
            optional_field(between(0, 64)));
    v.field("allocator_slack", &T::allocator_slack, "share of tensors that the allocator loses",
            optional_field(between(0, 1)));
    v.field("allocator_cache", &T::allocator_cache, "share of tensors that the allocator keeps cached",
            optional_field(between(0, 1)));
  }
};

struct Execution {
  std::string framework = "mpt";
  Kernels kernels;
  Kept kept;
  StateBytes states;
  Traffic traffic;
  HostTimes host;
  Allocator allocator;

  bool operator==(const Execution&) const = default;

  template <class V>
  static void describe(V& v) {
    v.field("framework", &Execution::framework, "name of the framework", optional_field());
    describe_part(v, &Execution::kernels);
    describe_part(v, &Execution::kept);
    describe_part(v, &Execution::states);
    describe_part(v, &Execution::traffic);
    describe_part(v, &Execution::host);
    describe_part(v, &Execution::allocator);
  }
};

}  // namespace mpt
