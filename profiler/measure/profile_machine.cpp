// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/profile_machine.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>

#include "core/error.h"
#include "core/quantity.h"
#include "core/version.h"
#include "models/footprint.h"
#include "profiler/hardware/machine.h"
#include "profiler/measure/compute.h"
#include "profiler/measure/progress.h"
#include "profiler/measure/transport.h"
#include "reports/table.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::profiler {
namespace {

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> values;
  for (int64_t v = 1; v <= most; v *= 2) values.push_back(v);
  return values;
}

std::vector<int64_t> tensor_widths(const ModelSpec& model, int64_t most) {
  std::vector<int64_t> widths = powers_of_two(most);
  std::erase_if(widths, [&](int64_t t) {
    return model.heads % t != 0 || model.kv_heads % t != 0 || model.ffn_hidden % t != 0;
  });
  return widths;
}

// What measure_pieces() holds at once for the largest piece: weights, gradients, one micro-batch in flight
// and the boundary tensors that stand for its neighbours.
int64_t timing_bytes(const ModelSpec& model, int64_t sequence, int64_t micro_batch) {
  Layout layout;
  layout.micro_batch = micro_batch;
  int64_t most = 0;
  for (const StageContent& piece :
       {StageContent{0, 0, true, false}, StageContent{0, 1, false, false}, StageContent{0, 0, false, true}}) {
    const StageFootprint f = models::StagePieces(model, layout, sequence).footprint(layout, piece, 0);
    most = std::max(most, f.parameter_bytes + f.gradient_bytes + f.saved_bytes + 2 * f.boundary_bytes +
                              std::max(f.forward_workspace_bytes, f.backward_workspace_bytes));
  }
  return kPieceInstances * most;
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// The same size of another piece and phase.
const PieceTiming* find(const Profile& profile, const PieceTiming& like, Piece piece, Phase phase) {
  for (const PieceTiming& t : profile.pieces) {
    if (t.piece == piece && t.phase == phase && t.micro_batch == like.micro_batch &&
        t.tensor == like.tensor && t.sequence == like.sequence && t.recompute == Recompute::none) {
      return &t;
    }
  }
  return nullptr;
}

std::string with_spread(const PieceTiming* timing) {
  return timing == nullptr
             ? "-"
             : fmt::format("{} ±{:.0f}%", format_seconds(timing->seconds), timing->spread * 100);
}

std::string shape_text(const models::OperatorShape& s) {
  if (s.kind == models::OperatorKind::attention)
    return fmt::format("{} x {} tokens, {} heads of {}", s.batch, s.sequence, s.heads, s.head_dim);
  return s.inner > 0 ? fmt::format("{} x {} x {}", s.rows, s.columns, s.inner)
                     : fmt::format("{} x {}", s.rows, s.columns);
}

// What an operator achieved: products and attention in FLOP/s, what only moves memory in bytes/s.
std::string rate_text(const OperatorTiming& t) {
  const bool forward = t.phase == Phase::forward;
  const double input = models::input_gradient_flop(t.shape), weight = models::weight_gradient_flop(t.shape);
  const double flop = forward                             ? models::forward_flop(t.shape)
                      : t.phase == Phase::input_gradient  ? input
                      : t.phase == Phase::weight_gradient ? weight
                                                          : input + weight;
  if (flop > 0.0) return format_flop_rate(flop / t.seconds);
  return format_bandwidth(
      (forward ? models::forward_bytes_moved(t.shape) : models::backward_bytes_moved(t.shape)) / t.seconds);
}

std::string slowest_operators(const Profile& profile) {
  constexpr size_t kShown = 10;
  std::vector<OperatorTiming> slowest = profile.operators;
  std::erase_if(slowest, [](const OperatorTiming& t) { return t.seconds <= 0.0; });
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const OperatorTiming& a, const OperatorTiming& b) { return a.seconds > b.seconds; });
  slowest.resize(std::min(slowest.size(), kShown));
  reports::Table table({{"slowest operators", reports::Align::left},
                        {"shape", reports::Align::left},
                        {"pass", reports::Align::left},
                        {"time"},
                        {"achieved"}});
  for (const OperatorTiming& t : slowest)
    table.add_row({enum_name(t.shape.kind), shape_text(t.shape), enum_name(t.phase),
                   format_seconds(t.seconds), rate_text(t)});
  return table.text() + "\n";
}

