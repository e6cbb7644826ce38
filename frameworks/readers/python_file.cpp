// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/python_file.h"

#include <memory>
#include <set>
#include <sstream>

#include "base/json.h"
#include "frameworks/imported_file.h"

namespace mpt::frameworks {
namespace {

constexpr size_t kMostModules = 64;
constexpr uint64_t kCallSteps = 32 * WorkBudget::kValueSteps;

std::vector<std::string> path_parts(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream text(path);
  for (std::string part; std::getline(text, part, '.');) parts.push_back(part);
  if (parts.size() > size_t(kDeepestPython)) throw NotUnderstood{};
  return parts;
}

// The value of a name, and its members that were set later.
struct LocalValue {
  std::optional<Json> given;
  std::map<std::string, LocalValue> members;

  /// `before`: the value without this assignment.
  Json whole(WorkBudget& budget, const Json& before = {}) const {
    const Json& base = given ? *given : before;
    if (members.empty()) return budget.copy(base);
    ObjectBuilder all;
    if (base.is_object()) all.set_all(base, budget);
    for (const auto& [name, member] : members) {
      const Json* const old = all.find(name);
      all.set(name, member.whole(budget, old == nullptr ? Json() : *old), budget);
    }
    return all.take();
  }

  /// The member at the path `parts`, from part `i` on. Nothing if it was not set.
  std::optional<Json> at(const std::vector<std::string>& parts, size_t i, const Json* before,
                         WorkBudget& budget) const {
    const Json* const base = given ? &*given : before;
    if (i == parts.size()) {
      if (base == nullptr && members.empty()) return std::nullopt;
      return whole(budget, base == nullptr ? Json() : *base);
    }
    const bool holds = base != nullptr && base->is_object() && base->contains(parts[i]);
    const Json* const inner = holds ? &base->at(parts[i]) : nullptr;
    const auto member = members.find(parts[i]);
    const LocalValue none;
    return (member == members.end() ? none : member->second).at(parts, i + 1, inner, budget);
  }

  LocalValue& member(const std::vector<std::string>& parts) {
    LocalValue* place = this;
    for (size_t i = 1; i < parts.size(); ++i) place = &place->members[parts[i]];
    return *place;
  }

  /// Takes over the members of another value.
  void take_members(LocalValue& other) {
    for (auto& [name, changed] : other.members) {
      if (changed.given)
        members[name] = std::move(changed);
      else
        members[name].take_members(changed);
    }
  }
};

struct PythonFrame {
  std::map<std::string, LocalValue> names;
  std::set<std::string> read, replaced;
  bool returns = false;
  std::optional<Json> returned;
  std::map<std::string, std::string> given_names;  // of the caller, by parameters
  std::vector<PythonUnread> unread;
};

struct PythonDefinition {
  std::string name;
  size_t head = 0, end = 0;  // lines
};

class PythonModule;

// Shared by the modules of one reading.
struct PythonReading {
  WorkBudget& budget;
  const PythonFacts& facts;
  std::string kept;  // calls of this function are not run
  std::map<std::filesystem::path, std::unique_ptr<PythonModule>> modules;
  int depth = 0;  // of blocks and calls within each other
};

class PythonModule : public PythonScope {
 public:
  PythonModule(std::filesystem::path file, const std::string& text, PythonReading& reading)
      : file_(std::move(file)), reading_(reading), budget_(reading.budget) {
    budget_.spend(text.size());
    lines_ = python_lines(text, file_.empty() ? budget_.file() : file_.string());
    for (size_t i = 0; i < lines_.size(); ++i) {
      const std::vector<PythonToken>& tokens = lines_[i].tokens;
      if (lines_[i].indent > 0 || tokens.size() < 2 || tokens.front().text != "def") continue;
      places_[tokens[1].text] = definitions_.size();
      definitions_.push_back({tokens[1].text, i, block_end(i, lines_.size())});
    }
    module_.names["__name__"].given = reading_.modules.empty() ? "__main__" : "of a module";
    block(0, lines_.size());
    module_.names.erase("__name__");
  }

