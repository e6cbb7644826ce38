// SPDX-License-Identifier: Apache-2.0

// Modules of operators against their names, and what rules on modules touch, over all models of the zoo.

#include "models/module.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/layout.h"
#include "models/footprint.h"
#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

using Names = std::set<std::string>;

// Programs of every piece of a model, each kind of layer once.
std::vector<LayerProgram> pieces_of(const ModelSpec& model, const Layout& layout) {
  std::vector<LayerProgram> pieces{embedding_program(model, layout, 64), head_program(model, layout, 64),
                                   next_token_input_program(model, layout, 64, 0),
                                   next_token_head_program(model, layout, 64)};
  const LayerKinds kinds(model);
  for (size_t k = 0; k < kinds.size(); ++k) pieces.push_back(layer_program(model, kinds.kind(k), layout, 64));
  return pieces;
}

std::vector<ModelSpec> zoo() {
  std::vector<ModelSpec> models;
  for (const std::string& name : zoo_names()) models.push_back(load_model(name));
  return models;
}

// Names of the operators for which `holds` is true in some model.
template <class Holds>
Names names_where(const Layout& layout, Holds holds) {
  Names names;
  for (const ModelSpec& model : zoo()) {
    for (const LayerProgram& piece : pieces_of(model, layout)) {
      for (const Operator& op : piece.operators) {
        if (holds(op)) names.emplace(op.name);
      }
    }
  }
  return names;
}

Layout in_16_bits() {
  Layout layout;
  layout.precision = Precision::bf16;
  return layout;
}

Layout with_adapters(FrozenFormat format) {
  Layout layout = in_16_bits();
  layout.training.edit().adapter_rank = 8;
  for (const auto& [target, name] : EnumNames<AdapterTarget>::table())
    layout.training.edit().adapter_targets.push_back(target);
  layout.training.edit().frozen_format = format;
  return layout;
}

// One module for a name in all models, in the part that the name begins with.
TEST(Modules, AgreeWithTheNamesOfTheirOperators) {
  using P = FrozenPart;
  std::map<std::string, Module> module_of_name;
  for (const Layout& layout : {in_16_bits(), with_adapters(FrozenFormat::nf4)}) {
    for (const ModelSpec& model : zoo()) {
      for (const LayerProgram& piece : pieces_of(model, layout)) {
        for (const Operator& op : piece.operators) {
          const auto [known, is_new] = module_of_name.try_emplace(std::string(op.name), op.module);
          EXPECT_EQ(known->second, op.module) << op.name << " of " << model.name;
        }
      }
    }
  }
  EXPECT_GT(module_of_name.size(), 40u);
  for (const auto& [name, module] : module_of_name) {
    const std::string area = name.substr(0, name.find('.'));
    const auto part = rules_of(module).part;
    if (area == "attention" || area == "mixer") {
      EXPECT_EQ(part, P::mixers) << name;
    } else if (area == "mlp") {
      EXPECT_TRUE(part == P::mlps || part == P::experts) << name;
    } else if (area == "embedding" || name == "next_token.embedding") {
      EXPECT_EQ(part, P::embedding) << name;
    } else if (area == "head" || area == "next_token") {
      EXPECT_EQ(part, P::head) << name;
    } else {
      EXPECT_TRUE(area == "adapter" || area == "frozen") << name;
      EXPECT_FALSE(part) << name;
    }
  }
}

TEST(Modules, EveryAdapterTargetHasItsProducts) {
  const auto names = [](AdapterTarget target) {
    return names_where(in_16_bits(),
                       [&](const Operator& op) { return rules_of(op.module).adapter == target; });
  };
  EXPECT_EQ(names(AdapterTarget::qkv),
            (Names{"attention.key_value_down", "attention.key_value_up", "attention.qkv", "attention.query",
                   "attention.query_down", "attention.query_up", "mixer.input"}));
  EXPECT_EQ(names(AdapterTarget::output), (Names{"attention.output", "mixer.output"}));
  EXPECT_EQ(names(AdapterTarget::up), (Names{"mlp.shared.up", "mlp.up"}));
  EXPECT_EQ(names(AdapterTarget::down), (Names{"mlp.down", "mlp.shared.down"}));
  EXPECT_EQ(names(AdapterTarget::experts), (Names{"mlp.experts_down", "mlp.experts_up"}));
}

TEST(Modules, EveryOffloadModuleMovesItsOperators) {
  const std::map<OffloadModule, Names> expected{
      {OffloadModule::attn_norm, {"attention.norm"}},
      {OffloadModule::qkv_linear, {"attention.qkv", "attention.query", "attention.query_down"}},
      {OffloadModule::core_attn, {"attention.core"}},
      {OffloadModule::attn_proj, {"attention.output"}},
      {OffloadModule::mlp_norm, {"mlp.norm"}},
      {OffloadModule::expert_fc1, {"mlp.experts_up"}},
      {OffloadModule::moe_act, {"mlp.experts_activation"}}};
  for (const auto& [module, names] : expected) {
    Layout layout = in_16_bits();
    layout.training.edit().offloaded = {module};
    EXPECT_EQ(names_where(layout, [](const Operator& op) { return op.offloaded_bytes > 0; }), names)
        << enum_name(module);
  }
}

const Names kMixers{"attention.entries",
                    "attention.gate",
                    "attention.group_output",
                    "attention.key_value_down",
                    "attention.key_value_up",
                    "attention.output",
                    "attention.qkv",
                    "attention.query",
                    "attention.query_down",
                    "attention.query_up",
                    "attention.streams",
                    "mixer.gates_down",
                    "mixer.gates_up",
                    "mixer.input",
                    "mixer.output",
                    "mixer.states",
                    "mixer.steps"};

