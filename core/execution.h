// SPDX-License-Identifier: Apache-2.0
#pragma once

// Execution: how a framework runs a layout, as far as time and memory depend on it. The defaults are
// mpt-run's. The values of other frameworks are in frameworks/*/framework.json. Six structs group the fields.
// Files list all fields in one object. describe() documents each field; comments add details.

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

/// Which kernels a framework has.
struct Kernels {
  AttentionKernel attention = AttentionKernel::flash;
  ElementwiseKernels elementwise = ElementwiseKernels::fused;
  LossKernel loss = LossKernel::own;
  bool dropout = false;  // a mask has one byte for each element
  // Of operators with OperatorShape::extra. The kernels are plain ones.
  bool extras_apart = false;
  bool early_products = false;  // until 2022
  bool graphs = false, router_graphs = false, fuses_experts = false, pads_expert_rows = false,
       fp8_attention = false, fp8_head = false;
  bool fp8_in_any_order = false;  // no transposed copy of a weight is kept
  bool gathers_logits = false;    // each tensor rank computes the loss over the whole vocabulary
  int64_t vocabulary_multiple = 1;
  bool epilogue_activations = true;  // cuBLASLt's epilogues (runtime/device/cuda)
  // Precision::fp8 alone (runtime/device/fp8.h). The largest magnitudes of inputs are kept, too.
  bool narrows_apart = true;
  bool splits_next_token_projection = true;  // so that both halves need not lie side by side
  bool one_adapter_per_product = false;      // else queries, keys and values have one each

  bool operator==(const Kernels&) const = default;

  static void describe(auto& v) {
    using T = Kernels;
    const FieldRule may = optional_field();
    v.field("attention", &T::attention, "flash, cudnn, flash1, flash2, unfused, plain or own", may);
    v.field("elementwise", &T::elementwise, "fused, compiled or eager", may);
    v.field("loss", &T::loss, "own, fused or fp32", may);
    v.field("dropout", &T::dropout, "dropout masks are kept", may);
    v.field("extras_apart", &T::extras_apart,
            "experts' biases, limits of activations and scaled rotary positions have kernels of their own",
            may);
    v.field("graphs", &T::graphs, "kernels are launched from graphs", may);
    v.field("router_graphs", &T::router_graphs,
            "routers and what prepares their exchange are launched from graphs", may);
    v.field("early_products", &T::early_products, "matrix products of cuBLAS 11", may);
    v.field("fuses_experts", &T::fuses_experts, "experts' products narrow their inputs to fp8 themselves",
            may);
    v.field("pads_expert_rows", &T::pads_expert_rows,
            "in fp8 experts' rows are copied to multiples of what products take", may);
    v.field("fp8_attention", &T::fp8_attention, "where products run in fp8, attention does too", may);
    v.field("fp8_head", &T::fp8_head, "where products run in fp8, the head's does too", may);
    v.field("fp8_in_any_order", &T::fp8_in_any_order,
            "fp8 with one scale for a matrix is multiplied in any order, as the device does", may);
    v.field("gathers_logits", &T::gathers_logits, "tensor ranks gather the logits before the loss", may);
    v.field("vocabulary_multiple", &T::vocabulary_multiple,
            "the vocabulary is padded to a multiple of this for every tensor rank",
            optional_field(between(1, 1 << 20)));
    v.field("epilogue_activations", &T::epilogue_activations,
            "products of an MLP without gate compute its activation, too", rare_field());
    v.field("narrows_apart", &T::narrows_apart,
            "in fp8 operands are narrowed by kernels of their own, and copies of weights stay", rare_field());
    v.field("splits_next_token_projection", &T::splits_next_token_projection,
            "a next-token module has a product for each half of its input", rare_field());
    v.field("one_adapter_per_product", &T::one_adapter_per_product,
            "queries, keys and values, or an MLP's halves, have one adapter together", rare_field());
  }
};

