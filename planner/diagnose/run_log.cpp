// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/run_log.h"

#include "base/error.h"
#include "base/json.h"

namespace mpt::planner {
namespace {

double number_at(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : 0.0;
}
// The number of a rank, stage or process; -1 if there is none.
int64_t index_at(const Json& row, const char* key) {
  const double number = number_at(row, key);
  return number >= 0.0 && number <= 1e9 ? int64_t(number) : -1;
}
const Json& list_at(const Json& row, const char* key) {
  static const Json nothing = Json::array();
  const auto found = row.find(key);
  return found != row.end() && found->is_array() ? *found : nothing;
}

class MptLog {
 public:
  // A log that was resumed has a header for each run: rows of the plan's own runs count, else those of the
  // last run.
  MptLog(const std::vector<std::string>& lines, const std::string& file, const Plan& plan) : file_(file) {
    bool is_own = false;
    for (size_t n = 0; n < lines.size(); ++n) {
      Json row;
      try {
        row = parse_json(lines[n], fmt::format("{} at line {}", file, n + 1));
      } catch (const UserError&) {
        if (n + 1 < lines.size()) throw;  // the last line may be empty, or cut as a run was killed
      }
      if (row.is_object() && row.contains("format")) {
        is_own = text_at(row, "program_digest") == plan.program_digest;
        if (!has_own_) rows_.clear();
        has_own_ = has_own_ || is_own;
      } else if (row.is_object() && row.contains("step_time_s") && (is_own || !has_own_)) {
        rows_.push_back(std::move(row));
      }
    }
    if (rows_.empty()) refuse_input(file, "no steps", "a log of at least one step", "run longer");
  }

  MeasuredRun run(const Plan& plan) const {
    MeasuredRun run;
    std::vector<double> times;
    std::map<int64_t, reports::RankRecord> ranks;
    std::map<std::pair<InstructionKind, int64_t>, double> instructions;
    BadSteps not_finite, skipped;
    const size_t first = reports::warm_up_steps(rows_.size());
    for (const Json& row : rows_) {
      const int64_t step = std::max<int64_t>(0, index_at(row, "step"));
      not_finite.add(row.contains("loss") && row["loss"].is_null() ? 1 : 0, step);
      skipped.add(row.value("skipped", Json()) == true ? 1 : 0, step);
    }
    for (size_t n = first; n < rows_.size(); ++n) times.push_back(number_at(rows_[n], "step_time_s"));
    const auto sum_s = sum_of<double>(times, std::identity());
    // The parts belong to the median step, which is shorter than the mean if a few steps are slow.
    run.step_time_s = reports::median(times);
    const double share = sum_s > 0.0 ? run.step_time_s / sum_s : 0.0;
    for (size_t n = first; n < rows_.size(); ++n) {
      run.steps.push_back({std::max<int64_t>(0, index_at(rows_[n], "step")), times[n - first]});
      run.data_wait_s += number_at(rows_[n], "data_wait_s") * share;
      for (const Json& rank : list_at(rows_[n], "ranks")) add(rank, share, plan, ranks);
      for (const Json& i : list_at(rows_[n], "instructions")) {
        const auto kind = i.is_object() ? enum_value<InstructionKind>(text_at(i, "kind")) : std::nullopt;
        if (kind) instructions[{*kind, index_at(i, "stage")}] += number_at(i, "seconds") * share;
      }
    }
    if (!(run.step_time_s > 0.0 && run.step_time_s < 1e9))
      refuse_input(file_, fmt::format("steps of {} seconds", run.step_time_s), "0 to 1e9");
    for (const auto& [rank, record] : ranks) run.ranks.push_back(record);
    for (const auto& [key, s] : instructions) run.instructions.push_back({key.first, key.second, s});
    run.troubles = bad_steps(not_finite, skipped, plan.layout.precision);
    run.source = fmt::format("mpt-run's log, {} steps", times.size());
    return run;
  }

 private:
  static void add(const Json& row, double share, const Plan& plan,
                  std::map<int64_t, reports::RankRecord>& ranks) {
    const int64_t rank = row.is_object() ? index_at(row, "rank") : -1;
    if (rank < 0 || rank >= plan.layout.ranks()) return;
    reports::RankRecord& r = ranks[rank];
    r.rank = rank;
    const std::pair<const char*, double*> fields[] = {
        {"compute_s", &r.compute_s},     {"tensor_s", &r.tensor_s},     {"context_s", &r.context_s},
        {"expert_s", &r.expert_s},       {"sharding_s", &r.sharding_s}, {"transfer_s", &r.transfer_s},
        {"gradients_s", &r.gradients_s}, {"idle_s", &r.idle_s},         {"data_wait_s", &r.data_wait_s}};
    for (const auto& [name, value] : fields) *value += number_at(row, name) * share;
  }

  std::string file_;
  std::vector<Json> rows_;
  bool has_own_ = false;
};

}  // namespace

MeasuredRun read_run_log(const std::string& text, const std::string& name, const Plan& plan) {
  const std::vector<std::string> lines = split_at(text, '\n');
  if (lines.front().find("\"mpt-run-log\"") != std::string::npos) return MptLog(lines, name, plan).run(plan);
  return read_framework_log(text, name, plan);
}

std::string readable_logs() {
  const auto words = [](const frameworks::LogReader& reader) {
    return fmt::format("{} (\"{}\")", reader.title, reader.mark);
  };
  return joined(mapped<std::string>(frameworks::log_readers(), words), ", ");
}

}  // namespace mpt::planner
