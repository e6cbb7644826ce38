// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trainer.h"

#include <unistd.h>

#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "models/footprint.h"
#include "reports/utilisation.h"
#include "runtime/comm/mpi/mpi_module.h"
#include "runtime/comm/sockets/socket.h"
#include "runtime/comm/sockets/socket_world.h"
#include "runtime/comm/threads/thread_world.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/execute/thread_lanes.h"
#include "runtime/nn/rank_sizes.h"
#include "runtime/train/rank_worker.h"

namespace mpt::runtime {
namespace {

// Adam is limited by memory bandwidth: more threads per rank gain nothing from its share of a node.
constexpr int64_t kMostHostThreads = 16;
// From a failure to the end of all threads: aborting communicators takes a second or two.
constexpr double kPatience_s = 20.0;

// Ends the process if a failed run does not end by itself: a thread may be stuck in a driver, where no abort
// and no timeout reaches it. Destructors do not run then.
class HangWatchdog {
 public:
  using End = std::function<void(const std::string& what)>;

  // Calls `end` `patience_s` after a failure or an abort of `world`, unless this object is destroyed earlier.
  HangWatchdog(const World& world, double patience_s, const End& end, std::string failed)
      : world_(world), patience_s_(patience_s), end_(end), what_(std::move(failed)) {
    if (end_) thread_ = std::jthread([this](const std::stop_token& over) { watch(over); });
  }

  void because(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (what_.empty()) what_ = what;
  }

 private:
  void watch(const std::stop_token& over) {
    std::unique_lock lock(mutex_);
    const auto is_over_within = [&](double seconds) {
      changed_.wait_for(lock, over, std::chrono::duration<double>(seconds), [] { return false; });
      return over.stop_requested();
    };
    while (what_.empty() && !world_.aborted())
      if (is_over_within(0.2)) return;
    if (is_over_within(patience_s_)) return;
    end_(fmt::format("{}; the process ends now, because its threads have not ended for {:g} s",
                     what_.empty() ? "another rank has failed, and says why" : what_, patience_s_));
  }

  const World& world_;
  const double patience_s_;
  const End& end_;
  std::mutex mutex_;
  std::condition_variable_any changed_;  // notified only by the destructor's stop request
  std::string what_;
  std::jthread thread_;
};

// One training run: the state shared by the rank threads.
class Run {
 public:
  Run(const Plan& plan, const TrainOptions& options, const RunInputs& inputs, const OnStep& on_step,
      const std::atomic<bool>& stop, DataType type)
      : plan_(plan), options_(options), inputs_(inputs), on_step_(on_step), stop_(stop), type_(type) {
    spans_.assign(size_t(program_.ranks), std::vector<Span>(program_.instructions.size()));
    result_.peak_bytes.assign(size_t(program_.ranks), 0);
    result_.expert_load.assign(size_t(program_.ranks), 0.0);
    make_devices();
    if (options.checkpoints.empty()) return;
    const std::vector<int> local = world_->local_ranks();
    saver_ = std::make_unique<CheckpointSaver>(SaveOptions{
        options.checkpoints, options.keep, resumed_step(), int(plan.layout.ranks()), int(local.size()),
        local.front() == 0, std::chrono::duration<double>(options.timeout).count(),
        [this] { return world_->aborted(); }, inputs.on_saved});
  }

  reports::RunResult run() {
    watch_the_end();
    std::vector<std::thread> threads;
    for (const int rank : world_->local_ranks())
      threads.emplace_back(
          [this, rank, device = devices_[threads.size()].get()] { run_rank_guarded(rank, *device); });
    for (std::thread& thread : threads) thread.join();
    last_resort_.reset();  // writing checkpoints may take long
    if (!failure_.empty()) {
      saver_.reset();
      watch_the_end();
      throw RunError(failure_);
    }
    if (saver_) saver_->wait();
    keep_median_timeline();
    predict_at_load();
    return std::move(result_);
  }

 private:
  void watch_the_end() {
    const double timeout_s = std::chrono::duration<double>(options_.timeout).count();
    last_resort_.emplace(*world_, std::min(timeout_s, kPatience_s), inputs_.end_process, failure_);
  }

