// SPDX-License-Identifier: Apache-2.0
#include "core/quantity.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "core/error.h"

namespace mpt {
namespace {

struct Unit {
  double size;
  const char* name;
};

// Three significant digits in the largest unit that keeps the number at or above one.
std::string format_in(double value, std::span<const Unit> units) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const Unit* unit = &units.back();
  for (const Unit& candidate : units) {
    if (std::fabs(value) >= candidate.size * 0.9995) {
      unit = &candidate;
      break;
    }
  }
  const double scaled = value / unit->size;
  const double magnitude = std::fabs(scaled);
  const int decimals = magnitude >= 99.95 || scaled == std::floor(scaled) ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", scaled, decimals, unit->name);
}

constexpr std::array<Unit, 4> kSeconds{{{1.0, " s"}, {1e-3, " ms"}, {1e-6, " us"}, {1e-9, " ns"}}};
constexpr std::array<Unit, 5> kBytes{
    {{1099511627776.0, " TiB"}, {1073741824.0, " GiB"}, {1048576.0, " MiB"}, {1024.0, " KiB"}, {1.0, " B"}}};
constexpr std::array<Unit, 5> kBandwidth{
    {{1e12, " TB/s"}, {1e9, " GB/s"}, {1e6, " MB/s"}, {1e3, " KB/s"}, {1.0, " B/s"}}};
constexpr std::array<Unit, 6> kFlop{
    {{1e18, " EFLOP"}, {1e15, " PFLOP"}, {1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}, {1.0, " FLOP"}}};
constexpr std::array<Unit, 5> kMagnitude{{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}, {1.0, ""}}};

constexpr std::array<Unit, 10> kByteSuffixes{{{1.0, ""},
                                              {1.0, "b"},
                                              {1e3, "kb"},
                                              {1e6, "mb"},
                                              {1e9, "gb"},
                                              {1e12, "tb"},
                                              {1024.0, "kib"},
                                              {1048576.0, "mib"},
                                              {1073741824.0, "gib"},
                                              {1099511627776.0, "tib"}}};

constexpr std::array<Unit, 8> kBandwidthSuffixes{{{1e6, "mb/s"},
                                                  {1e9, "gb/s"},
                                                  {1e12, "tb/s"},
                                                  {1024.0 * 1024.0, "mib/s"},
                                                  {1024.0 * 1024.0 * 1024.0, "gib/s"},
                                                  {1e6 / 8, "mbit/s"},
                                                  {1e9 / 8, "gbit/s"},
                                                  {1e12 / 8, "tbit/s"}}};
constexpr std::array<Unit, 3> kSecondSuffixes{{{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}}};

}  // namespace

std::string format_duration(double seconds) {
  constexpr double kMinute = 60.0, kHour = 3600.0, kDay = 86400.0;
  if (seconds < 2.0 * kMinute) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2.0 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  if (seconds < 2.0 * kDay) return fmt::format("{:.1f} h", seconds / kHour);
  return fmt::format("{:.1f} days", seconds / kDay);
}

std::string format_seconds(double seconds) { return format_in(seconds, kSeconds); }
std::string format_bytes(double bytes) { return format_in(bytes, kBytes); }
std::string format_bandwidth(double bytes_per_s) { return format_in(bytes_per_s, kBandwidth); }
std::string format_flop(double flop) { return format_in(flop, kFlop); }
std::string format_flop_rate(double flop_per_s) { return format_in(flop_per_s, kFlop) + "/s"; }
std::string format_magnitude(double count) { return format_in(count, kMagnitude); }
std::string format_percent(double fraction) { return fmt::format("{:.1f}%", fraction * 100.0); }

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const int first = count < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, ",");
  return digits;
}

namespace {

// A number and one of the suffixes, blanks and capitals aside; nothing where it is neither.
std::optional<double> parse_in(std::string_view text, std::span<const Unit> units) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value) || value < 0.0) return std::nullopt;
  std::string suffix;
  for (const char* at = end; at != text.data() + text.size(); ++at) {
    if (*at != ' ') suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  }
  for (const Unit& unit : units) {
    if (suffix == unit.name) return value * unit.size;
  }
  return std::nullopt;
}

UserError not_a(std::string_view what, std::string_view text, std::string_view where) {
  return UserError(
      Problem{std::string(where), fmt::format("\"{}\"", text.substr(0, 80)), std::string(what), ""});
}

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view where) {
  const auto bytes = parse_in(text, kByteSuffixes);
  if (!bytes || *bytes > 9e18)
    throw not_a("a size such as 2GiB, 512MiB, 80GB or a number of bytes", text, where);
  return static_cast<int64_t>(*bytes);
}

double parse_bandwidth(std::string_view text, std::string_view where) {
  const auto rate = parse_in(text, kBandwidthSuffixes);
  if (!rate || *rate < 1.0 || *rate > 1e15)
    throw not_a("a bandwidth such as 12.5GB/s or 100Gbit/s", text, where);
  return *rate;
}

double parse_seconds(std::string_view text, std::string_view where) {
  const auto seconds = parse_in(text, kSecondSuffixes);
  if (!seconds || *seconds > 10.0) throw not_a("a time of at most 10 s, such as 5ms or 20us", text, where);
  return *seconds;
}

double parse_count(std::string_view text, std::string_view where) {
  constexpr std::pair<char, double> kSuffixes[] = {
      {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'G', 1e9}, {'T', 1e12}};
  double value = 0.0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  double scale = end == last ? 1.0 : 0.0;
  for (const auto& [suffix, factor] : kSuffixes) {
    if (end + 1 == last && std::toupper(static_cast<unsigned char>(*end)) == suffix) scale = factor;
  }
  if (error == std::errc{} && scale > 0.0 && value * scale >= 1.0 && value * scale <= 1e20)
    return value * scale;
  throw UserError(Problem{std::string(where), fmt::format("\"{}\"", text.substr(0, 80)),
                          "a count such as 15T, 300B, 1.5M or 12000", ""});
}

}  // namespace mpt
