// SPDX-License-Identifier: Apache-2.0
#include "planner/door/question.h"

#include "base/version.h"
#include "base/words.h"
#include "core/bound_words.h"
#include "frameworks/export_targets.h"
#include "frameworks/framework.h"
#include "models/zoo.h"
#include "planner/answer/diagnosed_run.h"
#include "planner/answer/doctor.h"
#include "planner/answer/exported_plan.h"
#include "planner/answer/forward.h"
#include "planner/answer/known_plan.h"
#include "planner/explain/operators.h"
#include "planner/explain/screen.h"
#include "planner/explain/utilisation.h"
#include "planner/observe/observed_plan.h"
#include "planner/simulate/simulator.h"
#include "profiler/hardware/cluster_file.h"
#include "profiler/hardware/nodes.h"
#include "reports/html.h"

namespace mpt::planner {
namespace {

struct QuestionOfProgram {
#include "generated/QuestionOfProgram.inc"
};

// A request with model and cluster, which may be given as contents of files that mpt-plan reads.
struct Asked {
  PlanRequest request;
  std::vector<std::string> notes;
};
Asked asked(Json json, const std::string& where) {
  Asked all;
  std::optional<ModelSpec> model;
  std::optional<ClusterSpec> cluster;
  const auto take = [&](const char* key, auto&& read) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (found == json.end() || !found->is_object()) return;
    read(*found, where + "/" + key);
    json.erase(found);
  };
  take("model", [&](const Json& value, const std::string& at) {
    models::ImportedModel read = models::read_model(value, at);
    all.notes = std::move(read.notes);
    model = std::move(read.model);
  });
  take("cluster", [&](const Json& value, const std::string& at) {
    cluster = profiler::read_cluster_file(value, at).cluster;
  });
  Json typed = Json::object();  // options in the words of the command line
  for (const char* key : {"typed", "seq", "global_batch"}) {
    const Json value = json.is_object() ? json.value(key, Json()) : Json();
    if (!value.is_string() && !value.is_object()) continue;
    typed.update(value.is_string() ? Json{{key, value}} : value);
    json.erase(key);
  }
  all.request = from_json<PlanRequest>(json, where);
  for (const auto& [name, word] : typed.items())
    set_option(all.request, option_of(name).substr(2),
               word.is_string() ? word.get<std::string>() : word.dump());
  all.request.model.value = std::move(model);
  all.request.cluster.value = std::move(cluster);
  return all;
}

KnownPlan known_plan(const QuestionOfProgram& q) {
  return {plan_from_text(q.plan.dump(), "plan"), "the plan", q.profile, q.kernels};
}

void add_notes(const std::vector<std::string>& notes, Plan& plan) {
  plan.notes.insert(plan.notes.begin(), notes.begin(), notes.end());
}

struct Drawn {
  StepProgram program;
  Timeline timeline;
  std::string target;  // target that writes the plan's launch files; may be empty
};
Drawn drawn(const Plan& plan) {
  Drawn d{program_of(plan), {}, ""};
  d.timeline = simulate(plan, d.program);
  if (const auto* target = frameworks::export_target_of(plan.layout.execution->framework))
    d.target = target->name;
  return d;
}

// Adds the data from which reports/html/draw.js draws a plan, if the question asks for it.
void add_drawing(const QuestionOfProgram& q, const Plan& plan, Json& answer) {
  if (!q.draw) return;
  const Drawn d = drawn(plan);
  answer["drawing"] = reports::plan_report_data(as_observed(plan), d.program, d.timeline, d.target);
}

Json plan_answer(const QuestionOfProgram& q, const Plan& plan) {
  ScreenOptions screen;
  screen.notes = plan.notes;
  Json answer{{"plan", plan_to_json(plan)}, {"text", plan_screen(plan, screen)}};
  add_drawing(q, plan, answer);
  return answer;
}

Json answer_plan(const QuestionOfProgram& q, const Watch& watch) {
  const Asked a = asked(q.request, "request");
  const auto resolved = resolve(a.request);
  std::optional<Plan> found;
  if (a.request.pareto) found = front(*resolved, watch).fastest;
  if (!found) found = planner::plan(*resolved, watch);  // or throws with the reason
  add_notes(a.notes, *found);
  return plan_answer(q, *found);
}

Json answer_estimate(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const Asked a = asked(q.request, "request");
  Estimated e = estimate(a.request);
  e.plan.faster_stages = faster_stages(e);
  add_notes(a.notes, e.plan);
  Json answer{{"plan", plan_to_json(e.plan)},
              {"fits", e.fits()},
              {"refusal", e.refusal ? Json(e.refusal->reason) : Json()},
              {"text", describe_task(e.plan) + "\n" + describe_choice("YOUR LAYOUT", e.plan) + "\n" +
                           describe_verdict(e.plan, e.lacks()) + describe_figures(e.plan, {}, "", true) +
                           describe_notes(e.plan.notes)}};
  add_drawing(q, e.plan, answer);
  return answer;
}

Json answer_doctor(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const Asked a = asked(q.request, "request");
  const Estimated e = estimate(a.request);
  Json doctor = memory_doctor(a.request, e);
  doctor.update({{"text", describe_figures(e.plan, {}, "", true) + describe_doctor(e, doctor)}});
  return doctor;
}

Json answer_recommend(const QuestionOfProgram& q, const Watch& watch) {
  Json words = q.forward;
  if (words.is_object() && words.contains("offers"))
    for (Json& offer : words["offers"])
      if (offer.is_string()) offer = to_json(offer_of(offer.get<std::string>()));
  auto question = from_json<ForwardQuestion>(words, "forward");
  question.request = asked(q.request, "request").request;
  const ForwardAnswer found = forward(question, watch);
  Json answer = forward_json(found);
  answer["text"] = describe_forward(question, found);
  return answer;
}

Json answer_explain(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const Plan plan = known_plan(q).plan;
  Json answer{{"text", explain(plan)}, {"mfu", model_flop_utilisation(plan)}, {"layouts", Json::array()}};
  for (const RankedLayout& row : plan.ranking) answer["layouts"].push_back(layout_name(row.layout));
  return answer;
}

Json answer_traffic(const QuestionOfProgram& q, const Watch& /*watch*/) {
  Json answer{{"kinds", Json::array()}, {"ranks", traffic_of_ranks(known_plan(q).plan)}};
  for (const auto& [kind, name] : EnumNames<CommunicationKind>::table()) answer["kinds"].push_back(name);
  return answer;
}

Json answer_why_not(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const KnownPlan known = known_plan(q);
  return {{"text", why_not(known, *problem_of(known, parse_bounds(q.layout, "layout")), q.layout)}};
}

Json answer_compare(const QuestionOfProgram& q, const Watch& watch) {
  std::vector<PlanRequest> requests;
  for (size_t i = 0; i < q.requests.size(); ++i)
    requests.push_back(asked(q.requests[i], fmt::format("requests/{}", i)).request);
  Json all = Json::array();
  for (const PlanOrReason& one : compare(requests, watch))
    all.push_back(one.plan ? Json{{"plan", plan_to_json(*one.plan)}} : Json{{"reason", one.reason}});
  return all;
}

Json answer_diagnose(const QuestionOfProgram& q, const Watch& watch) {
  const KnownPlan known = known_plan(q);
  if (q.log.is_null() == q.measured.empty())
    refuse_input("log", q.measured.empty() ? "missing" : "beside measured",
                 "a log, or one figure in \"measured\"");
  if (!q.log.is_null() && !q.log.is_string())
    refuse_input("log", detail::describe_json(q.log), "what the run wrote, as a text");
  const Seek seek{q.search, watch};
  const DiagnosedRun run = q.log.is_null() ? diagnose_figure(known, q.measured, "measured", seek)
                                           : diagnose_log(known, q.log.get<std::string>(), q.log_name, seek);
  return {{"diagnosis", parse_json(diagnosis_json_text(known.plan, run), "diagnosis")},
          {"text", describe_diagnosis(known.plan, run)}};
}

Json answer_export(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const std::vector<ExportedPlan> exports = exported_plans(q.to, known_plan(q).plan, q.force);
  if (!q.folder.empty()) write_exported(exports, q.folder);
  Json all = Json::array();
  for (const ExportedPlan& one : exports)
    all.push_back({{"to", one.target->name},
                   {"what", one.target->what},
                   {"note", one.note},
                   {"needs", one.needs},
                   {"warnings", one.warnings},
                   {"files", to_json(one.files)}});
  return all;
}

Json answer_report(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const Plan plan = known_plan(q).plan;
  const Drawn d = drawn(plan);
  return {{"html", reports::plan_report(as_observed(plan), d.program, d.timeline, {}, d.target)}};
}

// The cluster for the GPUs of one machine, by the driver's name of a GPU and their number.
Json answer_machine(const QuestionOfProgram& q, const Watch& /*watch*/) {
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    refuse_input("this machine", found, expected,
                 "describe it in a cluster file (docs/clusters.md), and name that as the cluster");
  };
  if (q.gpus.empty()) refuse("no GPU", "at least one");
  std::vector<std::string> known;
  for (const profiler::NodeEntry& node : profiler::catalog_nodes()) {
    if (!profiler::means_device(q.gpus.front(), node.device.name)) {
      known.push_back(node.device.name);
      continue;
    }
    for (const std::string& gpu : q.gpus)
      if (gpu != q.gpus.front()) refuse(gpu + " beside " + q.gpus.front(), "GPUs of one kind");
    if (q.nvlinks == 0 && q.gpus.size() > 1 && node.levels.front().name == "nvlink")
      refuse("no NVLink that is up", "NVLinks between its GPUs, as " + node.name + " has them");
    return {{"name", fmt::format("{} x {}", q.gpus.size(), q.gpus.front())},
            {"like", node.name},
            {"nodes", 1},
            {"gpus_per_node", q.gpus.size()}};
  }
  refuse(q.gpus.front(), fmt::format("a GPU of the catalog: {}", joined(known, ", ")));
  return {};
}

