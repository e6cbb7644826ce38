// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/compute.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <numeric>
#include <thread>

#include "core/clock.h"
#include "models/layer_program.h"
#include "profiler/measure/operator_runner.h"
#include "profiler/measure/piece.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/execute/thread_lanes.h"

namespace mpt::profiler {
namespace {

using runtime::Buffer;
using runtime::DataType;

Layout layout_of(int64_t tensor, int64_t micro_batch, Recompute recompute = Recompute::none) {
  Layout layout;
  layout.tensor = tensor;
  layout.micro_batch = micro_batch;
  layout.recompute = recompute;
  return layout;
}

// The three phases are timed in turn, on several instances of the piece one behind the other: a layer finds
// its weights and activations as cold as the other layers of a stage have left them.
class PieceTimer {
 public:
  PieceTimer(const ComputeRequest& request, const Layout& layout, Piece piece) : rule_(request.rule) {
    for (size_t i = 0; i < size_t(kPieceInstances); ++i) {
      runners_.push_back(std::make_unique<PieceRunner>(request.model, layout, request.sequence, piece));
    }
  }

  void run() {
    round();  // the first one touches the memory
    for (auto* samples : {&forward_, &input_, &weight_, &both_}) samples->clear();
    const double start = now_s();
    while (int(both_.size()) < rule_.least_samples ||
           (now_s() - start < rule_.budget_s && summarize(both_).spread > rule_.spread_wanted)) {
      round();
    }
  }

  Measurement of(Phase phase) const {
    switch (phase) {
      case Phase::forward:
        return summarize(forward_);
      case Phase::backward:
        return summarize(both_);
      case Phase::input_gradient:
        return summarize(input_);
      case Phase::weight_gradient:
        return summarize(weight_);
    }
    return {};
  }

 private:
  void round() {
    double time = now_s();
    for (auto& runner : runners_) runner->forward();
    time = record(forward_, time);
    double input = 0.0, weight = 0.0;
    for (auto runner = runners_.rbegin(); runner != runners_.rend(); ++runner) {
      const double start = now_s();
      (*runner)->backward_input();
      const double middle = now_s();
      (*runner)->backward_weight();
      (*runner)->finish();
      input += middle - start;
      weight += now_s() - middle;
    }
    input_.push_back(input / double(kPieceInstances));
    weight_.push_back(weight / double(kPieceInstances));
    both_.push_back((input + weight) / double(kPieceInstances));
  }

  static double record(std::vector<double>& samples, double since) {
    const double now = now_s();
    samples.push_back((now - since) / double(kPieceInstances));
    return now;
  }

