// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

namespace mpt {
namespace {

constexpr size_t kMaxDepth = 64;

std::string place_of(const std::string& text, size_t byte) {
  const size_t end = std::min(byte, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  const size_t line_start = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t column = line_start == std::string::npos ? end : end - line_start - 1;
  return fmt::format("line {}, column {}", line, std::max<size_t>(column, 1));
}

}  // namespace

Json parse_json(const std::string& text, const std::string& where) {
  WorkBudget budget(where, kMostJsonBytes);
  return parse_json(text, budget);
}

Json parse_json(const std::string& text, WorkBudget& budget) {
  const std::string& where = budget.file();
  try {
    DocumentBuilder builder(budget, kMaxDepth, DocumentBuilder::Doubled::refused);
    Json::sax_parse(text, &builder);
    return builder.take();
  } catch (const Json::parse_error& error) {
    const std::string remedy =
        text.empty() ? "the file is empty" : "is the file complete? (error: a cut-off or malformed document)";
    refuse_input(where, fmt::format("not valid JSON at {}", place_of(text, error.byte)), "a JSON document",
                 remedy);
  } catch (const Json::out_of_range&) {
    refuse_input(where, "a number that is too large", "numbers below 1e308");
  } catch (const Json::exception& error) {
    refuse_input(where, fmt::format("not usable JSON ({})", error.what()), "a JSON document");
  }
}

std::optional<Json> json_of(const std::string& text) {
  try {
    return parse_json(text, "");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

Json load_json(const std::filesystem::path& file, int64_t max_bytes) {
  return parse_json(read_file(file, max_bytes), file.string());
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void JsonProblems::add(const std::string& pointer, std::string found, std::string expected,
                       std::string remedy) {
  if (full()) return;
  const std::string where = pointer.empty() ? file_ : file_ + " at " + pointer;
  problems_.push_back({where, std::move(found), std::move(expected), std::move(remedy)});
}

void JsonProblems::throw_if_any() const {
  if (!problems_.empty()) throw UserError(problems_);
}

namespace detail {

std::string describe_json(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_string()) return fmt::format("\"{}\"", cut_text(value.get_ref<const std::string&>(), 80));
  return value.is_array() ? "a list" : value.is_object() ? "an object" : "the number " + value.dump();
}

std::string escape_pointer(const std::string& key) {
  std::string out;
  for (const char c : key.substr(0, 80)) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

bool check_range(double value, const std::string& pointer, const FieldRule& rule, JsonProblems& problems) {
  if (value >= rule.minimum && value <= rule.maximum) return true;
  const std::string expected = std::isinf(rule.maximum)
                                   ? fmt::format("at least {}", rule.minimum)
                                   : fmt::format("between {} and {}", rule.minimum, rule.maximum);
  problems.add(pointer, fmt::format("the number {}", value), expected);
  return false;
}

bool check_text(const std::string& text, const std::string& pointer, const FieldRule& rule,
                JsonProblems& problems) {
  if (text.size() > rule.most_text_bytes) {
    problems.add(pointer, fmt::format("a text of {} bytes", text.size()),
                 fmt::format("at most {} bytes", rule.most_text_bytes));
    return false;
  }
  if (is_printable(text)) return true;
  problems.add(pointer, fmt::format("the text \"{}\"", printable(cut_text(text, 80))),
               "a text without control characters and line ends");
  return false;
}

}  // namespace detail

}  // namespace mpt
