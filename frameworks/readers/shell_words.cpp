// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/shell_words.h"

#include "base/json.h"
#include "frameworks/imported_file.h"
#include "frameworks/readers/expressions.h"

namespace mpt::frameworks {
namespace {

constexpr int kMostNestedScripts = 16;

class ShellReader {
 public:
  ShellReader(ShellState& state, std::string_view text, std::filesystem::path file, int depth)
      : state_(state), text_(text), file_(std::move(file)), depth_(depth) {
    state_.budget.spend(WorkBudget::kValueSteps + text.size());
  }

  /// In a list of arguments, a shell's special letters have no special meaning.
  void read_list() {
    is_list_ = true;
    read();
  }

  void read() {
    while (at_ < text_.size()) read_command();
  }

  /// The whole text as one word; blanks do not split it.
  ShellWord joined() {
    ShellWord all;
    while (at_ < text_.size()) {
      if (text_[at_] == '$')
        append(all, expansion());
      else if (text_[at_] == '"' || text_[at_] == '\'' || text_[at_] == '\\')
        take_quoted(all);
      else
        all.text += text_[at_++];
    }
    return all;
  }

 private:
  using Words = std::vector<ShellWord>;

  // An expansion of several words within a word: all but the last end a word.
  void append(ShellWord& to, const Words& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (i > 0) to.text += ' ';
      merge_word(to, words[i]);
    }
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool ends_word(char c) const {
    return c == '\0' || is_blank(c) || c == '\n' ||
           (!is_list_ && std::string_view(";&|()<>").find(c) != std::string_view::npos);
  }

  void skip_to_line_end() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void read_command() {
    ShellCommand command;
    bool at_start = true;
    while (at_ < text_.size()) {
      const char c = peek();
      if (is_blank(c) || (c == '\\' && (peek(1) == '\n' || peek(1) == '\r'))) {
        at_ += is_blank(c) ? 1 : 2;
      } else if (c == '#') {
        skip_to_line_end();
      } else if (!is_list_ && (c == '<' || c == '>')) {
        // "2>" is the number of a file, and "$N>" is a word.
        const bool numbered = !command.empty() && text_[at_ - 1] >= '0' && text_[at_ - 1] <= '9';
        if (numbered && number_of<uint32_t>(command.back().text)) command.pop_back();
        read_redirection();
      } else if (read_bracketed(command)) {  // NOLINT(bugprone-branch-clone): read in this order
        continue;
      } else if (ends_word(c)) {
        end_command(c);
        break;
      } else if (at_start && read_assignment()) {
        continue;
      } else {
        for (ShellWord& word : read_words()) command.push_back(std::move(word));
        at_start = at_start && keeps_start(command);
      }
    }
    finish(std::move(command));
  }

  void end_command(char c) {
    ++at_;
    after_condition_ = (c == '&' || c == '|') && peek() == c;
    if (after_condition_) ++at_;
    if (c == '\n') read_here_documents();
  }

  // Drops a word after which another command begins.
  bool keeps_start(ShellCommand& command) {
    if (command.size() != 1) return false;
    const std::string& word = command.front().text;
    static const std::set<std::string> kOpen{"if", "while", "until", "case", "for"};
    static const std::set<std::string> kDeclares{"declare", "local", "typeset", "readonly", "export"};
    static const std::set<std::string> kClose{"fi", "done", "esac"};
    static const std::set<std::string> kOther{
#include "generated/WordsBeforeCommands.inc"
    };
    // "declare -a LIST=(...)": options of the declaring command.
    if (declares_ && word.starts_with('-')) {
      command.clear();
      return true;
    }
    declares_ = kDeclares.contains(word);
    if (kOpen.contains(word)) ++nested_;
    if (kClose.contains(word)) nested_ = std::max(0, nested_ - 1);
    if (word == "for" || word == "case") return false;
    if (!kOpen.contains(word) && !kClose.contains(word) && !kOther.contains(word)) return false;
    command.clear();
    return true;
  }

  void finish(ShellCommand command) {
    if (command.empty()) return;
    const std::string first = command.front().text;
    if ((first == "source" || first == ".") && command.size() > 1) {
      source(command[1]);
    } else if (first == "for" && command.size() > 3 && command[2].text == "in") {
      state_.variables[command[1].text] = {{command[3]}, command.size() > 4, false};
    } else {
      state_.commands.push_back(std::move(command));
    }
  }

