// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/diagnose.h"

#include <fmt/format.h>

#include <cmath>

#include "base/quantity.h"
#include "core/rank_grid.h"
#include "planner/simulate/simulator.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

using frameworks::StepPart;

// Causes below this share are not reported.
constexpr double kLeastShare = 0.01;
// A rank this much slower than the median rank is a straggler.
constexpr double kStraggles = 1.1;

bool is_transfer(const Instruction& i) { return i.is_transfer(); }

bool is_gradients(const Instruction& i) {
  using K = InstructionKind;
  return i.kind == K::reduce_gradient || i.kind == K::reduce_tied_embedding || i.kind == K::reduce_norm ||
         i.kind == K::gather_parameters;
}

struct InsideKind {
  CommunicationKind kind;
  double reports::RankRecord::*seconds;
  const char *name, *change;
};
constexpr InsideKind kInside[] = {
    {CommunicationKind::tensor, &reports::RankRecord::tensor_s, "tensor-parallel collectives",
     "keep the tensor group inside a node and on its fastest links; or plan with a smaller --tp"},
    {CommunicationKind::context, &reports::RankRecord::context_s, "context-parallel exchange",
     "keep context ranks on fast links; or plan with a smaller --cp or the other --cp-method"},
    {CommunicationKind::expert, &reports::RankRecord::expert_s, "expert-parallel all-to-all",
     "check the balance of the experts and the links between their ranks; or plan with a smaller --ep"},
    {CommunicationKind::sharding, &reports::RankRecord::sharding_s, "gathering of sharded weights",
     "check the links between data-parallel ranks; or plan with a lower --zero"}};

class Diagnoser {
 public:
  Diagnoser(const Plan& plan, const MeasuredRun& run) : plan_(plan), run_(run) {
    result_.predicted_s = plan.prediction.step_time_s;
    result_.measured_s = run.step_time_s;
  }

  Diagnosis run() {
    double explained = result_.predicted_s;
    if (run_.data_wait_s > 0.0) {
      add("waiting for data",
          fmt::format("each step waits {} for its samples", format_seconds(run_.data_wait_s)),
          "read ahead in more threads, from a faster disk, or tokenise beforehand", run_.data_wait_s);
      explained += run_.data_wait_s;
    }
    explained += run_.instructions.empty() ? find_slow_parts() : 0.0;
    explained += find_growth();
    if (!run_.instructions.empty()) {
      prepare();
      measured_step_s_ = simulated(measured_);
      explained += measured_step_s_ - result_.predicted_s;
      find_stragglers();
      find_slow_kernels();
      find_slow_collectives();
      find_slow_lanes();
    }
    result_.unexplained_s = result_.measured_s - explained;
    return std::move(result_);
  }

 private:
  void add(std::string name, std::string evidence, std::string change, double seconds) {
    add_cause(result_, {std::move(name), std::move(evidence), std::move(change), seconds});
  }

  // Finds growing step times. Returns the growth of the median step, or 0 if the log has parts of a step.
  double find_growth() {
    result_.drift = find_drift(run_.steps);
    if (!result_.drift) return 0.0;
    const double more = std::max(0.0, run_.step_time_s - result_.drift->before_s);
    add("steps that grow", describe_drift(*result_.drift),
        "find what grows with time: garbage collection, fragmented memory, data, logging, or GPUs that "
        "throttle (nvidia-smi -q -d PERFORMANCE); see whether a restart brings the first times back",
        more);
    return body_s() > 0.0 || !run_.instructions.empty() ? 0.0 : more;
  }

  double body_s() const {
    const double whole = run_.part(StepPart::forward_backward);
    return whole > 0.0 ? whole : run_.part(StepPart::forward) + run_.part(StepPart::backward);
  }

  // Compares the framework's timers with the prediction, before and after the end of the last backward.
  double find_slow_parts() {
    const Timeline step = simulate(program_, predicted_, contention_);
    double body_end = 0.0;
    for (InstructionId id = 0; id < program_.size(); ++id) {
      const Instruction& i = program_.instructions[size_t(id)];
      if (i.is_compute() && i.kind != InstructionKind::optimizer_step)
        body_end = std::max(body_end, step.spans[size_t(id)].end_s);
    }
    const double data = run_.part(StepPart::data);
    const double after = run_.part(StepPart::optimizer) + run_.part(StepPart::gradients);
    double explained = 0.0;
    const auto compare = [&](const char* name, double measured, double predicted, const char* change) {
      if (measured <= 0.0) return;
      add(name,
          fmt::format("{} by the log's timers, {} predicted", format_seconds(measured),
                      format_seconds(predicted)),
          change, measured - predicted);
      explained += measured - predicted;
    };
    compare("batch generator", data, 0.0, "read ahead in more workers, or tokenise beforehand");
    compare("forward and backward", body_s() - data, body_end,
            "measure the kernels of one GPU, and the collectives within a layer");
    compare("optimizer step, and what else follows the backward", after, result_.predicted_s - body_end,
            "use a fused optimizer without offload; overlap or speed up the reduction of gradients");
    return explained;
  }

