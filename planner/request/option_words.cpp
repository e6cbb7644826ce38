// SPDX-License-Identifier: Apache-2.0

// Options of a request as they are typed: the words of the command line, of --over, and of programs.
#include "planner/request/resolve.h"

#include "base/quantity.h"
#include "base/words.h"

namespace mpt::planner {
namespace {

// Refuses several values for an option that takes one; they belong to a comparison. "4,096" is one number.
void check_single(const std::string& option, const std::string& word) {
  const size_t comma = word.find(',');
  if (comma == std::string::npos) return;
  std::string number = word;
  std::erase(number, ',');
  const bool thousands = comma <= 3 && word.size() == comma + 4 && number_of<int64_t>(number);
  refuse_input(option, "\"" + word.substr(0, 40) + "\"", "one value",
               thousands ? option + " " + number + " is that number"
                         : fmt::format("mpt-plan compare --over {}={} plans each of them", option.substr(2),
                                       word.substr(0, 40)));
}

std::string plain_word(const std::string& field, const std::string& word) {
  if (field == "batch_tokens") return fmt::format("{:.0f}", parse_count(word, "--batch-tokens"));
  if (field == "global_batch" && word.find_first_of("kKMBT") == word.size() - 1)
    refuse_input("--global-batch", "\"" + word + "\"", "sequences, or tokens by that word",
                 "--global-batch " + word + "-tokens");
  return field == "seq" ? std::to_string(parse_sequence(word, "--seq")) : word;
}

// Visitor that sets one option from a word, and lists all options.
template <class T>
struct OptionSetter {
  T& target;
  const std::string &wanted, &word;
  bool one;
  std::vector<std::string>& known;
  bool found = false;

  template <class M>
  void field(const char* name, M T::*member, const char*, FieldRule rule) {
    using E = typename detail::ElementOf<M>::type;
    constexpr bool is_text = std::is_same_v<E, std::string>, is_list = is_a<M, std::vector>;
    if constexpr ((!std::is_class_v<E> || is_text) && !std::is_same_v<M, bool>) {
      if (rule.heading == nullptr) return;
      const std::string option = option_of(name);
      known.push_back(option.substr(2));
      if (known.back() != wanted) return;
      found = true;
      if (one || (!is_list && !is_text)) check_single(option, word);
      std::vector<std::string> words = is_list && !one ? split_at(word, ',') : std::vector{word};
      for (std::string& each : words) each = plain_word(name, each);
      set_from_words(target.*member, words, option, rule);
    }
  }
};

}  // namespace

void set_option(PlanRequest& request, const std::string& name, const std::string& word, bool one) {
  const std::string tokens = "-tokens";
  if (name == "global-batch" && word.ends_with(tokens)) {
    const std::string count = word.substr(0, word.size() - tokens.size());
    request.batch_tokens = int64_t(parse_count(count, "--global-batch"));
    return;
  }
  std::vector<std::string> known;
  OptionSetter<PlanRequest> of_request{request, name, word, one, known};
  PlanRequest::describe(of_request);
  OptionSetter<SearchBounds> of_bounds{request.bounds, name, word, one, known};
  SearchBounds::describe(of_bounds);
  if (!of_request.found && !of_bounds.found) detail::refuse_word("--over", name, one_of(known), known);
}

}  // namespace mpt::planner
