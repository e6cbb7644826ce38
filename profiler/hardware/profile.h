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
#include "core/gpu_description.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "models/operator.h"

namespace mpt::profiler {

inline constexpr int kProfileVersion = 1;

enum class Piece { embedding, layer, head };
enum class Phase { forward, backward, input_gradient, weight_gradient };
enum class TransportOperation { all_reduce, all_gather, reduce_scatter, send_receive };

struct MachineDescription {
  std::string device;  // CPU or GPU model, as the system or the driver names it
  DeviceKind kind = DeviceKind::cpu;
  std::string system;  // kernel and compiler
  int64_t cores = 0;
  int64_t memory_bytes = 0;            // of the machine, or of one GPU
  int64_t hosts = 1;                   // that were measured together
  std::vector<GpuDescription> gpus{};  // of the first host
  bool operator==(const MachineDescription&) const = default;

  static void describe(auto& v) {
    using T = MachineDescription;
    v.field("device", &T::device, "model name of the CPU or GPU");
    v.field("kind", &T::kind, "cpu or gpu", optional_field());
    v.field("system", &T::system, "operating system and compiler", long_text());
    v.field("cores", &T::cores, "CPU cores available", between(1, 1 << 20));
    v.field("memory_bytes", &T::memory_bytes, "memory of the machine, or of one GPU", between(1, 1e16));
    v.field("hosts", &T::hosts, "hosts that were measured together", optional_field(between(1, 1e6)));
    v.field("gpus", &T::gpus, "GPUs of the first host", optional_field());
  }
};

/// One piece of the model on one rank of a tensor-parallel group, without its collectives.
struct PieceTiming {
  Piece piece = Piece::layer;
  Phase phase = Phase::forward;
  int64_t micro_batch = 1;
  int64_t tensor = 1;
  Recompute recompute = Recompute::none;  // of a backward: the part that is computed again
  double seconds = 0.0;
  double spread = 0.0;
  int64_t sequence = 0;  // tokens per sequence; 0: the profile's
  int64_t layer = 0;     // of a decoder layer: the lowest one of its kind
  bool operator==(const PieceTiming&) const = default;

  static void describe(auto& v);
};

struct OperatorTiming {
  models::OperatorShape shape;
  Phase phase = Phase::forward;
  double seconds = 0.0;
  double spread = 0.0;
  bool operator==(const OperatorTiming&) const = default;

  static void describe(auto& v);
};

/// A GPU kernel that an operator ran.
struct KernelTiming {
  models::OperatorShape shape;
  Phase phase = Phase::forward;
  std::string kernel;
  int64_t launches = 1;  // per run of the operator
  double seconds = 0.0;  // of one launch
  bool operator==(const KernelTiming&) const = default;

  static void describe(auto& v);
};

struct TransportTiming {
  TransportOperation operation = TransportOperation::all_reduce;
  int64_t group = 2;
  int64_t bytes = 0;  // whole message, as nccl-tests counts it
  double seconds = 0.0;
  double spread = 0.0;
  int64_t hosts = 1;  // that the group's ranks are spread over, evenly
  bool operator==(const TransportTiming&) const = default;

  static void describe(auto& v);
};

struct Profile {
  std::string format = "mpt-profile";
  int64_t version = kProfileVersion;
  std::string date;  // ISO 8601, UTC
  std::string mpt_version;
  MachineDescription machine;
  ModelSpec model;       // the model of the timed pieces
  int64_t sequence = 0;  // of pieces without a sequence
  Precision precision = Precision::fp32;
  double memory_bandwidth_bytes_per_s = 0.0;  // copy, read and write counted
  double matmul_flop_per_s = 0.0;             // large square product on one rank
  double optimizer_s_per_parameter = 0.0;     // AdamW with clipping
  double gradient_norm_s_per_parameter = 0.0;
  double dispatch_s = 0.0;  // cost of launching one instruction
  std::vector<double>
      rate_by_active_ranks;  // [n-1]: speed of each of n ranks that compute at once, 1 for n = 1
  std::vector<PieceTiming> pieces;
  std::vector<OperatorTiming> operators;
  std::vector<KernelTiming> kernels;  // of GPUs
  std::vector<TransportTiming> transport;
  bool operator==(const Profile&) const = default;