  PythonFile whole(const std::string& only = "") {
    PythonFile file{Json(), imports_, {}};
    file.values = values_of(module_);
    for (const PythonDefinition& definition : definitions_) {
      PythonFunction function{definition.name, returns_of(lines_[definition.head].tokens), {}, {}, {}};
      const bool wanted = only.empty() || only == definition.name;
      if (auto frame = wanted ? run(definition, Json::object(), {}) : std::nullopt) {
        function.names = values_of(*frame);
        if (frame->returned) function.result = std::move(*frame->returned);
        function.unread = std::move(frame->unread);
      }
      file.functions.push_back(std::move(function));
    }
    // What a called function of another file names, that file imports.
    for (const auto& [path, other] : reading_.modules) {
      if (!other || other.get() == this) continue;
      for (const auto& [name, module] : other->imports_)
        file.imports.emplace(name, module == "." ? path.parent_path().filename().string() : module);
    }
    return file;
  }

  std::optional<Json> value(const std::string& path) override {
    const std::vector<std::string> parts = path_parts(path);
    for (PythonFrame* frame : {frame_, &module_}) {
      const auto found = frame->names.find(parts.front());
      if (found == frame->names.end()) continue;
      frame->read.insert(parts.front());
      if (auto value = found->second.at(parts, 1, nullptr, budget_); value || parts.size() == 1) return value;
      const auto of = found->second.at({parts.begin(), parts.end() - 1}, 1, nullptr, budget_);
      return of ? member_of(*of, parts.back()) : std::nullopt;
    }
    const auto other = parts.size() == 1 ? elsewhere(path) : std::nullopt;
    return other ? other->module->value(other->name) : std::nullopt;
  }

  void set(const std::string& name, const Json& value) override { frame_->names[name] = {value, {}}; }

  std::optional<Json> call(const std::string& function, const Json& call, const ArgumentNames& names,
                           int depth) override {
    if (function == reading_.kept) return std::nullopt;
    const int before = std::exchange(reading_.depth, depth);
    std::optional<PythonFrame> frame = run_named(function, call, names);
    if (!frame)
      if (const auto other = elsewhere(function)) frame = other->module->run_named(other->name, call, names);
    reading_.depth = before;
    if (!frame) return method(function, call);
    for (const auto& [parameter, path] : frame->given_names) {
      const std::vector<std::string> parts = path_parts(path);
      const auto known = frame_->names.find(parts.front());
      LocalValue& changed = frame->names[parameter];
      if (known != frame_->names.end() && !frame->replaced.contains(parameter) && !changed.members.empty())
        known->second.member(parts).take_members(changed);
    }
    for (PythonUnread& unread : frame->unread) frame_->unread.push_back(std::move(unread));
    if (!frame->returns) return std::optional<Json>(Json());
    return std::move(frame->returned);
  }

 private:
  Json values_of(const PythonFrame& frame) const {
    ObjectBuilder values;
    for (const auto& [name, value] : frame.names) values.set(name, value.whole(budget_), budget_);
    return values.take();
  }

  // A name in the file that defines it.
  struct Elsewhere {
    PythonModule* module;
    std::string name;
  };

  // The module that defines an imported name, and the name there. Follows imports from file to file. Nothing
  // if no such file exists.
  std::optional<Elsewhere> elsewhere(const std::string& name, size_t files = 0) {
    const auto original = originals_.find(name);
    if (original == originals_.end() || file_.empty() || files > kMostModules) return std::nullopt;
    const std::string its = original->second, module = imports_.at(name);
    const size_t dots = std::min(module.find_first_not_of('.'), module.size());
    std::filesystem::path folder = file_.parent_path();
    for (size_t i = 1; i < dots; ++i) folder = folder.parent_path();
    const std::string within = replaced(module.substr(dots), '.', '/');
    for (;; folder = folder.parent_path()) {
      for (const char* ending : {".py", "/__init__.py"}) {
        PythonModule* const other = module_at(folder / (within + ending));
        if (other == nullptr) continue;
        if (other->places_.contains(its) || other->module_.names.contains(its)) return Elsewhere{other, its};
        if (auto found = other->elsewhere(its, files + 1)) return found;
      }
      if (dots > 0 || folder == folder.parent_path()) break;
    }
    originals_.erase(name);
    return std::nullopt;
  }

  // The module of a file; null if there is no file, or it is still being read.
  PythonModule* module_at(const std::filesystem::path& file) {
    auto known = reading_.modules.find(file);
    if (known == reading_.modules.end()) {
      if (reading_.modules.size() == kMostModules || !finds_file(file)) return nullptr;
      reading_.modules[file] = nullptr;  // while it is read
      auto module = std::make_unique<PythonModule>(file, read_file(file, kMostImportedBytes), reading_);
      known = reading_.modules.insert_or_assign(file, std::move(module)).first;
    }
    return known->second.get();
  }

