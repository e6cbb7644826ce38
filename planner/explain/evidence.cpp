// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include "base/json.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& evidence_files();  // generated

namespace {

struct EvidenceFile {
#include "generated/EvidenceFile.inc"
};

const EvidenceFile& built_in() {
  const auto& [file, text] = evidence_files().front();
  const std::string name(file);
  static const auto read = from_json<EvidenceFile>(parse_json(std::string(text), name), name);
  return read;
}

using Has = bool (*)(const LayerKind&);
constexpr std::pair<const char*, Has> kLayers[] = {
    {RunKind::kExperts, [](const LayerKind& l) { return l.moe.has_value(); }},
    {"latent attention", [](const LayerKind& l) { return l.attention && l.attention->latent; }},
    {"attention windows",
     [](const LayerKind& l) { return l.attention && (l.attention->window || l.attention->chunk); }},
    {"an index of attention", [](const LayerKind& l) { return l.attention && l.attention->index; }},
    {"compressed attention", [](const LayerKind& l) { return l.attention && l.attention->compressed; }},
    {"linear mixers", [](const LayerKind& l) { return l.linear.has_value(); }},
    {"short convolutions", [](const LayerKind& l) { return l.convolution.has_value(); }}};

}  // namespace

const std::vector<Evidence>& published_evidence() { return built_in().runs; }

const std::vector<NewKind>& new_kind_deviations() { return built_in().new_kinds; }

RunKind kind_of(const ModelSpec& model, const std::string& by, Precision precision, const Training& t) {
  RunKind kind{by};
  const auto& layers = model.layers.kinds;
  for (const auto& [name, has] : kLayers)
    if (any_of(layers, [has = has](const auto& named) { return has(named.second); }))
      kind.layers.emplace_back(name);
  if (precision != Precision::bf16 && precision != Precision::fp16) kind.precision = {enum_name(precision)};
  if (t.adapts()) kind.training = {t.frozen_format == FrozenFormat::bf16 ? "LoRA" : "QLoRA"};
  if (!t.adapts() && !t.frozen.empty()) kind.training = {"frozen parts"};
  return kind;
}

RunKind kind_of(const ModelSpec& model, const Layout& layout) {
  return kind_of(model, layout.execution->framework, layout.precision, layout.training);
}

}  // namespace mpt::planner