  // The prediction of each pipeline rank's peak with the measured load of its experts.
  void predict_at_load() {
    if (plan_.layout.expert == 1) return;
    Plan at_load = plan_;
    for (size_t rank = 0; rank < result_.expert_load.size(); ++rank) {
      at_load.layout.execution.edit().traffic.expert_load = std::max(1.0, result_.expert_load[rank]);
      at_load.footprints = models::stage_footprints(plan_.model, at_load.layout, plan_.workload);
      result_.predicted_at_load.push_back(peak_bytes(mpt::program_of(at_load))[rank]);
    }
  }

  // The step resumed from, if its checkpoint is in the folder of --checkpoints. Checkpoints of other folders
  // do not matter.
  int64_t resumed_step() const {
    if (inputs_.resume == nullptr) return 0;
    std::error_code error;
    const bool same =
        std::filesystem::equivalent(inputs_.resume->folder() / "..", options_.checkpoints, error);
    return same ? inputs_.resume->info().step : 0;
  }

  // The values that each rank sends to all others at the end of a step.
  struct RankReport {
    reports::RankRecord record;
    int64_t overflow = kNoOverflow;  // the first piece with a value that is not finite
  };

  std::unique_ptr<World> make_world() const {
    const int ranks = int(plan_.layout.ranks());
    if (!inputs_.launch) return std::make_unique<ThreadWorld>(options_.timeout, ranks);
    return make_socket_world({*inputs_.launch, ranks, plan_.program_digest, options_.timeout, &stop_});
  }

  void make_devices() {
    const int count = int(world_->local_ranks().size());
    const int first = inputs_.launch ? inputs_.launch->process_of_host * count : 0;
    std::vector<Device*> devices;
    const DeviceOptions options{.times_products = plan_.layout.tensor == 1};
    for (int i = 0; i < count; ++i) {
      devices_.push_back(inputs_.backend == nullptr ? make_cpu_device()
                                                    : inputs_.backend->make_device(first + i, options));
      devices.push_back(devices_.back().get());
    }
    if (inputs_.backend != nullptr)
      device_world_ = inputs_.backend->make_world(*world_, devices, options_.timeout);
    if (inputs_.backend == nullptr && inputs_.launch && inputs_.transport != "sockets") try_mpi();
  }

  void try_mpi() {
    std::string said;
    device_world_ = make_mpi_world(*world_, *inputs_.launch, options_.timeout, said);
    if (!device_world_ && inputs_.transport == "mpi")
      refuse_input("--transport mpi", said, "a build with libmpt_mpi.so under a launcher of MPI",
                   "leave --transport out: the messages then go over TCP");
    if (inputs_.tell && (device_world_ || inputs_.launch->launcher != "torchrun"))
      inputs_.tell(device_world_ ? fmt::format("messages go over {}", said)
                                 : fmt::format("messages go over TCP, not MPI: {}", said));
  }

  // Ranks on CPUs keep their cores busy with their own threads; ranks on GPUs share the host's cores.
  int host_threads() const {
    if (inputs_.backend == nullptr) return 0;
    const int64_t ranks = std::max(int64_t(world_->local_ranks().size()),
                                   std::min(plan_.cluster.devices_per_node, plan_.layout.ranks()));
    return int(std::clamp<int64_t>(std::thread::hardware_concurrency() / ranks, 1, kMostHostThreads));
  }

  void run_rank_guarded(int rank, Device& device) {
    try {
      run_rank(rank, device);
    } catch (const std::exception& error) {
      fail(fmt::format("rank {}, step {}: {}", rank, step_.load() + 1, failure_text(error)));
    }
  }

  // The first failure is the cause; later ones come from ranks that it woke.
  void fail(const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = what;
    }
    last_resort_->because(what);
    world_->abort(what);
    if (device_world_) device_world_->abort(what);
  }

