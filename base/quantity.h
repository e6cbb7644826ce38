// SPDX-License-Identifier: Apache-2.0
#pragma once

// Printing and reading of quantities. Inside the program every quantity is in its base unit (seconds, bytes,
// FLOP, bytes/s, FLOP/s); human units exist only here.

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

/// How long something will take, for people: "95 s", "43 min", "4.2 h", "3.1 days".
std::string format_duration(double seconds);
/// "1.234 s", "12.3 ms", "45.6 us", "7 ns".
std::string format_seconds(double seconds);
/// "512 B", "1.50 MiB", "79.2 GiB".
std::string format_bytes(double bytes);
/// "12.3 GB/s": decimal units, as network and memory bandwidth is quoted.
std::string format_bandwidth(double bytes_per_s);
/// "1.23 TFLOP".
std::string format_flop(double flop);
/// "312 TFLOP/s".
std::string format_flop_rate(double flop_per_s);
/// "1,234,567".
std::string format_count(int64_t count);
/// "124M", "70.6B", "1.04T": parameters and tokens.
std::string format_magnitude(double count);
/// "12.3%" from 0.123.
std::string format_percent(double fraction);
/// How much more: "12.3%" from 0.123, "a factor of 2.5" from 1.5.
std::string format_difference(double fraction);

/// Reads "2GiB", "512 MiB", "80GB", "1073741824". Bits ("20Gb") and small numbers without a unit are refused.
/// Throws UserError that names `where`.
int64_t parse_bytes(std::string_view text, std::string_view where);

/// Bytes per second from "12.5GB/s", or from bits: "100Gb/s", "100Gbit/s", "100Gbps" are 12.5e9. Throws
/// UserError that names `where`.
double parse_bandwidth(std::string_view text, std::string_view where);
/// Seconds from "5ms", "20us", "1.5s". Throws UserError that names `where`.
double parse_seconds(std::string_view text, std::string_view where);

/// A count such as 15T, 300B, 1.5M, 12000. Throws UserError naming `where`; at least 1.
double parse_count(std::string_view text, std::string_view where);
/// "5%" or "0.05": a share below 90 %.
double parse_share(std::string_view text, std::string_view where);
/// Tokens of a sequence: 8192, or 8k, 128k, 1M with k = 1024. Throws UserError naming `where`.
int64_t parse_sequence(std::string_view text, std::string_view where);

}  // namespace mpt