  double simulated(const std::vector<double>& durations) const {
    return step_time_s(simulate(program_, durations, contention_));
  }

  // Measured durations include the losses of ranks that share cores. Predicted ones must include them, too.
  void take_contention_into_durations() {
    if (contention_.rate_by_active_ranks.empty()) return;
    const Timeline step = simulate(program_, predicted_, contention_);
    predicted_ = mapped<double>(step.spans, &Span::seconds);
    contention_ = {};
  }

  // Sets durations as measured, by kind and stage.
  void prepare() {
    take_contention_into_durations();
    std::map<std::pair<InstructionKind, int64_t>, double> means;
    for (const InstructionDuration& i : run_.instructions) means[{i.kind, i.stage}] = i.seconds;
    measured_ = predicted_;
    for (InstructionId id = 0; id < program_.size(); ++id) {
      const Instruction& i = program_.instructions[size_t(id)];
      if (const double* const mean = find_value(means, {i.kind, i.stage})) measured_[size_t(id)] = *mean;
    }
    busy_ = busy_of(predicted_);
    for (const double busy : busy_) mean_busy_ += busy / double(busy_.size());
    inside_ = reports::inside_shares(plan_, program_, predicted_);
    for (const double share : inside_) kernel_share_ -= share;
    kernel_share_ = std::max(0.05, kernel_share_);
    for (const reports::RankRecord& r : run_.ranks) {
      const double expected = busy_[size_t(pipeline_rank(r))] * kernel_share_;
      if (expected > 0.0) slowness_.push_back(r.compute_s / expected);
    }
    if (slowness_.empty()) return;
    // The lower median: of two ranks, the slow one must not be the reference.
    std::vector<double> sorted = slowness_;
    std::sort(sorted.begin(), sorted.end());
    usual_ = sorted[(sorted.size() - 1) / 2];
  }

  int pipeline_rank(const reports::RankRecord& r) const { return int(grid_.coordinates(r.rank).pipeline); }

  // Compute of each pipeline rank, including collectives inside.
  std::vector<double> busy_of(const std::vector<double>& durations) const {
    std::vector<double> busy(size_t(program_.ranks), 0.0);
    for (InstructionId id = 0; id < program_.size(); ++id)
      if (program_.instructions[size_t(id)].is_compute())
        busy[size_t(program_.lanes(id).front().rank)] += durations[size_t(id)];
    return busy;
  }

