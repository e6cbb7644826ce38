// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/adapter_modules.h"

#include "frameworks/export.h"

namespace mpt::frameworks {

bool conditions_hold(const std::string& condition, const std::set<std::string>& conditions) {
  return all_of(split_at(condition, ' '), [&](const std::string& part) {
    return part.starts_with('!') ? !conditions.contains(part.substr(1)) : conditions.contains(part);
  });
}

namespace {

// The parts of a layer, as conditions of the table name them.
std::set<std::string> parts_of(const LayerKind& kind, bool fused) {
  const bool latent = kind.attention && kind.attention->latent;
  const bool compressed = kind.attention && kind.attention->compressed;
  const bool shared = kind.moe && kind.moe->shared_ffn_hidden > 0;
  const std::pair<bool, const char*> all[] = {
      {true, fused ? "fused" : "apart"},
      {kind.attention.has_value(), "attention"},
      {kind.attention && !latent && !compressed, "heads"},
      {latent, latent && kind.attention->latent->query_rank > 0 ? "latent_ranks" : "latent_whole"},
      {latent, "latent"},
      {compressed, "compressed"},
      {kind.linear.has_value(), "linear"},
      {kind.convolution.has_value(), "convolution"},
      {kind.mlp.has_value(), "mlp"},
      {kind.mlp.has_value(), kind.mlp && kind.mlp->gated ? "gated_mlp" : "plain_mlp"},
      {kind.moe.has_value(), "experts"},
      {shared, "shared"},
      {shared, shared && kind.moe->expert.gated ? "gated_shared" : "plain_shared"}};
  std::set<std::string> parts;
  for (const auto& [holds, name] : all)
    if (holds) parts.insert(name);
  return parts;
}

const Json& tables() {
  static const Json all = parse_json(template_text("adapter_modules.json"), "adapter_modules.json");
  return all;
}

AdapterModules modules_of(const ModelSpec& model, const char* framework, bool fused) {
  const Json& types = tables().at(framework);
  AdapterModules modules;
  for (int64_t l = 0; l < model.layers.count(); ++l) {
    const std::set<std::string> parts = parts_of(model.layers[l], fused);
    for (const Json& row : types.at(types.contains(model.type) ? model.type : "any")) {
      if (!conditions_hold(row.at(0), parts)) continue;
      const auto target = row.at(1).is_null() ? std::nullopt : enum_value<AdapterTarget>(row.at(1));
      for (const Json& name : row.at(2))
        modules.emplace_back(fmt::format(fmt::runtime(name.get<std::string>()), l), target);
    }
  }
  return modules;
}

// Blanks and the signs of regular expressions other than "." and "*".
bool is_plain(std::string_view pattern) {
  return pattern.find_first_of("?[](){}+|\\^$ ") == std::string_view::npos;
}

// "*" matches any text. If the rest does not match, the last "*" takes one more letter.
bool fits(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// ".*" is the same as "*" there.
std::string without_dots(std::string_view pattern) {
  std::string plain;
  for (const char c : pattern) {
    if (c == '*' && !plain.empty() && plain.back() == '.') plain.pop_back();
    plain += c;
  }
  return plain;
}

// One letter, class or group of a regular expression, with its "?" or repetition.
std::vector<std::string> wildcards_of_part(std::string_view& rest);

// The wildcards that match the same names as a regular expression, up to the ")" of its group. Classes and
// repetitions become "*". None for an expression with too many.
std::vector<std::string> wildcards_of(std::string_view& rest) {
  constexpr size_t most = 500;
  std::vector<std::string> all, now{""};
  while (!rest.empty() && rest.front() != ')') {
    if (rest.front() == '|') {
      rest.remove_prefix(1);
      all.insert(all.end(), now.begin(), now.end());
      now = {""};
      continue;
    }
    std::vector<std::string> longer;
    for (const std::string& end : wildcards_of_part(rest)) {
      for (const std::string& begin : now) longer.push_back(begin + end);
      if (all.size() + longer.size() > most) return {};
    }
    now = std::move(longer);
  }
  all.insert(all.end(), now.begin(), now.end());
  return all;
}

std::vector<std::string> wildcards_of_part(std::string_view& rest) {
  const auto take = [&](size_t letters) { rest.remove_prefix(std::min(letters, rest.size())); };
  const char c = rest.front();
  std::vector<std::string> part{c == '^' || c == '$' ? "" : std::string(1, c)};
  take(1);
  if (c == '(') {
    if (rest.starts_with("?:")) take(2);
    part = wildcards_of(rest);
    take(1);
  } else if (c == '[') {
    take(std::min(rest.find(']'), rest.size()) + 1);
    part = {"*"};
  } else if (c == '\\' && !rest.empty()) {
    part = {rest.front() == 'd' || rest.front() == 'w' ? "*" : std::string(1, rest.front())};
    take(1);
  }
  if (rest.starts_with('?')) part.emplace_back();
  if (rest.starts_with('*') || rest.starts_with('+')) part = {"*"};
  if (rest.starts_with('?') || rest.starts_with('*') || rest.starts_with('+')) take(1);
  return part;
}

// The model of `in`. If it is not known yet: models that together have all module names. Excluded names say
// nothing of a type, so then they have the usual names.
std::vector<ModelSpec> models_of(const Imported& in, bool excludes) {
  if (in.model) return {*in.model};
  ModelSpec plain, latent;
  LayerKind kind;
  kind.attention = Attention{};
  kind.mlp = Mlp{.gated = true};
  plain.layers = LayerList(1, kind);
  kind.attention->latent = LatentAttention{.query_rank = 1};
  kind.moe = MixtureOfExperts{.expert = *kind.mlp, .shared_ffn_hidden = 1};
  latent.layers = LayerList(1, kind);
  std::vector<ModelSpec> all{plain, latent};
  for (const auto& [type, rows] : tables().at("hugging_face").items()) all.emplace_back(plain).type = type;
  if (excludes) all.resize(2);
  return all;
}

}  // namespace

AdapterModules hugging_face_modules(const ModelSpec& model, bool fused) {
  return modules_of(model, "hugging_face", fused);
}

AdapterModules megatron_modules(const ModelSpec& model) { return modules_of(model, "megatron", false); }

bool matches_module(std::string_view pattern, std::string_view name) {
  return name.substr(name.rfind('.') + 1) == pattern ||
         (is_plain(pattern) && fits(without_dots(pattern), name));
}

std::vector<std::string> wildcards_of_peft(const std::vector<std::string>& names, const Json& spellings) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    std::string_view rest = std::string_view(name).substr(0, 1000);
    std::vector<std::string> patterns{name};
    if (!is_plain(name)) patterns = wildcards_of(rest);
    for (std::string& pattern : patterns) {
      for (const auto& [theirs, ours] : spellings.items())
        if (pattern.starts_with(theirs)) pattern.replace(0, theirs.size(), ours.get<std::string>());
      const bool is_end = is_plain(name) && pattern.find_first_of(".*") < pattern.size();
      all.push_back(is_end ? "*." + pattern : pattern);
    }
  }
  return all;
}

