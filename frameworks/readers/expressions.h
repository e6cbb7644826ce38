// SPDX-License-Identifier: Apache-2.0
#pragma once

// Expressions in the values of a training script: integers as shells compute them, and lists over layers in
// Megatron-LM's Python form.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpt::frameworks {

/// The value of an expression of whole numbers, + - * / % and parentheses; nothing for any other text.
std::optional<int64_t> arithmetic_value(const std::string& text);

/// A list expression over 0 and 1, such as "([0]*3+[1]*58)" (moe_freq_type in
/// megatron/training/arguments.py); nothing for any other text, or more than 100,000 layers.
std::optional<std::vector<int64_t>> layer_pattern(std::string text);

/// A `--pipeline-model-parallel-layout` without repetitions, one letter a layer: E embedding, t decoder
/// layer, m next-token layer, L loss. "|" ends a stage; "x*n" and "(xyz)*n" repeat (parse_str_to_list in
/// megatron/core/transformer/pipeline_parallel_layer_layout.py). Nothing if the text is malformed, or has
/// more than 4,096 letters or bars.
std::optional<std::string> expanded_layout(std::string_view text);
/// Decoder layers of each stage of such a layout.
std::optional<std::vector<int64_t>> decoder_layers_of_stages(std::string_view text);

}  // namespace mpt::frameworks