  std::optional<PythonFrame> run_named(const std::string& function, const Json& call,
                                       const ArgumentNames& names) {
    const auto place = places_.find(function);
    return place == places_.end() ? std::nullopt : run(definitions_[place->second], call, names);
  }

  // Nothing if the function does not take the call, or never reads an argument of it.
  std::optional<PythonFrame> run(const PythonDefinition& definition, const Json& call,
                                 const ArgumentNames& names) {
    if (reading_.depth > kDeepestPython || !running_.insert(definition.name).second) return std::nullopt;
    budget_.spend(kCallSteps);
    PythonFrame frame;
    const bool plain = call.size() <= 1;  // without arguments each call returns the same
    if (const auto before = results_.find(definition.head); plain && before != results_.end()) {
      running_.erase(definition.name);
      frame.returns = true;
      frame.returned = budget_.copy(before->second.first);
      frame.unread = before->second.second;
      return frame;
    }
    std::set<std::string> given;
    const bool taken = bind(lines_[definition.head].tokens, call, names, frame, given);
    if (taken) {
      PythonFrame* const outer = std::exchange(frame_, &frame);
      ++reading_.depth;
      block(definition.head + 1, definition.end);
      --reading_.depth;
      frame_ = outer;
    }
    running_.erase(definition.name);
    const bool all_matter = all_of(given, [&](const std::string& name) { return frame.read.contains(name); });
    if (!taken || !all_matter) return std::nullopt;
    if (plain && frame.returned) results_[definition.head] = {budget_.copy(*frame.returned), frame.unread};
    return frame;
  }

  // def name(a, b: int = 2, *, c=None) -> Returns:
  bool bind(const std::vector<PythonToken>& tokens, const Json& call, const ArgumentNames& names,
            PythonFrame& frame, std::set<std::string>& given) {
    std::vector<std::pair<std::string, size_t>> parameters;  // with tokens where defaults begin
    size_t at = 3;
    for (int open = 1; at < tokens.size() && open > 0; ++at) {
      open += int(tokens[at].opens()) - int(tokens[at].closes());
      const bool begins = tokens[at - 1].is(",") || tokens[at - 1].is("(");
      if (open != 1) continue;
      if (begins && tokens[at].kind == TokenKind::name) parameters.emplace_back(tokens[at].text, 0);
      if (tokens[at].is("=") && !parameters.empty()) parameters.back().second = at + 1;
    }
    const auto set = [&](const std::string& name, const Json& value, const std::string& argument) {
      given.insert(name);
      frame.names[name] = {budget_.copy(value), {}};
      if (const auto path = names.find(argument); path != names.end()) frame.given_names[name] = path->second;
    };
    const auto positional = call.find(kArgumentsKey);
    const size_t count = positional == call.end() ? 0 : positional->size();
    if (count > parameters.size()) return false;
    for (size_t i = 0; i < count; ++i) set(parameters[i].first, (*positional)[i], std::to_string(i));
    for (const auto& [key, value] : call.items()) {
      if (key == kCallKey || key == kArgumentsKey) continue;
      const bool known = any_of(parameters, [&, &name = key](const auto& p) { return p.first == name; });
      if (!known) return false;
      set(key, value, key);
    }
    for (const auto& [name, begin] : parameters)
      if (!given.contains(name)) frame.names[name] = {default_at(tokens, begin, name), {}};
    return true;
  }

  Json default_at(const std::vector<PythonToken>& tokens, size_t begin, const std::string& name) {
    size_t end = begin;
    for (int open = 1; begin > 0 && end < tokens.size(); ++end) {
      open += int(tokens[end].opens()) - int(tokens[end].closes());
      if (open == 0 || (open == 1 && tokens[end].is(","))) break;
    }
    try {
      std::vector<std::string> unread;
      if (begin > 0) return python_expression(tokens, begin, end, *this, reading_.depth, budget_, unread);
    } catch (const NotUnderstood&) {  // treated like one without
    }
    return Json{{kNameKey, name}};
  }

  static std::string returns_of(const std::vector<PythonToken>& tokens) {
    const auto arrow = find_if(tokens, [](const PythonToken& token) { return token.is("->"); });
    std::string returns;
    for (auto token = arrow; token != tokens.end() && token + 1 != tokens.end(); ++token)
      returns += token == arrow ? "" : token->text;
    return returns;
  }

