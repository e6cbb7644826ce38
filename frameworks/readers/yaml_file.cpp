// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/yaml_file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "frameworks/import.h"

namespace mpt::frameworks {
namespace {

Json scalar(const std::string& tag, const std::string& text) {
  if (tag == "!") return text;  // quoted
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (const auto whole = number_of<int64_t>(text)) return *whole;
  if (const auto real = number_of<double>(text); real && std::isfinite(*real)) return *real;
  return text;
}

// The library's parser calls these. Its own nodes take more time and memory.
class YamlEvents final : public YAML::EventHandler {
 public:
  explicit YamlEvents(WorkBudget& budget)
      : budget_(budget), builder_(budget, kDeepestYaml, DocumentBuilder::Doubled::last) {}

  Json take() { return builder_.take(); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(nullptr, mark, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "a value that holds itself");
    if (found->second.is_string() && builder_.wants_key()) {
      builder_.key(found->second);
    } else {
      add(budget_.copy(found->second), mark, 0);
    }
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (!builder_.wants_key()) return add(scalar(tag, text), mark, anchor);
    builder_.key(text);
    keep(anchor, text);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor);
    builder_.start_array();
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor);
    builder_.start_object();
  }
  void OnMapEnd() override { close(); }

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, const char* what) const {
    throw UserError(Problem{fmt::format("{} at line {}", budget_.file(), mark.line + 1), what,
                            "a configuration of a framework in YAML", ""});
  }
  void keep(YAML::anchor_t anchor, const Json& value) {
    if (anchor != 0) anchors_[anchor] = budget_.copy(value);
  }
  void add(Json value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (builder_.wants_key()) refuse(mark, "a key that is no text");
    keep(anchor, value);
    builder_.add(std::move(value));
  }
  void open(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (builder_.wants_key()) refuse(mark, "a key that is no text");
    open_.push_back(anchor);
  }
  void close() {
    keep(open_.back(), builder_.close());
    open_.pop_back();
  }

  WorkBudget& budget_;
  DocumentBuilder builder_;
  std::vector<YAML::anchor_t> open_;  // of the lists and maps that are not at their end
  std::map<YAML::anchor_t, Json> anchors_;
};

// Python's YAML is of version 1.1, where these words are truth values.
bool is_truth_of_older_yaml(const std::string& text) {
  static const std::set<std::string> words{"y", "n", "yes", "no", "on", "off"};
  return words.contains(lower_case(text));
}

// Words that YAML would not read as the text that they are.
bool needs_quotes(const std::string& text) {
  if (is_truth_of_older_yaml(text)) return true;
  YAML::Node node;
  try {
    node = YAML::Load(text);
  } catch (const YAML::Exception&) {
    return true;
  }
  return !node.IsScalar() || !scalar(node.Tag(), node.Scalar()).is_string() || node.Scalar() != text ||
         text.find_first_of("#:\"'\n") != std::string::npos;
}

std::string inline_text(const Json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    return needs_quotes(text) ? Json(text).dump() : text;
  }
  if (!value.is_array()) return value.is_object() && value.empty() ? "{}" : value.dump();
  std::string items;
  for (const Json& item : value) items += (items.empty() ? "" : ", ") + inline_text(item);
  return "[" + items + "]";
}

void append(const Json& map, int indent, std::string& text) {
  const std::string margin(size_t(indent), ' ');
  for (const auto& [key, value] : map.items()) {
    if (value.is_object() && !value.empty()) {
      text += fmt::format("{}{}:\n", margin, key);
      append(value, indent + 2, text);
    } else if (value.is_array() && !value.empty() && value.front().is_array()) {
      text += fmt::format("{}{}:\n", margin, key);
      for (const Json& item : value) text += fmt::format("{}- {}\n", margin, inline_text(item));
    } else {
      text += fmt::format("{}{}: {}\n", margin, key, inline_text(value));
    }
  }
}

}  // namespace

Json read_yaml(const std::filesystem::path& file) {
  WorkBudget budget(file.string(), kMostImportedBytes);
  return yaml_value(read_file(file, kMostImportedBytes), budget);
}

Json yaml_value(const std::string& text, WorkBudget& budget) {
  budget.spend(text.size());
  std::istringstream in(text);
  YamlEvents events(budget);
  try {
    YAML::Parser(in).HandleNextDocument(events);
    return events.take();
  } catch (const YAML::Exception& error) {
    throw UserError(Problem{fmt::format("{} at line {}", budget.file(), error.mark.line + 1), error.msg,
                            "a configuration of a framework in YAML", ""});
  }
}

std::string yaml_text(const Json& value) {
  std::string text;
  append(value, 0, text);
  return text;
}

}  // namespace mpt::frameworks
