// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/bpe.h"

#include <queue>

#include "base/ranges.h"
#include "base/text.h"
#include "runtime/text/tokenizer_json.h"

namespace mpt::runtime {
namespace {

constexpr size_t kMostWords = size_t{1} << 15, kMostWordBytes = 256;  // that a thread remembers
constexpr size_t kJoins = size_t{1} << 20;

uint64_t key_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

size_t place_of(int32_t left, int32_t right) { return key_of(left, right) * 0x9e3779b97f4a7c15 >> 44; }

int32_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (uint8_t(text[at]) & 0xc0) == 0x80) --at;
  return first_character(text.substr(at)).code;
}

}  // namespace

struct Bpe::Symbol {
  int32_t id, previous, next;  // the last two are positions in the word; -1: none
  Merge merge{};               // with the next
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
    const auto found = vocabulary_.find(letter);
    known += found != vocabulary_.end();
    letter_ids_[size_t(byte)] = found == vocabulary_.end() ? -1 : found->second;
  }
  if (!byte_level_) byte_of_["\u2581"] = ' ';  // the mark of SentencePiece
  const bool knows_all = known == 256 && (byte_level_ || byte_fallback_);
  if ((!model.value("unk_token").is_null() || byte_fallback_) && !knows_all)
    refuse_part(model.where("unk_token"), "a vocabulary that lacks bytes, so that text has unknown tokens");
}

// Merges are texts, "a b", or pairs: both are current.
void Bpe::read_merges(JsonPart& model) {
  const auto merges = model.get<Json::array_t>("merges");
  // A character that is no token vanishes, and a whole word may be a token: then all of a word counts.
  bool may_cut = byte_fallback_ && !byte_level_ && !ignore_merges_;
  if (may_cut) joins_.resize(kJoins);
  pairs_.resize(kJoins);
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
    pairs_[place_of(ids[0], ids[1])] = true;
    merges_.insert_or_assign(key_of(ids[0], ids[1]), Merge{uint32_t(rank), ids[2]});
    // Tokens of bytes stand for parts of characters.
    for (const std::string& part : parts) may_cut &= part.front() != '<' || !byte_of_.contains(part);
    if (may_cut) joins_[place_of(last_character(parts[0]), first_character(parts[1]).code)] = true;
  }
  if (!may_cut) joins_.clear();
}

// A merge across the place between two characters needs a pair whose parts end and begin with them. Where no
// pair does, the parts of a word have the tokens that they have alone. Without a pre-tokenizer a word is a
// whole document.
void Bpe::encode(std::string_view word, TokenOutput& out) const {
  if (joins_.empty()) return encode_piece(word, out);
  size_t begin = 0;
  int32_t last = -1;
  for (size_t at = 0; at < word.size();) {
    const auto [code, bytes] = first_character(word.substr(at));
    if (at > begin && !joins_[place_of(last, code)]) {
      encode_piece(word.substr(begin, at - begin), out);
      begin = at;
    }
    at += bytes;
    last = code;
  }
  encode_piece(word.substr(begin), out);
}

void Bpe::encode_piece(std::string_view word, TokenOutput& out) const {
  if (const auto found = out.words.find(word); found != out.words.end()) {
    out.tokens.insert(out.tokens.end(), found->second.begin(), found->second.end());
    return;
  }
  const size_t before = out.tokens.size();
  append_tokens(word, out);
  if (out.words.size() < kMostWords && word.size() <= kMostWordBytes)
    out.words.emplace(word, std::vector<int32_t>(out.tokens.begin() + ptrdiff_t(before), out.tokens.end()));
}

void Bpe::append_tokens(std::string_view word, TokenOutput& out) const {
  if (ignore_merges_) {
    std::string text;
    for (const char byte : word) byte_level_ ? text += letters_[uint8_t(byte)] : text += byte;
    const auto whole = vocabulary_.find(text);
    if (whole != vocabulary_.end()) return out.tokens.push_back(whole->second);
  }
  std::vector<Symbol> symbols;
  const auto add = [&](int32_t id) {
    const auto position = int32_t(symbols.size());
    if (id >= 0) symbols.push_back({id, position - 1, position + 1});
  };
  for (std::string_view rest = word; !rest.empty();) {
    const std::string_view character = rest.substr(0, byte_level_ ? 1 : first_character(rest).bytes);
    rest.remove_prefix(character.size());
    const auto found = byte_level_ ? vocabulary_.end() : vocabulary_.find(character);
    if (found != vocabulary_.end())
      add(found->second);
    else if (byte_level_ || byte_fallback_)
      for (const char byte : character) add(letter_ids_[uint8_t(byte)]);
  }
  if (symbols.empty()) return;
  merge(symbols);
  for (int32_t i = 0; i >= 0; i = symbols[size_t(i)].next) out.tokens.push_back(symbols[size_t(i)].id);
}

void Bpe::merge(std::vector<Symbol>& symbols) const {
  symbols.back().next = -1;
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue;  // rank << 32 | position
  const auto consider = [&](int32_t position) {
    Symbol& left = symbols[size_t(position)];
    const int32_t right = left.next < 0 ? -1 : symbols[size_t(left.next)].id;
    const bool may = right >= 0 && pairs_[place_of(left.id, right)];
    const auto found = may ? merges_.find(key_of(left.id, right)) : merges_.end();
    left.merge = found == merges_.end() ? Merge() : found->second;
    if (found != merges_.end()) queue.push(uint64_t(left.merge.rank) << 32 | uint64_t(position));
  };
  for (int32_t i = 0; i < int32_t(symbols.size()); ++i) consider(i);
  while (!queue.empty()) {
    const uint64_t best = queue.top();
    queue.pop();
    const auto position = int32_t(uint32_t(best));
    Symbol& left = symbols[size_t(position)];
    if (left.merge.rank != best >> 32) continue;  // one of the two has been merged since
    Symbol& right = symbols[size_t(left.next)];
    left.id = left.merge.id;
    left.next = right.next;
    right.merge = {};
    if (left.next >= 0) symbols[size_t(left.next)].previous = position;
    if (left.previous >= 0) consider(left.previous);
    consider(position);
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
