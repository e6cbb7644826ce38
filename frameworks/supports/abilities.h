// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names, abilities and values of a training framework, as data: frameworks/<name>/framework.json, built in.
// supports() in frameworks/supports/supports.h is the only reader that draws conclusions from its abilities.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/layout.h"
#include "frameworks/supports/combinations.h"
#include "models/values.h"

namespace mpt::frameworks {

/// Micro-batches m of a step that a schedule takes on p pipeline ranks.
enum class MicroBatchRule {
  any,
  at_least_ranks,      // m >= p
  multiple_of_ranks,   // m is a multiple of p
  whole_rounds,        // m is a multiple of max(1, m / p)
  full_rounds,         // the same, and m >= p
  at_least_two_ranks,  // m >= 2 p
};

enum class SequenceParallelRule { none, optional, by_default };

/// How routed experts may be split: like the dense layers, or each of them whole on one rank.
enum class ExpertSplit { as_tensor, whole, either };

/// The layers that recompute in full when not all do.
enum class PartialRecompute {
  none,
  every_nth,   // the first layer and every n-th after it, one n for the whole model
  same_count,  // the same number of layers in every virtual stage
  any,
};

/// Communication that may overlap with compute without an option for it.
enum class AlwaysBeside { gradient_reduce, parameter_gather, transfer };

/// Decoder layers of virtual stages.
enum class StageDivision { equal, any };

/// Ways to train that a framework may have, other than full training by AdamW on sequences of one length.
enum class TrainingFeature {
  lora,
  lora_on_fp8,  // over frozen weights in fp8
  lora_on_nf4,  // over frozen weights in 4 bits: QLoRA
  lora_on_int8,
  expert_adapters,
  frozen_parts,
  bf16_gradients,
  fp32_states,  // weights, gradients and moments in fp32 instead of bf16
  adamw8,
  adafactor,
  sgd,
  muon,
  muon_on_shares,  // gathers the matrices that ZeRO 2 and 3 share out
  packed_sequences,
  activation_offload,
  deterministic,
};

struct ScheduleAbility {
#include "generated/ScheduleAbility.inc"
};

struct Abilities {
#include "generated/Abilities.inc"
};

/// How files of a framework are recognized: by their ending, and by a text in them if others have that
/// ending.
struct FileForm {
#include "generated/FileForm.inc"
};

/// The files that its export writes and its import reads.
struct FrameworkFiles {
#include "generated/FrameworkFiles.inc"
};

/// A run of some steps on made-up data, with the files of the export.
struct FrameworkTrial {
#include "generated/FrameworkTrial.inc"
};

/// What its own checkpoints hold, and which layouts read them.
struct CheckpointFacts {
#include "generated/CheckpointFacts.inc"
};

struct Framework {
#include "generated/Framework.inc"

  /// All its common names except `name`.
  std::vector<std::string> other_names() const {
    std::vector<std::string> names = aliases;
    names.insert(names.end(), sharding_aliases.begin(), sharding_aliases.end());
    return names;
  }
};

}  // namespace mpt::frameworks
