// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layout: how a model is split. Degrees and switches, nothing derived; it knows no rank number (RankGrid
// does) and no time.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/shared.h"
#include "core/execution.h"
#include "core/model_spec.h"
#include "core/training.h"

namespace mpt {

/// Why a layout is rejected. A value, not an exception: a search meets millions of these.
struct Rejection {
  std::string constraint;  // "memory", "divides", "schedule", ...
  int stage = -1;          // the virtual stage where it failed, or -1
  double needed = 0.0;     // in the constraint's own unit (bytes for memory)
  double available = 0.0;
  std::string reason;  // one sentence for a person
};

/// none: every saved activation is kept. selective: the attention core is recomputed. full: only a layer's
/// input is kept and the layer runs forward again before its backward.
enum class Recompute { none, selective, full };
/// bf16 and fp16: fp32 master weights, fp32 gradients. fp8: as bf16, its matrix products in fp8, scaled by
/// one factor for each matrix. mxfp8: the same with a factor for every 32 values of a row (OCP Microscaling
/// Formats 1.0). nvfp4: products in 4 bits, with a factor in 8 bits for every 16 values and one for each
/// matrix (arXiv:2509.25149).
enum class Precision { fp32, bf16, fp16, fp8, mxfp8, nvfp4 };
/// How a sequence is split over context ranks. ring: keys and values go round while queries stay
/// (arXiv:2310.01889), causal work balanced. all_to_all: heads are exchanged for tokens (arXiv:2309.14509).
enum class ContextMethod { ring, all_to_all };
/// Which ranks are neighbours after tensor and context: data ranks, with pipeline ranks far apart
/// (Megatron-LM's default), or pipeline ranks, with data-parallel replicas far apart.
enum class RankOrder { pipeline_outermost, data_outermost };

/// Products of layers run in less than 16 bits.
constexpr bool is_narrow(Precision precision) {
  return precision == Precision::fp8 || precision == Precision::mxfp8 || precision == Precision::nvfp4;
}

/// Rows of a table that each of `ranks` holds. The table is padded until all hold the same number, a multiple
/// of `multiple`.
constexpr int64_t padded_share(int64_t rows, int64_t ranks, int64_t multiple) {
  const int64_t all = ranks * multiple;
  return (rows + all - 1) / all * multiple;
}

/// More ranks than any cluster has: degrees and their products stay below it.
inline constexpr int64_t kMostRanks = 10'000'000;

/// The parts that selective recompute runs again: the attention core, or other modules of a layer instead, by
/// the names of Megatron-LM's --recompute-modules (megatron/core/transformer/transformer_config.py).
struct SelectiveRecompute {
#include "generated/SelectiveRecompute.inc"
};

/// The first choices of a layout. Rules that read only these take Degrees, so a search can check them early.
/// All other rules take a Layout.
struct Degrees {
  int64_t tensor = 1, context = 1, pipeline = 1, data = 1;
};

struct Layout {
#include "generated/Layout.inc"

