// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/shell_state.h"

namespace mpt::frameworks {

void ShellState::count(const ShellWord& word) {
  constexpr size_t kMostWords = 1 << 17;
  constexpr size_t kMostLetters = size_t{1} << 22;  // of all words together: variables may repeat each other
  budget.spend(WorkBudget::kValueSteps + word.text.size());
  ++words;
  letters += word.text.size();
  if (words > kMostWords || letters > kMostLetters)
    refuse_input(budget.file(), "more words than a launch script has",
                 fmt::format("at most {} words", kMostWords));
}

void ShellState::assign(const std::string& name, ShellVariable value, bool adds, bool conditional) {
  ShellVariable& old = variables[name];
  // A known value stays if a branch would assign one that only a shell can compute.
  const auto is_open = [](const ShellWord& word) { return !word.unknown.empty(); };
  if (!adds && conditional) spend_words(budget, old.words);
  if (!adds && conditional && !old.words.empty() && any_of(value.words, is_open) &&
      !any_of(old.words, is_open)) {
    old.several = true;
    return;
  }
  if (!adds) {
    value.several =
        conditional && (old.several || (!old.words.empty() && texts_of(old.words) != texts_of(value.words)));
    if (!value.array) count(value.words.front());  // an array's words are counted already
    old = std::move(value);
    return;
  }
  if (!value.array) count(value.words.front());
  for (ShellWord& word : value.words)
    if (conditional) word.several.insert(name);
  if (!value.array && old.words.size() == 1) return merge_word(old.words.front(), value.words.front());
  old.words.insert(old.words.end(), value.words.begin(), value.words.end());
}

void spend_words(WorkBudget& budget, const std::vector<ShellWord>& words) {
  for (const ShellWord& word : words)
    budget.spend(WorkBudget::kValueSteps * (1 + word.unknown.size() + word.several.size()) +
                 word.text.size());
}

void merge_word(ShellWord& to, const ShellWord& from) {
  to.text += from.text;
  to.unknown.insert(from.unknown.begin(), from.unknown.end());
  to.several.insert(from.several.begin(), from.several.end());
}

std::string texts_of(const std::vector<ShellWord>& words) {
  return sum_of<std::string>(words, [](const ShellWord& word) { return word.text + '\n'; });
}

bool is_argument_list(std::string_view text) {
  size_t at = text.find_first_not_of(" \t\r\n");
  while (at != std::string_view::npos && text[at] == '#') {
    at = text.find('\n', at);
    if (at != std::string_view::npos) at = text.find_first_not_of(" \t\r\n", at);
  }
  return at != std::string_view::npos && text.substr(at).starts_with("--");
}

std::string names_in_braces(const std::string& source) {
  std::string text;
  bool in_name = false, has_dollar = false;
  for (const char c : source) {
    const bool begins = !in_name && !has_dollar && is_name_start(c);
    if (begins) text += "${";
    if (in_name && !is_name_part(c)) text += '}';
    in_name = begins || (in_name && is_name_part(c));
    has_dollar = c == '$' || (has_dollar && (c == '{' || is_name_part(c)));
    text += c;
  }
  return in_name ? text + '}' : text;
}

// A piece of an expansion keeps only those unknown parts that are in its own text.
void end_word(ShellWord& word, bool& begun, std::vector<ShellWord>& words, WorkBudget& budget) {
  budget.spend(word.text.size() * word.unknown.size());
  std::erase_if(word.unknown, [&](const std::string& what) {
    const bool may_be_cut =
        what.find(' ') != std::string::npos && word.text.find_first_of("$`)") != std::string::npos;
    return word.text.find(what) == std::string::npos && !may_be_cut;
  });
  words.push_back(word);
  word = {};
  begun = false;
}

void split_at_blanks(const std::vector<ShellWord>& found, ShellWord& word, bool& begun,
                     std::vector<ShellWord>& words, WorkBudget& budget) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (i > 0 && begun) end_word(word, begun, words, budget);
    const bool whole = found[i].unknown.contains(found[i].text);
    for (const char c : found[i].text) {
      if (!whole && (is_blank(c) || c == '\n')) {
        if (begun) end_word(word, begun, words, budget);
        continue;
      }
      if (!begun) {
        word.unknown = found[i].unknown;
        word.several = found[i].several;
      }
      word.text += c;
      begun = true;
    }
    if (begun) {
      word.unknown.insert(found[i].unknown.begin(), found[i].unknown.end());
      word.several.insert(found[i].several.begin(), found[i].several.end());
    }
  }
}

}  // namespace mpt::frameworks
