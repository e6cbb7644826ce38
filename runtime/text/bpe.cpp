// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/bpe.h"

#include <queue>

#include "base/ranges.h"
#include "base/text.h"
#include "runtime/text/tokenizer_json.h"

namespace mpt::runtime {
namespace {

constexpr size_t kMostWords = size_t{1} << 15, kMostWordBytes = 256;  // that a thread remembers

uint64_t key_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

struct Candidate {
  int32_t rank, position, id;
  auto operator<=>(const Candidate&) const = default;
};

}  // namespace

struct Bpe::Symbol {
  int32_t id, previous, next;  // the last two are positions in the word; -1: none
  bool merged = false;         // into the symbol before it
};

Bpe::Bpe(JsonPart& model, bool byte_level)
    : byte_level_(byte_level),
      byte_fallback_(model.get<bool>("byte_fallback", false)),
      ignore_merges_(model.get<bool>("ignore_merges", false)) {
  // Old files name no type: byte-pair encoding has merges.
  if (model.get<std::string>("type", "BPE") != "BPE") model.refuse("type");
  model.expect("dropout", 0.0);
  model.expect("continuing_subword_prefix", "");
  model.expect("end_of_word_suffix", "");
  model.value("fuse_unk");  // of unknown characters, which read_vocabulary() refuses
  read_vocabulary(model);
  read_merges(model);
  model.finish();
}

void Bpe::read_vocabulary(JsonPart& model) {
  for (const auto& [token, id] : model.get<Json::object_t>("vocab")) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= uint64_t{1} << 31)
      refuse_part(model.where("vocab/" + detail::escape_pointer(token)), detail::describe_json(id));
    vocabulary_[token] = id.get<int32_t>();
  }
  // GPT-2's letters for bytes: printable bytes are their own letters, the others follow from U+0100.
  int32_t next = 0x100;
  size_t known = 0;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int32_t code = printable ? byte : next++;
    std::string& letter = letters_[size_t(byte)];
    if (!byte_level_)
      letter = fmt::format("<0x{:02X}>", byte);
    else if (code < 0x80)
      letter = char(code);
    else
      letter = {char(0xc0 | code >> 6), char(0x80 | (code & 0x3f))};
    byte_of_[letter] = char(byte);
    known += vocabulary_.count(letter);
  }
  if (!byte_level_) byte_of_["\u2581"] = ' ';  // the mark of SentencePiece
  const bool knows_all = known == 256 && (byte_level_ || byte_fallback_);
  const bool has_unknown = !model.value("unk_token").is_null() || byte_fallback_;
  if (has_unknown && !knows_all)
    refuse_part(model.where("unk_token"), "a vocabulary that lacks bytes, so that text has unknown tokens");
}

// Merges are texts, "a b", or pairs: both are current.
void Bpe::read_merges(JsonPart& model) {
  const auto merges = model.get<Json::array_t>("merges");
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Json& merge = merges[rank];
    std::vector<std::string> parts;
    if (merge.is_string()) parts = split_at(merge.get<std::string>(), ' ');
    for (size_t i = 0; merge.is_array() && i < merge.size(); ++i)
      parts.push_back(merge[i].is_string() ? merge[i].get<std::string>() : "");
    parts.push_back(parts.size() == 2 ? parts[0] + parts[1] : "");
    std::vector<int32_t> ids;
    for (const std::string& part : parts) {
      const auto found = vocabulary_.find(part);
      if (found != vocabulary_.end() && !part.empty()) ids.push_back(found->second);
    }
    if (parts.size() != 3 || ids.size() != 3)
      refuse_part(model.where(fmt::format("merges/{}", rank)),
                  detail::describe_json(merge) + ", which is no pair of tokens that make a third");
    merges_.insert_or_assign(key_of(ids[0], ids[1]), Merge{int32_t(rank), ids[2]});
  }
}

void Bpe::encode(std::string_view word, TokenOutput& out) const {
  const auto found = out.words.find(word);
  const std::vector<int32_t> tokens = found == out.words.end() ? tokens_of(word) : found->second;
  out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
  if (found == out.words.end() && out.words.size() < kMostWords && word.size() <= kMostWordBytes)
    out.words.emplace(word, tokens);
}

std::vector<int32_t> Bpe::tokens_of(std::string_view word) const {
  std::string text;
  for (const char byte : word) byte_level_ ? text += letters_[uint8_t(byte)] : text += byte;
  const auto whole = ignore_merges_ ? vocabulary_.find(text) : vocabulary_.end();
  if (whole != vocabulary_.end()) return {whole->second};
  std::vector<Symbol> symbols;
  const auto add = [&](std::string_view token) {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) return false;
    const auto position = int32_t(symbols.size());
    symbols.push_back({found->second, position - 1, position + 1});
    return true;
  };
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view character = rest.substr(0, first_character(rest).bytes);
    rest.remove_prefix(character.size());
    if (add(character) || !byte_fallback_ || byte_level_) continue;
    for (const char byte : character) add(letters_[uint8_t(byte)]);
  }
  merge(symbols);
  std::vector<int32_t> tokens;
  for (const Symbol& symbol : symbols)
    if (!symbol.merged) tokens.push_back(symbol.id);
  return tokens;
}

void Bpe::merge(std::vector<Symbol>& symbols) const {
  if (symbols.empty()) return;
  symbols.back().next = -1;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto merge_at = [&](int32_t position) {
    const int32_t next = position < 0 ? -1 : symbols[size_t(position)].next;
    if (next < 0) return merges_.end();
    return merges_.find(key_of(symbols[size_t(position)].id, symbols[size_t(next)].id));
  };
  const auto consider = [&](int32_t position) {
    const auto found = merge_at(position);
    if (found != merges_.end()) candidates.push({found->second.rank, position, found->second.id});
  };
  for (int32_t i = 0; i < int32_t(symbols.size()); ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[size_t(best.position)];
    const auto still = left.merged ? merges_.end() : merge_at(best.position);
    if (still == merges_.end() || still->second.id != best.id) continue;
    Symbol& right = symbols[size_t(left.next)];
    left.id = best.id;
    left.next = right.next;
    right.merged = true;
    if (left.next >= 0) symbols[size_t(left.next)].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
}

std::string Bpe::bytes_of(const std::string& token) const {
  if (const char* whole = find_value(byte_of_, token)) return {*whole};
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const std::string_view letter = rest.substr(0, first_character(rest).bytes);
    rest.remove_prefix(letter.size());
    const auto byte = byte_of_.find(letter);
    bytes += byte == byte_of_.end() ? letter : std::string_view(&byte->second, 1);
  }
  return bytes;
}

}  // namespace mpt::runtime
