// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/compute.h"

#include <barrier>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "core/gpu_memory.h"
#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "profiler/measure/operator_runner.h"
#include "profiler/measure/piece.h"
#include "profiler/measure/piece_samples.h"
#include "runtime/execute/thread_lanes.h"

namespace mpt::profiler {
namespace {

using runtime::Buffer;
using runtime::DataType;

Layout layout_of(const ComputeRequest& request, int64_t tensor, int64_t micro_batch,
                 Recompute recompute = Recompute::none) {
  Layout layout;
  layout.precision = request.precision;
  layout.tensor = tensor;
  layout.micro_batch = micro_batch;
  layout.recompute = recompute;
  if (request.target.backend != nullptr)
    layout.execution.edit().kernels.vocabulary_multiple = kVocabularyMultipleOnGpus;
  return layout;
}

// Times the three phases in turn, on several instances of the piece one after the other. So a layer finds its
// weights and activations as cold in the caches as between the other layers of a stage.
class PieceTimer {
 public:
  PieceTimer(const ComputeRequest& request, const PieceTiming& size) {
    const Layout layout = layout_of(request, size.tensor, size.micro_batch, size.recompute);
    for (size_t i = 0; i < size_t(kPieceInstances); ++i)
      runners_.push_back(std::make_unique<PieceRunner>(request.model, layout, request.sequence, size.piece,
                                                       size.layer, request.target));
  }

  /// Adds the samples of one pass of `rule`.
  void run(const StoppingRule& rule, PhaseSamples& samples) {
    PhaseSamples warm_up;
    round(warm_up);  // the first one touches the memory
    const double start = now_s();
    const auto before = int(samples.both.size());
    while (int(samples.both.size()) < before + rule.least_samples ||
           (now_s() - start < rule.budget_s && summarize(samples.both).spread > rule.spread_wanted))
      round(samples);
  }

 private:
  void round(PhaseSamples& samples) {
    double forward = 0.0, input = 0.0, weight = 0.0;
    for (auto& runner : runners_) forward += runner->seconds_of([&] { runner->forward(); });
    samples.forward.push_back(forward / double(kPieceInstances));
    for (auto runner = runners_.rbegin(); runner != runners_.rend(); ++runner) {
      input += (*runner)->seconds_of([&] { (*runner)->backward_input(); });
      weight += (*runner)->seconds_of([&] { (*runner)->backward_weight(); });
      (*runner)->finish();
    }
    samples.input.push_back(input / double(kPieceInstances));
    samples.weight.push_back(weight / double(kPieceInstances));
    samples.both.push_back((input + weight) / double(kPieceInstances));
  }

  std::vector<std::unique_ptr<PieceRunner>> runners_;
};

// Embedding and head, and one layer of each kind with each recompute.
std::vector<PieceTiming> pieces_of(const ComputeRequest& request) {
  PieceTiming embedding, head;
  embedding.piece = Piece::embedding;
  head.piece = Piece::head;
  std::vector<PieceTiming> pieces{embedding, head};
  const models::LayerKinds kinds(request.model);
  for (size_t kind = 0; kind < kinds.size(); ++kind)
    for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
      PieceTiming& layer = pieces.emplace_back();
      layer.layer = kinds.first_layer(kind);
      layer.recompute = recompute;
    }
  for (PieceTiming& piece : pieces) piece.sequence = request.sequence;
  return pieces;
}

std::vector<PieceCase> cases_of(const ComputeRequest& request) {
  std::vector<PieceCase> cases;
  for (const int64_t tensor : request.tensors)
    for (const int64_t micro_batch : request.micro_batches)
      for (PieceTiming size : pieces_of(request)) {
        size.tensor = tensor;
        size.micro_batch = micro_batch;
        cases.push_back({size, {}});
      }
  return cases;
}

void add_shapes(const models::LayerProgram& program, std::vector<models::OperatorShape>& shapes) {
  for (const models::Operator& op : program.operators)
    if (std::find(shapes.begin(), shapes.end(), op.shape) == shapes.end()) shapes.push_back(op.shape);
}

// The operators of the model's pieces at these micro-batches, each shape once.
std::vector<models::OperatorShape> shapes_of(const ComputeRequest& request,
                                             const std::vector<int64_t>& micro_batches) {
  const models::LayerKinds kinds(request.model);
  std::vector<models::OperatorShape> shapes;
  for (const int64_t tensor : request.tensors)
    for (const int64_t micro_batch : micro_batches) {
      const Layout layout = layout_of(request, tensor, micro_batch);
      add_shapes(models::embedding_program(request.model, layout, request.sequence), shapes);
      for (size_t kind = 0; kind < kinds.size(); ++kind)
        add_shapes(models::layer_program(request.model, kinds.kind(kind), layout, request.sequence), shapes);
      add_shapes(models::head_program(request.model, layout, request.sequence), shapes);
    }
  return shapes;
}

// Measures the rates of one device. Noisy ones are measured more often.
class RateMeasurer {
 public:
  RateMeasurer(const StoppingRule& rule, const Target& target)
      : rule_(rule), target_(target), device_(target.make_device()) {}

