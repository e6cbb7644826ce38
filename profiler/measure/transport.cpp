// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/transport.h"

#include <exception>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/comm/mpi/mpi_module.h"
#include "runtime/comm/sockets/socket_world.h"
#include "runtime/comm/threads/thread_world.h"

namespace mpt::profiler {
namespace {

using runtime::Buffer;
using runtime::Communicator;
using runtime::DataType;
using runtime::ReduceOperation;

constexpr int64_t kMessageBytes[] = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24};

void run_once(TransportOperation operation, Communicator& group, Buffer& a, Buffer& b, int64_t bytes) {
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

constexpr auto kTimeout = std::chrono::seconds(120);

int local_ranks_of(const TransportRequest& request) {
  return request.target.backend == nullptr
             ? int(request.most_ranks)
             : std::min(int(request.most_ranks), request.target.backend->device_count());
}

// The measured ranks: the same number of threads in each process, each with one device.
class Ranks {
 public:
  explicit Ranks(const TransportRequest& request) : target_(request.target), local_(local_ranks_of(request)) {
    const int ranks = local_ * (request.launch ? request.launch->processes : 1);
    control_ = request.launch
                   ? runtime::make_socket_world({*request.launch, ranks, "transport-timing", kTimeout})
                   : std::make_unique<runtime::ThreadWorld>(kTimeout, ranks);
    std::vector<runtime::Device*> pointers;
    for (int i = 0; i < local_; ++i) {
      const int of_host = request.launch ? request.launch->process_of_host * local_ + i : i;
      devices_.push_back(target_.make_device(of_host));
      pointers.push_back(devices_.back().get());
    }
    std::string said;
    if (target_.backend != nullptr) own_ = target_.backend->make_world(*control_, pointers, kTimeout);
    if (target_.backend == nullptr && request.launch)
      own_ = runtime::make_mpi_world(*control_, *request.launch, kTimeout, said);
    everybody_ = runtime::ranks_from(0, ranks);
    find_hosts(request.launch ? request.launch->process_of_host == 0 : true);
  }

  /// World ranks by host.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }

  /// Runs `body(rank)` on a thread for each of `members` that is in this process.
  template <class F>
  void run(const std::vector<int>& members, F&& body) {
    std::vector<std::exception_ptr> failures(static_cast<size_t>(local_));
    {
      std::vector<std::jthread> threads;
      for (const int rank : control_->local_ranks()) {
        if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
        threads.emplace_back([&, rank] {
          try {
            body(rank);
          } catch (const std::exception& error) {
            failures[size_t(rank - first())] = std::current_exception();
            control_->abort(failure_text(error));
            if (own_) own_->abort(failure_text(error));
          }
        });
      }
    }
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }

  runtime::World& control() { return *control_; }
  runtime::World& measured() { return own_ ? *own_ : *control_; }
  runtime::Device& device(int rank) { return *devices_[size_t(rank - first())]; }
  const std::vector<int>& everybody() const { return everybody_; }

 private:
  int first() const { return control_->local_ranks().front(); }

  // The first process of a host begins a new host here: launchers number processes host by host.
  void find_hosts(bool begins) {
    std::vector<float> flags(everybody_.size());
    run(everybody_, [&](int rank) {
      const float own = begins && rank == first() ? 1.0f : 0.0f;
      std::vector<float> all(everybody_.size());
      control_->communicator(rank, everybody_, "hosts")->all_gather(&own, all.data(), 1, DataType::float32);
      if (rank == first()) flags = all;
    });
    for (size_t rank = 0; rank < flags.size(); ++rank) {
      if (flags[rank] > 0.0f || hosts_.empty()) hosts_.emplace_back();
      hosts_.back().push_back(int(rank));
    }
  }

  Target target_;
  int local_;
  std::unique_ptr<runtime::World> control_;
  std::vector<std::unique_ptr<runtime::Device>> devices_;
  std::unique_ptr<runtime::World> own_;  // of the devices; null: `control_` carries the messages
  std::vector<int> everybody_;
  std::vector<std::vector<int>> hosts_;
};

struct Group {
  int64_t hosts = 1;
  std::vector<int> members;
};

// The first n ranks of a host; one rank on each of n hosts; all ranks of n hosts. n is a power of two.
std::vector<Group> groups_of(const std::vector<std::vector<int>>& hosts) {
  std::vector<Group> groups;
  const std::vector<int>& first = hosts.front();
  for (size_t n = 2; n <= first.size(); n *= 2)
    groups.push_back({1, {first.begin(), first.begin() + long(n)}});
  for (const size_t of_each : {size_t{1}, first.size()}) {
    for (size_t n = 2; n <= hosts.size(); n *= 2) {
      Group group{int64_t(n), {}};
      for (size_t h = 0; h < n; ++h)
        group.members.insert(group.members.end(), hosts[h].begin(), hosts[h].begin() + long(of_each));
      groups.push_back(std::move(group));
    }
    if (first.size() == 1) break;
  }
  return groups;
}

// One rank's part in timing its group. The first rank reads the clock and tells the others whether to go on.
// The time of the slowest rank counts.
class GroupMember {
 public:
  GroupMember(Ranks& ranks, int rank, const Group& group, const StoppingRule& rule)
      : group_(ranks.measured().communicator(rank, group.members, "measured")),
        turns_(ranks.control().communicator(rank, group.members, "turns")),
        device_(ranks.device(rank)),
        rule_(rule) {}

  Measurement time(TransportOperation operation, int64_t bytes) {
    Buffer a(device_, bytes), b(device_, bytes);
    device_.zero(a.data(), bytes);
    device_.zero(b.data(), bytes);
    device_.synchronize();
    std::vector<double> samples;
    const double start = now_s();
    for (int i = 0;; ++i) {
      uint8_t go_on =
          i < rule_.warm_up + rule_.least_samples || (now_s() - start < rule_.budget_s && i < 2000);
      turns_->broadcast(&go_on, 1, 0);
      if (go_on == 0) break;
      turns_->barrier();
      const double before = now_s();
      run_once(operation, *group_, a, b, bytes);
      device_.synchronize();
      if (i >= rule_.warm_up) samples.push_back(now_s() - before);
    }
    turns_->all_reduce(samples.data(), int64_t(samples.size()), DataType::float64, ReduceOperation::maximum);
    return summarize(samples);
  }

  bool speaks() const { return turns_->rank() == 0; }

 private:
  std::unique_ptr<Communicator> group_, turns_;
  runtime::Device& device_;
  const StoppingRule& rule_;
};

}  // namespace

TransportTimings measure_transport(const TransportRequest& request, const OnMeasured& on_measured) {
  if (!request.launch && local_ranks_of(request) < 2) return {};
  Ranks ranks(request);
  TransportTimings result{int64_t(ranks.hosts().size()), {}};
  for (const Group& group : groups_of(ranks.hosts())) {
    ranks.run(group.members, [&](int rank) {
      GroupMember member(ranks, rank, group, request.rule);
      const auto size = int64_t(group.members.size());
      for (const auto& [operation, name] : EnumNames<TransportOperation>::table()) {
        if (operation == TransportOperation::send_receive && size > 2) continue;
        for (const int64_t bytes : kMessageBytes) {
          // Every member has the same samples, so all of them decide the same.
          const auto m = repeat_while_noisy([&, timed = operation] { return member.time(timed, bytes); });
          if (member.speaks())
            result.timings.push_back({operation, size, bytes, m.seconds, m.spread, group.hosts});
        }
      }
    });
    on_measured();
  }
  // No rank leaves before all groups are measured.
  ranks.run(ranks.everybody(),
            [&](int rank) { ranks.control().communicator(rank, ranks.everybody(), "end")->barrier(); });
  return result;
}

double bus_bandwidth_bytes_per_s(const TransportTiming& t) {
  const double n = double(t.group);
  const double algorithm = t.seconds > 0.0 ? double(t.bytes) / t.seconds : 0.0;
  if (t.operation == TransportOperation::send_receive) return algorithm;
  return algorithm * (t.operation == TransportOperation::all_reduce ? 2.0 : 1.0) * (n - 1.0) / n;
}

}  // namespace mpt::profiler