  Degrees degrees() const { return {tensor, context, pipeline, data}; }
  int64_t ranks() const { return tensor * context * pipeline * data; }
  int64_t stages() const { return pipeline * chunks; }
  /// Ranks that hold the same weights and see different tokens.
  int64_t replicas() const { return data * context; }
  int64_t expert_split() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  /// Whether a stage's gradients are summed over ranks: over replicas, or replicas of its experts.
  bool reduces_gradients() const { return replicas() > 1 || (expert > 1 && expert_replicas() > 1); }
  /// The ZeRO stage that acts in each micro-batch: at most 1 if a pipeline keeps gathered weights.
  int64_t zero_of_micro_batch() const {
    return execution->traffic.keeps_gathered_in_pipeline && pipeline > 1 ? std::min<int64_t>(zero, 1) : zero;
  }
  /// The same for gradients. Some frameworks scatter gradient sums only after the last micro-batch.
  int64_t zero_of_gradients() const {
    const int64_t stage = zero_of_micro_batch();
    return execution->traffic.defers_gradient_sums ? std::min<int64_t>(stage, 1) : stage;
  }
  /// Whether ranks that share states out get sums of their shares alone.
  bool scatters_gradients() const { return zero > (execution->traffic.all_reduces_gradients ? 2 : 0); }
  /// Whether gradients are summed over replicas piece by piece during the last backward.
  bool reduces_in_backward() const {
    return overlap_gradient_reduce && (zero_of_gradients() < 2 || execution->traffic.sums_shares_in_backward);
  }
  /// Whether the exchange of tokens with experts overlaps another micro-batch, in layers with this recompute.
  /// Layers with full recompute have no pass to overlap with (Megatron Core refuses both together).
  bool overlaps_exchange(Recompute of_layer) const {
    return overlap_exchange && expert > 1 && of_layer != Recompute::full;
  }
  /// Sharded weights are gathered in each micro-batch. FSDP2 frees them after each backward, whatever it does
  /// after a forward (findings/fsdp2_without_resharding_gathers_in_each_micro_batch.sh).
  bool gathers_by_micro_batch() const {
    return zero_of_micro_batch() == 3 || (zero_of_micro_batch() == 2 && execution->states.frees_pieces);
  }
  /// Weights change on their owners only, and other ranks keep them whole: programs gather them after a step,
  /// for mpt-run, which runs plans for any framework.
  bool changes_shares_of_whole_weights() const {
    return zero_of_micro_batch() == 1 || zero_of_micro_batch() == 2;
  }
  /// The framework gathers them then, too.
  bool gathers_after_step() const { return changes_shares_of_whole_weights() && !gathers_by_micro_batch(); }
  /// Ranks that hold the same experts.
  int64_t expert_replicas() const { return tensor * context * data / (expert * expert_split()); }
};

/// The training data of one step.
struct Workload {
#include "generated/Workload.inc"

  int64_t tokens_per_step() const { return global_batch * sequence; }
};

/// The contents of one virtual stage.
struct StageContent {
  int64_t first_layer = 0;
  int64_t layer_count = 0;
  bool has_embedding = false;
  bool has_head = false;  // final norm, output head and loss

  bool operator==(const StageContent&) const = default;
};

/// Micro-batches per data-parallel rank and step. The layout must divide the batch.
int64_t micro_batches(const Layout& layout, const Workload& workload);

/// Contents of every virtual stage in model order, from layers_per_stage.
std::vector<StageContent> stage_contents(const ModelSpec& model, const Layout& layout);

/// `layers` over `stages` as evenly as possible. The remainder goes to the middle stages, because the first
/// also embeds and the last also computes the loss.
std::vector<int64_t> even_stages(int64_t layers, int64_t stages);

/// Rejects degrees below 1 and layouts of more than kMostRanks ranks, so that products cannot overflow.
std::optional<Rejection> check_degrees(const Layout& layout);

/// Whether the degrees divide the model and the workload. Other choices of the layout are not checked.
std::optional<Rejection> check_division(const ModelSpec& model, const Degrees& degrees,
                                        const Workload& workload);

/// Whether the degrees are sound and the layout divides model and batch: heads by tensor, batch by data and
/// micro-batch, layers by stages.
std::optional<Rejection> check_layout(const ModelSpec& model, const Layout& layout, const Workload& workload);

/// Bytes of one element of activations and weights.
int64_t element_bytes(Precision precision);

/// Bytes of one element of the gradients that are summed over replicas and kept.
int64_t gradient_element_bytes(const Layout& layout);

/// The number of layers of stage `s` that recompute in full; the stage holds `layers`.
int64_t recomputed_layers(const Layout& layout, size_t s, int64_t layers);
/// Whether layers recompute in full, but not all of them.
bool recomputes_partly(const Layout& layout);

/// "tp2 pp2 dp1 mbs4 1f1b recompute=none".
std::string layout_name(const Layout& layout);

/// A module that selective recompute can run again, by Megatron-LM's name (recompute_modules in
/// megatron/core/transformer/transformer_config.py).
struct RecomputeModule {
  const char* name;
  bool SelectiveRecompute::*flag;
};
std::span<const RecomputeModule> recompute_modules();

/// Makes selective recompute run exactly the named modules again. Unknown names have no effect.
void set_recompute_modules(const std::vector<std::string>& names, SelectiveRecompute& selective);
std::vector<std::string> recompute_modules_of(const SelectiveRecompute& selective);

}  // namespace mpt
