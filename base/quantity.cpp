// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/ranges.h"
#include "base/text.h"

namespace mpt {
namespace {

struct Unit {
  double size;
  const char* name;
};

// Three significant digits in the largest unit that keeps the number at or above one.
std::string format_in(double value, std::span<const Unit> units) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const auto found = find_if(units, [&](const Unit& u) { return std::fabs(value) >= u.size * 0.9995; });
  const Unit& unit = found == units.end() ? units.back() : *found;
  const double scaled = value / unit.size;
  const double magnitude = std::fabs(scaled);
  const int decimals = magnitude >= 99.95 || scaled == std::floor(scaled) ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", scaled, decimals, unit.name);
}

constexpr std::array<Unit, 4> kSeconds{{{1.0, " s"}, {1e-3, " ms"}, {1e-6, " us"}, {1e-9, " ns"}}};
constexpr std::array<Unit, 5> kBytes{
    {{1099511627776.0, " TiB"}, {1073741824.0, " GiB"}, {1048576.0, " MiB"}, {1024.0, " KiB"}, {1.0, " B"}}};
constexpr std::array<Unit, 5> kBandwidth{
    {{1e12, " TB/s"}, {1e9, " GB/s"}, {1e6, " MB/s"}, {1e3, " KB/s"}, {1.0, " B/s"}}};
constexpr std::array<Unit, 6> kFlop{
    {{1e18, " EFLOP"}, {1e15, " PFLOP"}, {1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}, {1.0, " FLOP"}}};
constexpr std::array<Unit, 5> kMagnitude{{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}, {1.0, ""}}};

constexpr std::array<Unit, 3> kSecondSuffixes{{{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}}};

// A number and the unit that follows it, without blanks; nothing if the text does not begin with a number.
struct NumberAndUnit {
  double number = 0.0;
  std::string unit;
};
std::optional<NumberAndUnit> split_number(std::string_view text) {
  NumberAndUnit out;
  const auto [number, length] = leading_number(text);
  if (length == 0 || number < 0.0) return std::nullopt;
  out.number = number;
  for (const char c : text.substr(length))
    if (c != ' ') out.unit += c;
  return out;
}

bool take_end(std::string& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

// The meaning of a "b": B is a byte and b a bit, as on every network card. "unclear": there is no "b", or the
// unit is in small letters, which many people use for both.
enum class Data { unknown, unclear, bytes, bits };
struct DataUnit {
  Data data = Data::unknown;
  double size = 0.0;  // bytes, or bits
};
DataUnit data_unit(const std::string& text) {
  std::string prefix = lower_case(text);
  DataUnit unit;
  if (take_end(prefix, "bits") || take_end(prefix, "bit")) {
    unit.data = Data::bits;
  } else if (take_end(prefix, "bytes") || take_end(prefix, "byte")) {
    unit.data = Data::bytes;
  } else if (take_end(prefix, "b")) {
    unit.data = text.ends_with('B') ? Data::bytes : text == lower_case(text) ? Data::unclear : Data::bits;
  } else {
    unit.data = Data::unclear;
  }
  const bool binary = take_end(prefix, "i");
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t at = prefix.empty() ? 0 : kPrefixes.find(prefix) + 1;
  if (prefix.size() > 1 || (at == 0 && (!prefix.empty() || binary))) return {};
  unit.size = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(at));
  return unit;
}

std::optional<double> parse_in(std::string_view text, std::span<const Unit> units) {
  const auto parts = split_number(text);
  for (const Unit& unit : units)
    if (parts && lower_case(parts->unit) == unit.name) return parts->number * unit.size;
  return std::nullopt;
}

UserError not_a(std::string_view what, std::string_view text, std::string_view where,
                std::string remedy = "") {
  return UserError(std::string(where), fmt::format("\"{}\"", text.substr(0, 80)), std::string(what),
                   std::move(remedy));
}

// "G" of "20", "20G", "20Gb"; "M" of "512m".
std::string prefix_of(const std::string& unit) {
  const char letter = unit.empty() || unit == "b" || unit == "B" ? 'G' : unit.front();
  return {static_cast<char>(std::toupper(static_cast<unsigned char>(letter)))};
}

// The remedy of an error: the spellings that may have been meant.
std::string spelled(const NumberAndUnit& parts, std::string_view first, std::string_view second) {
  return fmt::format("write {0}{1} or {0}{2}", parts.number, first, second);
}

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

std::string format_difference(double fraction) {
  return fraction < 1.0 ? format_percent(fraction) : fmt::format("a factor of {:.3g}", 1.0 + fraction);
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const int first = count < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, ",");
  return digits;
}