  double memory_bandwidth_bytes_per_s() const {
    const int64_t bytes = size(int64_t{64} << 20, {int64_t{1} << 30, [](int64_t n) { return 2 * n; },
                                                   [&](int64_t n) { return copying(n); }});
    return 2.0 * double(bytes) / seconds(copying(bytes));
  }

  double matmul_flop_per_s() const {
    const int64_t unit = size_of(target_.type);
    const int64_t n = size(768, {8192, [&](int64_t side) { return 3 * side * side * unit; },
                                 [&](int64_t side) { return multiplying(side); }});
    return 2.0 * double(n) * double(n) * double(n) / seconds(multiplying(n));
  }

  // Both run over the same states: the optimizer's step, and the gradient norm that precedes it.
  void measure_optimizer(Profile& profile, const OnMeasured& on_measured) const {
    const DataType state = state_type_of(target_.type);
    const int64_t parameters =
        size(2'000'000, {int64_t{1} << 28, [&](int64_t n) { return 4 * n * size_of(state); },
                         [&](int64_t n) { return stepping(states(n), n); }});
    const Buffers buffers = states(parameters);
    profile.optimizer_s_per_parameter = seconds(stepping(buffers, parameters)) / double(parameters);
    on_measured();
    double sink = 0.0;
    const auto norm = [&] { sink += device_->sum_of_squares(state, parameters, buffers->front().data()); };
    profile.gradient_norm_s_per_parameter = timed(norm, [] {}).seconds / double(parameters);
    on_measured();
  }

  // Seconds in which the host hands one instruction to a lane.
  double dispatch_s() const {
    StepProgram one;
    one.instructions.push_back({});
    one.instructions.back().lane_count = 1;
    one.lane_table.push_back({0, Stream::compute});
    const auto lanes = runtime::make_thread_lanes(
        one, 0, [](const std::string&, const std::string&) {}, device_->make_marks(1));
    constexpr int kLaunches = 64;
    const auto launch = [&] {
      lanes->begin_step();
      for (int i = 0; i < kLaunches; ++i) lanes->launch(0, Stream::compute, {}, [] {});
      lanes->synchronize();
    };
    return timed(launch, [] {}).seconds / kLaunches;
  }

 private:
  using Work = std::function<void()>;
  using Buffers = std::shared_ptr<std::vector<Buffer>>;

  struct Sizes {
    int64_t most;
    std::function<int64_t(int64_t size)> bytes;
    std::function<Work(int64_t size)> work;
  };

  bool on_cpu() const { return target_.backend == nullptr; }

  // GPUs differ by a factor of 100 in speed and memory. Sizes double until a call is so long that launch and
  // caches no longer matter, or until they fill a sixteenth of the memory.
  int64_t size(int64_t on_cpus, const Sizes& sizes) const {
    constexpr double kLong_s = 1e-3;
    if (on_cpu()) return on_cpus;
    int64_t n = 128;
    for (; n < sizes.most && 16 * sizes.bytes(2 * n) <= target_.backend->memory_bytes(); n *= 2)
      if (shortest_of_three(sizes.work(n)) > kLong_s) break;
    return n;
  }

