// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/comm/reduction.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace nccl_on_cpu {

State& state() {
  static State state;
  return state;
}

void mistake(const std::string& what) { state().mistakes.push_back(what); }

namespace {

using cuda_on_cpu::Stream;

mpt::runtime::DataType element(ncclDataType_t type) {
  using mpt::runtime::DataType;
  return type == ncclFloat64    ? DataType::float64
         : type == ncclBfloat16 ? DataType::bfloat16
         : type == ncclFloat16  ? DataType::float16
                                : DataType::float32;
}
size_t bytes_of(const Call& call) {
  return call.count * (call.type == ncclInt8 ? 1 : size_t(mpt::runtime::size_of(element(call.type))));
}

std::string describe(const Launch& launch) {
  const bool first = launch.comm->launches.front().get() == &launch;
  const char* const why = launch.resident ? "" : first ? "no room for " : "not yet the turn of ";
  std::string what = why + fmt::format("rank {} of group \"{}\":", launch.comm->rank, launch.comm->name);
  for (const Call& call : launch.calls) {
    what += fmt::format(" {}", kNames[int(call.kind)]);
    if (is_transfer(call.kind))
      what += fmt::format(" ({} {})", call.kind == Kind::send ? "to" : "from", call.other);
    what += fmt::format(" of {} bytes", bytes_of(call));
  }
  return what;
}

// The launch and call of `rank` that meets `call` of `own`; null: not submitted yet.
std::pair<Launch*, Call*> partner(const ncclComm& own, const Call& call, int rank) {
  ncclComm* const other = own.clique->ranks[size_t(rank)];
  if (other == nullptr) return {};
  for (const auto& launch : other->launches) {
    for (Call& theirs : launch->calls) {
      if (theirs.done || is_transfer(theirs.kind) != is_transfer(call.kind) || theirs.number != call.number)
        continue;
      if (is_transfer(call.kind) && (theirs.other != own.rank || theirs.kind == call.kind)) continue;
      return {launch.get(), &theirs};
    }
  }
  return {};
}

std::vector<int> partners(const ncclComm& own, const Call& call) {
  if (is_transfer(call.kind)) return {call.other};
  std::vector<int> ranks;
  for (int rank = 0; rank < int(own.clique->ranks.size()); ++rank) {
    if (rank != own.rank) ranks.push_back(rank);
  }
  return ranks;
}

size_t bytes_read(const Launch& launch, const Call& call) {
  return bytes_of(call) * (call.kind == Kind::reduce_scatter ? launch.comm->clique->ranks.size() : 1);
}
size_t bytes_written(const Launch& launch, const Call& call) {
  return bytes_of(call) * (call.kind == Kind::all_gather ? launch.comm->clique->ranks.size() : 1);
}

// A message between processes: what must agree, then the data.
struct Head {
  uint64_t kind, count, type, other;
  bool operator==(const Head&) const = default;
};
Head head_of(const Call& call) {
  if (is_transfer(call.kind)) return {0, call.count, 0, 0};
  return {uint64_t(call.kind), call.count, uint64_t(call.type), uint64_t(call.other)};
}
std::string message_of(const Call& call) {
  return fmt::format("{}-{}", is_transfer(call.kind) ? "transfer" : "collective", call.number);
}

void send_on_network(const Launch& launch, const Call& call) {
  if (call.kind == Kind::receive) return;
  const Head head = head_of(call);
  std::vector<char> message(sizeof head + bytes_read(launch, call));
  std::memcpy(message.data(), &head, sizeof head);
  std::memcpy(message.data() + sizeof head, call.from, message.size() - sizeof head);
  for (const int rank : partners(*launch.comm, call))
    launch.comm->network->send(rank, message_of(call), message.data(), message.size());
}

// Messages leave when the stream comes to them. A send has ended when its receiver has the message, which it
// takes as soon as it is there: in a group both sides send before they receive.
bool is_ready_on_network(Launch& launch) {
  Network& network = *launch.comm->network;
  if (!launch.sent) {
    for (const Call& call : launch.calls) send_on_network(launch, call);
  }
  launch.sent = true;
  for (Call& call : launch.calls) {
    if (call.kind == Kind::receive && call.arrived.empty() &&
        network.has_arrived(call.other, message_of(call)))
      call.arrived = network.receive(call.other, message_of(call));
  }
  return std::all_of(launch.calls.begin(), launch.calls.end(), [&](const Call& call) {
    if (call.kind == Kind::receive) return !call.arrived.empty();
    const std::vector<int> ranks = partners(*launch.comm, call);
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      return call.kind == Kind::send ? network.is_received(rank, message_of(call))
                                     : network.has_arrived(rank, message_of(call));
    });
  });
}

