// SPDX-License-Identifier: Apache-2.0
#pragma once

// Family: the meaning of a type of Hugging Face's config.json: keys of values, defaults of absent keys, kinds
// of layers, names of weights. The table is models/dialects/hugging_face.json. It is read and written; of
// several keys the first is written. Functions of family_code.cpp handle the exceptions.

#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "models/values.h"

namespace mpt::models {

/// Which layers are of which kind. The first that the file has decides: a list with an entry for each layer,
/// a list of layers, a period, a first and a last layer.
struct LayerRule {
  std::vector<std::string> list;             // keys of lists with a word or number for each layer
  std::map<std::string, std::string> words;  // what such an entry means
  std::vector<std::string> indices;          // keys of lists of layers, counted from 0, that are `at_indices`
  std::vector<std::string> indices_from_one;  // the same, counted from 1
  std::vector<std::string> except;            // keys of lists of layers that are the other kind
  std::vector<std::string> numbers_in_text;   // keys of texts with layers, "3,4,5"
  std::string at_indices;
  std::vector<std::string> every;  // keys of the period: the last of every n layers is `at_period`
  int64_t period = 0;
  std::string at_period;
  std::vector<std::string> from, until;  // keys of the first and the last layer of the kind; until -1: all
  std::vector<std::string> interval, modulo;  // of layers behind `from`: the last of every n; those n divides
  std::vector<std::string> condition;         // keys of which one must be true: else no rule holds
  std::string others;                         // the kind of all other layers
  bool numbers = false;                       // of entries that mean the same, numbers are written
  bool from_top = false;                      // layers are counted from the last
  bool longer = false;                        // the list may go on behind the last layer

  static void describe(auto& v) {
    using T = LayerRule;
    const FieldRule rare = rare_field();
    v.field("list", &T::list, "keys of lists with an entry for each layer", rare);
    v.field("words", &T::words, "what such an entry means: a word for layers", rare);
    v.field("indices", &T::indices, "keys of lists of layers, counted from 0", rare);
    v.field("indices_from_one", &T::indices_from_one, "the same, counted from 1", rare);
    v.field("except", &T::except, "keys of lists of layers that are the other kind", rare);
    v.field("numbers_in_text", &T::numbers_in_text, "keys of texts with layers", rare);
    v.field("at_indices", &T::at_indices, "kind of the layers of such lists", rare);
    v.field("every", &T::every, "keys of the period", rare);
    v.field("period", &T::period, "the period, where the file does not say it", rare_field(between(0, 1000)));
    v.field("at_period", &T::at_period, "kind of the last layer of each period", rare);
    v.field("from", &T::from, "keys of the first layer of the kind", rare);
    v.field("until", &T::until, "keys of its last layer; -1: the last of all", rare);
    v.field("interval", &T::interval, "keys of n: the last of every n layers behind the first", rare);
    v.field("modulo", &T::modulo, "keys of n: layers that n divides", rare);
    v.field("if", &T::condition, "keys of which one must be true", rare);
    v.field("others", &T::others, "kind of all other layers", rare);
    v.field("numbers", &T::numbers, "of entries that mean the same, numbers are written", rare);
    v.field("from_top", &T::from_top, "layers are counted from the last", rare);
    v.field("longer", &T::longer, "the list may go on behind the last layer", rare);
  }
};

/// Names of the tensors of layers: Llama's, or GPT-2's.
enum class LayerTensorNames { llama, gpt2 };
/// mlp: each expert's three under "mlp.experts.". mixtral: under "block_sparse_moe.". fused: one for all.
enum class ExpertTensors { mlp, mixtral, fused };
/// layer: a further layer's number, with copies of the table and the head (DeepSeek-V3). mtp: the prefix
/// "mtp." (Qwen3-Next and Qwen3.5, NVIDIA-NeMo/Automodel, models/qwen3_5/state_dict_adapter.py).
enum class ModuleTensors { layer, mtp };

struct WeightNames {
  LayerTensorNames layers = LayerTensorNames::llama;
  ExpertTensors experts = ExpertTensors::mlp;
  ModuleTensors modules = ModuleTensors::layer;
  bool norms_add_one = false;        // norms multiply by 1 + weight
  bool fused_linear_inputs = false;  // Gated DeltaNet's inputs are two tensors, not four