/// What stays in memory from forward to backward, beyond what operators need.
struct Kept {
  bool receives_in_place = false;     // transfers have no buffers
  bool keeps_expert_outputs = false;  // else experts multiply by the scores themselves
  // Else full recompute stops at the last operator that keeps something for backward.
  bool recomputes_whole_layer = false;
  bool keeps_core_output = false;  // else the output projection reruns the core
  // Selective recompute saves the layer input, the attention output and every second matmul output (1st, 3rd,
  // ...). It recomputes the rest.
  bool keeps_every_second_product = false;
  // Kernels add weight gradients to the gradient buffers. Autograd gets an empty gradient: one for each shape
  // of a layer's weights stays, and the head's is freed.
  bool empty_gradients = false;
  // With LossKernel::fp32, while the loss is computed. 1: the copy becomes the softmax and then the gradient.
  int64_t logit_copies = 1;
  // Where weight gradients are computed apart, only the inputs of products and the gradients of their outputs
  // wait (arXiv:2401.10241, section 2.1). Else all that backward needs waits.
  bool frees_after_input_gradient = false;
  bool keeps_fp8_inputs = false;                     // else in 16 bits, to be narrowed again in backward
  int64_t extra_kept_bytes = 0, rms_norm_bytes = 0;  // the latter 0: such a norm is one kernel
  bool shares_norm_output = true;
  // The gate and the inputs of the rule are slices of that output; convolution and states are run again.
  bool keeps_whole_projection = true;
  bool remakes_fp8_inputs = false;      // torch.compile's partitioner: a norm or an activation once more
  bool merges_expert_adapters = false;  // PEFT's ParamWrapper: W + BA of all experts in each forward

  bool operator==(const Kept&) const = default;

  static void describe(auto& v) {
    using T = Kept;
    const FieldRule may = optional_field();
    v.field("receives_in_place", &T::receives_in_place, "received tensors are kept as they are", may);
    v.field("keeps_expert_outputs", &T::keeps_expert_outputs,
            "what experts give is kept for the gradients of their scores", may);
    v.field("recomputes_whole_layer", &T::recomputes_whole_layer,
            "full recompute runs the last projection again", may);
    v.field("keeps_core_output", &T::keeps_core_output,
            "selective recompute keeps the attention core's output", may);
    v.field("keeps_every_second_product", &T::keeps_every_second_product,
            "selective recompute keeps every second product's output", may);
    v.field("empty_gradients", &T::empty_gradients, "an empty gradient for each shape of weight stays", may);
    v.field("logit_copies", &T::logit_copies, "fp32 copies of the logits beside them",
            optional_field(between(0, 16)));
    v.field("frees_after_input_gradient", &T::frees_after_input_gradient,
            "only what weight gradients read waits for them", may);
    v.field("keeps_fp8_inputs", &T::keeps_fp8_inputs, "products in fp8 keep their input in 8 bits", may);
    v.field("extra_kept_bytes", &T::extra_kept_bytes,
            "bytes that a layer keeps per token and hidden unit beside", optional_field(between(0, 1000)));
    v.field("rms_norm_bytes", &T::rms_norm_bytes,
            "bytes per element that an RMS norm of eager kernels keeps beyond its input",
            optional_field(between(0, 16)));
    v.field("shares_norm_output", &T::shares_norm_output, "a norm that a mixer and an MLP share is kept once",
            rare_field());
    v.field("keeps_whole_projection", &T::keeps_whole_projection,
            "gated attention and delta rules keep the output of their first product as it is", rare_field());
    v.field("remakes_fp8_inputs", &T::remakes_fp8_inputs,
            "compiled layers make the narrow inputs of products again from what norms and activations keep",
            rare_field());
    v.field("merges_expert_adapters", &T::merges_expert_adapters,
            "experts' adapters are added to a copy of their weights, which stays for backward", rare_field());
  }
};

