// SPDX-License-Identifier: Apache-2.0
#include "frameworks/pytorch/trainer_file.h"

#include <set>

#include "base/error.h"
#include "frameworks/readers/shell_state.h"

namespace mpt::frameworks {
namespace {

constexpr std::string_view kBody = "# body\n", kPlan = "# plan\n", kEndOfPlan = "# end plan\n";
constexpr std::string_view kOtherPart = "  # part";

std::vector<std::string_view> lines_of_part(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool holds(std::string_view condition, const TrainerConditions& conditions) {
  const bool negated = condition.starts_with("not ");
  if (negated) condition.remove_prefix(4);
  const auto found = conditions.find(std::string(condition));
  MPT_CHECK(found != conditions.end(), "the trainer's condition \"{}\" is not known", condition);
  return found->second != negated;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto is_part = [&](size_t at) { return at < text.size() && is_name_part(text[at]); };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if ((at == 0 || !is_part(at - 1)) && !is_part(at + word.size())) return true;
  return false;
}

// Imports of the parts, without the parts' imports of each other.
class TrainerImports {
 public:
  void add(std::string_view header) {
    for (const std::string_view line : lines_of_part(header)) {
      if (line.ends_with(kOtherPart)) continue;
      if (line.starts_with("import ")) whole_.emplace(line);
      if (!line.starts_with("from ")) continue;
      const size_t middle = line.find(" import ");
      std::set<std::string>& names = names_[std::string(line.substr(0, middle))];
      for (std::string_view rest = line.substr(middle + 8); !rest.empty();) {
        const size_t end = std::min(rest.find(", "), rest.size());
        names.emplace(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 2, rest.size()));
      }
    }
  }

  std::string text(const std::string& body) const {
    std::string standard, torch;
    for (const auto& line : whole_) (line.starts_with("import torch") ? torch : standard) += line + "\n";
    for (const auto& [module, names] : names_) {
      std::vector<std::string> used;
      std::copy_if(names.begin(), names.end(), std::back_inserter(used),
                   [&](const std::string& name) { return has_word(body, name.substr(name.rfind(' ') + 1)); });
      if (!used.empty()) torch += fmt::format("{} import {}\n", module, joined(used, ", "));
    }
    return standard + "\n" + torch;
  }

 private:
  std::set<std::string> whole_;
  std::map<std::string, std::set<std::string>> names_;
};

std::string with_constants(std::string text, const std::string& constants) {
  const size_t begin = text.find(kPlan), end = text.find(kEndOfPlan);
  return begin == std::string::npos ? text : text.replace(begin, end + kEndOfPlan.size() - begin, constants);
}

}  // namespace

std::string trainer_part(const std::string& name) {
  for (const auto& [file, text] : trainer_files())
    if (file == name) return std::string(text);
  MPT_CHECK(false, "the trainer has no part {}", name);
}

std::string kept_lines(std::string_view text, const TrainerConditions& conditions) {
  std::string kept;
  std::vector<bool> open;
  for (const std::string_view line : lines_of_part(text)) {
    const std::string_view words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (words.starts_with("# if ")) {
      open.push_back(holds(words.substr(5), conditions));
    } else if (words == "# end") {
      MPT_CHECK(!open.empty(), "an end without its condition in the trainer");
      open.pop_back();
    } else if (!contains(open, false)) {
      kept.append(line).append("\n");
    }
  }
  MPT_CHECK(open.empty(), "a condition without its end in the trainer");
  return kept;
}

std::string trainer_file(const std::vector<std::string>& parts, const TrainerConditions& conditions,
                         const std::string& head, const std::string& constants) {
  TrainerImports imports;
  std::string body;
  for (const std::string& part : parts) {
    const std::string text = kept_lines(part, conditions);
    const size_t at = text.find(kBody);
    MPT_CHECK(at != std::string::npos, "no body in a part of the trainer:\n{}", part);
    imports.add(std::string_view(text).substr(0, at));
    body += (body.empty() ? "\n" : "\n\n") + with_constants(text.substr(at + kBody.size()), constants);
  }
  return head + "\n" + imports.text(body) + body;
}

}  // namespace mpt::frameworks
