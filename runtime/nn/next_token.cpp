// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/next_token.h"

namespace mpt::runtime {
namespace {

std::string module_name(int64_t depth) { return "next_token." + std::to_string(depth); }

}  // namespace

NextTokenInput::NextTokenInput(const std::string& name, int table, const PartContext& context)
    : Part(context),
      piece_(parameters_.begin_piece()),
      embedding_(piece_, table, context),
      embedding_norm_(name + ".embedding_norm", context),
      norm_(name + ".norm", context),
      embedding_projection_(
          whole_options(name + ".embedding_projection", false, sizes_.hidden, sizes_.hidden, sizes_.fp8),
          context),
      projection_(whole_options(name + ".projection", false, sizes_.hidden, sizes_.hidden, sizes_.fp8),
                  context) {}

Buffer NextTokenInput::forward(const int32_t* tokens, const void* hidden, Saved& saved) {
  const auto normalise = [&](Norm& norm, const void* x, DecoderLayer::SavedNorm& to) {
    to.out = local();
    to.statistics = norm.forward(x, to.out.data());
  };
  saved.embedded = embedding_.forward(tokens, saved.tokens);
  normalise(embedding_norm_, saved.embedded.data(), saved.embedding_norm);
  normalise(norm_, hidden, saved.norm);
  Buffer output = local();
  const Buffer other = local();
  embedding_projection_.forward(saved.embedding_norm.out.data(), output.data());
  projection_.forward(saved.norm.out.data(), other.data());
  add(output.data(), other.data(), output.data());
  return output;
}

Buffer NextTokenInput::backward_input(Saved& saved, const void* hidden, Buffer d_output) {
  const auto back = [&](Linear& projection, Norm& norm, const void* x, DecoderLayer::SavedNorm& from) {
    from.d_out = local();
    projection.backward_input(saved.d_output.data(), from.d_out.data());
    Buffer dx = local();
    norm.backward_input(from.d_out.data(), x, from.statistics.data(), dx.data());
    return dx;
  };
  saved.d_output = std::move(d_output);
  saved.d_embedded =
      back(embedding_projection_, embedding_norm_, saved.embedded.data(), saved.embedding_norm);
  return back(projection_, norm_, hidden, saved.norm);
}

void NextTokenInput::backward_weight(const Saved& saved, const void* hidden) {
  const auto weigh = [&](Linear& projection, Norm& norm, const void* x, const DecoderLayer::SavedNorm& from) {
    projection.backward_weight(saved.d_output.data(), from.out.data());
    norm.backward_weight(from.d_out.data(), x, from.statistics.data());
  };
  weigh(projection_, norm_, hidden, saved.norm);
  weigh(embedding_projection_, embedding_norm_, saved.embedded.data(), saved.embedding_norm);
  embedding_.backward_weight(saved.tokens, saved.d_embedded.data());
}

NextToken::NextToken(int64_t depth, int table, int output, const PartContext& context,
                     const RankSizes& layer_sizes)
    : input(module_name(depth), table, context),
      layer(context.sizes.model.layers.count() + depth, Recompute::none, context.of(layer_sizes)),
      head(module_name(depth) + ".head_norm", output, context) {}

}  // namespace mpt::runtime