  double shortest_of_three(const Work& work) const {
    double shortest = std::numeric_limits<double>::infinity();
    for (int i = -1; i < 3; ++i) {  // the first one loads kernels
      device_->synchronize();
      const double start = now_s();
      work();
      device_->synchronize();
      if (i >= 0) shortest = std::min(shortest, now_s() - start);
    }
    return shortest;
  }

  Buffers zeros(int count, int64_t bytes) const {
    auto buffers = std::make_shared<std::vector<Buffer>>();
    for (int i = 0; i < count; ++i) {
      buffers->emplace_back(*device_, bytes);
      device_->zero(buffers->back().data(), bytes);
    }
    return buffers;
  }
  Work copying(int64_t bytes) const {
    const Buffers buffers = zeros(2, bytes);
    return [this, buffers, bytes] { device_->copy(buffers->back().data(), buffers->front().data(), bytes); };
  }
  Work multiplying(int64_t side) const {
    const Buffers buffers = zeros(3, side * side * size_of(target_.type));
    for (Buffer& matrix : *buffers) fill(*device_, target_.type, matrix);  // zeros would draw less power
    return [this, buffers, shape = runtime::LinearShape{side, side, side}] {
      const std::vector<Buffer>& b = *buffers;
      device_->run(target_.type, runtime::LinearForward{
                                     .shape = shape, .x = b[0].data(), .w = b[1].data(), .y = b[2].data()});
    };
  }
  // Gradients, weights and two moments.
  Buffers states(int64_t parameters) const {
    return zeros(4, parameters * size_of(state_type_of(target_.type)));
  }
  Work stepping(const Buffers& buffers, int64_t parameters) const {
    return [this, buffers, parameters] {
      const DataType state = state_type_of(target_.type);
      const std::vector<Buffer>& b = *buffers;
      device_->run(state, runtime::AdamStep{.count = parameters,
                                            .options = runtime::AdamW{1e-3},
                                            .gradient = b[0].data(),
                                            .parameter = b[1].data(),
                                            .first_moment = b[2].data(),
                                            .second_moment = b[3].data()});
      device_->zero(b[0].data(), parameters * size_of(state));
    };
  }

  Measurement timed(const std::function<void()>& body, const std::function<void()>& end) const {
    return repeat_while_noisy([&] { return measure(rule_, body, end); });
  }
  double seconds(const std::function<void()>& body) const {
    return timed(body, [&] { device_->synchronize(); }).seconds;
  }

  const StoppingRule& rule_;
  const Target& target_;
  std::unique_ptr<runtime::Device> device_;
};

}  // namespace

std::vector<PieceTiming> measure_pieces(const ComputeRequest& request, const OnMeasured& on_measured) {
  std::vector<PieceCase> cases = cases_of(request);
  const auto sample = [&](const PieceTiming& size, const StoppingRule& rule, PhaseSamples& samples) {
    PieceTimer(request, size).run(rule, samples);
  };
  // Other load on a machine comes in bursts of seconds. Several passes spread a burst over all pieces.
  const int passes = request.target.backend == nullptr ? 3 : 1;
  StoppingRule rule = request.rule;
  rule.budget_s /= passes;
  rule.least_samples = (rule.least_samples + passes - 1) / passes;
  for (int pass = 0, done = 0; pass < passes; ++pass)
    for (PieceCase& c : cases) {
      sample(c.size, rule, c.samples);
      if (++done % passes == 0) on_measured();
    }
  repeat_doubtful(cases, [&](const PieceTiming& size) {
    PhaseSamples samples;
    sample(size, request.rule, samples);
    return samples;
  });
  return timings_of(cases);
}

std::vector<int64_t> operator_micro_batches(const ComputeRequest& request) {
  return request.target.backend == nullptr ? std::vector{request.micro_batches.back()}
                                           : request.micro_batches;
}

int64_t layer_measurements(const ComputeRequest& request) {
  return int64_t(cases_of(request).size() + shapes_of(request, operator_micro_batches(request)).size());
}

