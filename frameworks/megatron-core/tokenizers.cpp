// SPDX-License-Identifier: Apache-2.0

// vocab_size in the config.json of the models that these tokenizers come with.

#include "frameworks/megatron-core/tokenizers.h"

#include <algorithm>
#include <cctype>

namespace mpt::frameworks {
namespace {

struct TokenizerVocabulary {
  const char* begins;  // the name behind the owner's, in small letters
  int64_t size;
};

// The first that fits holds: longer names stand before shorter ones.
constexpr TokenizerVocabulary kTokenizers[] = {
    {"deepseek-moe-16b", 102400},
    {"deepseek-r1-distill-llama", 128256},
    {"deepseek-r1-distill-qwen-1.5b", 151936},
    {"deepseek-r1-distill-qwen", 152064},
    {"deepseek-r1", 129280},
    {"deepseek-v2", 102400},
    {"deepseek-v3", 129280},
    {"gemma-2b", 256000},
    {"gemma-7b", 256000},
    {"gemma-2-", 256000},
    {"gpt-oss-", 201088},
    {"gpt2", 50257},
    {"kimi-k2", 163840},
    {"llama-2-", 32000},
    {"llama-3", 128256},
    {"meta-llama-3", 128256},
    {"llama-4-", 202048},
    {"mistral-7b-v0.1", 32000},
    {"mistral-7b-instruct-v0.1", 32000},
    {"mistral-7b-instruct-v0.2", 32000},
    {"mixtral-8x7b", 32000},
    {"moonlight-16b", 163840},
    {"nemotron-mini-4b", 256000},
    {"qwen2.5-math-1.5b", 151936},
    {"qwen2.5-0.5b", 151936},
    {"qwen2.5-1.5b", 151936},
    {"qwen2.5-3b", 151936},
    {"qwen2.5-", 152064},
    {"qwen2-0.5b", 151936},
    {"qwen2-1.5b", 151936},
    {"qwen2-", 152064},
    {"qwen3-", 151936},
};

}  // namespace

std::optional<int64_t> vocabulary_of_tokenizer(const std::string& tokenizer) {
  const size_t end = tokenizer.find_last_not_of('/');
  if (end == std::string::npos) return std::nullopt;
  std::string name = tokenizer.substr(0, end + 1);
  name = name.substr(name.find_last_of('/') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  for (const TokenizerVocabulary& known : kTokenizers) {
    if (name.starts_with(known.begins)) return known.size;
  }
  return std::nullopt;
}

}  // namespace mpt::frameworks