Json answer_names(const QuestionOfProgram& /*q*/, const Watch& /*watch*/) {
  Json all;
  for (const models::ZooModel& model : models::zoo_models())
    all["models"].push_back({{"name", model.name}, {"ids", model.aliases}});
  for (const profiler::NodeEntry& node : profiler::catalog_nodes())
    all["clusters"].push_back(
        {{"name", node.name}, {"gpu", node.device.name}, {"gpus_per_node", node.devices_per_node}});
  for (const frameworks::Framework& framework : frameworks::known_frameworks())
    all["frameworks"].push_back({{"name", framework.name}, {"title", framework.title}});
  for (const frameworks::ExportTarget& target : frameworks::export_targets())
    all["exports"].push_back({{"name", target.name}, {"what", target.what}});
  return all;
}

// For all questions that follow.
Json answer_read_below(const QuestionOfProgram& q, const Watch& /*watch*/) {
  files_of_program().keep_below({q.folder});
  return nullptr;
}

Json answer_version(const QuestionOfProgram& /*q*/, const Watch& /*watch*/) {
  return {{"version", kVersion}, {"data", data_digest()}};
}

struct DoorAction {
  const char* name;
  std::vector<std::string> needs, takes;  // fields of the question
  Json (*answer)(const QuestionOfProgram& question, const Watch& watch);
};
const std::vector<DoorAction>& actions() {
  static const std::vector<DoorAction> all{
      {"plan", {"request"}, {"draw"}, answer_plan},
      {"estimate", {"request"}, {"draw"}, answer_estimate},
      {"doctor", {"request"}, {}, answer_doctor},
      {"recommend", {"request", "forward"}, {}, answer_recommend},
      {"compare", {"requests"}, {}, answer_compare},
      {"explain", {"plan"}, {}, answer_explain},
      {"traffic", {"plan"}, {}, answer_traffic},
      {"why_not", {"plan", "layout"}, {"profile", "kernels"}, answer_why_not},
      {"diagnose",
       {"plan"},
       {"log", "log_name", "measured", "search", "profile", "kernels"},
       answer_diagnose},
      {"export", {"plan", "to"}, {"folder", "force"}, answer_export},
      {"report", {"plan"}, {}, answer_report},
      {"machine", {"gpus"}, {"nvlinks"}, answer_machine},
      {"names", {}, {}, answer_names},
      {"read_below", {"folder"}, {}, answer_read_below},
      {"version", {}, {}, answer_version}};
  return all;
}

const DoorAction& action_named(const std::string& name) {
  const auto* const known = first_if(actions(), [&](const auto& action) { return action.name == name; });
  if (known != nullptr) return *known;
  const auto names = mapped<std::string>(actions(), &DoorAction::name);
  detail::refuse_word("do", name, one_of(names), names);
}

}  // namespace

Json answer_of(const Json& question, const Watch& watch) {
  const auto read = from_json<QuestionOfProgram>(question, "question");
  const DoorAction& action = action_named(read.action);
  std::vector<std::string> fields = action.needs;
  fields.insert(fields.end(), action.takes.begin(), action.takes.end());
  for (const auto& [key, value] : question.items())
    if (key != "do" && !contains(fields, key))
      refuse_input("question", fmt::format("\"{}\" for {}", key, action.name), joined(fields, ", "),
                   "leave it out");
  for (const std::string& name : action.needs)
    if (!question.contains(name))
      refuse_input("question", fmt::format("no \"{}\" for {}", name, action.name), "it to be present");
  return action.answer(read, watch);
}

}  // namespace mpt::planner