  void run_rank(int rank, Device& device) {
    const auto on_failure = [this, rank](const std::string& name, const std::string& what) {
      fail(fmt::format("rank {}, step {}, {}: {}", rank, step_.load() + 1, name, what));
    };
    RankWorker worker(plan_, program_,
                      {rank, device, *world_, device_world_ ? *device_world_ : *world_, on_failure,
                       host_threads(), inputs_.resume == nullptr && inputs_.weights == nullptr, &stop_},
                      options_, type_);
    prepare(worker);
    const auto lanes =
        make_thread_lanes(program_, worker.pipeline_rank(), on_failure, device.make_marks(program_.size()),
                          1.5 * std::chrono::duration<double>(options_.timeout).count());
    Executor executor(program_, worker.pipeline_rank(), *lanes, worker);
    Executor evaluator(program_, worker.pipeline_rank(), *lanes, worker, Pass::forward);
    const auto group = world_->communicator(rank, ranks_from(0, int(grid_.ranks())), "step");
    const std::vector<int64_t> pipeline = grid_.group(rank, Axis::pipeline);
    const auto timelines = world_->communicator(rank, {pipeline.begin(), pipeline.end()}, "timelines");
    const std::string run = meet(rank, *group);
    int64_t saved = worker.state().step;
    while (worker.state().step < options_.steps) {
      if (should_stop(*group)) {
        if (rank == world_->local_ranks().front()) result_.stopped = true;
        break;
      }
      group->barrier();
      const double start = now_s();
      if (rank == world_->local_ranks().front()) step_.store(worker.state().step);
      RankReport report;
      worker.begin_step(*inputs_.data);
      const double data_wait_s = now_s() - start;
      executor.run_step(worker.handing());
      worker.end_step();
      report.record = record_of(worker, *lanes, now_s() - start);
      report.record.data_wait_s = data_wait_s;
      report.overflow = worker.first_overflow();
      const std::vector<RankReport> reports = exchange(*group, report);
      const double step_time_s = now_s() - start;
      if (worker.is_representative()) collect_spans(worker, *lanes, *timelines, start);
      if (rank == 0) note_step(worker, reports, step_time_s);
      if (is_due(options_.evaluate_every, worker.state().step)) evaluate(worker, evaluator);
      if (rank == 0) finish_step();
      const int64_t step = worker.state().step;
      const bool kept = is_due(options_.save_every, step);
      if (kept || (is_due(options_.sample_every, step) && step < options_.steps))
        save(rank, worker, run, kept);
      if (kept) saved = step;
    }
    if (worker.state().step > saved) save(rank, worker, run, true);
  }

  // Compute is the time of the compute lane's instructions without the calls inside.
  reports::RankRecord record_of(RankWorker& worker, const Lanes& lanes, double step_time_s) const {
    reports::RankRecord record = worker.take_record();
    double busy_s = 0.0;
    for (InstructionId id = 0; id < program_.size(); ++id) {
      const Instruction& i = program_.instructions[size_t(id)];
      if (i.is_compute() && program_.lane_on(id, worker.pipeline_rank())) busy_s += lanes.span(id).seconds();
    }
    record.compute_s = busy_s - record.tensor_s - record.context_s - record.expert_s - record.sharding_s;
    record.idle_s = step_time_s - busy_s;
    if (inputs_.read_gpu) inputs_.read_gpu(worker.device().bus_id(), record);
    return record;
  }

  // If any process was asked to stop, all stop after the same step.
  bool should_stop(Communicator& group) const {
    double asked = stop_.load() ? 1.0 : 0.0;
    group.all_reduce(&asked, 1, DataType::float64, ReduceOperation::maximum);
    return asked > 0.0;
  }

  template <class Report>
  static std::vector<Report> exchange(Communicator& group, const Report& own) {
    static_assert(sizeof(Report) % sizeof(double) == 0);
    std::vector<Report> reports(static_cast<size_t>(group.size()));
    group.all_gather(&own, reports.data(), sizeof(Report) / sizeof(double), DataType::float64);
    return reports;
  }

  // Returns the run's random number, which all ranks get from the first.
  std::string meet(int rank, Communicator& group) {
    struct Greeting {
      uint64_t run = 0;
      char host[64] = "";
    } own;
    std::random_device random;
    if (rank == 0) own.run = uint64_t{random()} << 32 | random();
    ::gethostname(own.host, sizeof own.host - 1);
    const std::vector<Greeting> all = exchange(group, own);
    for (const Greeting& one : all)
      if (rank == 0) hosts_.emplace_back(one.host);
    return fmt::format("{:016x}", all[0].run);
  }

  static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