// First of its communicator, and with room on its GPU.
bool become_resident(Launch& launch) {
  ncclComm& comm = *launch.comm;
  if (launch.resident) return true;
  if (comm.launches.front().get() != &launch) return false;
  int& used = state().blocks_used[comm.gpu];
  if (used + comm.blocks > nccl_on_cpu::kBlocks) return false;
  used += comm.blocks;
  return launch.resident = true;
}

bool is_ready(Launch& launch) {
  if (launch.comm->aborted) return true;
  // It takes its place when its stream comes to it, whether or not its peers are there.
  if (!become_resident(launch)) return false;
  if (launch.comm->network) return is_ready_on_network(launch);
  return std::all_of(launch.calls.begin(), launch.calls.end(), [&](const Call& call) {
    if (call.done) return true;
    const std::vector<int> ranks = partners(*launch.comm, call);
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      const auto [theirs, _] = partner(*launch.comm, call, rank);
      return theirs != nullptr && (theirs == &launch || theirs->resident);
    });
  });
}

cuda_on_cpu::Blockers blockers(const Launch& launch) {
  const ncclComm& comm = *launch.comm;
  if (!launch.resident && comm.launches.front().get() != &launch)
    return {{&comm.launches.front()->stream->stream}};
  std::vector<Stream*> streams;
  if (!launch.resident) {
    // Any that leaves makes room.
    for (const ncclComm* other : state().comms) {
      if (other->gpu == comm.gpu && !other->launches.empty() && other->launches.front()->resident)
        streams.push_back(&other->launches.front()->stream->stream);
    }
    return {streams, true};
  }
  for (const Call& call : launch.calls) {
    for (const int rank : partners(comm, call)) {
      const auto [theirs, _] = partner(comm, call, rank);
      if (theirs != nullptr && !theirs->resident) streams.push_back(&theirs->stream->stream);
    }
  }
  return {streams};
}

// What `rank` gets of what each rank has sent.
std::vector<char> result_of(const Call& call, const std::vector<const void*>& sent, size_t rank) {
  const size_t bytes = bytes_of(call);
  const auto type = element(call.type);
  std::vector<char> result(call.kind == Kind::all_gather ? bytes * sent.size() : bytes);
  switch (call.kind) {
    case Kind::all_reduce:
      mpt::runtime::reduce_in_order(
          type,
          call.other == ncclSum ? mpt::runtime::ReduceOperation::sum : mpt::runtime::ReduceOperation::maximum,
          sent, 0, int64_t(call.count), result.data());
      break;
    case Kind::all_gather:
      for (size_t s = 0; s < sent.size(); ++s) std::memcpy(result.data() + s * bytes, sent[s], bytes);
      break;
    case Kind::reduce_scatter:
      mpt::runtime::reduce_in_order(type, mpt::runtime::ReduceOperation::sum, sent,
                                    int64_t(rank * call.count), int64_t((rank + 1) * call.count),
                                    result.data());
      break;
    default:
      std::memcpy(result.data(), sent[size_t(call.other)], bytes);
  }
  return result;
}

void exchange(const std::vector<Call*>& calls) {
  std::vector<const void*> sent;
  for (const Call* call : calls) sent.push_back(call->from);
  std::vector<std::vector<char>> results;
  for (size_t r = 0; r < calls.size(); ++r) results.push_back(result_of(*calls.front(), sent, r));
  for (size_t r = 0; r < calls.size(); ++r) std::memcpy(calls[r]->to, results[r].data(), results[r].size());
}