  static void describe(auto& v) {
    using T = WeightNames;
    const FieldRule rare = rare_field();
    v.field("layers", &T::layers, "names of a layer's tensors", rare);
    v.field("experts", &T::experts, "names of experts' tensors", rare);
    v.field("modules", &T::modules, "names of next-token modules' tensors", rare);
    v.field("norms_add_one", &T::norms_add_one, "norms multiply by 1 + weight", rare);
    v.field("fused_linear_inputs", &T::fused_linear_inputs, "Gated DeltaNet's inputs are two tensors", rare);
  }
};

struct Family {
  std::string like;                                // the type that this one inherits from
  std::string code;                                // functions of family_code.cpp that run last
  std::string architecture;                        // class of a model with a head; empty: inherited
  std::map<Value, std::vector<std::string>> keys;  // paths in the file; the first counts, and is written
  std::map<Value, double> numbers;                 // values where the file has none of these keys
  std::map<Value, std::string> words;
  std::map<std::string, double> also;         // further keys that the class needs
  std::map<std::string, std::string> refuse;  // keys that must not be true (!key: false), and why
  int64_t least_vocab = 0;                    // vocabulary that holds the class's default tokens
  LayerRule mixers, experts;
  std::optional<WeightNames> weights;  // nothing: unknown names; not inherited
  std::string source;

  bool has_keys(Value value) const {
    const auto found = keys.find(value);
    return found != keys.end() && !found->second.empty();
  }

  static void describe(auto& v) {
    using T = Family;
    v.field("like", &T::like, "type that it is like", rare_field());
    v.field("code", &T::code, "pair of functions that has the last word", rare_field());
    v.field("architecture", &T::architecture, "class of a model with a head", rare_field());
    v.field("keys", &T::keys, "paths in the file, by the name of a value; the first is written",
            rare_field());
    v.field("numbers", &T::numbers, "what these values are where the file has no such key", rare_field());
    v.field("words", &T::words, "the same for values that are words", rare_field());
    v.field("also", &T::also, "further keys that are written, with their numbers; not inherited",
            rare_field());
    v.field("refuse", &T::refuse, "keys that must not be true (!key: false), and what such a model has",
            rare_field());
    v.field("least_vocab", &T::least_vocab,
            "smallest vocabulary with the tokens that the class names; not inherited",
            rare_field(between(0, 1 << 28)));
    v.field("mixers", &T::mixers, "which layers have which mixer; inherited as a whole", rare_field());
    v.field("experts", &T::experts, "which layers have experts; inherited as a whole", rare_field());
    v.field("weights", &T::weights, "names of weights, where mpt-run reads them; not inherited",
            optional_field());
    v.field("source", &T::source, "where this is from", rare_field(long_text()));
  }
};

struct FamilyTable {
  std::map<std::string, Family> families;  // with all that they inherit
  std::vector<std::string> types;          // in the order of the table
};
/// Throws UserError: of unknown keys and forms first, of words and rules without effect then.
FamilyTable read_families(const std::string& text);
/// The family of `type` with all that it inherits; null: the table has no such type.
const Family* find_family(const std::string& type);
/// In the order of the table.
const std::vector<std::string>& family_types();
/// Allowed words of the value, in rules for layers, too; empty: it takes no words.
std::vector<std::string> known_words(Value value);
/// Names of activations in config.json, the preferred one first.
struct ActivationName {
  const char* name;
  ActivationKind kind;
};
const std::vector<ActivationName>& activation_names();

}  // namespace mpt::models
