// SPDX-License-Identifier: Apache-2.0

// mpt-plan tune: runs the layouts that are worth most, one after the other, and learns from each.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/files.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/ranges.h"
#include "base/text.h"
#include "frameworks/export_targets.h"
#include "planner/answer/exported_plan.h"
#include "planner/answer/recommend.h"
#include "planner/commands/commands.h"
#include "planner/diagnose/run_log.h"
#include "planner/observe/observed_plan.h"
#include "planner/observe/observed_run.h"
#include "planner/request/resolve_parts.h"
#include "reports/next_steps.h"

namespace mpt::planner {
namespace {

// The end of a tuning: the fastest layout is at most this much faster, in 95 of 100 cases.
constexpr double kSettled = 0.01;
constexpr const char* kJournal = "journal.jsonl";

struct TuneOptions {
  PlanOptions base;
  std::string launch, folder = "tune";
  int64_t runs = 5, steps = 30;
  double timeout_s = 1800.0;
};

struct Ended {
  int code = 0;
  bool timed_out = false;
};

// The child's part: no shell reads the words.
[[noreturn]] void become(const std::vector<std::string>& words, const std::string& output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // no run outlives the tuning
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const int nothing =
      ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // a group in the background reads no terminal
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  if (::dup2(nothing, 0) == 0 && ::dup2(file, 1) == 1 && ::dup2(file, 2) == 2)
    ::execvp(arguments[0], arguments.data());
  ::dprintf(2, "%s: %s\n", arguments[0], std::strerror(errno));
  ::_exit(127);
}

// The process group is asked to end, and killed where it has not ended ten seconds later.
Ended run_words(const std::vector<std::string>& words, const std::string& output, double timeout_s) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail_run("cannot start {} ({})", words.front(), std::strerror(errno));
  if (child == 0) become(words, output);
  const double begin_s = now_s();
  Ended ended;
  std::optional<double> asked_s;
  int status = 0;
  for (pid_t found = 0; (found = ::waitpid(child, &status, WNOHANG)) != child;) {
    if (found < 0 && errno != EINTR) fail_run("cannot wait for {}", words.front());
    ended.timed_out = ended.timed_out || (!stop_requested() && now_s() - begin_s > timeout_s);
    if (!asked_s && (stop_requested() || ended.timed_out)) {
      asked_s = now_s();
      ::kill(-child, SIGTERM);
    } else if (asked_s && now_s() - *asked_s > 10.0) {
      ::kill(-child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ended.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

// Nothing where diagnose reads neither steps nor troubles.
std::optional<MeasuredRun> log_of(const std::string& file, const Plan& plan) {
  if (!is_there(file)) return std::nullopt;
  try {
    return read_run_log(read_file(file), file, plan);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string last_lines(const std::string& file) {
  std::vector<std::string> lines = split_at(read_file(file), '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.empty()) return "it printed nothing";
  const std::string before = lines.size() > 1 ? lines[lines.size() - 2] + " " : "";  // the error of a remedy
  return (before + lines.back()).substr(0, 300);
}

// A run that ends in another way than by memory or time shows nothing of its layout.
MeasuredFigures figures_of(const Ended& ended, const std::string& folder, const Plan& plan,
                           const TuneOptions& o) {
  const std::string log = folder + "/log.jsonl", output = folder + "/output.txt";
  MeasuredFigures figures;
  for (const std::string& file : {output, log}) {
    const std::optional<MeasuredRun> run = log_of(file, plan);
    if (!run) continue;
    const bool failed = ended.code != 0 && !ended.timed_out;
    if (failed && any_of(run->troubles, [](auto& t) { return t.out_of_memory; })) return {{}, {}, true};
    if (run->step_time_s > 0.0) figures.seconds = run->step_time_s;
    if (run->peak_bytes > 0) figures.bytes = run->peak_bytes;
  }
  // Without a logged step each took this long, or longer.
  if (ended.timed_out && !figures.seconds) figures.seconds = o.timeout_s / double(o.steps);
  if (figures.seconds && (ended.code == 0 || ended.timed_out)) return figures;
  if (ended.code == 0)
    fail_run("{}: no step times; let --launch wait for the run and print its log, or write {}", output, log);
  fail_run("the run ended with exit code {}, and memory was not the cause: {} ({})", ended.code,
           last_lines(output), output);
}

std::vector<ObservedRun> runs_of_journal(const std::string& folder) {
  const std::string file = folder + "/" + kJournal;
  return std::filesystem::exists(file) ? read_observed(file, "--folder", "") : std::vector<ObservedRun>{};
}

// Whole and renamed: whoever is killed leaves the runs of before, or one more. The lock is for tunings of the
// same folder, which ends with its descriptor.
void add_to_journal(const std::string& folder, const ObservedRun& added) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || ::flock(descriptor, LOCK_EX) != 0)
    fail_run("{}: cannot be locked ({})", folder, std::strerror(errno));
  std::string text;
  for (const ObservedRun& run : runs_of_journal(folder)) text += to_json(run).dump() + "\n";
  write_file_atomically(folder + "/" + kJournal, text + to_json(added).dump() + "\n");
  ::close(descriptor);
}

// Random tokens for one step; mpt-run starts over at their end.
void write_tokens(const Plan& plan, const std::string& file) {
  const int64_t bytes = reports::token_bytes(plan);
  const int64_t tokens = plan.workload.tokens_per_step() + plan.workload.global_batch + 1;
  std::string text;
  text.reserve(size_t(tokens * bytes));
  std::minstd_rand random;
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t byte = 0, token = int64_t(random()) % plan.model.vocab; byte < bytes; ++byte, token >>= 8)
      text.push_back(char(token & 255));
  write_file_atomically(file, text);
}

void check_launch(const TuneOptions& o, const SearchProblem& problem) {
  constexpr const char* kExample =
      "for example --launch 'sbatch --wait --output {dir}/output.txt {dir}/job.sbatch'";
  if (o.launch.empty() && !is_for_this_runtime(problem.cluster, problem.execution))
    refuse_input("--launch", "missing", "the command that runs the files of {dir} and waits", kExample);
  const std::string rest = with_value(with_value(o.launch, "{dir}", ""), "{steps}", "");
  const size_t open = rest.find('{'), close = rest.find('}', open);
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  if (close != std::string::npos && std::all_of(&rest[open] + 1, &rest[close], is_letter))
    refuse_input("--launch", rest.substr(open, close - open + 1), "{dir} or {steps}", kExample);
}

std::vector<std::string> command_of(const TuneOptions& o, const Plan& plan, const std::string& folder) {
  std::string words = o.launch;
  if (words.empty())
    words = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mpt-run").string() +
            " {dir}/plan.json --steps {steps} --log {dir}/log.jsonl " +
            with_value(reports::data_options(plan), "FILE", "{dir}/tokens");
  std::vector<std::string> all = split_at(words, ' ');
  std::erase(all, "");
  for (std::string& word : all)
    word = with_value(with_value(word, "{dir}", folder), "{steps}", std::to_string(o.steps));
  return all;
}

// A folder that does not exist: one that does may be of a killed run, or somebody's own.
std::string new_folder(const TuneOptions& o) {
  for (int64_t number = 1;; ++number) {
    std::string folder = fmt::format("{}/run-{}", o.folder, number);
    if (std::filesystem::create_directory(folder)) return folder;
  }
}

// Runs the layout; the row of the journal has all that the run answered. Nothing after a wish to stop.
std::optional<ObservedRun> tried(const TuneOptions& o, const Resolved& resolved, const Layout& layout) {
  PlanRequest request = o.base.request;
  request.observed.clear();
  request.layout = layout;
  const Plan plan = estimate(request).plan;
  if (const double planned_s = double(o.steps) * plan.prediction.step_time_s; o.timeout_s < planned_s)
    refuse_input("--timeout", format_seconds(o.timeout_s),
                 fmt::format("over {}, which {} steps take as predicted", format_seconds(planned_s), o.steps),
                 "raise it, or lower --steps");
  const std::string folder = new_folder(o);
  save_plan(plan, folder + "/plan.json");
  if (o.launch.empty()) write_tokens(plan, folder + "/tokens");
  const frameworks::ExportTarget* const target = frameworks::usual_target(plan, request.framework);
  if (target != nullptr && !frameworks::cannot_run(*target, plan)) {
    std::vector<std::string> names{target->name};
    if (!target->tuner) names.emplace_back("slurm");
    write_exported(exported_plans(names, plan, false), folder);
  }
  const Ended ended = run_words(command_of(o, plan, folder), folder + "/output.txt", o.timeout_s);
  if (stop_requested()) return std::nullopt;
  ObservedRun run;
  run.layout = layout_name(layout);
  run.exact = layout;
  run.measured = figures_text(figures_of(ended, folder, plan, o));
  return observation_of(run, resolved, {}).run;
}

int run(TuneOptions& o) {
  const Stoppable stoppable;
  files_of_program().makes({"--folder", o.folder}, [](const std::string& name) {
    return name == kJournal || name.starts_with("run-");
  });
  std::filesystem::create_directories(o.folder);
  PlanRequest request = o.base.request;
  std::vector<ObservedRun> runs = runs_of_journal(o.folder);
  int64_t added = 0;
  for (;; runs = runs_of_journal(o.folder)) {
    request.observed = o.base.request.observed;
    request.observed.insert(request.observed.end(), runs.begin(), runs.end());
    const auto resolved = resolve_and_tell(request);
    check_launch(o, resolved->problem);
    if (const std::string unlike = drop_unlike_runs(*resolved); !unlike.empty()) print_notes({unlike});
    const Plan plan = searched_plan(*resolved, progress_line());
    if (stop_requested()) break;
    // Before the first run there is one choice: the recommended layout.
    Corrected c = plan.corrected.value_or(Corrected{});
    if (!plan.corrected)
      c.layouts.push_back({plan.layout, 0.0, plan.prediction.step_time_s, {}, 0, false, false});
    const bool settled = c.runs > 0 && (c.likely_loss <= kSettled || c.measure_next < 1);
    if (settled || (plan.corrected && runs.size() >= size_t(o.runs))) {
      fmt::print("{}\n{}: {} runs.\n", plan_screen(plan),
                 settled ? "No layout is expected to gain over 1%, with 95%"
                         : fmt::format("Stopped by --runs. The fastest layout is at most {} faster, with 95%",
                                       format_percent(c.likely_loss)),
                 runs.size());
      if (!o.base.out.output.empty()) save_plan(plan, o.base.out.output);
      return kExitOk;
    }
    const CorrectedLayout& next = c.layouts[size_t(std::max<int64_t>(1, c.measure_next) - 1)];
    fmt::print("run {} of at most {}: {}, expected {}\n", runs.size() + 1, o.runs, layout_name(next.layout),
               format_seconds(next.step_time_s));
    std::fflush(stdout);
    const std::optional<ObservedRun> run = tried(o, *resolved, next.layout);
    if (!run) break;
    fmt::print("  measured {}\n", run->measured);
    add_to_journal(o.folder, *run);
    ++added;
  }
  warn(fmt::format("mpt-plan tune: stopped after {} runs, {} of them new; the same command goes on",
                   runs.size(), added));
  return kExitInterrupted;
}

}  // namespace

std::function<int()> add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tune", "Run the layouts that are worth most, and learn from each");
  auto o = std::make_shared<TuneOptions>();
  command
      ->add_option_function<std::string>(
          "request", [o](const std::string& file) { o->base.request = load_request(file); },
          "A plan or request: the job to tune")
      ->required()
      ->type_name("FILE");
#include "generated/TuneOptions.inc"
  return [o] { return run(*o); };
}

}  // namespace mpt::planner
