// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "runtime/comm/threads/thread_world.h"

namespace mpt::profiler {
namespace {

using runtime::Communicator;
using runtime::DataType;
using runtime::ReduceOperation;

constexpr int64_t kMessageBytes[] = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24};

void run_once(TransportOperation operation, Communicator& group, runtime::Buffer& a, runtime::Buffer& b,
              int64_t bytes) {
  const int64_t count = bytes / 4, part = count / group.size();
  switch (operation) {
    case TransportOperation::all_reduce:
      return group.all_reduce(a.data(), count, DataType::float32, ReduceOperation::sum);
    case TransportOperation::all_gather:
      return group.all_gather(a.data(), b.data(), part, DataType::float32);
    case TransportOperation::reduce_scatter:
      return group.reduce_scatter(a.data(), b.data(), part, DataType::float32);
    case TransportOperation::send_receive:
      return group.rank() == 0 ? group.send(a.data(), bytes, 1) : group.receive(a.data(), bytes, 0);
  }
}

// All ranks decide together when to stop: rank 0 looks at the clock between two barriers.
Measurement time_operation(TransportOperation operation, int64_t ranks, int64_t bytes,
                           const StoppingRule& rule, const Target& target) {
  constexpr auto kTimeout = std::chrono::seconds(60);
  runtime::ThreadWorld control(kTimeout, int(ranks));
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<runtime::Device*> pointers;
  for (int r = 0; r < int(ranks); ++r) {
    devices.push_back(target.make_device(r));
    pointers.push_back(devices.back().get());
  }
  const auto own_world =
      target.backend == nullptr ? nullptr : target.backend->make_world(control, pointers, kTimeout);
  runtime::World& world = own_world ? *own_world : control;
  std::vector<std::vector<double>> samples(static_cast<size_t>(ranks));
  std::atomic<bool> go_on{true};
  std::vector<int> members;
  for (int r = 0; r < int(ranks); ++r) members.push_back(r);
  std::vector<std::thread> threads;
  for (int r = 0; r < int(ranks); ++r) {
    threads.emplace_back([&, r] {
      const auto group = world.communicator(r, members, "measure");
      const auto host = control.communicator(r, members, "turns");
      runtime::Device& device = *devices[size_t(r)];
      runtime::Buffer a(device, bytes), b(device, bytes);
      device.zero(a.data(), bytes);
      device.zero(b.data(), bytes);
      device.synchronize();
      const double start = now_s();
      for (int i = 0;; ++i) {
        host->barrier();
        if (r == 0)
          go_on = i < rule.warm_up + rule.least_samples || (now_s() - start < rule.budget_s && i < 2000);
        host->barrier();
        if (!go_on) break;
        const double before = now_s();
        run_once(operation, *group, a, b, bytes);
        device.synchronize();
        if (i >= rule.warm_up) samples[size_t(r)].push_back(now_s() - before);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<double> slowest = samples.front();
  for (const auto& rank : samples) {
    for (size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
  }
  return summarize(slowest);
}

}  // namespace

std::vector<TransportTiming> measure_transport(int64_t most_ranks, const StoppingRule& rule,
                                               const Target& target, const OnMeasured& on_measured) {
  std::vector<TransportTiming> timings;
  for (int64_t ranks = 2; ranks <= most_ranks; ranks *= 2) {
    for (const auto& [operation, name] : EnumNames<TransportOperation>::table()) {
      if (operation == TransportOperation::send_receive && ranks > 2) continue;
      for (const int64_t bytes : kMessageBytes) {
        const Measurement m = time_operation(operation, ranks, bytes, rule, target);
        timings.push_back({operation, ranks, bytes, m.seconds, m.spread});
      }
      on_measured();
    }
  }
  return timings;
}

double bus_bandwidth_bytes_per_s(const TransportTiming& t) {
  const double n = double(t.group);
  const double algorithm = t.seconds > 0.0 ? double(t.bytes) / t.seconds : 0.0;
  switch (t.operation) {
    case TransportOperation::all_reduce:
      return algorithm * 2.0 * (n - 1.0) / n;
    case TransportOperation::all_gather:
    case TransportOperation::reduce_scatter:
      return algorithm * (n - 1.0) / n;
    case TransportOperation::send_receive:
      return algorithm;
  }
  return algorithm;
}

}  // namespace mpt::profiler