// The first of the partners that is run moves the data of all.
void run_call(Launch& launch, Call& call) {
  ncclComm& comm = *launch.comm;
  if (is_transfer(call.kind)) {
    auto [_, theirs] = partner(comm, call, call.other);
    const Call& send = call.kind == Kind::send ? call : *theirs;
    const Call& receive = call.kind == Kind::send ? *theirs : call;
    if (send.count != receive.count)
      return cuda_on_cpu::fail(
          fmt::format("{} meets a transfer of {} bytes", describe(launch), bytes_of(*theirs)));
    std::memmove(receive.to, send.from, bytes_of(send));
    call.done = theirs->done = true;
    return;
  }
  std::vector<Call*> calls;
  for (int rank = 0; rank < int(comm.clique->ranks.size()); ++rank) {
    Call* const theirs = rank == comm.rank ? &call : partner(comm, call, rank).second;
    if (theirs->what_must_agree() != call.what_must_agree())
      return cuda_on_cpu::fail(fmt::format("{} meets another call of rank {}", describe(launch), rank));
    calls.push_back(theirs);
  }
  exchange(calls);
  for (Call* one : calls) one->done = true;
}

void run_on_network(Launch& launch, Call& call) {
  ncclComm& comm = *launch.comm;
  call.done = true;
  if (call.kind == Kind::send) return;
  std::map<int, std::vector<char>> received;
  for (const int rank : partners(comm, call)) {
    received[rank] =
        call.kind == Kind::receive ? std::move(call.arrived) : comm.network->receive(rank, message_of(call));
    Head head{};
    std::memcpy(&head, received[rank].data(), std::min(sizeof head, received[rank].size()));
    if (head != head_of(call))
      return cuda_on_cpu::fail(fmt::format("{} meets another call of rank {}", describe(launch), rank));
  }
  const auto data = [&](int rank) { return received.at(rank).data() + sizeof(Head); };
  if (call.kind == Kind::receive) {
    std::memcpy(call.to, data(call.other), bytes_of(call));
    return;
  }
  std::vector<const void*> sent;
  for (int rank = 0; rank < int(comm.clique->ranks.size()); ++rank)
    sent.push_back(rank == comm.rank ? call.from : data(rank));
  const std::vector<char> result = result_of(call, sent, size_t(comm.rank));
  std::memcpy(call.to, result.data(), result.size());
}

cudaError_t run(Launch& launch) {
  cuda_on_cpu::locked([&] {
    ncclComm& comm = *launch.comm;
    if (comm.aborted) return;
    for (const Call& call : launch.calls) {
      if (call.from != nullptr) cuda_on_cpu::reads(call.from, bytes_read(launch, call));
      if (call.to != nullptr) cuda_on_cpu::writes(call.to, bytes_written(launch, call));
    }
    for (Call& call : launch.calls) {
      if (comm.network) {
        run_on_network(launch, call);
      } else if (!call.done) {
        run_call(launch, call);
      }
    }
  });
  return cudaSuccess;
}

// After its work: its place is free for the next.
void leave(Launch& launch) {
  ncclComm& comm = *launch.comm;
  if (launch.resident) state().blocks_used[comm.gpu] -= comm.blocks;
  for (size_t i = 0; i < comm.launches.size(); ++i) {
    if (comm.launches[i].get() != &launch) continue;
    comm.launches.erase(comm.launches.begin() + int64_t(i));
    return;
  }
}

}  // namespace

ncclResult_t submit(ncclComm* comm, const std::shared_ptr<Launch>& launch, cudaStream_t stream) {
  launch->comm = comm;
  launch->stream = stream;
  // Connections are made at the first operation, in memory that the driver may make wait for all work.
  if (comm->buffers == nullptr &&
      cudaMalloc(&comm->buffers, size_t(comm->blocks) * kChannelBytes) != cudaSuccess)
    return ncclUnhandledCudaError;
  cuda_on_cpu::locked([&] {
    for (Call& call : launch->calls) {
      call.number = is_transfer(call.kind) ? comm->transfers[{int(call.kind == Kind::send), call.other}]++
                                           : comm->collectives++;
    }
    comm->launches.push_back(launch);
  });
  cuda_on_cpu::Work work;
  work.name = kNames[int(launch->calls.front().kind)];
  work.run = [launch] { return run(*launch); };
  work.ready = [launch] { return is_ready(*launch); };
  work.waits_for = [launch] { return blockers(*launch); };
  work.describe = [launch] { return describe(*launch); };
  work.ended = [launch] { leave(*launch); };
  if (cuda_on_cpu::submit(stream->stream, std::move(work)) == cudaSuccess) return ncclSuccess;
  cuda_on_cpu::locked([&] { leave(*launch); });
  return ncclUnhandledCudaError;
}

}  // namespace nccl_on_cpu