/// Bytes per parameter of weights, gradients and the optimizer's state.
struct StateBytes {
  // Per parameter, in mixed precision; this project's runtime has 2 + 4 + 12.
  int64_t weight_bytes = 0, fp8_weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0, reduced_bytes = 0;
  bool offloads_gradients = false;
  bool narrows_experts = true;  // else frozen ones keep 16 bits: no linear layers, but stacked weights
  // Moments are in 8 bits where a rank's share of a tensor is a multiple of this, else as wide as weights.
  int64_t narrow_moment_block = 1;

  bool operator==(const StateBytes&) const = default;

  static void describe(auto& v) {
    using T = StateBytes;
    const FieldRule bytes = optional_field(between(0, 64));
    v.field("weight_bytes", &T::weight_bytes, "bytes of one weight; 0: by precision", bytes);
    v.field("fp8_weight_bytes", &T::fp8_weight_bytes,
            "bytes of one weight where products run in fp8; 0: as many", bytes);
    v.field("gradient_bytes", &T::gradient_bytes, "bytes of one gradient; 0: by precision", bytes);
    v.field("optimizer_bytes", &T::optimizer_bytes,
            "bytes of one parameter's optimizer state; 0: by precision", bytes);
    v.field("reduced_bytes", &T::reduced_bytes, "bytes of one gradient while it is reduced; 0: 4",
            optional_field(between(0, 8)));
    v.field("offloads_gradients", &T::offloads_gradients,
            "shares of gradients wait in the host's memory beside an offloaded optimizer", optional_field());
    v.field("narrows_experts", &T::narrows_experts, "frozen experts are stored in as few bits as the rest",
            rare_field());
    v.field("narrow_moment_block", &T::narrow_moment_block,
            "moments are in 8 bits where a rank's share of a tensor is a multiple of this many weights",
            rare_field(between(1, 1 << 20)));
  }
};

/// How ranks talk to each other.
struct Traffic {
  bool scatters_transfers = false;  // receivers gather them inside the node (arXiv:2104.04473, section 4.1)
  bool sums_beside_weight_gradient = false;
  bool keeps_gathered_in_pipeline = false;  // pytorch, distributed/pipelining/stage.py
  bool defers_gradient_sums = false;        // set_requires_gradient_sync(False) of FSDP2
  bool sums_shares_in_backward = false;     // piece by piece (pytorch, HYBRID_SHARD)
  double sharded_network_rate = 1.0;        // scatters of gradients reach the same
  bool deduplicates_dispatch = false;
  bool balanced_experts = false;  // as benchmarks do
  double expert_load = 1.0;       // the router decides it
  // Else the ranks that split an expert gather its tokens after the exchange (Megatron Core).
  bool sends_to_expert_parts = true;
  bool exchanges_shared_heads = true;
  // Of each weight of a matrix, once a step: to whole matrices and back, to all ranks or to one.
  int64_t muon_gathered_bytes = 0, muon_exchanged_bytes = 0;

  bool operator==(const Traffic&) const = default;