  static void describe(auto& v);
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

void PieceTiming::describe(auto& v) {
  using T = PieceTiming;
  v.field("piece", &T::piece, "embedding, one decoder layer, or head with loss");
  v.field("phase", &T::phase, "forward or a backward");
  v.field("micro_batch", &T::micro_batch, "sequences", between(1, 1 << 24));
  v.field("tensor", &T::tensor, "tensor-parallel degree whose share was timed", between(1, 1 << 16));
  v.field("recompute", &T::recompute, "what a backward computes again");
  v.field("seconds", &T::seconds, "median", between(0, 1e6));
  v.field("spread", &T::spread, "interquartile range over median", between(0, 1e6));
  v.field("sequence", &T::sequence, "tokens per sequence; 0: the profile's",
          optional_field(between(0, 1 << 28)));
  v.field("layer", &T::layer, "the lowest decoder layer of its kind", optional_field(between(0, 1 << 20)));
}

void OperatorTiming::describe(auto& v) {
  using T = OperatorTiming;
  v.field("shape", &T::shape, "the operator");
  v.field("phase", &T::phase, "forward or a backward");
  v.field("seconds", &T::seconds, "median", between(0, 1e6));
  v.field("spread", &T::spread, "interquartile range over median", between(0, 1e6));
}

void KernelTiming::describe(auto& v) {
  using T = KernelTiming;
  v.field("shape", &T::shape, "the operator");
  v.field("phase", &T::phase, "forward or a backward");
  v.field("kernel", &T::kernel, "its name, as the compiler wrote it", long_text());
  v.field("launches", &T::launches, "per run of the operator", between(1, 1e9));
  v.field("seconds", &T::seconds, "of one launch, by the GPU's clock", between(0, 1e6));
}

void TransportTiming::describe(auto& v) {
  using T = TransportTiming;
  v.field("operation", &T::operation, "what was moved");
  v.field("group", &T::group, "ranks", between(2, 1 << 20));
  v.field("bytes", &T::bytes, "whole message", between(0, 1e15));
  v.field("seconds", &T::seconds, "median", between(0, 1e6));
  v.field("spread", &T::spread, "interquartile range over median", between(0, 1e6));
  v.field("hosts", &T::hosts, "hosts that the group is spread over", optional_field(between(1, 1e6)));
}

void Profile::describe(auto& v) {
  using T = Profile;
  v.field("format", &T::format, "always \"mpt-profile\"");
  v.field("version", &T::version, "version of this format", between(1, kProfileVersion));
  v.field("date", &T::date, "when it was measured, ISO 8601");
  v.field("mpt_version", &T::mpt_version, "program that measured");
  v.field("machine", &T::machine, "where it was measured");
  v.field("model", &T::model, "model whose pieces were timed");
  v.field("sequence", &T::sequence, "tokens per sequence", between(1, 1 << 28));
  v.field("precision", &T::precision, "precision of compute");
  v.field("memory_bandwidth_bytes_per_s", &T::memory_bandwidth_bytes_per_s, "of a large copy",
          between(1, 1e16));
  v.field("matmul_flop_per_s", &T::matmul_flop_per_s, "of a large product", between(1, 1e19));
  v.field("optimizer_s_per_parameter", &T::optimizer_s_per_parameter, "AdamW", between(0, 1));
  v.field("gradient_norm_s_per_parameter", &T::gradient_norm_s_per_parameter, "sum of squares",
          between(0, 1));
  v.field("dispatch_s", &T::dispatch_s, "launching one instruction", between(0, 1));
  v.field("rate_by_active_ranks", &T::rate_by_active_ranks, "speed of one of n ranks computing at once",
          between(1e-6, 1));
  v.field("pieces", &T::pieces, "timings of the model's pieces");
  v.field("operators", &T::operators, "timings of single operators");
  v.field("kernels", &T::kernels, "GPU kernels of the operators", optional_field());
  v.field("transport", &T::transport, "timings of the transport");
}

/// Name, usable cores and memory of the machine that this runs on.
MachineDescription describe_machine();

}  // namespace mpt::profiler