int64_t parse_bytes(std::string_view text, std::string_view where) {
  constexpr std::string_view kWhat = "a size with its unit, such as 20GiB, 512MiB or 80GB";
  const auto parts = split_number(text);
  if (!parts) throw not_a(kWhat, text, where);
  // Only bytes are given as a bare count of a million or more.
  if (parts->unit.empty() && parts->number >= double(kMiB) && parts->number <= 9e18)
    return static_cast<int64_t>(parts->number);
  DataUnit unit = data_unit(parts->unit);
  const std::string small = lower_case(parts->unit);
  if (unit.data == Data::unclear && (parts->unit == "b" || parts->unit == small) && small.ends_with("ib"))
    unit.data = Data::bytes;  // "20gib": memory is never counted in Gibit
  if (unit.data == Data::bytes && parts->number * unit.size <= 9e18)
    return static_cast<int64_t>(parts->number * unit.size);
  if (unit.data == Data::unknown || unit.data == Data::bytes) throw not_a(kWhat, text, where);
  const std::string prefix = prefix_of(parts->unit);
  throw not_a(kWhat, text, where, spelled(*parts, prefix + "iB", prefix + "B"));
}

double parse_bandwidth(std::string_view text, std::string_view where) {
  constexpr std::string_view kWhat = "a bandwidth with its unit, such as 12.5GB/s or 100Gbit/s";
  const auto parts = split_number(text);
  if (!parts) throw not_a(kWhat, text, where);
  std::string name = parts->unit;
  const bool slash = take_end(name, "/s") || take_end(name, "/S");
  const bool per = !slash && (take_end(name, "ps") || take_end(name, "PS") || take_end(name, "pS"));
  DataUnit unit = data_unit(name);
  if (per && unit.data == Data::unclear && lower_case(name).ends_with("b")) unit.data = Data::bits;  // "gbps"
  const bool clear = (slash || per) && (unit.data == Data::bytes || unit.data == Data::bits);
  const double rate = parts->number * unit.size / (unit.data == Data::bits ? 8.0 : 1.0);
  if (clear && rate >= 1.0 && rate <= 1e15) return rate;
  if (clear || unit.data == Data::unknown) throw not_a(kWhat, text, where);
  const std::string prefix = prefix_of(name);
  throw not_a(kWhat, text, where,
              spelled(*parts, prefix + "bit/s for bits", prefix + "B/s for bytes, per second"));
}

double parse_seconds(std::string_view text, std::string_view where) {
  const auto seconds = parse_in(text, kSecondSuffixes);
  if (!seconds || *seconds > 10.0) throw not_a("a time of at most 10 s, such as 5ms or 20us", text, where);
  return *seconds;
}

double parse_share(std::string_view text, std::string_view where) {
  const auto parts = split_number(text);
  const double scale = !parts || !(parts->unit.empty() || parts->unit == "%") ? -1.0
                       : parts->unit.empty()                                  ? 1.0
                                                                              : 0.01;
  const double share = parts ? parts->number * scale : -1.0;
  if (share >= 0.0 && share < 0.9) return share;
  throw not_a("a share below 90%, such as 5% or 0.05", text, where);
}

int64_t parse_sequence(std::string_view text, std::string_view where) {
  constexpr double kMost = double(int64_t{1} << 28);
  const auto parts = split_number(text);
  const std::string unit = parts ? lower_case(parts->unit) : "?";
  const double scale = unit.empty() ? 1.0 : unit == "k" ? 1024.0 : unit == "m" ? 1048576.0 : 0.0;
  const double tokens = parts ? parts->number * scale : 0.0;
  if (tokens >= 1.0 && tokens <= kMost && tokens == std::floor(tokens)) return static_cast<int64_t>(tokens);
  throw not_a("tokens of a sequence, such as 8192, 8k or 1M (k is 1024)", text, where);
}

double parse_count(std::string_view text, std::string_view where) {
  constexpr std::pair<char, double> kSuffixes[] = {
      {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'G', 1e9}, {'T', 1e12}};
  const auto [value, length] = leading_number(text);
  double scale = length == text.size() ? 1.0 : 0.0;
  for (const auto& [suffix, factor] : kSuffixes)
    if (length + 1 == text.size() && std::toupper(static_cast<unsigned char>(text.back())) == suffix)
      scale = factor;
  if (length > 0 && scale > 0.0 && value * scale >= 1.0 && value * scale <= 1e20) return value * scale;
  throw not_a("a count such as 15T, 300B, 1.5M or 12000", text, where);
}

}  // namespace mpt