  static void describe(auto& v) {
    using T = Traffic;
    const FieldRule may = optional_field();
    v.field("scatters_transfers", &T::scatters_transfers, "tensor ranks send shares between stages", may);
    v.field("sums_beside_weight_gradient", &T::sums_beside_weight_gradient,
            "input gradients are summed over tensor ranks beside the weight gradient's product", may);
    v.field("keeps_gathered_in_pipeline", &T::keeps_gathered_in_pipeline,
            "in a pipeline sharded weights and gradients stay whole between micro-batches", may);
    v.field("defers_gradient_sums", &T::defers_gradient_sums,
            "gradients stay whole until the last micro-batch, in the type in which they are summed", may);
    v.field("sums_shares_in_backward", &T::sums_shares_in_backward,
            "gradients' shares are summed beside the last backward", may);
    v.field("sharded_network_rate", &T::sharded_network_rate,
            "of the network's rate, what gathers of sharded weights reach",
            optional_field(between(0.05, 1.0)));
    v.field("deduplicates_dispatch", &T::deduplicates_dispatch,
            "tokens go once to a device that holds several experts", may);
    v.field("balanced_experts", &T::balanced_experts, "routing is forced to an even load", may);
    v.field("expert_load", &T::expert_load,
            "copies that the fullest rank of spread experts gets, over an even share",
            optional_field(between(1.0, 1e4)));
    v.field("sends_to_expert_parts", &T::sends_to_expert_parts,
            "tokens are sent to every part of an expert that is split by width", rare_field());
    v.field(
        "exchanges_shared_heads", &T::exchanges_shared_heads,
        "tensor ranks exchange what all heads share: sums of a norm over all heads, a latent key's rotary "
        "part",
        rare_field());
    v.field("muon_gathered_bytes", &T::muon_gathered_bytes,
            "bytes of each weight of sharded matrices that every rank gathers for Muon",
            rare_field(between(0, 64)));
    v.field("muon_exchanged_bytes", &T::muon_exchanged_bytes,
            "bytes of each weight of sharded matrices that go to one rank and back for Muon",
            rare_field(between(0, 64)));
  }
};

/// What the host's side of a step takes.
struct HostTimes {
  double launch_us = 0.0;  // interpreter, dispatcher and driver together
  // Beyond the kernels' launches: routing, counts that the host waits for, permutation and modules of
  // experts. The latter with Kernels::router_graphs.
  double expert_layer_us = 0.0, graphed_expert_layer_us = 0.0;
  double micro_batch_us = 0.0;  // scheduling, waiting for messages
  double step_ms = 0.0;         // data, optimizer's checks, logging
  bool blocking_launches = false;

  bool operator==(const HostTimes&) const = default;

  static void describe(auto& v) {
    using T = HostTimes;
    const FieldRule most = optional_field(between(0, 1e6));
    v.field("launch_us", &T::launch_us, "host's microseconds per kernel", optional_field(between(0, 1e4)));
    v.field("expert_layer_us", &T::expert_layer_us, "host's microseconds per layer of experts, both ways",
            most);
    v.field("graphed_expert_layer_us", &T::graphed_expert_layer_us, "the same where graphs launch the router",
            most);
    v.field("micro_batch_us", &T::micro_batch_us, "host's microseconds per micro-batch and stage", most);
    v.field("step_ms", &T::step_ms, "host's milliseconds per step", optional_field(between(0, 1e5)));
    v.field("blocking_launches", &T::blocking_launches, "the host waits for each kernel", optional_field());
  }
};

/// What a rank's process holds beside its tensors.
struct Allocator {
  double context_gib = 0.0, allocator_slack = 0.0;  // the former: driver, context, communication library
  double allocator_cache = 0.0;                     // read as used, but given back before an allocation fails
  // Else context_gib and allocator_slack cover uncounted buffers, and less is freed between pieces.
  bool counts_each_buffer = true;
  // In the host's memory while the model is built, before ranks share it out.
  int64_t host_build_bytes = 0, process_build_bytes = 0;

  bool operator==(const Allocator&) const = default;

  static void describe(auto& v) {
    using T = Allocator;
    const FieldRule size = optional_field(between(0, 64)), share = optional_field(between(0, 1));
    v.field("context_gib", &T::context_gib, "GiB of a process beside its tensors", size);
    v.field("allocator_slack", &T::allocator_slack, "share of tensors that the allocator loses", share);
    v.field("allocator_cache", &T::allocator_cache, "share of tensors that the allocator keeps cached",
            share);
    v.field("counts_each_buffer", &T::counts_each_buffer,
            "tensors lie in one pool, and workspaces and communicators' buffers are counted one by one",
            rare_field());
    v.field("host_build_bytes", &T::host_build_bytes,
            "bytes of a trained weight in a host's memory while the model is built", size);
    v.field("process_build_bytes", &T::process_build_bytes, "the same for each process of the host", size);
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

  static void describe(auto& v) {
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