  void source(const ShellWord& word) {
    // "$(dirname $0)/common.sh" is in the script's folder; so are most files with an unknown folder.
    const std::string name = word.text.substr(word.unknown.empty() ? 0 : word.text.rfind('/') + 1);
    const std::filesystem::path path = file_.parent_path() / name;
    const bool named = name.find('$') == std::string::npos && depth_ < kMostNestedScripts;
    if (!named || !finds_file(path)) {
      const bool outside = named && !files_of_program().may_read(path);
      const char* const where = outside ? "outside of the recipes" : "not beside the script";
      state_.commands.push_back({{"source", {fmt::format("source {}: {}, not read", word.text, where)}, {}}});
      return;
    }
    std::error_code error;
    if (any_of(state_.open, [&](const std::filesystem::path& other) {
          return std::filesystem::equivalent(path, other, error);
        }))
      refuse_input(file_.string(), fmt::format("sources {}, which sources it", path.string()),
                   "scripts that come to an end", "remove one of the source commands");
    const std::string text = read_file(path, kMostImportedBytes);
    state_.open.push_back(path);
    ShellReader(state_, text, path, depth_ + 1).read();
    state_.open.pop_back();
  }

  // NAME=value, NAME+=value and NAME=(words).
  bool read_assignment() {
    size_t end = at_;
    if (!is_name_start(peek())) return false;
    while (end < text_.size() && is_name_part(text_[end])) ++end;
    const std::string name(text_.substr(at_, end - at_));
    const bool adds = end < text_.size() && text_[end] == '+';
    if (adds) ++end;
    if (end >= text_.size() || text_[end] != '=') return false;
    at_ = end + 1;
    ShellVariable value;
    if (peek() == '(') {
      ++at_;
      value.words = array_words();
      value.array = true;
    } else {
      ShellWord all;
      while (!ends_word(peek())) take_part(all);
      value.words = {all};
    }
    state_.assign(name, value, adds, nested_ > 0 || after_condition_);
    return true;
  }

  Words array_words() {
    Words words;
    while (at_ < text_.size() && peek() != ')') {
      const char c = peek();
      if (c == '#') {
        skip_to_line_end();
      } else if (read_bracketed(words)) {
        continue;
      } else if (ends_word(c)) {
        ++at_;
      } else if (c == '\\' && (peek(1) == '\n' || peek(1) == '\r')) {
        at_ += 2;
      } else {
        for (ShellWord& word : read_words()) words.push_back(std::move(word));
      }
    }
    if (at_ < text_.size()) ++at_;
    return words;
  }

  // A flag's value in brackets, such as ([0]*3+[1]*58). Shells require quotes around it. Lists of arguments
  // copied from other sources often lack them.
  bool read_bracketed(Words& words) {
    if (peek() != '(' || words.empty() || !words.back().text.starts_with("--")) return false;
    const size_t end = std::min(closing(at_, '(', ')') + 1, text_.size());
    words.push_back({std::string(text_.substr(at_, end - at_)), {}, {}});
    state_.count(words.back());
    at_ = end;
    return true;
  }

  // A word of the text; it becomes several words, or none, when its variables are expanded.
  Words read_words() {
    Words words;
    ShellWord word;
    bool begun = false;
    while (!ends_word(peek())) {
      if (peek() == '$') {
        split_at_blanks(expansion(), word, begun, words, state_.budget);
      } else if (peek() == '"' && array_in_quotes()) {
        take_array(word, begun, words);
      } else {
        take_part(word);
        begun = true;
      }
    }
    if (begun) end_word(word, begun, words, state_.budget);
    for (const ShellWord& one : words) state_.count(one);
    return words;
  }

  // "${NAME[@]}" keeps the array's words.
  bool array_in_quotes() const {
    const std::string_view rest = text_.substr(at_ + 1);
    if (!rest.starts_with("${")) return false;
    size_t end = 2;
    while (end < rest.size() && is_name_part(rest[end])) ++end;
    return rest.substr(end).starts_with("[@]}\"");
  }
  void take_array(ShellWord& word, bool& begun, Words& words) {
    ++at_;
    const Words found = expansion();
    ++at_;
    for (size_t i = 0; i < found.size(); ++i) {
      if (i > 0) end_word(word, begun, words, state_.budget);
      merge_word(word, found[i]);
      begun = true;
    }
  }

  // A quoted part, an expansion or a letter.
  void take_part(ShellWord& word) {
    const char c = peek();
    if (c == '$') {
      append(word, expansion());
    } else if (c == '"' || c == '\'' || c == '\\') {
      take_quoted(word);
    } else if (c == '`') {
      take_command(word);
    } else {
      word.text += c;
      ++at_;
    }
  }

  // `command`
  void take_command(ShellWord& word) {
    const size_t end = std::min(text_.find('`', at_ + 1), text_.size());
    mark_unknown(word, inside(at_, std::min(end + 1, text_.size())));
    at_ = std::min(end + 1, text_.size());
  }

