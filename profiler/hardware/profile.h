// SPDX-License-Identifier: Apache-2.0
#pragma once

// Profile: the measurements of mpt-profile on one machine. It is pure data: the planner prices with it, and
// nothing here measures. Every time is a median in seconds, with its relative spread (interquartile range /
// median).

#include <filesystem>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/cluster_spec.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "models/operator.h"

namespace mpt::profiler {

inline constexpr int kProfileVersion = 1;

enum class Piece { embedding, layer, head };
enum class Phase { forward, backward, input_gradient, weight_gradient };
enum class TransportOperation { all_reduce, all_gather, reduce_scatter, send_receive };

struct MachineDescription {
#include "generated/MachineDescription.inc"
};

/// One piece of the model on one rank of a tensor-parallel group, without its collectives.
struct PieceTiming {
#include "generated/PieceTiming.inc"
};

struct OperatorTiming {
#include "generated/OperatorTiming.inc"
};

/// A GPU kernel that an operator ran.
struct KernelTiming {
#include "generated/KernelTiming.inc"
};

struct TransportTiming {
#include "generated/TransportTiming.inc"
};

struct Profile {
#include "generated/Profile.inc"
};

/// Throws UserError.
Profile load_profile(const std::filesystem::path& file);
std::string profile_to_text(const Profile& profile);
/// 16 hex digits of the file's text.
std::string profile_digest(const Profile& profile);

/// Tokens per sequence that a piece was timed with.
int64_t sequence_of(const Profile& profile, const PieceTiming& timing);

/// Whether timings of `profile` hold for `model`: every size of a layer is equal; name and number of layers
/// may differ, and pieces were timed at that sequence.
bool profile_matches(const Profile& profile, const ModelSpec& model, int64_t sequence, Precision precision);

/// Name, usable cores and memory of the machine that this runs on.
MachineDescription describe_machine();

}  // namespace mpt::profiler
