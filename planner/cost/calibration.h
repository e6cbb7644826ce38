// SPDX-License-Identifier: Apache-2.0
#pragma once

// The numbers of the cost model that no kernel table holds. Their only place is
// planner/cost/calibration.json, which is built in. It has unit, plausible range, origin and source of each.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// How a constant was found. measured: somebody measured just this. literature: documents or sources say it.
/// It may also have been counted in them. fitted: chosen by the error of predictions of published runs.
enum class ConstantOrigin { measured, literature, fitted };

}  // namespace mpt

namespace mpt::planner {

/// One constant, as the file has it.
struct Constant {
  std::string name;
  double value = 0.0;
  std::string unit;
  std::vector<double> range;  // least and most that are plausible: a fit keeps to it
  ConstantOrigin origin = ConstantOrigin::measured;
  std::string meaning, source;
  std::vector<std::string> fitted_to;  // families of published runs; empty where it was not fitted
  // Of fitted ones: families with the steps that depend on it most, and other traits of these runs alone.
  std::vector<std::string> decided_by;
  std::string apart;

  double least() const { return range.front(); }
  double most() const { return range.back(); }

  static void describe(auto& v) {
    using T = Constant;
    v.field("name", &T::name, "as in Calibration");
    v.field("value", &T::value, "in its unit");
    v.field("unit", &T::unit, "of value and range");
    v.field("range", &T::range, "least and most that are plausible");
    v.field("origin", &T::origin, "measured, literature or fitted");
    v.field("meaning", &T::meaning, "what it is", long_text());
    v.field("source", &T::source, "where the value is from, and why it is plausible", long_text());
    v.field("fitted_to", &T::fitted_to, "families of published runs", optional_field());
    v.field("decided_by", &T::decided_by, "families whose steps depend on it most (benchmarks/constants.py)",
            optional_field());
    v.field("apart", &T::apart, "what else these runs have alone, and what runs without it tell",
            optional_field(long_text()));
  }
};

/// Reads such a file. Throws UserError where a constant is missing, or wrong in itself.
std::vector<Constant> constants_from_text(const std::string& text, const std::string& file);
/// Those of the file, in its order.
const std::vector<Constant>& constants();

/// The values, as prices read them. All are 0 until they are read: take shipped_calibration() and change it.
struct Calibration {
  // Products of matrices.
  double sustained = 0.0;
  double input_gradient_rate = 0.0;
  double weight_gradient_rate = 0.0;
  double unmeasured_product_share = 0.0;
  double unaligned_rate = 0.0;
  double unaligned_batched_rate = 0.0;
  double early_line_unaligned_rate = 0.0;
  double fp8_speedup = 0.0;
  double mxfp8_rate = 0.0;
  double nvfp4_speedup = 0.0;
  double grouped_rate = 0.0;
  double grouped_fp8_speedup = 0.0;
  double blackwell_grouped_fp8_speedup = 0.0;
  double expert_imbalance = 0.0;
  // Casts to fewer bits.
  double fp8_cast_bytes = 0.0;
  double untransposed_cast_bytes = 0.0;
  double nvfp4_cast_bytes = 0.0;
  // Attention.
  double attention_backward_flop = 0.0;
  double attention_backward_rate = 0.0;
  double unmeasured_attention_share = 0.0;
  double own_attention_share = 0.0;
  double scalar_attention_flop_per_s = 0.0;
  double scalar_attention_backward_flop = 0.0;
  double flash1_share = 0.0;
  double flash1_ampere_share = 0.0;
  double flash2_share = 0.0;
  double flash2_half_tokens = 0.0;
  double flash2_backward_rate = 0.0;
  double unfused_product_share = 0.0;
  double unfused_score_passes = 0.0;
  double unfused_dropout_passes = 0.0;
  double unfused_copy_passes = 0.0;
  double unfused_backward_passes = 0.0;
  double plain_score_passes = 0.0;
  double plain_score_backward_passes = 0.0;
  double plain_mask_bytes = 0.0;
  // Elementwise kernels and the loss.
  double bandwidth_share = 0.0;
  double eager_passes = 0.0;
  double compiled_passes = 0.0;
  double plain_norm_bytes = 0.0;
  double plain_norm_backward_bytes = 0.0;
  double scaled_rotary_bytes = 0.0;
  double scaled_rotary_backward_bytes = 0.0;
  double limit_bytes = 0.0;
  double limit_backward_bytes = 0.0;
  double fused_loss_bytes = 0.0;
  double fused_loss_backward_bytes = 0.0;
  double fp32_loss_bytes = 0.0;
  double fp32_loss_backward_bytes = 0.0;
  // Copies of tokens for experts.
  double permute_passes = 0.0;
  double fused_permute_passes = 0.0;
  double padding_passes = 0.0;
  double expert_bias_bytes = 0.0;
  double expert_bias_backward_bytes = 0.0;
  // Starts of kernels, and the optimizer.
  double kernel_gap_s = 0.0;
  double optimizer_bytes = 0.0;
  double host_parameters_per_s = 0.0;
  double host_parameters_per_s_and_rank = 0.0;
  double offload_copy_bytes = 0.0;
  // Communication.
  double collective_rate = 0.0;
  double network_rate = 0.0;
  double network_all_to_all_rate = 0.0;
  double nvlink_least_bytes_per_s = 0.0;
  double collective_overlap_share = 0.0;
  double tensor_overlap_share = 0.0;
  double network_overlap_share = 0.0;
  double straggler_per_doubling = 0.0;
  double linear_mixer_share = 0.0;
  // A device without kernel tables.
  double roofline_product_share = 0.0;
  double roofline_attention_share = 0.0;
  double roofline_attention_backward_share = 0.0;
  double roofline_bandwidth_share = 0.0;
  // Memory.
  double process_gib = 0.0;
  double workspace_gib = 0.0;
  double nccl_channel_mib = 0.0;

  using Member = std::pair<const char*, double Calibration::*>;
  static std::span<const Member> members();

  /// Values outside of their ranges are refused.
  static void describe(auto& v);
};

/// The values of the file.
const Calibration& shipped_calibration();
/// The same with those that the JSON object in `file` changes, by name. Throws UserError.
Calibration load_calibration(const std::string& file);

void Calibration::describe(auto& v) {
  for (size_t i = 0; i < members().size(); ++i) {
    const auto& [name, member] = members()[i];
    const Constant& c = constants()[i];
    v.field(name, member, c.meaning.c_str(), between(c.least(), c.most()));
  }
}

}  // namespace mpt::planner