  void prepare(RankWorker& worker) const {
    if (inputs_.resume != nullptr) {
      const CheckpointInfo& info = inputs_.resume->info();
      worker.load(*inputs_.resume, true);
      TrainingState state = worker.state();
      state.step = info.step;
      state.samples = info.samples;
      state.optimizer_steps = info.optimizer_steps;
      if (type_ == DataType::float16) {
        state.loss_scale = info.loss_scale;
        state.good_steps = info.good_steps;
      }
      worker.set_state(state);
    } else if (inputs_.weights != nullptr) {
      worker.load(*inputs_.weights, false);
    }
  }

  // Uses the same batches every time, so that losses are comparable.
  void evaluate(RankWorker& worker, Executor& evaluator) {
    if (inputs_.validation == nullptr) return;
    double sum = 0.0;
    for (int64_t batch = 0; batch < options_.evaluation_steps; ++batch) {
      worker.begin_evaluation(*inputs_.validation, batch);
      evaluator.run_step(worker.handing());
      sum += worker.validation_loss();
    }
    if (worker.is_first_rank()) record_.validation_loss = sum / double(options_.evaluation_steps);
  }

  void save(int rank, RankWorker& worker, const std::string& run, bool kept) {
    if (!saver_) return;
    CheckpointInfo info;
    info.run = run;
    info.step = worker.state().step;
    info.samples = worker.state().samples;
    info.optimizer_steps = worker.state().optimizer_steps;
    info.loss_scale = worker.state().loss_scale;
    info.good_steps = worker.state().good_steps;
    info.loss = std::isfinite(worker.loss()) ? worker.loss() : 0.0;
    info.data_digest = inputs_.data->digest();
    info.seed = int64_t(options_.seed);
    info.layout = layout_name(plan_.layout);
    const CheckpointInfo before = inputs_.resume ? inputs_.resume->info() : CheckpointInfo();
    info.like = options_.like.empty() ? before.like : options_.like;
    info.tokenizer = options_.tokenizer.empty() ? before.tokenizer : options_.tokenizer;
    info.model = plan_.model;
    saver_->add(rank, info, worker.snapshot(), kept);
  }

  // Rank 0 gets the spans of each pipeline rank of the first replica, relative to the step's start, because
  // hosts' clocks differ.
  void collect_spans(const RankWorker& worker, const Lanes& lanes, Communicator& timelines, double start) {
    std::vector<Span> own(program_.instructions.size());
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (!program_.lane_on(id, worker.pipeline_rank())) continue;
      const Span span = lanes.span(id);
      own[size_t(id)] = {span.start_s - start, span.end_s - start};
    }
    const auto bytes = int64_t(own.size() * sizeof(Span));
    if (!worker.is_first_rank()) return timelines.send(own.data(), bytes, 0);
    spans_[0] = std::move(own);
    for (int p = 1; p < program_.ranks; ++p) timelines.receive(spans_[size_t(p)].data(), bytes, p);
  }

  // An instruction shared by several ranks ends when the last of them has ended it: a transfer at its
  // receiver. It begins when the last of them has begun it.
  Timeline assemble() const {
    Timeline timeline;
    timeline.spans.resize(program_.instructions.size());
    double first = std::numeric_limits<double>::infinity();
    for (InstructionId id = 0; id < program_.size(); ++id) {
      Span& span = timeline.spans[size_t(id)];
      for (const Lane& lane : program_.lanes(id)) {
        const Span& own = spans_[size_t(lane.rank)][size_t(id)];
        span.start_s = std::max(span.start_s, own.start_s);
        span.end_s = std::max(span.end_s, own.end_s);
      }
      first = std::min(first, span.start_s);
    }
    for (Span& span : timeline.spans) span = {span.start_s - first, span.end_s - first};
    return timeline;
  }