  // `durations` with `seconds[rank]` more (or less) compute on each pipeline rank.
  std::vector<double> with_compute(std::vector<double> durations, const std::vector<double>& seconds) const {
    const std::vector<double> busy = busy_of(durations);
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (!program_.instructions[size_t(id)].is_compute()) continue;
      const auto rank = size_t(program_.lanes(id).front().rank);
      if (busy[rank] > 0.0) durations[size_t(id)] *= std::max(0.0, 1.0 + seconds[rank] / busy[rank]);
    }
    return durations;
  }

  // The step time if compute of a pipeline rank took `seconds[rank]` less than measured.
  double without_compute(std::vector<double> seconds) const {
    for (double& s : seconds) s = -s;
    return simulated(with_compute(measured_, seconds));
  }

  void find_stragglers() {
    if (slowness_.size() != run_.ranks.size() || run_.ranks.size() < 2) return;
    // Instructions were timed on the first replica, which waits for the gradients of other slow replicas.
    std::vector<double> excess(busy_.size(), 0.0), elsewhere(busy_.size(), 0.0);
    std::vector<std::string> slow;
    double worst = 1.0;
    for (size_t i = 0; i < run_.ranks.size(); ++i) {
      if (slowness_[i] < kStraggles * usual_) continue;
      const reports::RankRecord& r = run_.ranks[i];
      const RankCoordinates at = grid_.coordinates(r.rank);
      double& of_stage = (at.data == 0 && at.context == 0 ? excess : elsewhere)[size_t(at.pipeline)];
      of_stage = std::max(of_stage, r.compute_s * (1.0 - usual_ / slowness_[i]));
      slow.push_back(std::to_string(r.rank));
      worst = std::max(worst, slowness_[i] / usual_);
    }
    if (slow.empty() || slow.size() * 2 > run_.ranks.size()) return;
    const double here = measured_step_s_ - without_compute(excess);
    const std::vector<double> together = with_predicted_durations(is_gradients);
    waited_for_straggler_ = std::min(measured_step_s_ - simulated(together),
                                     simulated(with_compute(together, elsewhere)) - simulated(together));
    const double cost = std::max(here, waited_for_straggler_);
    const size_t shown = std::min<size_t>(slow.size(), 4);
    add(fmt::format("slow rank{} {}{}", slow.size() > 1 ? "s" : "",
                    fmt::join(slow.begin(), slow.begin() + int64_t(shown), ", "),
                    slow.size() > shown ? ", ..." : ""),
        fmt::format("its compute takes {:.2f} times what other ranks take for theirs", worst),
        "check that GPU's clocks, temperature and ECC errors, and what else runs on its host; or exchange it",
        cost);
  }

  void find_slow_kernels() {
    if (usual_ <= 1.0) return;
    const auto excess =
        mapped<double>(busy_, [&](double busy) { return busy * kernel_share_ * (usual_ - 1.0); });
    add("slow kernels",
        fmt::format("compute takes {:.2f} times what the plan expects, on the median rank", usual_),
        "measure this machine with mpt-profile and plan again; check clocks and power limits",
        measured_step_s_ - without_compute(excess));
  }

  // For each kind, the rank that waits least shows the time of the traffic; the others wait for slow ranks.
  void find_slow_collectives() {
    for (const InsideKind& kind : kInside) {
      const double expected = inside_[size_t(kind.kind)] * mean_busy_;
      double least = INFINITY;
      for (const reports::RankRecord& r : run_.ranks) {
        const double usual_busy = busy_[size_t(pipeline_rank(r))];
        // A rank with less work has fewer collectives.
        least = std::min(least, (r.*kind.seconds) * (usual_busy > 0.0 ? mean_busy_ / usual_busy : 1.0));
      }
      if (!std::isfinite(least) || least <= expected) continue;
      const std::vector<double> excess(busy_.size(), least - expected);
      const double cost = measured_step_s_ - without_compute(excess);
      const bool waited_for = cost > 1.05 * (least - expected);
      add(kind.name,
          fmt::format("{} of a rank's step, {} expected{}", format_seconds(least), format_seconds(expected),
                      waited_for ? "; other stages wait for it" : ""),
          kind.change, cost);
    }
  }

  // The measured durations, with chosen instructions as predicted.
  template <class F>
  std::vector<double> with_predicted_durations(F&& chosen) const {
    std::vector<double> durations = measured_;
    for (InstructionId id = 0; id < program_.size(); ++id)
      if (chosen(program_.instructions[size_t(id)]))
        durations[size_t(id)] = std::min(durations[size_t(id)], predicted_[size_t(id)]);
    return durations;
  }

  // Ratio of measured to predicted time of chosen instructions.
  template <class F>
  double slowdown(F&& chosen) const {
    double measured = 0.0, predicted = 0.0;
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (!chosen(program_.instructions[size_t(id)])) continue;
      measured += measured_[size_t(id)];
      predicted += predicted_[size_t(id)];
    }
    return predicted > 0.0 ? measured / predicted : 1.0;
  }

  void find_slow_lanes() {
    add("transfers between stages",
        fmt::format("they take {:.1f} times what the plan expects", slowdown(is_transfer)),
        "check the links between pipeline neighbours; or plan with the measured bandwidth in the cluster "
        "file",
        measured_step_s_ - simulated(with_predicted_durations(is_transfer)));
    add("gradient reduction and norm",
        fmt::format("they take {:.1f} times what the plan expects", slowdown(is_gradients)),
        "check the links between replicas; overlap it with backward; or plan with fewer replicas",
        measured_step_s_ - simulated(with_predicted_durations(is_gradients)) - waited_for_straggler_);
  }

  const Plan& plan_;
  MeasuredRun run_;
  StepProgram program_ = program_of(plan_);
  RankGrid grid_{plan_.layout};
  std::vector<double> predicted_ = durations_of(plan_, program_), measured_;  // by instruction
  Contention contention_{plan_.rate_by_active_ranks, plan_.layout.tensor* plan_.layout.replicas()};
  std::vector<double> busy_;        // predicted compute of each pipeline rank, including collectives
  std::vector<double> slowness_;    // measured over predicted kernels of each rank
  std::array<double, 4> inside_{};  // shares of it, by CommunicationKind
  double mean_busy_ = 0.0, kernel_share_ = 1.0, usual_ = 1.0, measured_step_s_ = 0.0,
         waited_for_straggler_ = 0.0;
  Diagnosis result_;
};

}  // namespace

void add_cause(Diagnosis& diagnosis, Cause cause) {
  if (cause.seconds < kLeastShare * diagnosis.measured_s) return;
  const auto after = find_if(diagnosis.causes, [&](const Cause& c) { return c.seconds < cause.seconds; });
  diagnosis.causes.insert(after, std::move(cause));
}

Diagnosis diagnose(const Plan& plan, const MeasuredRun& run) { return Diagnoser(plan, run).run(); }

}  // namespace mpt::planner
