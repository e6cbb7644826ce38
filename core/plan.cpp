// SPDX-License-Identifier: Apache-2.0
#include "core/plan.h"

#include <set>

#include "base/digest.h"
#include "base/json.h"
#include "core/lower.h"
#include "core/schedule_catalog.h"

namespace mpt {
namespace {

void check_head(const Json& json, const std::string& file) {
  if (!json.is_object()) refuse_input(file, "not an object", "a plan written by mpt-plan");
  JsonProblems problems(file);
  if (const auto format = json.find("format"); format == json.end() || *format != "mpt-plan")
    problems.add("/format", format == json.end() ? "missing" : detail::describe_json(*format), "\"mpt-plan\"",
                 "is this a file that mpt-plan wrote?");
  const auto version = json.find("version");
  if (version != json.end() && version->is_number_integer() && version->get<int64_t>() != kPlanVersion)
    problems.add("/version", detail::describe_json(*version), std::to_string(kPlanVersion),
                 version->get<int64_t>() > kPlanVersion
                     ? "written by a newer mpt-plan: update this program or plan again"
                     : "written by an older mpt-plan: plan again");
  problems.throw_if_any();
}

// Readers assume that the entries are those of pipeline ranks 0, 1, ...
void check_memory_ranks(const Plan& plan, JsonProblems& problems) {
  const auto& memory = plan.prediction.memory;
  if (int64_t(memory.size()) != plan.layout.pipeline) {
    problems.add("/prediction/memory", fmt::format("{} entries", memory.size()),
                 fmt::format("one for each of {} pipeline ranks", plan.layout.pipeline));
    return;
  }
  for (size_t r = 0; r < memory.size(); ++r) {
    if (memory[r].rank == int64_t(r)) continue;
    problems.add(fmt::format("/prediction/memory/{}/rank", r), std::to_string(memory[r].rank),
                 fmt::format("{}, the entries stand in the ranks' order", r));
  }
}

void check_durations(const Plan& plan, JsonProblems& problems) {
  std::set<std::pair<InstructionKind, int64_t>> seen;
  for (size_t i = 0; i < plan.durations.size() && !problems.full(); ++i) {
    const InstructionDuration& entry = plan.durations[i];
    if (entry.stage >= plan.layout.stages())
      problems.add(fmt::format("/durations/{}/stage", i), std::to_string(entry.stage),
                   fmt::format("one of {} stages", plan.layout.stages()));
    if (!seen.insert({entry.kind, entry.stage}).second)
      problems.add(fmt::format("/durations/{}", i),
                   fmt::format("a second {} of stage {}", enum_name(entry.kind), entry.stage),
                   "one for each kind and stage");
  }
}

// Sums over ranks and micro-batches must not overflow 64 bits.
void check_bytes(const Plan& plan, JsonProblems& problems) {
  constexpr double kMost = 9e18, kSlots = 4;
  double bytes = 0.0;
  for (const StageFootprint& f : plan.footprints) {
    bytes += double(f.parameter_bytes) + double(f.gradient_bytes) + double(f.optimizer_bytes) +
             double(f.tied_embedding_bytes) + double(f.forward_workspace_bytes) +
             double(f.backward_workspace_bytes) + double(f.input_gradient_workspace_bytes) +
             double(f.weight_gradient_workspace_bytes);
    bytes += (double(plan.schedule.micro_batches) + kSlots) *
             (2.0 * double(f.boundary_bytes) + double(f.saved_bytes) + double(f.saved_for_weight_bytes));
  }
  if (bytes <= kMost) return;
  problems.add("/footprints", fmt::format("{:.2g} bytes in a step", bytes),
               fmt::format("at most {:.0e}", kMost));
}

void check_ranking(const std::vector<RankedLayout>& layouts, const char* at, JsonProblems& problems) {
  for (size_t i = 0; i < layouts.size(); ++i)
    if (const auto rejection = check_degrees(layouts[i].layout))
      problems.add(fmt::format("{}/{}/layout", at, i), rejection->reason, "degrees of a cluster");
}

void check_consistency(const Plan& plan, const std::string& file) {
  validate_model(plan.model, file + " at /model");
  find_schedule(plan.layout.schedule, file + " at /layout/schedule");
  JsonProblems problems(file);
  for (const auto& [at, found, allowed] : cluster_defects(plan.cluster))
    problems.add("/cluster" + at, found, allowed);
  if (auto rejection = check_layout(plan.model, plan.layout, plan.workload))
    problems.add("/layout", rejection->reason, "a layout that divides the model and the batch", "plan again");
  if (plan.workload.sequence > plan.model.max_positions)
    problems.add("/workload/sequence", std::to_string(plan.workload.sequence),
                 fmt::format("at most the model's {} positions", plan.model.max_positions));
  if (plan.cluster.devices < plan.layout.ranks())
    problems.add("/layout", fmt::format("{} ranks for {} devices", plan.layout.ranks(), plan.cluster.devices),
                 "at most one rank per device");
  if (int64_t(plan.footprints.size()) != plan.layout.stages())
    problems.add("/footprints", fmt::format("{} entries", plan.footprints.size()),
                 fmt::format("one for each of {} stages", plan.layout.stages()));
  problems.throw_if_any();
  check_memory_ranks(plan, problems);
  check_durations(plan, problems);
  check_bytes(plan, problems);
  check_ranking(plan.ranking, "/ranking", problems);
  check_ranking(plan.front, "/front", problems);
  if (plan.schedule.ranks != plan.layout.pipeline || plan.schedule.chunks != plan.layout.chunks ||
      plan.schedule.micro_batches != micro_batches(plan.layout, plan.workload))
    problems.add("/schedule", "ranks, chunks or micro_batches differ from the layout and the batch",
                 fmt::format("{} ranks, {} chunks, {} micro-batches", plan.layout.pipeline,
                             plan.layout.chunks, micro_batches(plan.layout, plan.workload)));
  problems.throw_if_any();
}

// Digests of the prediction's inputs. They show that a user edited an input in plan.json, so that the figures
// are those of another plan. The digests belong to the file.
constexpr const char* kInputDigests = "input_digests";

void add_value(const Json& value, Digest& digest) {
  if (value.is_number()) {
    digest.add(fmt::format("{:.17g},", value.get<double>()));
  } else if (value.is_array()) {
    digest.add("[");
    for (const Json& entry : value) add_value(entry, digest);
    digest.add("]");
  } else if (value.is_object()) {
    std::vector<std::string> keys;
    for (const auto& [key, entry] : value.items()) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    digest.add("{");
    for (const std::string& key : keys) {
      digest.add(Json(key).dump() + ":");
      add_value(value.at(key), digest);
    }
    digest.add("}");
  } else {
    digest.add(value.dump() + ",");
  }
}

std::string value_digest(const Json& value) {
  Digest digest;
  add_value(value, digest);
  return digest.text();
}

constexpr const char* kInputs[] = {"model", "cluster", "workload", "memory_limit_bytes", "layout"};

void check_inputs(const Json& digests, const Json& plan, const std::string& file) {
  if (digests.is_null())
    refuse_input(fmt::format("{} at /{}", file, kInputDigests), "missing",
                 "what mpt-plan writes beside a prediction",
                 fmt::format("plan again: mpt-plan --request {}", file));
  for (const char* const key : kInputs) {
    if (digests.is_object() && digests.contains(key) && digests[key] == value_digest(plan[key])) continue;
    refuse_input(
        fmt::format("{} at /{}", file, key), "edited since the plan was made", "what its prediction is about",
        fmt::format("undo the edit, or plan again: mpt-plan --request {} takes other options", file));
  }
}

}  // namespace

ScheduleRows schedule_rows(const Schedule& schedule) {
  ScheduleRows rows{schedule.name,
                    schedule.ranks,
                    schedule.chunks,
                    schedule.micro_batches,
                    {schedule.rank_of_stage.begin(), schedule.rank_of_stage.end()},
                    {}};
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    rows.rows[std::to_string(r)] = row_to_text(schedule.rows[r], schedule.chunks > 1);
  return rows;
}

Schedule schedule_from_rows(const ScheduleRows& rows, const std::string& file) {
  JsonProblems problems(file);
  if (const int64_t actions = rows.ranks * rows.chunks * rows.micro_batches; actions > kMostScheduleCells) {
    problems.add("/schedule", fmt::format("{} stages and micro-batches", actions),
                 fmt::format("at most {}", kMostScheduleCells));
    problems.throw_if_any();
  }
  Schedule schedule{rows.name,
                    int(rows.ranks),
                    int(rows.chunks),
                    int(rows.micro_batches),
                    {rows.rank_of_stage.begin(), rows.rank_of_stage.end()},
                    {}};
  for (int64_t r = 0; r < rows.ranks; ++r) {
    const auto found = copy_of(rows.rows, std::to_string(r));
    std::string bad;
    auto row = row_from_text(found.value_or(""), int(r), &bad);
    if (!found) problems.add("/schedule/rows", fmt::format("no row for rank {}", r), "one row per rank");
    if (!row)
      problems.add(fmt::format("/schedule/rows/{}", r), fmt::format("\"{}\"", bad),
                   "an action such as F0, B3 or 2F0");
    schedule.rows.push_back(row.value_or(std::vector<Action>{}));
  }
  problems.throw_if_any();
  if (auto defect = find_defect(schedule))
    problems.add("/schedule", *defect, "a schedule that is complete, ordered and free of deadlock");
  problems.throw_if_any();
  return schedule;
}

Plan plan_from_text(const std::string& text, const std::string& file) {
  Json json = parse_json(text, file);
  check_head(json, file);
  const Json digests = json.contains(kInputDigests) ? json[kInputDigests] : Json();
  json.erase(kInputDigests);
  json.erase("fitted");  // plans of 0.3.0 have this key
  Plan plan = from_json<Plan>(json, file);
  check_consistency(plan, file);
  const StepProgram program = program_of(plan);
  if (const std::string digest = program_digest(program); digest != plan.program_digest)
    refuse_input(file + " at /program_digest", fmt::format("\"{}\"", plan.program_digest.substr(0, 80)),
                 fmt::format("\"{}\", the digest of what this plan lowers to", digest),
                 "the plan was edited or made by another version, so its prediction no longer belongs to "
                 "it: plan again");
  check_inputs(digests, json, file);
  const size_t spans = plan.prediction.start_s.size();
  if (plan.prediction.end_s.size() != spans || (spans != 0 && spans != program.instructions.size()))
    refuse_input(file + " at /prediction/start_s",
                 fmt::format("{} starts and {} ends", spans, plan.prediction.end_s.size()),
                 fmt::format("{} of each, one per instruction, or none", program.instructions.size()),
                 "plan again");
  return plan;
}

void store_timeline(Plan& plan, const StepProgram& program, const Timeline& timeline) {
  Prediction& p = plan.prediction;
  p.step_time_s = step_time_s(timeline);
  p.bubble_share = bubble_share(program, timeline);
  p.tokens_per_s = double(plan.workload.tokens_per_step()) / p.step_time_s;
  p.start_s.clear();
  p.end_s.clear();
  if (timeline.spans.size() > kMostStoredSpans) return;
  for (const Span& span : timeline.spans) {
    p.start_s.push_back(span.start_s);
    p.end_s.push_back(span.end_s);
  }
}

std::optional<Timeline> stored_timeline(const Plan& plan) {
  if (plan.prediction.start_s.empty()) return std::nullopt;
  Timeline timeline;
  for (size_t i = 0; i < plan.prediction.start_s.size(); ++i)
    timeline.spans.push_back({plan.prediction.start_s[i], plan.prediction.end_s[i]});
  return timeline;
}

Plan load_plan(const std::filesystem::path& file) { return plan_from_text(read_file(file), file.string()); }

Json plan_to_json(const Plan& plan) {
  Json json = to_json(plan);
  // The digests are those of the inputs after writing and reading, as later readers compute them.
  for (const char* const key : kInputs)
    json[kInputDigests][key] = value_digest(parse_json(json_text(json[key]), key));
  return json;
}

std::string plan_to_text(const Plan& plan) { return json_text(plan_to_json(plan), 1) + "\n"; }

void save_plan(const Plan& plan, const std::filesystem::path& file) {
  write_file_atomically(file, plan_to_text(plan));
}

StepProgram program_of(const Plan& plan) {
  return lower(plan.layout, schedule_from_rows(plan.schedule, "plan"), plan.footprints);
}

std::vector<double> durations_of(const Plan& plan, const StepProgram& program) {
  std::map<std::pair<InstructionKind, int64_t>, double> table;
  for (const InstructionDuration& entry : plan.durations) table[{entry.kind, entry.stage}] = entry.seconds;
  std::vector<double> durations;
  durations.reserve(program.instructions.size());
  for (const Instruction& i : program.instructions) {
    const auto found = table.find({i.kind, i.stage});
    if (found == table.end())
      refuse_input("plan at /durations",
                   fmt::format("no duration for {} of stage {}", enum_name(i.kind), i.stage),
                   "one for every kind and stage of the program", "plan again");
    durations.push_back(found->second);
  }
  return durations;
}

}  // namespace mpt