TEST(Modules, EveryFrozenPartHasItsProducts) {
  const std::map<FrozenPart, Names> expected{
      {FrozenPart::embedding, {"embedding.layer_projection"}},
      {FrozenPart::mixers, kMixers},
      {FrozenPart::mlps,
       {"mlp.down", "mlp.layer_gate", "mlp.layer_projection", "mlp.shared.down", "mlp.shared.up",
        "mlp.shared_gate", "mlp.streams", "mlp.up"}},
      {FrozenPart::experts,
       {"mlp.experts_down", "mlp.experts_up", "mlp.latent_down", "mlp.latent_up", "mlp.router"}},
      {FrozenPart::head,
       {"head.output", "head.streams", "next_token.embedding_projection", "next_token.output",
        "next_token.projection"}}};
  for (const auto& [part, names] : expected) {
    Layout layout = in_16_bits();
    layout.training.edit().frozen = {part};
    const auto is_frozen_product = [](const Operator& op) {
      const bool product =
          op.shape.kind == OperatorKind::linear || op.shape.kind == OperatorKind::expert_linear;
      return product && op.shape.frozen;
    };
    EXPECT_EQ(names_where(layout, is_frozen_product), names) << enum_name(part);
  }
}

// Weights of layers' products take 4 bits and a little; a router's, a norm's and the head's take 16.
TEST(Modules, QuantisersNarrowTheProductsOfLayersAlone) {
  const auto is_narrow_weight = [](const Operator& op) {
    return op.frozen_bytes > 0 && op.frozen_bytes < op.parameters;
  };
  Names expected{"mlp.down",      "mlp.experts_down", "mlp.experts_up",       "mlp.latent_down",
                 "mlp.latent_up", "mlp.layer_gate",   "mlp.layer_projection", "mlp.shared.down",
                 "mlp.shared.up", "mlp.shared_gate",  "mlp.streams",          "mlp.up"};
  expected.insert(kMixers.begin(), kMixers.end());
  EXPECT_EQ(names_where(with_adapters(FrozenFormat::nf4), is_narrow_weight), expected);
}

using Changed = std::pair<Names, Names>;  // run again, and dropped

// Beyond what is dropped whatever the modules are.
Changed changed_by(const std::vector<std::string>& modules, const Layout& base = in_16_bits()) {
  Layout layout = base, plain = base;
  set_recompute_modules(modules, layout.selective);
  plain.selective.core = false;
  const auto drops = [](const Operator& op) { return op.saved_bytes_selective < op.saved_bytes; };
  Names dropped = names_where(layout, drops);
  for (const std::string& name : names_where(plain, drops)) dropped.erase(name);
  return {names_where(layout, [](const Operator& op) { return op.selective_share > 0.0; }), dropped};
}

TEST(Modules, EveryRecomputeModuleTouchesItsOperators) {
  EXPECT_EQ(changed_by({"core_attn"}), (Changed{{"attention.core"}, {"attention.core", "attention.output"}}));
  EXPECT_EQ(changed_by({"layernorm"}), (Changed{{"attention.norm", "mlp.norm"},
                                                {"attention.query", "attention.query_down", "mlp.router"}}));
  EXPECT_EQ(
      changed_by({"mla_up_proj"}),
      (Changed{
          {"attention.key_value_norm", "attention.key_value_up", "attention.query",
           "attention.query_key_norm", "attention.query_norm", "attention.query_up", "attention.rotary"},
          {"attention.core", "attention.key_value_up", "attention.query_key_norm", "attention.query_up"}}));
  EXPECT_EQ(changed_by({"shared_experts"}),
            (Changed{{"mlp.shared.activation", "mlp.shared.down", "mlp.shared.up"},
                     {"mlp.shared.activation", "mlp.shared.down"}}));
  Layout of_megatron = in_16_bits();
  of_megatron.execution.edit().kept.keeps_whole_projection = false;
  EXPECT_EQ(changed_by({"gdn_norm_out"}, of_megatron), (Changed{{"mixer.norm"}, {"mixer.output"}}));
  EXPECT_EQ(changed_by({"mhc"}),
            (Changed{{"attention.mixture", "attention.streams", "mlp.mixture", "mlp.streams"},
                     {"attention.streams", "mlp.streams"}}));
  EXPECT_EQ(changed_by({"moe_act"}), (Changed{{"mlp.experts_activation"}, {"mlp.experts_down"}}));
  EXPECT_EQ(changed_by({"mlp"}),
            (Changed{{"mlp.activation", "mlp.down", "mlp.up"}, {"mlp.activation", "mlp.down"}}));
  Names again{"mlp.activation",
              "mlp.dense_post_norm",
              "mlp.down",
              "mlp.experts_activation",
              "mlp.experts_down",
              "mlp.experts_norm",
              "mlp.experts_post_norm",
              "mlp.experts_up",
              "mlp.latent_down",
              "mlp.latent_norm",
              "mlp.latent_up",
              "mlp.mixture",
              "mlp.router",
              "mlp.router_softmax",
              "mlp.shared.activation",
              "mlp.shared.down",
              "mlp.shared.up",
              "mlp.shared_gate",
              "mlp.streams",
              "mlp.up"};
  Names dropped = again;
  // The router's input stays, which latent and shared experts read, too.
  for (const char* name : {"mlp.router", "mlp.latent_down", "mlp.shared.up"}) dropped.erase(name);
  EXPECT_EQ(changed_by({"moe"}), (Changed{again, dropped}));
}

}  // namespace
}  // namespace mpt::models
