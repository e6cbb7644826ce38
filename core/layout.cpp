// SPDX-License-Identifier: Apache-2.0
#include "core/layout.h"

#include <fmt/format.h>

#include <numeric>

#include "core/error.h"

namespace mpt {
namespace {

struct Divisibility {
  const char* what;
  int64_t amount;
  const char* by_what;
  int64_t by;
};

std::optional<Rejection> check_stages(const ModelSpec& model, const Layout& layout) {
  const auto& stages = layout.layers_per_stage;
  if (static_cast<int64_t>(stages.size()) != layout.stages()) {
    return Rejection{
        "stages", -1, double(layout.stages()), double(stages.size()),
        fmt::format("layers_per_stage has {} entries for {} stages", stages.size(), layout.stages())};
  }
  const int64_t sum = std::accumulate(stages.begin(), stages.end(), int64_t{0});
  if (sum != model.layers) {
    return Rejection{
        "stages", -1, double(model.layers), double(sum),
        fmt::format("layers_per_stage adds up to {}, the model has {} layers", sum, model.layers)};
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    // An end stage may hold only the embedding or the head; one in the middle must hold a layer.
    const bool end = s == 0 || s + 1 == stages.size();
    if (stages[s] < 1 && !end) {
      return Rejection{"stages", int(s), 1, double(stages[s]), fmt::format("stage {} holds no layer", s)};
    }
  }
  return std::nullopt;
}

}  // namespace

int64_t micro_batches(const Layout& layout, const Workload& workload) {
  const int64_t per_micro_step = layout.data * layout.micro_batch;
  MPT_CHECK(workload.global_batch % per_micro_step == 0, "batch {} does not divide by {}",
            workload.global_batch, per_micro_step);
  return workload.global_batch / per_micro_step;
}

std::vector<StageContent> stage_contents(const ModelSpec& model, const Layout& layout) {
  std::vector<StageContent> contents;
  int64_t first = 0;
  for (const int64_t count : layout.layers_per_stage) {
    contents.push_back({first, count, contents.empty(), false});
    first += count;
  }
  MPT_CHECK(!contents.empty() && first == model.layers, "stages hold {} of {} layers", first, model.layers);
  contents.back().has_head = true;
  return contents;
}

std::vector<int64_t> even_stages(int64_t layers, int64_t stages) {
  std::vector<int64_t> split(static_cast<size_t>(stages), layers / stages);
  const int64_t remainder = layers % stages;
  const int64_t begin = (stages - remainder) / 2;
  for (int64_t i = 0; i < remainder; ++i) ++split[static_cast<size_t>(begin + i)];
  return split;
}

std::optional<Rejection> check_layout(const ModelSpec& model, const Layout& layout,
                                      const Workload& workload) {
  const Divisibility rules[] = {
      {"heads", model.heads, "tensor", layout.tensor},
      {"key-value heads", model.kv_heads, "tensor", layout.tensor},
      {"MLP width", model.ffn_hidden, "tensor", layout.tensor},
      {"global batch", workload.global_batch, "data x micro_batch", layout.data * layout.micro_batch},
  };
  for (const Divisibility& rule : rules) {
    if (rule.amount % rule.by == 0) continue;
    return Rejection{
        "divides", -1, double(rule.by), double(rule.amount),
        fmt::format("{} {} does not divide by {} {}", rule.what, rule.amount, rule.by_what, rule.by)};
  }
  if (layout.stages() > 1 && layout.stages() > model.layers + 2) {
    return Rejection{"stages", -1, double(layout.stages()), double(model.layers),
                     fmt::format("{} stages for {} layers", layout.stages(), model.layers)};
  }
  return check_stages(model, layout);
}

std::string layout_name(const Layout& layout) {
  std::string name =
      fmt::format("tp{} pp{} dp{} mbs{}", layout.tensor, layout.pipeline, layout.data, layout.micro_batch);
  if (layout.pipeline > 1) name += " " + layout.schedule;
  if (layout.chunks > 1) name += fmt::format(" x{}", layout.chunks);
  if (layout.recompute != Recompute::none) name += " recompute=" + enum_name(layout.recompute);
  return name;
}

}  // namespace mpt
