// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/json.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& calibration_files();  // generated

namespace {

// In the order of the file.
constexpr Calibration::Member kMembers[] = {
    {"sustained", &Calibration::sustained},
    {"input_gradient_rate", &Calibration::input_gradient_rate},
    {"weight_gradient_rate", &Calibration::weight_gradient_rate},
    {"unmeasured_product_share", &Calibration::unmeasured_product_share},
    {"unaligned_rate", &Calibration::unaligned_rate},
    {"unaligned_batched_rate", &Calibration::unaligned_batched_rate},
    {"early_line_unaligned_rate", &Calibration::early_line_unaligned_rate},
    {"fp8_speedup", &Calibration::fp8_speedup},
    {"mxfp8_rate", &Calibration::mxfp8_rate},
    {"nvfp4_speedup", &Calibration::nvfp4_speedup},
    {"grouped_rate", &Calibration::grouped_rate},
    {"grouped_fp8_speedup", &Calibration::grouped_fp8_speedup},
    {"blackwell_grouped_fp8_speedup", &Calibration::blackwell_grouped_fp8_speedup},
    {"expert_imbalance", &Calibration::expert_imbalance},
    {"fp8_cast_bytes", &Calibration::fp8_cast_bytes},
    {"untransposed_cast_bytes", &Calibration::untransposed_cast_bytes},
    {"nvfp4_cast_bytes", &Calibration::nvfp4_cast_bytes},
    {"attention_backward_flop", &Calibration::attention_backward_flop},
    {"attention_backward_rate", &Calibration::attention_backward_rate},
    {"unmeasured_attention_share", &Calibration::unmeasured_attention_share},
    {"own_attention_share", &Calibration::own_attention_share},
    {"scalar_attention_flop_per_s", &Calibration::scalar_attention_flop_per_s},
    {"scalar_attention_backward_flop", &Calibration::scalar_attention_backward_flop},
    {"flash1_share", &Calibration::flash1_share},
    {"flash1_ampere_share", &Calibration::flash1_ampere_share},
    {"flash2_share", &Calibration::flash2_share},
    {"flash2_half_tokens", &Calibration::flash2_half_tokens},
    {"flash2_backward_rate", &Calibration::flash2_backward_rate},
    {"unfused_product_share", &Calibration::unfused_product_share},
    {"unfused_score_passes", &Calibration::unfused_score_passes},
    {"unfused_dropout_passes", &Calibration::unfused_dropout_passes},
    {"unfused_copy_passes", &Calibration::unfused_copy_passes},
    {"unfused_backward_passes", &Calibration::unfused_backward_passes},
    {"plain_score_passes", &Calibration::plain_score_passes},
    {"plain_score_backward_passes", &Calibration::plain_score_backward_passes},
    {"plain_mask_bytes", &Calibration::plain_mask_bytes},
    {"bandwidth_share", &Calibration::bandwidth_share},
    {"eager_passes", &Calibration::eager_passes},
    {"compiled_passes", &Calibration::compiled_passes},
    {"plain_norm_bytes", &Calibration::plain_norm_bytes},
    {"plain_norm_backward_bytes", &Calibration::plain_norm_backward_bytes},
    {"scaled_rotary_bytes", &Calibration::scaled_rotary_bytes},
    {"scaled_rotary_backward_bytes", &Calibration::scaled_rotary_backward_bytes},
    {"limit_bytes", &Calibration::limit_bytes},
    {"limit_backward_bytes", &Calibration::limit_backward_bytes},
    {"fused_loss_bytes", &Calibration::fused_loss_bytes},
    {"fused_loss_backward_bytes", &Calibration::fused_loss_backward_bytes},
    {"fp32_loss_bytes", &Calibration::fp32_loss_bytes},
    {"fp32_loss_backward_bytes", &Calibration::fp32_loss_backward_bytes},
    {"permute_passes", &Calibration::permute_passes},
    {"fused_permute_passes", &Calibration::fused_permute_passes},
    {"padding_passes", &Calibration::padding_passes},
    {"expert_bias_bytes", &Calibration::expert_bias_bytes},
    {"expert_bias_backward_bytes", &Calibration::expert_bias_backward_bytes},
    {"kernel_gap_s", &Calibration::kernel_gap_s},
    {"optimizer_bytes", &Calibration::optimizer_bytes},
    {"host_parameters_per_s", &Calibration::host_parameters_per_s},
    {"host_parameters_per_s_and_rank", &Calibration::host_parameters_per_s_and_rank},
    {"offload_copy_bytes", &Calibration::offload_copy_bytes},
    {"collective_rate", &Calibration::collective_rate},
    {"network_rate", &Calibration::network_rate},
    {"network_all_to_all_rate", &Calibration::network_all_to_all_rate},
    {"nvlink_least_bytes_per_s", &Calibration::nvlink_least_bytes_per_s},
    {"collective_overlap_share", &Calibration::collective_overlap_share},
    {"tensor_overlap_share", &Calibration::tensor_overlap_share},
    {"network_overlap_share", &Calibration::network_overlap_share},
    {"straggler_per_doubling", &Calibration::straggler_per_doubling},
    {"linear_mixer_share", &Calibration::linear_mixer_share},
    {"roofline_product_share", &Calibration::roofline_product_share},
    {"roofline_attention_share", &Calibration::roofline_attention_share},
    {"roofline_attention_backward_share", &Calibration::roofline_attention_backward_share},
    {"roofline_bandwidth_share", &Calibration::roofline_bandwidth_share},
    {"process_gib", &Calibration::process_gib},
    {"workspace_gib", &Calibration::workspace_gib},
    {"nccl_channel_mib", &Calibration::nccl_channel_mib},
};
static_assert(std::size(kMembers) * sizeof(double) == sizeof(Calibration),
              "each constant stands in the list");

void check_constant(const Constant& c, const std::string& at, JsonProblems& problems) {
  if (c.range.size() != 2 || c.least() > c.most()) {
    problems.add(at + "/range", fmt::format("{} numbers", c.range.size()), "the least and the most");
  } else if (c.value < c.least() || c.value > c.most()) {
    problems.add(at + "/value", fmt::format("{}", c.value), fmt::format("{} to {}", c.least(), c.most()));
  }
  const bool fitted = c.origin == ConstantOrigin::fitted;
  if (fitted == c.fitted_to.empty()) {
    problems.add(at + "/fitted_to", fitted ? "nothing" : "runs",
                 fitted ? "the families that it was fitted to" : "nothing: only fitted constants have it");
  }
  if (fitted == (c.decided_by.empty() || c.apart.empty())) {
    problems.add(at + "/decided_by", fitted ? "nothing, or no \"apart\"" : "runs",
                 fitted ? "the families whose runs decide it, and what else sets these apart"
                        : "nothing: only fitted constants have it");
  }
}

}  // namespace

