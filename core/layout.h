// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layout: how a model is split. Degrees and switches, nothing derived; it knows no rank number (RankGrid
// does) and no time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/fields.h"
#include "core/model_spec.h"
#include "core/rejection.h"

namespace mpt {

/// none: every saved activation is kept. selective: the attention core is recomputed. full: only a layer's
/// input is kept and the layer runs forward again before its backward.
enum class Recompute { none, selective, full };
enum class Precision { fp32, bf16 };

MPT_ENUM_NAMES(Recompute, {Recompute::none, "none"}, {Recompute::selective, "selective"},
               {Recompute::full, "full"});
MPT_ENUM_NAMES(Precision, {Precision::fp32, "fp32"}, {Precision::bf16, "bf16"});

struct Layout {
  int64_t tensor = 1;       // tensor-parallel degree
  int64_t pipeline = 1;     // pipeline ranks
  int64_t data = 1;         // data-parallel degree
  int64_t chunks = 1;       // virtual stages per pipeline rank
  int64_t micro_batch = 1;  // sequences per micro-batch
  Recompute recompute = Recompute::none;
  Precision precision = Precision::fp32;
  std::string schedule = "1f1b";          // a name of core/schedule_catalog.h
  std::vector<int64_t> layers_per_stage;  // decoder layers of each virtual stage, in model order

  int64_t ranks() const { return tensor * pipeline * data; }
  int64_t stages() const { return pipeline * chunks; }
  bool operator==(const Layout&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = Layout;
    constexpr double kMaxDegree = 10'000'000;
    v.field("tensor", &T::tensor, "tensor-parallel degree", between(1, kMaxDegree));
    v.field("pipeline", &T::pipeline, "pipeline ranks", between(1, kMaxDegree));
    v.field("data", &T::data, "data-parallel degree", between(1, kMaxDegree));
    v.field("chunks", &T::chunks, "virtual stages per pipeline rank", between(1, 100000));
    v.field("micro_batch", &T::micro_batch, "sequences per micro-batch", between(1, 1 << 24));
    v.field("recompute", &T::recompute, "what is recomputed in backward");
    v.field("precision", &T::precision, "precision of compute");
    v.field("schedule", &T::schedule, "name of the pipeline schedule");
    v.field("layers_per_stage", &T::layers_per_stage, "decoder layers of each virtual stage",
            between(0, 100000));
  }
};

/// What is trained on in one step.
struct Workload {
  int64_t global_batch = 1;  // sequences per optimizer step, over all data-parallel ranks
  int64_t sequence = 1;      // tokens per sequence

  int64_t tokens_per_step() const { return global_batch * sequence; }
  bool operator==(const Workload&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = Workload;
    v.field("global_batch", &T::global_batch, "sequences per optimizer step", between(1, 1 << 28));
    v.field("sequence", &T::sequence, "tokens per sequence", between(1, 1 << 28));
  }
};

/// What one virtual stage holds.
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

/// `layers` over `stages` as evenly as possible, remainder to the middle stages: the first also embeds and
/// the last also computes the loss.
std::vector<int64_t> even_stages(int64_t layers, int64_t stages);

/// Whether the layout divides model and batch: heads by tensor, batch by data and micro-batch, layers by
/// stages.
std::optional<Rejection> check_layout(const ModelSpec& model, const Layout& layout, const Workload& workload);

/// "tp2 pp2 dp1 mbs4 1f1b recompute=none".
std::string layout_name(const Layout& layout);

}  // namespace mpt