std::vector<OperatorTiming> measure_operators(const ComputeRequest& request, const OnMeasured& on_measured) {
  std::vector<OperatorTiming> timings;
  for (const models::OperatorShape& shape : shapes_of(request, operator_micro_batches(request))) {
    OperatorRunner runner(request.model, shape, request.target);
    for (const Phase phase : runner.phases()) {
      const Measurement m = repeat_while_noisy([&] {
        return measure(
            request.rule, [&] { runner.run(phase); }, [&] { runner.synchronize(); });
      });
      timings.push_back({shape, phase, m.seconds, m.spread});
    }
    on_measured();
  }
  return timings;
}

std::vector<KernelTiming> trace_kernels(const ComputeRequest& request, std::string& reason) {
  if (request.target.backend == nullptr) return {};
  const auto trace = request.target.backend->make_kernel_trace(reason);
  if (!trace) return {};
  std::vector<KernelTiming> timings;
  for (const models::OperatorShape& shape : shapes_of(request, {request.micro_batches.back()})) {
    OperatorRunner runner(request.model, shape, request.target);
    for (const Phase phase : runner.phases()) {
      runner.run(phase);  // the first run may set libraries up
      runner.synchronize();
      trace->take();
      runner.run(phase);
      runner.synchronize();
      std::map<std::string, std::vector<double>> by_name;
      for (const auto& record : trace->take()) by_name[record.name].push_back(record.seconds);
      for (const auto& [name, seconds] : by_name)
        timings.push_back({shape, phase, name, int64_t(seconds.size()), summarize(seconds).seconds});
    }
  }
  return timings;
}

void warm_up(const Target& target) {
  if (target.backend == nullptr) return;
  constexpr double kSteady = 0.01, kLongest_s = 3.0;
  StoppingRule rule;
  rule.budget_s = 0.1;
  const RateMeasurer measurer(rule, target);
  const double start = now_s();
  for (double last = 0.0; now_s() - start < kLongest_s;) {
    const double rate = measurer.matmul_flop_per_s();
    if (std::fabs(rate - last) < kSteady * rate) return;
    last = rate;
  }
}

void measure_rates(const StoppingRule& rule, const Target& target, const OnMeasured& on_measured,
                   Profile& profile) {
  const RateMeasurer measurer(rule, target);
  profile.memory_bandwidth_bytes_per_s = measurer.memory_bandwidth_bytes_per_s();
  on_measured();
  profile.matmul_flop_per_s = measurer.matmul_flop_per_s();
  on_measured();
  measurer.measure_optimizer(profile, on_measured);
  profile.dispatch_s = measurer.dispatch_s();
  on_measured();
}

std::vector<double> measure_concurrency(const ComputeRequest& request, int most_ranks,
                                        const OnMeasured& on_measured) {
  const Layout layout = layout_of(request, 1, request.micro_batches[request.micro_batches.size() / 2]);
  // Rounds of one rank alone, two at once and so on: so a change of the machine's speed affects all of them
  // equally.
  const int rounds = 3 * request.rule.least_samples + 1;  // the first warms up
  std::vector<std::vector<double>> seconds(size_t(rounds), std::vector<double>(size_t(most_ranks), 0.0));
  std::mutex adding;
  std::barrier together(most_ranks);
  std::vector<std::jthread> threads;
  for (int r = 0; r < most_ranks; ++r)
    threads.emplace_back([&, r] {
      PieceRunner runner(request.model, layout, request.sequence, Piece::layer);
      for (std::vector<double>& round : seconds)
        for (int ranks = 1; ranks <= most_ranks; ++ranks) {
          together.arrive_and_wait();
          if (r >= ranks) continue;
          const double start = now_s();
          for (int pass = 0; pass < 2; ++pass) {
            runner.forward();
            runner.backward_input();
            runner.backward_weight();
            runner.finish();
          }
          const double taken = now_s() - start;
          const std::lock_guard lock(adding);
          round[size_t(ranks - 1)] += taken / ranks;
        }
    });
  threads.clear();
  std::vector<double> rates;
  for (size_t ranks = 0; ranks < size_t(most_ranks); ++ranks) {
    std::vector<double> of_alone;
    for (size_t round = 1; round < seconds.size(); ++round)
      of_alone.push_back(seconds[round][0] / seconds[round][ranks]);
    rates.push_back(std::min(rates.empty() ? 1.0 : rates.back(), summarize(of_alone).seconds));
    on_measured();
  }
  return rates;
}

}  // namespace mpt::profiler