  const StoppingRule& rule_;
  std::vector<std::unique_ptr<PieceRunner>> runners_;
  std::vector<double> forward_, input_, weight_, both_;
};

std::vector<Recompute> recomputes_of(Piece piece) {
  if (piece != Piece::layer) return {Recompute::none};
  return {Recompute::none, Recompute::selective, Recompute::full};
}

}  // namespace

std::vector<PieceTiming> measure_pieces(const ComputeRequest& request, const OnMeasured& on_measured) {
  std::vector<PieceTiming> timings;
  for (const int64_t tensor : request.tensors) {
    for (const int64_t micro_batch : request.micro_batches) {
      for (const Piece piece : {Piece::embedding, Piece::layer, Piece::head}) {
        for (const Recompute recompute : recomputes_of(piece)) {
          PieceTimer timer(request, layout_of(tensor, micro_batch, recompute), piece);
          timer.run();
          for (const auto& [phase, name] : EnumNames<Phase>::table()) {
            const Measurement m = timer.of(phase);
            timings.push_back({piece, phase, micro_batch, tensor, recompute, m.seconds, m.spread});
          }
          on_measured();
        }
      }
    }
  }
  return timings;
}

std::vector<OperatorTiming> measure_operators(const ComputeRequest& request, const OnMeasured& on_measured) {
  std::vector<OperatorTiming> timings;
  std::vector<models::OperatorShape> seen;
  const int64_t micro_batch = request.micro_batches.back();
  for (const int64_t tensor : request.tensors) {
    const Layout layout = layout_of(tensor, micro_batch);
    for (const auto& program : {models::embedding_program(request.model, layout, request.sequence),
                                models::layer_program(request.model, 0, layout, request.sequence),
                                models::head_program(request.model, layout, request.sequence)}) {
      for (const models::Operator& op : program.operators) {
        if (std::find(seen.begin(), seen.end(), op.shape) != seen.end()) continue;
        seen.push_back(op.shape);
        OperatorRunner runner(request.model, op.shape);
        for (const Phase phase : runner.phases()) {
          const Measurement m = measure(request.rule, [&] { runner.run(phase); });
          timings.push_back({op.shape, phase, m.seconds, m.spread});
        }
        on_measured();
      }
    }
  }
  return timings;
}

DeviceRates measure_rates(const StoppingRule& rule, const OnMeasured& on_measured) {
  const auto device = runtime::make_cpu_device();
  DeviceRates rates;
  {
    constexpr int64_t kBytes = int64_t{64} << 20;  // beyond any cache
    Buffer from(*device, kBytes), to(*device, kBytes);
    device->zero(from.data(), kBytes);
    rates.memory_bandwidth_bytes_per_s =
        2.0 * double(kBytes) / measure(rule, [&] { device->copy(to.data(), from.data(), kBytes); }).seconds;
    on_measured();
  }
  {
    constexpr int64_t kSize = 768;
    Buffer a(*device, kSize * kSize * 4), b(*device, kSize * kSize * 4), c(*device, kSize * kSize * 4);
    for (Buffer* buffer : {&a, &b, &c}) device->zero(buffer->data(), buffer->bytes());
    const runtime::LinearShape shape{kSize, kSize, kSize};
    const Measurement m = measure(rule, [&] {
      device->linear_forward(DataType::float32, shape, a.data(), b.data(), nullptr, c.data());
    });
    rates.matmul_flop_per_s = 2.0 * double(kSize) * double(kSize) * double(kSize) / m.seconds;
    on_measured();
  }
  constexpr int64_t kParameters = 2'000'000;
  std::vector<Buffer> state;
  for (int i = 0; i < 4; ++i) {
    state.emplace_back(*device, kParameters * 4);
    device->zero(state.back().data(), kParameters * 4);
  }
  const runtime::AdamW options{1e-3};
  rates.optimizer_s_per_parameter =
      measure(rule,
              [&] {
                device->adamw(DataType::float32, kParameters, options, state[0].data(), state[1].data(),
                              state[2].data(), state[3].data());
                device->zero(state[0].data(), kParameters * 4);
              })
          .seconds /
      double(kParameters);
  on_measured();
  double sink = 0.0;
  rates.gradient_norm_s_per_parameter =
      measure(rule, [&] { sink += device->sum_of_squares(DataType::float32, kParameters, state[0].data()); })
          .seconds /
      double(kParameters);
  on_measured();
  StepProgram one;
  one.instructions.push_back({});
  one.instructions.back().lane_count = 1;
  one.lane_table.push_back({0, Stream::compute});
  const auto lanes = runtime::make_thread_lanes(one, 0, [](const std::string&, const std::string&) {});
  constexpr int kLaunches = 64;
  const Measurement dispatch = measure(rule, [&] {
    lanes->begin_step();
    for (int i = 0; i < kLaunches; ++i) lanes->launch(0, Stream::compute, {}, [] {});
    lanes->synchronize();
  });
  rates.dispatch_s = dispatch.seconds / kLaunches;
  on_measured();
  return rates;
}

std::vector<double> measure_concurrency(const ComputeRequest& request, int most_ranks,
                                        const OnMeasured& on_measured) {
  const Layout layout = layout_of(1, request.micro_batches[request.micro_batches.size() / 2]);
  std::vector<double> rates;
  double alone_s = 0.0;
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    std::vector<double> seconds(static_cast<size_t>(ranks));
    std::barrier together(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        PieceRunner runner(request.model, layout, request.sequence, Piece::layer);
        std::vector<double> samples;
        for (int i = 0; i < request.rule.least_samples + 2; ++i) {
          together.arrive_and_wait();
          const double start = now_s();
          for (int pass = 0; pass < 2; ++pass) {
            runner.forward();
            runner.backward_input();
            runner.backward_weight();
            runner.finish();
          }
          samples.push_back(now_s() - start);
        }
        seconds[size_t(r)] = summarize(samples).seconds;
      });
    }
    for (auto& thread : threads) thread.join();
    const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / ranks;
    if (ranks == 1) alone_s = mean;
    rates.push_back(std::min(rates.empty() ? 1.0 : rates.back(), alone_s / mean));
    on_measured();
  }
  return rates;
}

}  // namespace mpt::profiler
