// SPDX-License-Identifier: Apache-2.0
#include "planner/door/door.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/json.h"
#include "base/words.h"
#include "planner/door/question.h"

namespace mpt::planner {
namespace {

const DoorAction& action_named(const Json& question) {
  const auto found = question.is_object() ? question.find("do") : question.end();
  if (!question.is_object() || found == question.end() || !found->is_string())
    throw UserError(Problem{"question", "no \"do\"", "an object that says what to do", ""});
  std::vector<std::string> names;
  for (const DoorAction& action : door_actions()) {
    if (action.name == *found) return action;
    names.emplace_back(action.name);
  }
  detail::refuse_word("do", found->get<std::string>(), fmt::format("one of {}", fmt::join(names, ", ")),
                      names);
}

// A field that another question has is none of this one.
DoorQuestion read_question(const Json& json, const DoorAction& action) {
  auto question = from_json<DoorQuestion>(json, "question");
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto& [key, value] : json.items()) {
    if (key != "do" && !has(action.needs, key) && !has(action.takes, key))
      throw UserError(Problem{"question", fmt::format("\"{}\" for {}", key, action.name),
                              fmt::format("{}", fmt::join(action.needs, ", ")), "leave it out"});
  }
  for (const std::string& name : action.needs) {
    if (!json.contains(name))
      throw UserError(
          Problem{"question", fmt::format("no \"{}\" for {}", name, action.name), "it to be present", ""});
  }
  return question;
}

Json error_of(const char* kind, const std::string& text) {
  return {{"kind", kind}, {"text", text}, {"problems", Json::array()}};
}

Json error_of(const UserError& error) {
  Json all = error_of("input", error.what());
  for (const Problem& p : error.problems()) {
    all["problems"].push_back(
        {{"place", p.where}, {"finding", p.found}, {"expectation", p.expected}, {"remedy", p.remedy}});
  }
  return all;
}

Json answer_of(const std::string& text, const Watch& watch) {
  try {
    const Json question = parse_json(text, "question");
    const DoorAction& action = action_named(question);
    return {{"answer", action.answer(read_question(question, action), watch)}};
  } catch (const UserError& error) {
    return {{"error", error_of(error)}};
  } catch (const RunError& error) {
    return {{"error", error_of("run", error.what())}};
  } catch (const std::exception& error) {
    return {{"error", error_of("defect", error.what())}};
  }
}

// Asks and tells a few times a second: a search looks far more often.
class Callbacks {
 public:
  Callbacks(mpt_progress progress, mpt_stop stop, void* context)
      : progress_(progress), stop_(stop), context_(context) {}

  bool goes_on(const std::string& what, const SearchProgress& p) {
    constexpr double kEvery = 0.05;
    if (stopped_) return false;
    if (now_s() - last_s_ < kEvery) return true;
    last_s_ = now_s();
    if (progress_ != nullptr) {
      const Json told{{"what", what},
                      {"layouts", p.layouts},
                      {"seconds", p.seconds},
                      {"best_s", p.best_s},
                      {"bound_s", p.bound_s}};
      progress_(context_, json_text(told).c_str());
    }
    return !(stopped_ = stop_ != nullptr && stop_(context_) != 0);
  }

 private:
  mpt_progress progress_;
  mpt_stop stop_;
  void* context_;
  double last_s_ = 0.0;
  bool stopped_ = false;
};

}  // namespace

std::string answer_json(const std::string& question, const Watch& watch) {
  bool stopped = false;
  const Watch noting = [&](const std::string& what, const SearchProgress& progress) {
    stopped = stopped || (watch && !watch(what, progress));
    return !stopped;
  };
  Json answer = answer_of(question, noting);
  answer["stopped"] = stopped;
  return json_text(answer);
}

}  // namespace mpt::planner

char* mpt_answer(const char* question, mpt_progress progress, mpt_stop stop, void* context) {
  mpt::planner::Callbacks callbacks(progress, stop, context);
  const std::string answer = mpt::planner::answer_json(
      question, [&](const std::string& what, const mpt::planner::SearchProgress& p) {
        return callbacks.goes_on(what, p);
      });
  char* const copy = static_cast<char*>(std::malloc(answer.size() + 1));
  if (copy != nullptr) std::memcpy(copy, answer.c_str(), answer.size() + 1);
  return copy;
}

void mpt_free(char* answer) { std::free(answer); }