std::string gpu_line(const GpuDescription& gpu) {
  std::string reached;
  for (size_t peer = 0; peer < gpu.peers.size(); ++peer) {
    if (gpu.peers[peer] >= 0) reached += fmt::format(" {} (rank {})", peer, gpu.peers[peer]);
  }
  return fmt::format("  {}: {} of {} free; reaches directly:{}\n", gpu.bus_id,
                     format_bytes(double(gpu.free_bytes)), format_bytes(double(gpu.memory_bytes)),
                     reached.empty() ? " no other GPU" : reached);
}

}  // namespace

std::vector<int64_t> fitting_micro_batches(const ModelSpec& model, int64_t sequence, int64_t most,
                                           int64_t memory_bytes) {
  const int64_t least = timing_bytes(model, sequence, 1);
  if (least > memory_bytes) {
    throw UserError(
        Problem{fmt::format("model \"{}\" at sequence {}", model.name, sequence),
                fmt::format("timing one layer needs {}", format_bytes(double(least))),
                fmt::format("at most {}, half of this machine's memory", format_bytes(double(memory_bytes))),
                "use a smaller --seq, or plan with a cluster of the catalog instead of a profile"});
  }
  std::vector<int64_t> sizes = powers_of_two(most);
  std::erase_if(sizes, [&](int64_t size) { return timing_bytes(model, sequence, size) > memory_bytes; });
  return sizes;
}

Profile profile_machine(const ProfileRequest& request) {
  runtime::check_supported(request.model);
  MachineDescription machine = describe_machine();
  int64_t most_ranks = request.max_ranks;
  if (runtime::Backend* const backend = request.target.backend) {
    machine.gpus = backend->describe_gpus();
    machine.device = backend->device_name();
    machine.kind = DeviceKind::gpu;
    machine.memory_bytes = backend->memory_bytes();
    // Ranks that share a GPU say nothing about links.
    most_ranks = std::min<int64_t>(most_ranks, backend->device_count());
  }
  StoppingRule rule, short_rule;
  rule.budget_s = request.quick ? 0.02 : 0.12;
  rule.least_samples = request.quick ? 3 : 5;
  short_rule = rule;
  short_rule.budget_s /= 4;
  std::vector<ComputeRequest> computes;
  // Five combinations of piece and recompute for each size, and about a dozen operators; then the rates and
  // the transport.
  int measurements =
      5 + int(request.target.backend == nullptr ? most_ranks : 0) + int(powers_of_two(most_ranks).size());
  for (const int64_t sequence : request.sequences) {
    computes.push_back(
        {request.model, sequence, request.precision,
         fitting_micro_batches(request.model, sequence, request.max_micro_batch, machine.memory_bytes / 2),
         tensor_widths(request.model, request.max_tensor), rule, request.target});
    const ComputeRequest& c = computes.back();
    measurements +=
        int(c.tensors.size() * (5 * c.micro_batches.size() + 14 * operator_micro_batches(c).size()));
  }
  Progress progress(measurements, request.quiet);
  const auto advance = [&] { progress.advance(); };

  Profile profile;
  // First, while the other processes are here.
  TransportTimings transport =
      measure_transport({most_ranks, request.launch, short_rule, request.target}, advance);
  machine.hosts = transport.hosts;
  profile.transport = std::move(transport.timings);
  if (request.launch && request.launch->process > 0) return profile;
  profile.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  profile.mpt_version = kVersion;
  profile.machine = machine;
  profile.model = request.model;
  profile.sequence = request.sequences.front();
  profile.precision = request.precision;
  std::string reason;
  for (ComputeRequest& compute : computes) {
    append(profile.pieces, measure_pieces(compute, advance));
    compute.rule = short_rule;
    append(profile.operators, measure_operators(compute, advance));
    append(profile.kernels, trace_kernels(compute, reason));
    compute.rule = rule;
  }
  if (!reason.empty()) fmt::print(stderr, "mpt-profile: note: kernels are not traced: {}\n", reason);
  const DeviceRates rates = measure_rates(rule, request.target, advance);
  profile.memory_bandwidth_bytes_per_s = rates.memory_bandwidth_bytes_per_s;
  profile.matmul_flop_per_s = rates.matmul_flop_per_s;
  profile.optimizer_s_per_parameter = rates.optimizer_s_per_parameter;
  profile.gradient_norm_s_per_parameter = rates.gradient_norm_s_per_parameter;
  profile.dispatch_s = rates.dispatch_s;
  // Ranks on CPUs share caches and memory; GPUs do not.
  profile.rate_by_active_ranks = request.target.backend == nullptr
                                     ? measure_concurrency(computes.front(), int(most_ranks), advance)
                                     : std::vector<double>(size_t(most_ranks), 1.0);
  return profile;
}

