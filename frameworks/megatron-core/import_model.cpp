// SPDX-License-Identifier: Apache-2.0

// Models from Megatron-LM's flags: the rules that dialect.json cannot express.

#include "base/text.h"
#include "frameworks/dialects.h"
#include "frameworks/megatron-core/import.h"

namespace mpt::frameworks {
namespace {

// The tokenizer, unless it is GPT-2's, Megatron-LM's default. Files with only a model's flags often give its
// name on the Hugging Face hub.
std::string named_tokenizer(const MegatronFlags& f) {
  const std::string type = f.has("tokenizer-type") ? f.source("tokenizer-type") : "GPT2BPETokenizer";
  if (type == "GPT2BPETokenizer" || type == "NullTokenizer") return "";
  if (f.has("tokenizer-model")) return f.source("tokenizer-model");
  const std::string stem = std::filesystem::path(f.file()).stem().string();
  return vocabulary_of_tokenizer(stem) ? stem : type;
}

bool says_vocabulary(const MegatronFlags& f) { return f.has("vocab-size") || f.has("padded-vocab-size"); }

// Used if no flag states the vocabulary.
void set_vocabulary(const MegatronFlags& f, ModelSpec& m, std::vector<std::string>& notes) {
  if (says_vocabulary(f)) return;
  const std::string tokenizer = named_tokenizer(f);
  if (const auto known = vocabulary_of_tokenizer(tokenizer)) {
    m.vocab = *known;
    notes.push_back(
        fmt::format("no --vocab-size: {} tokens are taken, as {} has", *known, cut_text(tokenizer, 60)));
    return;
  }
  notes.push_back(
      fmt::format("no --vocab-size: the tokenizer{} decides, GPT-2's 50257 tokens are taken here; add "
                  "--vocab-size to a copy of the file, or name the model with --model",
                  tokenizer.empty() ? "" : " " + std::string(cut_text(tokenizer, 60))));
}

// Notes on router flags without a place in a model.
void add_router_notes(const MegatronFlags& f, std::vector<std::string>& notes) {
  if (f.text("moe-router-score-function", "") == "sqrtsoftplus")
    notes.emplace_back("--moe-router-score-function sqrtsoftplus is taken as sigmoid");
  if (f.texts("moe-router-load-balancing-type").size() > 1)
    notes.emplace_back("--moe-router-load-balancing-type: the first of several is read");
}

}  // namespace

std::optional<int64_t> vocabulary_of_tokenizer(const std::string& tokenizer) {
  const size_t end = tokenizer.find_last_not_of('/');
  if (end == std::string::npos) return std::nullopt;
  std::string name = lower_case(tokenizer.substr(0, end + 1));
  name = name.substr(name.rfind('/') + 1);
  // The longest matching name is the last one.
  std::optional<int64_t> size;
  for (const auto& [begins, vocabulary] : dialect_of("megatron-core").vocabularies)
    if (name.starts_with(begins)) size = vocabulary;
  return size;
}

std::string open_vocabulary(const MegatronFlags& f) {
  if (says_vocabulary(f)) return "";
  const std::string tokenizer = named_tokenizer(f);
  return vocabulary_of_tokenizer(tokenizer) ? "" : tokenizer;
}

ModelSpec megatron_model(const MegatronFlags& f, const std::string& framework,
                         std::vector<std::string>& notes) {
  const models::Dialect& dialect = dialect_of(framework);
  // Models that ModelSpec cannot describe, and trainings with other work in them.
  for (const std::string& name : dialect.refused)
    if (f.has(name)) throw NotJudged(f.at(name), f.source(name), "one decoder's training");
  ModelSpec m = models::model_of(models::read(dialect, f));
  m.name = "imported";
  set_vocabulary(f, m, notes);
  if (m.moe() != nullptr) add_router_notes(f, notes);
  return m;
}

}  // namespace mpt::frameworks
