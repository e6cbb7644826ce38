// SPDX-License-Identifier: Apache-2.0

// mpt-plan estimate --requests: a file of requests, one a line, each answered by a line of JSON.

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/words.h"
#include "planner/commands/commands.h"
#include "planner/cost/calibration.h"
#include "planner/explain/confidence.h"
#include "planner/explain/operators.h"
#include "planner/observe/features.h"

namespace mpt::planner {
namespace {

struct NumberedLine {
  std::string where, text;
};

std::vector<NumberedLine> lines_of_file(const std::string& file) {
  const std::vector<std::string> texts = split_at(read_file(file), '\n');
  std::vector<NumberedLine> lines;
  for (size_t n = 0; n < texts.size(); ++n)
    if (!texts[n].empty()) lines.push_back({fmt::format("{}:{}", file, n + 1), texts[n]});
  return lines;
}

// Refuses a name that is not in the evidence, since it would change nothing.
void check_source(const std::string& name, const std::vector<Evidence>& evidence) {
  std::vector<std::string> names;
  for (const Evidence& e : evidence)
    for (const SourceEvidence& s : e.sources) names.push_back(s.source);
  if (!name.empty() && !contains(names, name))
    detail::refuse_word("--without-source", name, "a source in planner/explain/evidence.json", names);
}

// The plan without its program, and the values by which published runs are compared.
Json answer_of(Estimated e, const std::vector<Evidence>& evidence, const std::string& without_source) {
  Predicted predicted = predicted_by(e.plan);
  const MemoryMargin margin = memory_margin(predicted.like, evidence);
  predicted.like.left_out = without_source;
  Prediction& prediction = e.plan.prediction;
  prediction.confidence = confidence(predicted, evidence);
  prediction.start_s.clear();
  prediction.end_s.clear();
  const Plan& plan = e.plan;
  Json answer{{"fits", !e.candidate.evaluation.rejection},  // by MPT's count, not by published runs
              {"model", to_json(plan.model)},
              {"cluster", to_json(plan.cluster)},
              {"workload", to_json(plan.workload)},
              {"layout", to_json(plan.layout)},
              {"memory_limit_bytes", plan.memory_limit_bytes},
              {"safe_bytes", margin.safe_bytes(plan.memory_limit_bytes)},
              {"cost", to_json(plan.cost)},
              {"prediction", to_json(prediction)},
              {"kind", to_json(predicted.like.kind)},
              {"notes", plan.notes}};
  const WorkSeconds work = critical_work(e.resolved->problem, e.candidate);
  for (size_t c = 0; c < kWorkClasses; ++c) answer["work_s"][enum_name(WorkClass(c))] = work[c];
  answer["features"] = {{"time", time_features_of(e.resolved->problem, e.candidate)},
                        {"memory", memory_features_of(e.resolved->problem, e.candidate)}};
  return answer;
}

struct Answer {
  std::string text;
  bool failed = false;
};

// A request that cannot be priced must not stop the others.
Answer answer_line(const NumberedLine& line, const Calibration& calibration,
                   const std::vector<Evidence>& evidence, const std::string& without_source) {
  try {
    const auto request = from_json<PlanRequest>(parse_json(line.text, line.where), line.where);
    return {answer_of(estimate(request, calibration), evidence, without_source).dump()};
  } catch (const std::exception& error) {
    return {Json{{"error", error.what()}}.dump(), true};
  }
}

}  // namespace

void declare_lines(CLI::App& command, LinesOptions& o) {
#include "generated/RequestLinesOptions.inc"
}

void check_lines(const CLI::App& command, const LinesOptions& o) {
  const std::vector<std::string> of_lines{"--calibration", "--without-source"};
  if (!o.file.empty())
    return refuse_beside(command, "--requests", "each line of the file is a whole request",
                         [&](const CLI::Option& other) {
                           return other.get_name() != "--json" && !contains(of_lines, other.get_name());
                         });
  for (const std::string& name : of_lines)
    if (command.get_option(name)->count() > 0)
      refuse_input(name, "without --requests", "both", "it changes the answers to such a file");
}

int answer_lines(const LinesOptions& o) {
  const auto calibration = o.calibration.empty() ? shipped_calibration() : load_calibration(o.calibration);
  const std::vector<Evidence>& evidence = published_evidence();
  check_source(o.without_source, evidence);
  const std::vector<NumberedLine> lines = lines_of_file(o.file);
  std::vector<Answer> answers(lines.size());
  const Stoppable stoppable;
  on_threads(lines.size(), size_t(default_threads()), [&](size_t i, size_t) {
    if (!stop_requested()) answers[i] = answer_line(lines[i], calibration, evidence, o.without_source);
  });
  if (stop_requested()) return kExitOk;  // the program ends with the exit code of an interruption
  for (const Answer& answer : answers) fmt::print("{}\n", answer.text);
  return any_of(answers, [](const Answer& answer) { return answer.failed; }) ? kExitUserError : kExitOk;
}

}  // namespace mpt::planner
