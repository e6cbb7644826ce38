// SPDX-License-Identifier: Apache-2.0
#pragma once

// The few numbers of the kernel cost model that no kernel table holds. Each has a physical meaning and a
// source or the runs it was fitted to; `mpt-plan validate` says what they are worth, and scripts/bench
// accuracy what each family's runs would say without it.

#include "base/fields.h"

namespace mpt::planner {

struct Calibration {
  // A chip that trains is warm, shares its power with memory and network, and its caches hold other data than
  // a benchmark's loop: share of the tables' rates that products and attention keep.
  double sustained = 0.934;
  // Products of gradients against those of forward: weight gradients read and add fp32 (SimuMax,
  // a100_pcie.json: 0.681 of the peak against 0.718 forward; 0.716 for input gradients).
  double input_gradient_rate = 0.94;
  double weight_gradient_rate = 0.986;
  // A weight gradient's product in 16 bits that gives the bias' gradient, too, against one that does not: on
  // A100 it made a backward pass of 4,042 ms one of 6,600 ms, of which products of weight gradients were some
  // 1,720 (CUBLASLT_EPILOGUE_BGRADB; NVIDIA/CUDALibrarySamples, issue 90). On Hopper runs of such models are
  // met without it.
  double biased_weight_gradient_rate = 0.4;
  // FLOP of an attention backward against forward: five products for two (arXiv:2205.14135, appendix B), at a
  // lower rate (cuDNN 9.19 on H200, llama3.1 causal at 8,192 tokens: 541 of 644 TFLOP/s).
  double attention_backward_flop = 2.5;
  double attention_backward_rate = 0.84;
  // FlashAttention-2 was written for Ampere: on later chips it reaches this share of the peak, half of it at
  // this many tokens (its own chart for H100 forward, causal, head size 128: 191, 298 and 333 TFLOP/s at 512,
  // 2,048 and 8,192).
  double flash1_share = 0.21;
  double flash1_ampere_share = 0.413;
  double flash2_share = 0.345;
  double flash2_half_tokens = 350.0;
  double flash2_backward_rate = 0.80;
  // Batched products of unfused attention are thin (head size is their inner length): share of large
  // products' rate.
  double unfused_product_share = 0.8;
  // Memory traffic of an elementwise kernel against the peak bandwidth (cuDNN's rms norms, forward:
  // 3.7 of 4.8 TB/s on H200, 6.4 of 8 on GB200) and how often eager and compiled chains read and write their
  // data against one fused kernel.
  double bandwidth_share = 0.87;
  double eager_passes = 2.5;
  double compiled_passes = 0.7;
  // How often a token's copy is read and written on its way to its expert: permuted, staged for the exchange,
  // sorted by expert; as much on the way back, where copies are weighted and added.
  double permute_passes = 6.6;
  // The same where one kernel sends each copy into the receiver's buffer and another puts them in the
  // experts' order (megatron/core/transformer/moe/fused_a2a.py, dispatch_with_permute and
  // combine_with_unpermute).
  double fused_permute_passes = 4.0;
  // Grouped products run one after the other as products of their rows, or beside each other, at this share
  // of the grouped table, which holds the best kernels of three inference engines. Where one kernel has a
  // whole expert it is such a kernel itself.
  double grouped_rate = 0.9;
  // What is multiplied in fp8 against bf16, where the table's own products, which cast at every call, are
  // slower: the peaks' ratio (DeepGEMM and cuBLAS reach 70 to 75 % of both peaks). The result is written as
  // fast in both.
  double fp8_speedup = 2.0;
  // With a scale for every 32 values against one for each matrix: the twelve products of a layer of 4,096
  // take 6.81 and 7.16 ms on B300, cast beforehand (NVIDIA/TransformerEngine, docs/examples/gemm_profiling).
  double mxfp8_rate = 0.95;
  // Products in NVFP4 against those in bf16, but for the time to write the result: the same products take
  // 3.76 ms where they take 13.10 in bf16, cast beforehand (the same table, B300).
  double nvfp4_speedup = 3.75;
  // Rows of a length that is no multiple of 8 elements keep tensor cores from their fast loads: the least
  // error on output layers of 50,257, 12,564 and 6,282 words (A100; VIA-Research/vTrain,
  // ground_truth_single.csv, what its times gain per micro-batch and not per layer). Thin batched products
  // lose more (heads of 150).
  double unaligned_rate = 0.39;
  double unaligned_batched_rate = 0.15;
  // With cuBLAS 11 one that is no multiple of 64, the 128 bytes of a cache line, is slower, too (BLOOM's
  // trials of a width of 14,400 beside 13,824 and 14,336). Later ones show nothing of it: Llama 30B, whose
  // MLPs of 17,888 are so, is met like 13B and 65B on the same machine (arXiv:2311.05610, its tables).
  double early_line_unaligned_rate = 0.708;
  // The same for grouped products, whose inputs are padded and cast expert by expert (NVIDIA,
  // dgxc-benchmarking: grok-1 on H100, its experts split over four tensor ranks, takes 13.4 s in fp8 and 15.9
  // s in bf16).
  double grouped_fp8_speedup = 1.7;
  // One kernel does all of them on Blackwell, from its own block-scaled formats, at twice bf16's peak and
  // without the ends of products that run one by one.
  double blackwell_grouped_fp8_speedup = 2.2;
  // The fullest expert's share against the mean one: what routing leaves of balance.
  double expert_imbalance = 1.15;
  // All-to-all between nodes, of the same rate: 43 to 47 of 50 GB/s with kernels made for it (DeepEP's
  // README, 16 and 32 ranks on H800), less with NCCL's messages to every rank.
  double network_all_to_all_rate = 0.9;
  // fp8: casts of inputs and gradients, row- and column-wise, as bytes per element of each product's input: 4
  // with scales by block, 7 where the largest value is looked for first and the copy is transposed apart, at
  // less than an elementwise kernel's bandwidth.
  double fp8_cast_bytes = 7.0;
  // The same where products take both orders of a matrix (Blackwell, one scale for a matrix:
  // NVIDIA/TransformerEngine, docs/features/low_precision_training, "Handling transposes"). The tutorial
  // above casts rows alone, on B300 and H200, in the time of 6.8 and 6.1 bytes per element.
  double untransposed_cast_bytes = 6.8;
  // And to NVFP4, in whose recipe are transforms, random rounding and blocks of two dimensions: 2.69 ms for
  // the casts of the same layer, which take 2.33 ms to fp8 with one scale for a matrix (6.45 and 9.15 ms with
  // them).
  double nvfp4_cast_bytes = 7.8;
  // A kernel's own start, and the gap behind it on the device.
  double kernel_gap_s = 4e-06;
  // AdamW reads gradient, master weight and two moments and writes them and the weight.
  double optimizer_bytes = 30.0;
  // Collectives inside a node against the tables: other kernels share links and multiprocessors.
  double collective_rate = 0.84;
  // And between nodes against the catalog's rate per port.
  double network_rate = 0.85;
  // What a collective inside a node costs the product that it is cut into pieces to run beside, as a share of
  // its own time: copies between neighbours take few multiprocessors (a whole NCCL collective:
  // kOverlapShare).
  double tensor_overlap_share = 0.2175;
  // What communication between nodes costs the compute that it runs beside, as a share of its own time: it
  // takes a tenth of the memory bandwidth and of the multiprocessors that traffic over NVLink takes.
  double network_overlap_share = 0.169;
  // The slowest of many devices sets the pace of all: extra time per doubling of the devices beyond one node.
  double straggler_per_doubling = 0.003;