std::vector<Constant> constants_from_text(const std::string& text, const std::string& file) {
  auto all = from_json<std::vector<Constant>>(parse_json(text, file), file);
  JsonProblems problems(file);
  for (size_t i = 0; i < std::max(all.size(), std::size(kMembers)); ++i) {
    const std::string at = fmt::format("/{}", i);
    const std::string expected = i < std::size(kMembers) ? kMembers[i].first : "no further constant";
    const std::string found = i < all.size() ? all[i].name : "nothing";
    if (found != expected) {
      problems.add(at, found, expected, "name the constants in the order of planner/cost/calibration.cpp");
      break;
    }
    check_constant(all[i], at, problems);
  }
  problems.throw_if_any();
  return all;
}

const std::vector<Constant>& constants() {
  static const std::vector<Constant> all = [] {
    const auto& [file, text] = calibration_files().front();
    return constants_from_text(std::string(text), std::string(file));
  }();
  return all;
}

std::span<const Calibration::Member> Calibration::members() { return kMembers; }

const Calibration& shipped_calibration() {
  static const Calibration values = [] {
    Calibration c;
    for (size_t i = 0; i < constants().size(); ++i) c.*kMembers[i].second = constants()[i].value;
    return c;
  }();
  return values;
}

Calibration load_calibration(const std::string& file) {
  Json changes = load_json(file);
  if (!changes.is_object()) return from_json<Calibration>(changes, file);  // which refuses it
  Json whole = to_json(shipped_calibration());
  whole.update(changes);
  return from_json<Calibration>(whole, file);
}

}  // namespace mpt::planner
