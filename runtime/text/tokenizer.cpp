// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer.h"

#include "base/ranges.h"
#include "base/text.h"
#include "runtime/text/tokenizer_json.h"

namespace mpt::runtime {
namespace {

void check_utf8(std::string_view text, const std::string& where) {
  for (size_t at = 0; at < text.size();) {
    const auto [code, bytes] = first_character(text.substr(at));
    if (code < 0)
      refuse_input(where, fmt::format("byte {} is 0x{:02x}, which is not UTF-8", at, uint8_t(text[at])),
                   "text in UTF-8", "convert it, for example with iconv -t UTF-8");
    at += bytes;
  }
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& file) {
  const Json json = load_json(file);
  JsonPart root(json, file.string() + " at ");
  for (const char* key : {"version", "truncation", "padding", "decoder"}) root.value(key);
  for_each_step(root.value("normalizer"), root.where("normalizer"), "normalizers",
                [&](JsonPart& part) { normalizers_.push_back(read_normalizer(part)); });
  for_each_step(root.value("pre_tokenizer"), root.where("pre_tokenizer"), "pretokenizers",
                [&](JsonPart& part) {
                  if (is_byte_level()) refuse_part(part.where(), "a step after ByteLevel");
                  pre_tokenizers_.push_back(read_pre_tokenizer(part));
                });
  JsonPart model(root.value("model"), root.where("model"));
  model_.emplace(model, is_byte_level());
  ids_ = model_->vocabulary();
  for (const auto& [token, id] : ids_) bytes_[id] = model_->bytes_of(token);
  add_tokens(root);
  for_each_step(root.value("post_processor"), root.where("post_processor"), "processors",
                [&](JsonPart& part) { read_template(part); });
  root.finish();
}

// As the package does it: tokens of the model keep the model's id, and the others get the numbers after the
// vocabulary. `id` has no effect.
void Tokenizer::add_tokens(JsonPart& root) {
  auto next = int32_t(ids_.size());
  const auto list = root.get<Json::array_t>("added_tokens", Json::array());
  for (size_t i = 0; i < list.size(); ++i) {
    JsonPart part(list[i], fmt::format("{}/{}", root.where("added_tokens"), i));
    const auto content = part.get<std::string>("content");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) part.expect(key, false);
    part.value("special");
    const Json& said = part.value("id");
    const int32_t id = id_of(content).value_or(next);
    next = std::max(next, id + 1);
    if (said.is_number() && said != id)
      warn(fmt::format("mpt-run: note: {}: \"{}\" is token {}, as in the package tokenizers, not {}",
                       part.where(), printable(content), id, said.dump()));
    const bool normalises = part.get<bool>("normalized", true);
    part.finish();
    if (content.empty()) continue;
    ids_[content] = id;
    bytes_[id] = content;
    const std::string text = normalises ? normalised(content) : content;
    AddedTokens& among = normalises ? after_ : before_;
    among.tokens[text] = id;
    among.lengths[uint8_t(text.front())].insert(text.size());
  }
}

// A template of other kinds of tokens, or with some after the text, is refused.
void Tokenizer::read_template(JsonPart& part) {
  const auto type = part.get<std::string>("type");
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) part.value(key);
    return;
  }
  if (type != "TemplateProcessing") part.refuse("type");
  part.value("pair");
  const auto pieces = part.get<Json::array_t>("single");
  if (pieces.empty() || !pieces.back().contains("Sequence")) part.refuse("single");
  JsonPart tokens(part.value("special_tokens"), part.where("special_tokens"));
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    JsonPart piece(pieces[i], fmt::format("{}/{}", part.where("single"), i));
    JsonPart special(piece.value("SpecialToken"), piece.where("SpecialToken"));
    const auto name = special.get<std::string>("id");
    JsonPart token(tokens.value(name), tokens.where(name));
    const auto id = id_of(name);
    if (!id || token.value("ids") != Json::array({*id})) token.refuse("ids");
    first_.push_back(*id);
  }
}

std::string Tokenizer::normalised(std::string text) const {
  for (const Normalizer& step : normalizers_) text = step(text);
  return text;
}

// From pre-tokenizer `step` on. `first`: the document begins with the text.
void Tokenizer::encode_part(std::string_view text, size_t step, bool first, TokenOutput& out) const {
  if (step == pre_tokenizers_.size()) return model_->encode(text, out);
  pre_tokenizers_[step].for_each_part(
      text, first, [&](std::string_view part, bool begins) { encode_part(part, step + 1, begins, out); });
}

void Tokenizer::encode(std::string_view document, const std::string& where, TokenOutput& out) const {
  check_utf8(document, where);
  out.tokens.insert(out.tokens.end(), first_.begin(), first_.end());
  before_.cut(document, out, [&](std::string_view part) {
    const bool first = part.data() == document.data();
    const std::string changed = normalised(std::string(part));
    after_.cut(changed, out, [&](std::string_view rest) {
      encode_part(rest, 0, first && rest.data() == changed.data(), out);
    });
  });
}

std::string Tokenizer::bytes_of(int32_t id) const { return copy_of(bytes_, id).value_or(""); }

std::optional<int32_t> Tokenizer::id_of(const std::string& token) const { return copy_of(ids_, token); }

}  // namespace mpt::runtime
