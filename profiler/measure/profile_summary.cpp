// SPDX-License-Identifier: Apache-2.0

// The summary that mpt-profile prints after measuring: one screen.

#include <fmt/format.h>

#include "base/quantity.h"
#include "base/ranges.h"
#include "base/terminal.h"
#include "core/plan.h"
#include "profiler/measure/profile_machine.h"
#include "profiler/measure/transport.h"
#include "reports/table.h"

namespace mpt::profiler {
namespace {

constexpr size_t kMostSizes = 12, kMostOperators = 2, kMostShownGroups = 5, kMostGpus = 2;

// Says how many rows did not fit.
std::string screen_rows(const std::vector<std::vector<std::string>>& rows,
                        std::vector<reports::Column> columns, size_t most) {
  if (rows.empty()) return "";
  reports::Table table(std::move(columns));
  for (size_t i = 0; i < std::min(rows.size(), most); ++i) table.add_row(rows[i]);
  std::string text = table.text();
  if (rows.size() > most) text += fmt::format("  ({} more in the file)\n", rows.size() - most);
  return text + "\n";
}

// The timing of another piece and phase at the same sizes.
const PieceTiming* find(const Profile& profile, const PieceTiming& like, Piece piece, Phase phase) {
  return first_if(profile.pieces, [&](const PieceTiming& t) {
    return t.piece == piece && t.phase == phase && t.micro_batch == like.micro_batch &&
           t.tensor == like.tensor && t.sequence == like.sequence && t.recompute == Recompute::none &&
           (piece != Piece::layer || t.layer == like.layer);
  });
}

std::string with_spread(const PieceTiming* timing) {
  if (timing == nullptr) return "-";
  return fmt::format("{} ±{:.0f}%{}", format_seconds(timing->seconds), timing->spread * 100,
                     timing->spread > kNoisySpread ? "!" : " ");
}

std::string shape_text(const models::OperatorShape& s) {
  if (s.kind == models::OperatorKind::attention)
    return fmt::format("{} x {} tokens, {} heads of {}", s.batch, s.sequence, s.heads, s.head_dim);
  return s.inner > 0 ? fmt::format("{} x {} x {}", s.rows, s.columns, s.inner)
                     : fmt::format("{} x {}", s.rows, s.columns);
}

// The rate of an operator: FLOP/s of products and attention, bytes/s of operators that only move memory.
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
  std::vector<OperatorTiming> slowest = profile.operators;
  std::erase_if(slowest, [](const OperatorTiming& t) { return t.seconds <= 0.0; });
  sort_by(slowest, [](const OperatorTiming& o) { return -o.seconds; });
  slowest.resize(std::min(slowest.size(), kMostOperators));
  std::vector<std::vector<std::string>> rows;
  for (const OperatorTiming& t : slowest)
    rows.push_back({enum_name(t.shape.kind), shape_text(t.shape), enum_name(t.phase),
                    format_seconds(t.seconds), rate_text(t)});
  return screen_rows(rows, reports::columns({"<slowest operators", "<shape", "<pass", "time", "achieved"}),
                     kMostOperators);
}

std::string gpu_lines(const MachineDescription& machine) {
  std::string text;
  for (size_t i = 0; i < std::min(machine.gpus.size(), kMostGpus); ++i) {
    const GpuDescription& gpu = machine.gpus[i];
    std::string reached;
    for (size_t peer = 0; peer < gpu.peers.size(); ++peer)
      if (gpu.peers[peer] >= 0) reached += fmt::format(" {}", peer);
    text += fmt::format("  GPU {} ({}): {} of {} free; direct links to GPU:{}\n", i, gpu.bus_id,
                        format_bytes(double(gpu.free_bytes)), format_bytes(double(gpu.memory_bytes)),
                        reached.empty() ? " none" : reached);
  }
  if (machine.gpus.size() > kMostGpus)
    text += fmt::format("  and {} more GPUs\n", machine.gpus.size() - kMostGpus);
  return text;
}

std::string piece_table(const Profile& profile) {
  const bool several = any_of(profile.pieces, [](const PieceTiming& t) { return t.layer > 0; });
  std::vector<std::vector<std::string>> rows;
  for (const PieceTiming& t : profile.pieces) {
    if (t.piece != Piece::layer || t.phase != Phase::forward || t.recompute != Recompute::none) continue;
    const auto at = [&](Piece piece, Phase phase) { return with_spread(find(profile, t, piece, phase)); };
    std::vector<std::string>& row = rows.emplace_back();
    row = {std::to_string(sequence_of(profile, t)), fmt::format("1/{}", t.tensor),
           std::to_string(t.micro_batch)};
    if (several) row.push_back(std::to_string(t.layer));
    row.insert(row.end(), {at(Piece::layer, Phase::forward), at(Piece::layer, Phase::backward),
                           at(Piece::head, Phase::forward), at(Piece::head, Phase::backward)});
  }
  std::vector<reports::Column> columns{{"sequence"}, {"tensor"}, {"micro-batch"}};
  if (several) columns.push_back({"layer"});
  columns.insert(columns.end(), {{"layer forward"}, {"layer backward"}, {"head forward"}, {"head backward"}});
  return screen_rows(rows, std::move(columns),
                     kMostSizes - std::min(profile.machine.gpus.size(), kMostGpus + 1));
}

std::string transport_table(const Profile& profile) {
  std::vector<std::vector<std::string>> rows;
  for (const TransportTiming& first : profile.transport) {
    if (first.bytes != (1 << 10)) continue;
    std::string middle = "-", last = "-", bandwidth = "-";
    for (const TransportTiming& t : profile.transport) {
      if (t.operation != first.operation || t.group != first.group || t.hosts != first.hosts) continue;
      if (t.bytes == (1 << 20)) middle = format_seconds(t.seconds);
      if (t.bytes != (1 << 24)) continue;
      last = format_seconds(t.seconds);
      bandwidth = format_bandwidth(bus_bandwidth_bytes_per_s(t));
    }
    rows.push_back({enum_name(first.operation), std::to_string(first.group), std::to_string(first.hosts),
                    format_seconds(first.seconds), middle, last, bandwidth});
  }
  return screen_rows(rows,
                     reports::columns({"<between ranks", "ranks", "hosts", "1 KiB", "1 MiB", "16 MiB",
                                       "bus bandwidth at 16 MiB"}),
                     kMostShownGroups);
}

std::string concurrency_line(const Profile& profile) {
  std::string text = "  speed of each rank when several compute at once:";
  for (size_t n = 0; n < std::min<size_t>(profile.rate_by_active_ranks.size(), 8); ++n)
    text += fmt::format("  {}: {:.0f}%", n + 1, profile.rate_by_active_ranks[n] * 100);
  return text + "\n";
}

}  // namespace

std::string profile_summary(const Profile& profile) {
  std::string text = fmt::format("{} (sequence {}, {}) on {}, {} cores, {} memory\n", profile.model.name,
                                 profile.sequence, enum_name(profile.precision), profile.machine.device,
                                 profile.machine.cores, format_bytes(double(profile.machine.memory_bytes)));
  text += gpu_lines(profile.machine);
  text +=
      fmt::format("  matrix product {}, memory copy {}, starting one operation {}\n\n",
                  format_flop_rate(profile.matmul_flop_per_s),
                  format_bandwidth(profile.memory_bandwidth_bytes_per_s), format_seconds(profile.dispatch_s));
  text += piece_table(profile);
  text += slowest_operators(profile);
  text += transport_table(profile);
  text += concurrency_line(profile);
  text +=
      fmt::format("  Times are medians; ±: interquartile range as a share of the median, ! beyond {:.0f}%.\n",
                  100 * kNoisySpread);
  return text;
}

}  // namespace mpt::profiler