  void take_quoted(ShellWord& word) {
    const char quote = text_[at_++];
    if (quote == '\\') {
      if (at_ < text_.size() && text_[at_] != '\n') word.text += text_[at_];
      at_ = std::min(at_ + 1, text_.size());
      return;
    }
    while (at_ < text_.size() && text_[at_] != quote) {
      if (quote == '"' && text_[at_] == '$') {
        append(word, expansion());
      } else if (quote == '"' && text_[at_] == '`') {
        take_command(word);
      } else if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        const char c = text_[at_ + 1];
        if (std::string_view("$`\"\\\n").find(c) == std::string_view::npos) word.text += '\\';
        if (c != '\n') word.text += c;
        at_ += 2;
      } else {
        word.text += text_[at_++];
      }
    }
    at_ = std::min(at_ + 1, text_.size());
  }

  static void mark_unknown(ShellWord& word, const std::string& what) {
    word.text += what;
    word.unknown.insert(what);
  }
  static Words unknown(const std::string& what) {
    ShellWord word;
    mark_unknown(word, what);
    return {word};
  }

  // The end of the part that opens at `from` with ( or {. Signs within quotes do not count.
  size_t closing(size_t from, char open, char close) const {
    int depth = 0;
    for (size_t i = from; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '\\') {
        ++i;
      } else if (c == '\'' || c == '"') {
        const size_t end = text_.find(c, i + 1);
        if (end == std::string_view::npos) return text_.size();
        i = end;
      } else if (c == open) {
        ++depth;
      } else if (c == close && --depth == 0) {
        return i;
      }
    }
    return text_.size();
  }

  std::string inside(size_t begin, size_t end) const {
    return std::string(text_.substr(begin, std::max(begin, end) - begin));
  }
  ShellWord expanded(const std::string& text) const {
    if (depth_ >= kMostNestedScripts) return unknown(text).front();
    return ShellReader(state_, text, file_, depth_ + 1).joined();
  }

  // An expansion; its dollar has been read.
  Words expansion() {
    const size_t begin = at_++;
    if (peek() == '(' && peek(1) == '(') {
      const size_t end = closing(at_, '(', ')');
      const std::string source = inside(at_ + 2, end == text_.size() ? end : end - 1);
      at_ = std::min(end + 1, text_.size());
      return arithmetic(source, inside(begin, at_));
    }
    if (peek() == '(') {
      at_ = std::min(closing(at_, '(', ')') + 1, text_.size());
      return unknown(inside(begin, at_));
    }
    if (peek() == '{') {
      const size_t end = closing(at_, '{', '}');
      const std::string source = inside(at_ + 1, end);
      at_ = std::min(end + 1, text_.size());
      return braced(source);
    }
    size_t end = at_;
    while (end < text_.size() && is_name_part(text_[end])) ++end;
    if (end == at_ && end < text_.size() &&
        std::string_view("@*#?$!-").find(text_[end]) != std::string_view::npos)
      ++end;
    if (end == at_) return {{"$", {}, {}}};
    const std::string name = inside(at_, end);
    at_ = end;
    return value_of(name);
  }

  Words value_of(const std::string& name) const {
    const auto found = state_.variables.find(name);
    if (found == state_.variables.end()) return unknown("$" + name);
    spend_words(state_.budget, found->second.words);
    Words words = found->second.words;
    for (ShellWord& word : words)
      if (found->second.several) word.several.insert(name);
    return words;
  }

  Words arithmetic(const std::string& source, const std::string& as_written) {
    ShellWord word = expanded(names_in_braces(source));
    const auto value = word.unknown.empty() ? arithmetic_value(word.text) : std::nullopt;
    if (!value) return unknown(as_written);
    word.text = std::to_string(*value);
    return {word};
  }

  // ${NAME}, ${NAME:-default} and their like, ${NAME[@]}.
  Words braced(const std::string& source) {
    size_t end = 0;
    while (end < source.size() && is_name_part(source[end])) ++end;
    const std::string name = source.substr(0, end), rest = source.substr(end);
    const bool has = state_.variables.contains(name);
    if (name.empty()) return unknown("${" + source + "}");
    if (rest.empty() || rest == "[@]" || rest == "[*]")
      return has ? value_of(name) : unknown("${" + source + "}");
    return with_default(name, rest, source);
  }

