// SPDX-License-Identifier: Apache-2.0
#pragma once

// How Megatron-LM writes which layers a pipeline's stages hold, "Et*3|(tt|)*29m|L".

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace mpt::frameworks {

/// Decoder layers of each stage of a `--pipeline-model-parallel-layout`: E embedding, t decoder layer, m
/// next-token layer, L loss; "|" ends a stage, "x*n" and "(xyz)*n" repeat (parse_str_to_list in
/// megatron/core/transformer/pipeline_parallel_layer_layout.py). Nothing where the text is malformed or has
/// more than 4,096 letters or bars.
std::optional<std::vector<int64_t>> decoder_layers_of_stages(std::string_view text);

}  // namespace mpt::frameworks