  // Methods of lists and texts, and Python's own functions.
  std::optional<Json> method(const std::string& function, const Json& call) {
    const auto found = call.find(kArgumentsKey);
    const Json arguments = found == call.end() ? Json::array() : *found;
    if (function == "getattr" && arguments.size() > 1 && arguments[1].is_string())
      return member_of(arguments[0], arguments[1]);
    const std::vector<std::string> parts = path_parts(function);
    const auto known = frame_->names.find(parts.front());
    if (parts.size() < 2 || known == frame_->names.end()) return python_built_in(function, call);
    const std::string path = function.substr(0, function.rfind('.'));
    auto of = value(path);
    if (of && of->is_object() && of->contains(kCallKey)) {
      Json made = call;
      made[kCallKey] = parts.back();
      made[kOfKey] = std::move(*of);
      return made;
    }
    if (of && of->is_string() && parts.back() == "lower") return lower_case(of->get<std::string>());
    if (!of || !of->is_array() || arguments.size() != 1) return std::nullopt;
    const Json& more = arguments.front();
    if (parts.back() == "append")
      of->push_back(more);
    else if (parts.back() == "extend" && more.is_array())
      of->insert(of->end(), more.begin(), more.end());
    else
      return std::nullopt;
    known->second.member(path_parts(path)) = {std::move(of), {}};
    return Json();
  }

  std::optional<Json> member_of(const Json& of, const std::string& name) const {
    if (of.is_object() && of.contains(name)) return of.at(name);
    return of.is_object() && of.contains(kCallKey) && reading_.facts ? reading_.facts(of, name)
                                                                     : std::nullopt;
  }

  size_t block_end(size_t head, size_t end) const {
    size_t next = head + 1;
    while (next < end && lines_[next].indent > lines_[head].indent) ++next;
    return next;
  }

  void block(size_t begin, size_t end) {
    if (begin < end && reading_.depth > kDeepestPython) return tell_unread(lines_[begin], "");
    ++reading_.depth;
    for (size_t i = begin; i < end && !frame_->returns;) {
      budget_.spend(WorkBudget::kValueSteps);
      const size_t next = block_end(i, end);
      const std::string& first = lines_[i].tokens.front().text;
      if (first == "if") {
        i = branches(i, end);
        continue;
      }
      try {
        if (first == "for") {
          loop(i, next);
        } else if (first == "try" || first == "with") {
          if (first == "with") tell_unread(lines_[i], "");  // it may change any value
          block(i + 1, next);
        } else if (next == i + 1) {
          statement(lines_[i]);
        } else if (first == "while") {
          throw NotUnderstood{};
        }
      } catch (const NotUnderstood&) {
        tell_unread(lines_[i], "");
      }
      i = next;
    }
    --reading_.depth;
  }

  // if, elif and else, up to the first with an unknown condition.
  size_t branches(size_t i, size_t end) {
    bool looks = true;
    for (bool first = true; i < end; first = false) {
      const LogicalLine& line = lines_[i];
      const std::string& word = line.tokens.front().text;
      if (!first && word != "elif" && word != "else") break;
      const size_t next = block_end(i, end);
      const std::optional<bool> holds = !looks ? false : word == "else" ? true : condition(line);
      if (!holds) tell_unread(line, "");
      if (holds && *holds) block(i + 1, next);
      looks = looks && holds && !*holds;
      i = next;
    }
    return i;
  }

  std::optional<bool> condition(const LogicalLine& line) {
    if (!line.tokens.back().is(":")) return std::nullopt;
    try {
      return python_truth(value(line, 1, line.tokens.size() - 1));
    } catch (const NotUnderstood&) {
      return std::nullopt;
    }
  }

  // for x in list:
  void loop(size_t head, size_t end) {
    const std::vector<PythonToken>& tokens = lines_[head].tokens;
    if (tokens.size() < 5 || tokens[2].text != "in" || !tokens.back().is(":")) throw NotUnderstood{};
    const Json items = value(lines_[head], 3, tokens.size() - 1);
    if (!items.is_array()) throw NotUnderstood{};
    for (const Json& item : items) {
      set(tokens[1].text, budget_.copy(item));
      block(head + 1, end);
    }
  }

  void tell_unread(const LogicalLine& line, const std::string& argument) {
    const std::string text = argument.empty() ? std::string(cut_text(line.source, 60)) : argument + "=...";
    const bool beside = reading_.modules.contains(file_);
    const std::string place = beside ? file_.filename().string() + " at line" : "line";
    if (frame_ != &module_)
      frame_->unread.push_back({argument, fmt::format("{} {}: {}", place, line.number, text)});
  }

  Json value(const LogicalLine& line, size_t at, size_t end) {
    std::vector<std::string> unread;
    Json value = python_expression(line.tokens, at, end, *this, reading_.depth, budget_, unread);
    for (const std::string& argument : unread) tell_unread(line, argument);
    return value;
  }