std::string profile_summary(const Profile& profile) {
  std::string text = fmt::format("{}, {} cores, {} memory\n", profile.machine.device, profile.machine.cores,
                                 format_bytes(double(profile.machine.memory_bytes)));
  text +=
      fmt::format("{} at sequence {}; matrix product {}, memory copy {}, one instruction {}\n\n",
                  profile.model.name, profile.sequence, format_flop_rate(profile.matmul_flop_per_s),
                  format_bandwidth(profile.memory_bandwidth_bytes_per_s), format_seconds(profile.dispatch_s));
  for (const GpuDescription& gpu : profile.machine.gpus) text += gpu_line(gpu);
  reports::Table pieces({{"sequence"},
                         {"tensor width"},
                         {"micro-batch"},
                         {"layer forward"},
                         {"layer backward"},
                         {"embedding forward"},
                         {"head forward"},
                         {"head backward"}});
  for (const PieceTiming& t : profile.pieces) {
    if (t.piece != Piece::layer || t.phase != Phase::forward || t.recompute != Recompute::none) continue;
    const auto at = [&](Piece piece, Phase phase) { return with_spread(find(profile, t, piece, phase)); };
    pieces.add_row({std::to_string(sequence_of(profile, t)), fmt::format("1/{}", t.tensor),
                    std::to_string(t.micro_batch), at(Piece::layer, Phase::forward),
                    at(Piece::layer, Phase::backward), at(Piece::embedding, Phase::forward),
                    at(Piece::head, Phase::forward), at(Piece::head, Phase::backward)});
  }
  text += pieces.text() + "\n" + slowest_operators(profile);
  reports::Table transport({{"transport", reports::Align::left},
                            {"ranks"},
                            {"hosts"},
                            {"latency (1 KiB)"},
                            {"1 MiB"},
                            {"16 MiB"},
                            {"algorithm bandwidth"},
                            {"bus bandwidth (16 MiB)"}});
  for (size_t i = 0; i < profile.transport.size(); ++i) {
    const TransportTiming& first = profile.transport[i];
    if (first.bytes != (1 << 10)) continue;
    std::string middle = "-", last = "-", algorithm = "-", bandwidth = "-";
    for (const TransportTiming& t : profile.transport) {
      if (t.operation != first.operation || t.group != first.group || t.hosts != first.hosts) continue;
      if (t.bytes == (1 << 20)) middle = format_seconds(t.seconds);
      if (t.bytes != (1 << 24)) continue;
      last = format_seconds(t.seconds);
      algorithm = format_bandwidth(double(t.bytes) / t.seconds);
      bandwidth = format_bandwidth(bus_bandwidth_bytes_per_s(t));
    }
    transport.add_row({enum_name(first.operation), std::to_string(first.group), std::to_string(first.hosts),
                       format_seconds(first.seconds), middle, last, algorithm, bandwidth});
  }
  if (!profile.transport.empty()) text += transport.text() + "\n";
  text += "  speed of each rank when several compute at once:";
  for (size_t n = 0; n < profile.rate_by_active_ranks.size(); ++n) {
    text += fmt::format("  {}: {:.0f}%", n + 1, profile.rate_by_active_ranks[n] * 100);
  }
  return text + "\n";
}

}  // namespace mpt::profiler
