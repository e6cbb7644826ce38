// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measured kernel times of a GPU, compact. scripts/build_kernel_tables makes them from published
// measurements. Each file of profiler/hardware/kernels/ names its source.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "core/cluster_spec.h"
#include "profiler/hardware/kernel_profile.h"

namespace mpt::profiler {

/// Values over a grid of two or three positive axes. Interpolation is linear in the logarithms of axes and
/// value: exact at grid points, and continuous. Beyond the grid the last cell's slope along each axis
/// continues, clamped to `slopes`.
class LogGrid {
 public:
  LogGrid() = default;
  /// `values`: last axis fastest. `slopes`: least and most d log(value) / d log(axis) beyond the ends of each
  /// axis.
  LogGrid(std::vector<std::vector<double>> axes, const std::vector<double>& values,
          std::vector<std::pair<double, double>> below, std::vector<std::pair<double, double>> above);
  double at(std::array<double, 3> point) const;
  bool empty() const { return values_.empty(); }
  const std::vector<std::vector<double>>& log_axes() const { return axes_; }

 private:
  std::vector<std::vector<double>> axes_;  // logarithms
  std::vector<double> values_;             // logarithms
  std::vector<std::pair<double, double>> below_, above_;
};

struct KernelTables {
  std::string device, source;
  std::string digest;  // of the user's measurements; empty for the catalog's

  /// Seconds of a product C[m, n] = A[m, k] B[k, n], "bf16" or "fp8"; nothing if that was not measured.
  std::optional<double> gemm_s(bool fp8, double m, double n, double k) const;
  /// FLOP/s of the causal FLOP of a flash attention forward with `heads` heads over all sequences of a batch.
  std::optional<double> attention_flop_per_s(double head_dim, double sequence, double heads) const;
  /// Rate of flash attention in training as a share of that: `pass` is "forward" or "backward", `precision`
  /// "bf16", "fp8" or "mxfp8". Nothing if that was not measured.
  std::optional<double> training_attention_share(const std::string& pass, const std::string& precision,
                                                 double head_dim, double sequence) const;
  /// FLOP/s of grouped products with `rows` rows for each expert of `width` inner columns.
  std::optional<double> grouped_flop_per_s(double rows, double width) const;
  /// Seconds of a collective inside a node; `bytes` is the whole message. Within the measured numbers of
  /// ranks only.
  std::optional<double> collective_s(const std::string& operation, double ranks, double bytes) const;
  /// Most ranks of the measured collectives; 0 without any.
  int64_t most_ranks() const { return most_ranks_; }
  /// What was measured in just this shape and pass ("forward", "input_gradient", "weight_gradient",
  /// "backward"), in `products`, `attention_cores` or `attention_seconds`.
  template <class Tables>
  static std::optional<double> exact(const Tables& tables, const std::string& pass,
                                     const typename Tables::mapped_type::key_type& shape) {
    const auto* const table = find_value(tables, pass);
    return table == nullptr ? std::nullopt : copy_of(*table, shape);
  }
  /// A product of "any" pass counts where its own was not measured.
  std::optional<double> exact_product_s(const std::string& pass, int64_t m, int64_t n, int64_t k) const;

  std::map<std::string, LogGrid> gemm;                                        // by dtype, seconds
  std::map<int64_t, LogGrid> attention;                                       // by head_dim, FLOP/s
  std::map<std::pair<std::string, std::string>, LogGrid> training_attention;  // by pass and precision, share
  LogGrid grouped;                                                            // FLOP/s
  std::map<std::string, LogGrid> collective;                                  // by operation, seconds
  std::map<std::pair<std::string, int64_t>, LogGrid> collective_of_ranks;  // by operation and ranks, seconds
  std::map<std::array<int64_t, 2>, std::map<std::string, LogGrid>> collective_of_hosts;  // by hosts and ranks
  std::map<std::string, std::map<std::array<int64_t, 3>, double>> products;  // by pass; m, n, k: seconds
  // By pass; sequence, heads, kv_heads, head_dim: seconds of one sequence. FLOP/s also by value_head_dim.
  std::map<std::string, std::map<std::array<int64_t, 4>, double>> attention_seconds;
  std::map<std::string, std::map<std::array<int64_t, 5>, double>> attention_cores;
  int64_t most_ranks_ = 0;
};

/// Tables of a user's measurements. Products and attention cores hold for exactly their shapes. Collectives
/// are interpolated by size, for exactly the measured numbers of ranks.
KernelTables tables_of(const KernelProfile& profile);

/// The tables of a device of the catalog, or nothing. Read once; may be called from several threads.
const KernelTables* kernel_tables(const std::string& device);
/// The tables of the device itself, or of the one that its `kernels` names.
const KernelTables* kernel_tables(const DeviceSpec& device);
std::vector<std::string> kernel_table_names();

}  // namespace mpt::profiler
