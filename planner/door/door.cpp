// SPDX-License-Identifier: Apache-2.0
#include "planner/door/door.h"

#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/json.h"
#include "planner/door/question.h"

namespace mpt::planner {
namespace {

Json error_of(const char* kind, const std::string& text) {
  return {{"kind", kind}, {"text", text}, {"problems", Json::array()}};
}

Json error_of(const UserError& error) {
  Json all = error_of("input", error.what());
  for (const Problem& p : error.problems())
    all["problems"].push_back(
        {{"place", p.where}, {"finding", p.found}, {"expectation", p.expected}, {"remedy", p.remedy}});
  if (const auto* const nothing = dynamic_cast<const NothingFits*>(&error); nothing != nullptr)
    all["nearest"] = to_json(nothing->nearest);
  return all;
}

Json answer_or_error(const std::string& text, const Watch& watch) {
  try {
    return {{"answer", answer_of(parse_json(text, "question"), watch)}};
  } catch (const UserError& error) {
    return {{"error", error_of(error)}};
  } catch (const RunError& error) {
    return {{"error", error_of("run", error.what())}};
  } catch (const std::exception& error) {
    return {{"error", error_of("defect", error.what())}};
  }
}

}  // namespace

std::string answer_json(const std::string& question, const Watch& watch) {
  bool stopped = false;
  const Watch noting = [&](const std::string& what, const SearchProgress& progress) {
    stopped = stopped || (watch && !watch(what, progress));
    return !stopped;
  };
  Json answer = answer_or_error(question, noting);
  answer["stopped"] = stopped;
  return json_text(answer);
}

}  // namespace mpt::planner

char* mpt_answer(const char* question, mpt_progress progress, mpt_stop stop, void* context) {
  using namespace mpt;
  constexpr double kEvery = 0.05;  // seconds; a search reports far more often
  double last_s = 0.0;
  const planner::Watch watch = [&](const std::string& what, const planner::SearchProgress& p) {
    if (now_s() - last_s < kEvery) return true;
    last_s = now_s();
    const Json told{{"what", what},
                    {"layouts", p.layouts},
                    {"seconds", p.seconds},
                    {"best_s", p.best_s},
                    {"bound_s", p.bound_s}};
    if (progress != nullptr) progress(context, json_text(told).c_str());
    return stop == nullptr || stop(context) == 0;
  };
  const std::string answer = planner::answer_json(question, watch);
  char* const copy = static_cast<char*>(std::malloc(answer.size() + 1));
  if (copy != nullptr) std::memcpy(copy, answer.c_str(), answer.size() + 1);
  return copy;
}

void mpt_free(char* answer) { std::free(answer); }