  void statement(const LogicalLine& line) {
    static const std::set<std::string> kNone{"import", "class", "def",  "@",
                                             "assert", "pass",  "else", "global"};
    const std::vector<PythonToken>& tokens = line.tokens;
    const std::string& first = tokens.front().text;
    if ((tokens.front().kind == TokenKind::text && tokens.size() == 1) || kNone.contains(first)) return;
    if (first == "from") return read_import(tokens);
    if (tokens.front().kind != TokenKind::name || first == "raise") throw NotUnderstood{};
    if (first != "return" || frame_ == &module_) return assignment(line);
    frame_->returns = true;
    frame_->returned = tokens.size() == 1 ? Json() : value(line, 1, tokens.size());
  }

  void read_import(const std::vector<PythonToken>& tokens) {
    if (frame_ != &module_) return;
    std::string module;
    size_t at = 1;
    for (; at < tokens.size() && tokens[at].text != "import"; ++at) module += tokens[at].text;
    for (++at; at < tokens.size(); ++at) {
      if (tokens[at].kind != TokenKind::name) continue;
      const std::string original = tokens[at].text;
      if (at + 2 < tokens.size() && tokens[at + 1].text == "as") at += 2;
      imports_[tokens[at].text] = module;
      originals_[tokens[at].text] = original;
    }
  }

  // name = value, name: type = value, name.part.part = value, name, name = value; or a call
  void assignment(const LogicalLine& line) {
    const std::vector<PythonToken>& tokens = line.tokens;
    std::vector<std::string> targets(1);
    size_t at = 0;
    for (; at < tokens.size() &&
           (tokens[at].kind == TokenKind::name || tokens[at].is(".") || tokens[at].is(","));
         ++at) {
      if (tokens[at].is(","))
        targets.emplace_back();
      else
        targets.back() += tokens[at].text;
    }
    if (at < tokens.size() && tokens[at].is(":"))
      while (at < tokens.size() && !tokens[at].is("=")) ++at;
    if (at >= tokens.size() || !tokens[at].is("=")) {
      const Json result = value(line, 0, tokens.size());
      if (result.is_object() && (result.contains(kCallKey) || result.contains(kNameKey)))
        throw NotUnderstood{};
      return;
    }
    Json given;
    try {
      given = value(line, at + 1, tokens.size());
    } catch (const NotUnderstood&) {
      if (frame_ == &module_) return;
      tell_unread(line, "");
      given = Json{{kNameKey, cut_text(line.source, 60)}};
    }
    if (targets.size() == 1) return assign(targets.front(), std::move(given));
    for (size_t i = 0; i < targets.size(); ++i) {
      const bool known = given.is_array() && given.size() == targets.size();
      assign(targets[i], known ? std::move(given[i]) : Json{{kNameKey, targets[i]}});
    }
    if (!given.is_array()) throw NotUnderstood{};
  }

  void assign(const std::string& path, Json given) {
    const std::vector<std::string> parts = path_parts(path);
    if (parts.empty()) throw NotUnderstood{};
    (parts.size() > 1 ? frame_->read : frame_->replaced).insert(parts.front());
    frame_->names[parts.front()].member(parts) = {std::move(given), {}};
  }

  std::filesystem::path file_;
  PythonReading& reading_;
  WorkBudget& budget_;
  std::vector<LogicalLine> lines_;
  std::vector<PythonDefinition> definitions_;
  std::map<std::string, size_t> places_;                    // index of a name's last definition
  std::map<std::string, std::string> imports_, originals_;  // modules of names, and their names there
  PythonFrame module_;
  PythonFrame* frame_ = &module_;
  std::set<std::string> running_;
  std::map<size_t, std::pair<Json, std::vector<PythonUnread>>> results_;  // by lines
};

}  // namespace

PythonFile read_python(const std::filesystem::path& file, const std::string& only, const PythonFacts& facts,
                       const std::string& kept) {
  WorkBudget budget(file.string(), kMostImportedBytes);
  PythonReading reading{budget, facts, kept, {}, 0};
  std::error_code error;
  return PythonModule(std::filesystem::absolute(file, error), read_file(file, kMostImportedBytes), reading)
      .whole(only);
}

PythonFile python_file(const std::string& text, WorkBudget& budget) {
  const PythonFacts facts;
  PythonReading reading{budget, facts, {}, {}, 0};
  return PythonModule({}, text, reading).whole();
}

}  // namespace mpt::frameworks