  // `rest`: what follows the name, such as ":-default".
  Words with_default(const std::string& name, const std::string& rest, const std::string& source) {
    const auto found = state_.variables.find(name);
    const bool has = found != state_.variables.end(), colon = rest.front() == ':';
    const char kind = rest.size() > size_t(colon) ? rest[size_t(colon)] : '\0';
    const std::string otherwise = rest.substr(std::min(rest.size(), size_t(colon) + 1));
    if (has && colon) spend_words(state_.budget, found->second.words);
    const bool empty = has && colon && texts_of(found->second.words) == "\n";
    if (kind == '-' || kind == '=' || kind == '?') {
      if (has && !empty) return value_of(name);
      if (kind == '?') return unknown("${" + source + "}");
      const ShellWord word = expanded(otherwise);
      if (kind == '=') state_.assign(name, {{word}}, false, false);
      return {word};
    }
    if (kind == '+') return has && !empty ? Words{expanded(otherwise)} : Words{};
    return unknown("${" + source + "}");
  }

  void read_redirection() {
    const char c = peek();
    if (c == '<' && peek(1) == '<' && peek(2) != '<') {
      at_ += peek(2) == '-' ? 3 : 2;
      while (is_blank(peek())) ++at_;
      const bool quoted = peek() == '"' || peek() == '\'';
      ShellWord end;
      while (!ends_word(peek())) take_part(end);
      here_.push_back({end.text, quoted});
      return;
    }
    while (peek() == '<' || peek() == '>' || peek() == '&') ++at_;
    if (peek() == '(') {  // a command's output in place of a file
      at_ = std::min(closing(at_, '(', ')') + 1, text_.size());
      return;
    }
    while (is_blank(peek())) ++at_;
    ShellWord file;
    while (!ends_word(peek())) take_part(file);
  }

  // A here-document may be the script that starts the training.
  void read_here_documents() {
    for (const auto& [end, quoted] : std::exchange(here_, {})) {
      std::string text;
      while (at_ < text_.size()) {
        const size_t line_end = std::min(text_.find('\n', at_), text_.size());
        std::string line(text_.substr(at_, line_end - at_));
        at_ = std::min(line_end + 1, text_.size());
        if (line.substr(std::min(line.size(), line.find_first_not_of('\t'))) == end) break;
        text += line + '\n';
      }
      if (depth_ < kMostNestedScripts) ShellReader(state_, text, file_, depth_ + 1).read();
    }
  }

  struct HereDocument {
    std::string end;
    bool quoted;
  };

  ShellState& state_;
  std::string_view text_;
  std::filesystem::path file_;
  int depth_;
  size_t at_ = 0;
  bool declares_ = false;
  int nested_ = 0;  // in conditions and loops
  bool is_list_ = false;
  bool after_condition_ = false;
  std::vector<HereDocument> here_;
};

}  // namespace

std::vector<ShellCommand> shell_commands(const std::string& text, const std::filesystem::path& file,
                                         WorkBudget& budget) {
  ShellState state(budget, file);
  ShellReader reader(state, text, file, 0);
  is_argument_list(text) ? reader.read_list() : reader.read();
  return state.commands;
}

std::vector<std::string> notes_of_words(const ShellCommand& command) {
  std::set<std::string> several, left_open;
  bool after_flag = false;
  for (const ShellWord& word : command) {
    several.insert(word.several.begin(), word.several.end());
    after_flag = after_flag || word.text.starts_with("--");
    // The user who starts the script gives "$@".
    const bool is_open = word.unknown.size() == 1 && *word.unknown.begin() == word.text && word.text != "$@";
    const bool is_list = word.text.find("ARG") < word.text.size() || word.text.find("OPT") < word.text.size();
    if (is_open && (!after_flag || is_list)) left_open.insert(word.text);
  }
  std::vector<std::string> notes;
  if (!several.empty())
    notes.push_back(fmt::format("the script sets {} in more than one way: one of them is read",
                                fmt::join(several, ", ")));
  if (!left_open.empty())
    notes.push_back(fmt::format("what {} adds is not in the script: not read", fmt::join(left_open, ", ")));
  return notes;
}

ShellCommand argument_words(const std::string& text, WorkBudget& budget) {
  ShellState state(budget, {});
  ShellReader(state, text, {}, 0).read_list();
  ShellCommand all;
  for (const ShellCommand& command : state.commands) all.insert(all.end(), command.begin(), command.end());
  return all;
}

std::map<std::string, ShellCommand> shell_variables(const std::string& text,
                                                    const std::filesystem::path& file, WorkBudget& budget) {
  ShellState state(budget, file);
  ShellReader(state, text, file, 0).read();
  std::map<std::string, ShellCommand> values;
  for (const auto& [name, variable] : state.variables) values[name] = variable.words;
  return values;
}

}  // namespace mpt::frameworks