  void note_step(const RankWorker& worker, const std::vector<RankReport>& reports, double step_time_s) {
    const TrainingState& state = worker.state();
    record_ = {};
    record_.step = state.step;
    record_.loss = worker.loss();
    if (plan_.model.next_token_layers > 0) record_.next_token_loss = worker.next_token_loss();
    record_.gradient_norm = worker.gradient_norm();
    record_.learning_rate = learning_rate_at(options_, state.step - 1);
    record_.tokens = state.step * plan_.workload.tokens_per_step();
    record_.epochs = double(state.step * plan_.workload.global_batch) / double(inputs_.data->windows());
    record_.skipped = !worker.is_finite();
    record_.loss_scale = state.loss_scale;
    record_.step_time_s = step_time_s;
    record_.tokens_per_s = double(plan_.workload.tokens_per_step()) / step_time_s;
    std::vector<int64_t> pipeline_rank_of;
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      pipeline_rank_of.push_back(grid_.coordinates(int64_t(rank)).pipeline);
      int64_t& peak = result_.peak_bytes[size_t(pipeline_rank_of.back())];
      peak = std::max(peak, reports[rank].record.peak_bytes);
      double& load = result_.expert_load[size_t(pipeline_rank_of.back())];
      load = std::max(load, reports[rank].record.expert_load);
      record_.data_wait_s = std::max(record_.data_wait_s, reports[rank].record.data_wait_s);
      record_.ranks.push_back(reports[rank].record);
    }
    record_.hosts = std::exchange(hosts_, {});  // told once
    record_.stragglers = reports::find_stragglers(record_.ranks, pipeline_rank_of);
    record_.model_flop_utilization = reports::model_flop_utilisation(plan_, step_time_s);
    Timeline timeline = assemble();
    record_.bubble_share = bubble_share(program_, timeline);
    record_.instructions = reports::mean_durations(program_, timeline);
    recent_.push_back(std::move(timeline));
    if (recent_.size() > kTimelinesKept) recent_.erase(recent_.begin());
    // In fp16 a loss scale that is too large also causes this; the scale is then halved.
    if (state.skipped_in_a_row > options_.most_skipped && state.loss_scale <= 1.0) give_up(worker, reports);
  }

  [[noreturn]] void give_up(const RankWorker& worker, const std::vector<RankReport>& reports) const {
    int64_t at = kNoOverflow;
    for (const RankReport& report : reports) at = std::min(at, report.overflow);
    const std::string first = at == kNoOverflow                  ? "the gradients"
                              : at < 0                           ? "the embedding"
                              : at == plan_.model.layers.count() ? "the head"
                                                                 : fmt::format("layer {}", at);
    fail_run(
        "{} steps in a row had NaN or Inf (the loss is {}, the gradient norm {}) and left the weights as "
        "they were; {} had it first: lower the learning rate (--lr)",
        worker.state().skipped_in_a_row, worker.loss(), worker.gradient_norm(), first);
  }

  void finish_step() {
    result_.steps.push_back(record_);
    if (on_step_) on_step_(record_);
  }

  // The kept step with the time nearest to the median represents the run.
  void keep_median_timeline() {
    const double median = reports::median_step_time_s(result_);
    double best = std::numeric_limits<double>::infinity();
    for (Timeline& timeline : recent_) {
      const double distance = std::fabs(step_time_s(timeline) - median);
      if (distance >= best) continue;
      best = distance;
      result_.timeline = timeline;
    }
  }

  static constexpr size_t kTimelinesKept = 16;

  const Plan& plan_;
  const TrainOptions& options_;
  RunInputs inputs_;
  const OnStep& on_step_;
  const std::atomic<bool>& stop_;
  DataType type_;
  StepProgram program_ = program_of(plan_);
  RankGrid grid_{plan_.layout};
  std::unique_ptr<World> world_ = make_world();
  std::optional<HangWatchdog> last_resort_;       // outlives the devices, which await their work
  std::vector<std::unique_ptr<Device>> devices_;  // of the ranks of this process
  std::unique_ptr<World> device_world_;           // null: world_ also moves device memory
  std::vector<std::vector<Span>> spans_;  // [pipeline rank][instruction], of the first replica; rank 0's
  std::unique_ptr<CheckpointSaver> saver_;
  reports::StepRecord record_;      // of the current step; only rank 0 has it
  std::vector<std::string> hosts_;  // of the ranks, until a record has them; rank 0's
  std::vector<Timeline> recent_;
  std::mutex mutex_;
  std::string failure_;
  std::atomic<int64_t> step_{0};
  reports::RunResult result_;
};

}  // namespace

reports::RunResult train(const Plan& plan, const TrainOptions& options, const RunInputs& inputs,
                         const OnStep& on_step, const std::atomic<bool>& stop, std::optional<DataType> type) {
  try {
    return Run(plan, options, inputs, on_step, stop, type.value_or(compute_type(plan.layout.precision)))
        .run();
  } catch (const StopRequested&) {  // while the processes came together
    reports::RunResult result;
    result.stopped = true;
    return result;
  }
}

}  // namespace mpt::runtime