AdapterMatch match_adapters(const AdapterModules& modules, const std::vector<std::string>& patterns,
                            bool excludes) {
  AdapterMatch match;
  for (const auto& [target, target_name] : EnumNames<AdapterTarget>::table()) {
    int64_t all = 0, got = 0;
    for (const auto& [name, of] : modules) {
      if (of != target) continue;
      const bool named =
          any_of(patterns, [&, &module = name](const std::string& p) { return matches_module(p, module); });
      ++all;
      got += named != excludes ? 1 : 0;
    }
    if (got > 0) match.targets.push_back(target);
    if (got > 0 && got < all) match.partly.push_back(target);
  }
  return match;
}

AdapterMatch match_recipe(const Imported& in, NamesOf names, const std::vector<std::string>& patterns,
                          bool excludes) {
  AdapterMatch best;
  for (const ModelSpec& model : models_of(in, excludes))
    for (const bool fused : {false, true}) {
      AdapterModules modules = names(model, fused);
      if (excludes)
        std::erase_if(modules, [](const auto& module) { return module.second == AdapterTarget::experts; });
      AdapterMatch match = match_adapters(modules, patterns, excludes);
      if (match.targets.size() > best.targets.size()) best = std::move(match);
    }
  if (!in.model) best.partly.clear();
  return best;
}

// FSDP2 cannot shard weights of integer types: accelerate 1.15.0 leaves them out
// (accelerate/utils/fsdp_utils.py).
void set_weights_in_4_bits(const Settings& recipe, const std::string& section, Imported& in) {
  in.layout.training.edit().frozen_format = FrozenFormat::nf4;
  const std::string storage = section + ".bnb_4bit_quant_storage";
  if (!recipe.flag("double_quantization", recipe.flag(section + ".bnb_4bit_use_double_quant", true)))
    in.execution.emplace_back("nested_scales=false");
  const std::string type = recipe.text(storage, "bfloat16");
  if (in.layout.zero < 2 || in.framework == "transformers-deepspeed" || type.find("float") < type.size())
    return;
  refuse_input(recipe.at(storage), fmt::format("\"{}\"", cut_text(type, 40)),
               "bfloat16: FSDP leaves 4-bit weights of another type whole on each GPU", "set it to bfloat16");
}

void set_adapter_targets(const AdapterMatch& match, const std::vector<std::string>& patterns,
                         const std::string& place, Imported& in) {
  if (match.targets.empty())
    refuse_input(place,
                 fmt::format("adapters on {}, which no linear layer of this decoder is",
                             cut_text(joined(patterns, ", "), 60)),
                 "names or patterns of layers, where * stands for anything",
                 "correct the patterns, or remove the adapters in a copy of the file to price full training");
  in.layout.training.edit().adapter_targets = match.targets;
  for (const AdapterTarget target : match.partly)
    in.notes.push_back(fmt::format("adapters on a part of {}: priced as on all of it", enum_name(target)));
}

}  // namespace mpt::frameworks
