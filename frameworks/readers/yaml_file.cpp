// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/yaml_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "base/json.h"

namespace mpt::frameworks {
namespace {

// The library's parser calls these. The library's own nodes would take more time and memory.
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
    if (found->second.is_string() && builder_.wants_key())
      builder_.key(found->second);
    else
      add(budget_.copy(found->second), mark, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    // A text in quotes has the tag "!".
    if (!builder_.wants_key()) return add(tag == "!" ? Json(text) : plain_scalar(text), mark, anchor);
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
    refuse_input(fmt::format("{} at line {}", budget_.file(), mark.line + 1), what,
                 "a configuration of a framework in YAML");
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
  std::vector<YAML::anchor_t> open_;  // of the lists and maps that are still open
  std::map<YAML::anchor_t, Json> anchors_;
};

}  // namespace

Json yaml_value(const std::string& text, WorkBudget& budget) {
  budget.spend(text.size());
  std::istringstream in(text);
  YamlEvents events(budget);
  try {
    YAML::Parser(in).HandleNextDocument(events);
    return events.take();
  } catch (const YAML::Exception& error) {
    refuse_input(fmt::format("{} at line {}", budget.file(), error.mark.line + 1), error.msg,
                 "a configuration of a framework in YAML");
  }
}

}  // namespace mpt::frameworks