  /// With the range in which each is plausible: a fit keeps to it, and other values are refused.
  template <class V>
  static void describe(V& v) {  // NOLINT(readability-function-size): a line for each constant
    using T = Calibration;
    const auto field = [&v](const char* name, double T::*member, const char* meaning, double least,
                            double most) {
      v.field(name, member, meaning, optional_field(between(least, most)));
    };
    field("sustained", &T::sustained, "share of the kernel tables' rates that a warm chip keeps", 0.85, 1.0);
    field("input_gradient_rate", &T::input_gradient_rate,
          "products of input gradients against those of forward", 0.9, 1.0);
    field("weight_gradient_rate", &T::weight_gradient_rate,
          "products of weight gradients against those of forward", 0.85, 1.0);
    field("biased_weight_gradient_rate", &T::biased_weight_gradient_rate,
          "weight gradients' products that give a bias' gradient, too, beyond Hopper", 0.3, 1.0);
    field("attention_backward_flop", &T::attention_backward_flop,
          "FLOP of an attention's backward against its forward", 2.0, 2.5);
    field("attention_backward_rate", &T::attention_backward_rate,
          "rate of an attention's backward against its forward", 0.7, 1.0);
    field("flash1_share", &T::flash1_share, "FlashAttention against the peak, beyond Ampere", 0.15, 0.35);
    field("flash1_ampere_share", &T::flash1_ampere_share, "FlashAttention against the peak, on Ampere", 0.3,
          0.45);
    field("flash2_share", &T::flash2_share, "FlashAttention-2 against the peak, beyond Ampere", 0.25, 0.5);
    field("flash2_half_tokens", &T::flash2_half_tokens,
          "tokens at which FlashAttention-2 has half of its rate", 100, 1000);
    field("flash2_backward_rate", &T::flash2_backward_rate, "FlashAttention-2's backward against its forward",
          0.6, 1.0);
    field("unfused_product_share", &T::unfused_product_share,
          "batched products of unfused attention against large ones", 0.2, 0.9);
    field("bandwidth_share", &T::bandwidth_share, "memory traffic of elementwise kernels against the peak",
          0.65, 0.95);
    field("eager_passes", &T::eager_passes,
          "traffic of eager chains of elementwise kernels against one kernel's", 1.0, 4.0);
    field("compiled_passes", &T::compiled_passes, "the same of compiled chains", 0.5, 2.0);
    field("permute_passes", &T::permute_passes,
          "how often a copy is read and written on its way to its expert", 1.0, 10.0);
    field("fused_permute_passes", &T::fused_permute_passes,
          "the same where one kernel sends it and another sorts it", 2.0, 7.0);
    field("grouped_rate", &T::grouped_rate, "grouped products against the best kernel of inference engines",
          0.5, 1.0);
    field("fp8_speedup", &T::fp8_speedup, "what is multiplied in fp8 against bf16", 1.5, 2.1);
    field("unaligned_rate", &T::unaligned_rate, "products of rows of no multiple of 8 elements", 0.25, 0.6);
    field("unaligned_batched_rate", &T::unaligned_batched_rate, "the same for batched products of attention",
          0.15, 0.6);
    field("early_line_unaligned_rate", &T::early_line_unaligned_rate,
          "products of rows of no multiple of 64 elements with cuBLAS 11", 0.5, 1.0);
    field("mxfp8_rate", &T::mxfp8_rate, "products in mxfp8 against those in fp8", 0.8, 1.0);
    field("nvfp4_speedup", &T::nvfp4_speedup, "what is multiplied in NVFP4 against bf16", 2.0, 4.0);
    field("grouped_fp8_speedup", &T::grouped_fp8_speedup, "fp8 grouped products against bf16 ones", 1.0, 2.0);
    field("blackwell_grouped_fp8_speedup", &T::blackwell_grouped_fp8_speedup, "the same on Blackwell", 1.2,
          2.3);
    field("expert_imbalance", &T::expert_imbalance, "the fullest expert against the mean one", 1.0, 1.6);
    field("network_all_to_all_rate", &T::network_all_to_all_rate,
          "an all-to-all between nodes against the catalog's rate per port", 0.5, 1.0);
    field("fp8_cast_bytes", &T::fp8_cast_bytes, "bytes that casts move per element of a product's input", 1.0,
          10.0);
    field("untransposed_cast_bytes", &T::untransposed_cast_bytes, "the same where no copy is transposed", 1.0,
          10.0);
    field("nvfp4_cast_bytes", &T::nvfp4_cast_bytes, "the same of casts to NVFP4", 1.0, 12.0);
    field("kernel_gap_s", &T::kernel_gap_s, "seconds of a kernel's start and of the gap behind it", 5e-07,
          4e-06);
    field("optimizer_bytes", &T::optimizer_bytes, "bytes that AdamW moves per parameter", 30.0, 60.0);
    field("collective_rate", &T::collective_rate, "collectives inside a node against the tables", 0.6, 0.95);
    field("network_rate", &T::network_rate, "collectives between nodes against the catalog's rate per port",
          0.5, 1.0);
    field("tensor_overlap_share", &T::tensor_overlap_share,
          "of a collective cut into pieces, what the product beside it loses", 0.05, 0.5);
    field("network_overlap_share", &T::network_overlap_share,
          "of traffic between nodes, what compute beside it loses", 0.0, 0.46);
    field("straggler_per_doubling", &T::straggler_per_doubling, "extra time per doubling of the nodes", 0.0,
          0.02);
  }
};

inline constexpr Calibration kCalibration{};

}  // namespace mpt::planner
