// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/profile_noise.h"

#include <fmt/format.h>

#include <tuple>

#include "base/terminal.h"

namespace mpt::profiler {
namespace {

constexpr int64_t kLargeMessage = 1 << 20;  // smaller ones wait for threads to wake up, and always vary

bool counts(const PieceTiming& t) { return t.piece != Piece::embedding && t.seconds > 0.0; }

auto size_of_timing(const PieceTiming& t, int64_t micro_batch) {
  return std::tuple(t.piece, t.phase, t.tensor, t.recompute, t.sequence, t.layer, micro_batch);
}

std::string name_of(const PieceTiming& t) {
  const std::string piece = t.layer > 0 ? fmt::format("layer {}", t.layer) : enum_name(t.piece);
  std::string name = fmt::format("{} {}, micro-batch {}", piece, enum_name(t.phase), t.micro_batch);
  if (t.tensor > 1) name += fmt::format(", tensor width 1/{}", t.tensor);
  return replaced(std::move(name), '_', ' ');
}

std::vector<PieceTiming> pieces_at(const Profile& profile, int64_t sequence) {
  std::vector<PieceTiming> at = profile.pieces;
  std::erase_if(at, [&](const PieceTiming& t) { return sequence_of(profile, t) != sequence; });
  return at.empty() ? profile.pieces : at;
}

}  // namespace

std::vector<size_t> doubtful_pieces(const std::vector<PieceTiming>& pieces) {
  std::map<decltype(size_of_timing(PieceTiming{}, 1)), size_t> by_size;
  for (size_t i = 0; i < pieces.size(); ++i) by_size[size_of_timing(pieces[i], pieces[i].micro_batch)] = i;
  std::vector<bool> doubtful(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PieceTiming& t = pieces[i];
    if (!counts(t)) continue;
    if (t.spread > kNoisySpread) doubtful[i] = true;
    const auto twice = by_size.find(size_of_timing(t, 2 * t.micro_batch));
    if (twice == by_size.end()) continue;
    const double growth = pieces[twice->second].seconds / t.seconds;
    if (growth < kLeastGrowth || growth > kMostGrowth) doubtful[i] = doubtful[twice->second] = true;
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (doubtful[i]) found.push_back(i);
  return found;
}

ProfileNoise noise_of(const Profile& profile, int64_t sequence) {
  ProfileNoise noise;
  const auto look_at = [&](double spread, const std::string& name) {
    ++noise.timings;
    if (spread <= noise.worst_spread) return;
    noise.worst_spread = spread;
    noise.worst = name;
  };
  const std::vector<PieceTiming> pieces = pieces_at(profile, sequence);
  for (const PieceTiming& t : pieces)
    if (counts(t)) look_at(t.spread, name_of(t));
  noise.doubtful = doubtful_pieces(pieces).size();
  for (const TransportTiming& t : profile.transport) {
    if (t.bytes < kLargeMessage) continue;
    look_at(t.spread, fmt::format("{} of {} MiB between {} ranks", enum_name(t.operation),
                                  t.bytes / kLargeMessage, t.group));
    noise.doubtful += t.spread > kNoisySpread ? 1 : 0;
  }
  return noise;
}

std::string noise_text(const ProfileNoise& noise) {
  if (noise.doubtful == 0) return "";
  if (noise.worst_spread <= kNoisySpread)
    return fmt::format("{} of {} timings do not fit the others", noise.doubtful, noise.timings);
  return fmt::format("{} of {} timings vary by more than {:.0f}%, {} by {:.0f}%", noise.doubtful,
                     noise.timings, 100 * kNoisySpread, noise.worst, 100 * noise.worst_spread);
}

std::string noise_note(const Profile& profile, const std::string& file, int64_t sequence) {
  const std::string text = noise_text(noise_of(profile, sequence));
  if (text.empty()) return "";
  return fmt::format(
      "{} is too noisy: {}; the predicted times may be as far off. Measure again while the machine is "
      "idle: mpt-profile --model {} --seq {} -o {}",
      file, text, shell_word(profile.model.name), sequence, shell_word(file));
}

}  // namespace mpt::profiler
