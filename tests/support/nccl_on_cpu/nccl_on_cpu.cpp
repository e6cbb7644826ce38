// SPDX-License-Identifier: Apache-2.0
#include "nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/reduction.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace {

using cuda_on_cpu::Stream;

enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast, send, receive };
constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                  "ncclBroadcast", "ncclSend",      "ncclRecv"};

bool is_transfer(Kind kind) { return kind == Kind::send || kind == Kind::receive; }

struct Call {
  Kind kind;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  int other;            // peer, root or reduction
  uint64_t number = 0;  // of collectives of the communicator, or of transfers between these two
  bool done = false;

  auto what_must_agree() const { return std::tuple(kind, count, type, other); }
};

}  // namespace

// What is launched at once: a call, or those of a group.
struct Launch {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Call> calls;
  bool resident = false;
  bool done() const {
    return std::all_of(calls.begin(), calls.end(), [](const Call& c) { return c.done; });
  }
};

struct Clique {
  std::vector<ncclComm*> ranks;
  int joined = 0;
};

struct ncclComm {
  std::shared_ptr<Clique> clique;
  std::string name;
  int rank = 0, gpu = 0, blocks = nccl_on_cpu::kBlocksOfOne;
  bool blocking = true, aborted = false;
  std::atomic<int> callers{0};  // threads inside a call
  int polls_to_come = 0;        // until a call is told to be over
  ncclResult_t error = ncclSuccess;
  uint64_t collectives = 0;
  std::map<std::pair<int, int>, uint64_t> transfers;  // by kind and peer
  std::deque<std::shared_ptr<Launch>> launches;       // that have not ended, in order of submission
  std::map<void*, size_t> registered;
};

namespace {

constexpr int kPolls = 2;

// Under the engine's lock, as everything here.
struct State {
  std::map<uint64_t, std::weak_ptr<Clique>> cliques;
  std::vector<ncclComm*> comms;
  std::vector<std::string> mistakes;
  std::vector<std::unique_ptr<ncclComm>> gone;
  std::map<int, int> blocks_used;
  int refusing_rank = -1;
};
State& state() {
  static State state;
  return state;
}

struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm*, std::shared_ptr<Launch>>> launches;
};
thread_local Group group;

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

void mistake(const std::string& what) { state().mistakes.push_back(what); }

void exchange(const std::vector<Call*>& calls) {
  const Call& one = *calls.front();
  const size_t size = calls.size(), bytes = bytes_of(one);
  const auto type = element(one.type);
  std::vector<const void*> sent;
  for (const Call* call : calls) sent.push_back(call->from);
  std::vector<std::vector<char>> results;
  for (size_t r = 0; r < size; ++r) {
    std::vector<char> result(one.kind == Kind::all_gather ? bytes * size : bytes);
    switch (one.kind) {
      case Kind::all_reduce:
        mpt::runtime::reduce_in_order(type,
                                      one.other == ncclSum ? mpt::runtime::ReduceOperation::sum
                                                           : mpt::runtime::ReduceOperation::maximum,
                                      sent, 0, int64_t(one.count), result.data());
        break;
      case Kind::all_gather:
        for (size_t s = 0; s < size; ++s) std::memcpy(result.data() + s * bytes, sent[s], bytes);
        break;
      case Kind::reduce_scatter:
        mpt::runtime::reduce_in_order(type, mpt::runtime::ReduceOperation::sum, sent, int64_t(r * one.count),
                                      int64_t((r + 1) * one.count), result.data());
        break;
      default:
        std::memcpy(result.data(), sent[size_t(one.other)], bytes);
    }
    results.push_back(std::move(result));
  }
  for (size_t r = 0; r < size; ++r) std::memcpy(calls[r]->to, results[r].data(), results[r].size());
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

size_t bytes_read(const Launch& launch, const Call& call) {
  return bytes_of(call) * (call.kind == Kind::reduce_scatter ? launch.comm->clique->ranks.size() : 1);
}
size_t bytes_written(const Launch& launch, const Call& call) {
  return bytes_of(call) * (call.kind == Kind::all_gather ? launch.comm->clique->ranks.size() : 1);
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
      if (!call.done) run_call(launch, call);
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

ncclResult_t submit(ncclComm* comm, const std::shared_ptr<Launch>& launch, cudaStream_t stream) {
  launch->comm = comm;
  launch->stream = stream;
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
  if (cuda_on_cpu::submit(stream->stream, std::move(work)) != cudaSuccess) return ncclUnhandledCudaError;
  return ncclSuccess;
}

// While it lives another thread's call of the communicator is a mistake (guide, "Thread Safety").
class Inside {
 public:
  explicit Inside(ncclComm* comm) : comm_(comm) {
    if (comm_->callers++ == 0) return;
    cuda_on_cpu::locked([&] {
      mistake(fmt::format("group \"{}\", rank {}: two threads are in calls", comm->name, comm->rank));
    });
  }
  Inside(const Inside&) = delete;
  ~Inside() { --comm_->callers; }

 private:
  ncclComm* comm_;
};

// A call of a communicator whose last one is in progress is refused, and so is all that follows.
ncclResult_t enter(ncclComm* comm) {
  ncclResult_t result = ncclSuccess;
  cuda_on_cpu::locked([&] {
    if (comm->aborted) {
      mistake("a call after an abort");
      result = ncclInvalidUsage;
    } else if (comm->error != ncclSuccess) {
      result = comm->error;
    } else if (comm->polls_to_come > 0) {
      mistake(
          fmt::format("group \"{}\", rank {}: a call while another is in progress", comm->name, comm->rank));
      result = comm->error = ncclInvalidArgument;
    }
  });
  return result;
}

ncclResult_t leave_call(ncclComm* comm) {
  if (comm->blocking) return ncclSuccess;
  cuda_on_cpu::locked([&] { comm->polls_to_come = kPolls; });
  return ncclInProgress;
}

ncclResult_t call(ncclComm* comm, const Call& one, cudaStream_t stream) {
  const Inside inside(comm);
  for (const void* pointer : {one.from, static_cast<const void*>(one.to)}) {
    if (pointer == nullptr || one.count == 0) continue;
    if (cuda_on_cpu::is_in_arena(pointer) && cuda_on_cpu::part_of(pointer) == comm->gpu) continue;
    cuda_on_cpu::locked([&] {
      cuda_on_cpu::fail(
          fmt::format("an illegal address: {} of group \"{}\", rank {}, gets memory that is not its GPU's",
                      kNames[int(one.kind)], comm->name, comm->rank));
    });
    return ncclUnhandledCudaError;
  }
  if (group.depth > 0) {
    auto found = std::find_if(group.launches.begin(), group.launches.end(),
                              [&](const auto& known) { return known.first == comm; });
    if (found == group.launches.end()) {
      if (const ncclResult_t state = enter(comm); state != ncclSuccess) return state;
      group.launches.emplace_back(comm, std::make_shared<Launch>());
      found = group.launches.end() - 1;
      found->second->stream = stream;
    }
    found->second->calls.push_back(one);
    return ncclSuccess;
  }
  if (const ncclResult_t state = enter(comm); state != ncclSuccess) return state;
  const auto launch = std::make_shared<Launch>();
  launch->calls.push_back(one);
  if (const ncclResult_t result = submit(comm, launch, stream); result != ncclSuccess) return result;
  return leave_call(comm);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> next{1};
  const uint64_t number = next++;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  static constexpr const char* kTexts[] = {"no error",       "unhandled cuda error", "system error",
                                           "internal error", "invalid argument",     "invalid usage",
                                           "remote error",   "in progress"};
  return kTexts[int(result)];
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  auto comm = std::make_unique<ncclComm>();
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  cudaGetDevice(&comm->gpu);
  comm->rank = rank;
  comm->blocking = config->blocking != 0;
  comm->name = config->commName == nullptr ? "" : config->commName;
  if (config->maxCTAs > 0) comm->blocks = std::min(comm->blocks, config->maxCTAs);
  cuda_on_cpu::locked([&] {
    auto clique = state().cliques[number].lock();
    if (!clique) {
      clique = std::make_shared<Clique>();
      clique->ranks.resize(size_t(size));
      state().cliques[number] = clique;
    }
    clique->ranks[size_t(rank)] = comm.get();
    ++clique->joined;
    comm->clique = clique;
    state().comms.push_back(comm.get());
  });
  *made = comm.release();
  return leave_call(*made);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const Inside inside(comm);
  cuda_on_cpu::locked([&] {
    const bool complete = comm->clique->joined == int(comm->clique->ranks.size());
    if (comm->polls_to_come > 0 && complete) --comm->polls_to_come;
    *result = comm->error != ncclSuccess                  ? comm->error
              : comm->polls_to_come > 0 && !comm->aborted ? ncclInProgress
                                                          : ncclSuccess;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  cuda_on_cpu::locked([&] {
    comm->aborted = true;
    comm->registered.clear();
  });
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  cuda_on_cpu::locked([&] {
    if (!comm->registered.empty()) mistake("destroyed with registered memory");
    if (comm->aborted) mistake("destroyed after an abort");
    std::erase(state().comms, comm);
    // Its peers may still look for it, and work of streams may still know it.
    state().gone.emplace_back(comm);
  });
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  ncclResult_t result = ncclSuccess;
  cuda_on_cpu::locked([&] {
    if (comm->aborted) mistake("registered after an abort");
    if (comm->rank == state().refusing_rank) {
      result = ncclSystemError;
      return;
    }
    comm->registered[data] = bytes;
    *handle = data;
  });
  return result;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  cuda_on_cpu::locked([&] {
    if (comm->aborted || comm->registered.erase(handle) == 0) mistake("not registered");
  });
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {Kind::all_reduce, from, to, count, type, int(operation)}, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {Kind::all_gather, from, to, count, type, 0}, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {Kind::reduce_scatter, from, to, count, type, int(operation)}, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {Kind::broadcast, from, to, count, type, root}, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {Kind::send, from, nullptr, count, type, peer}, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {Kind::receive, nullptr, to, count, type, peer}, stream);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, launch] : std::exchange(group.launches, {})) {
    if (const ncclResult_t submitted = submit(comm, launch, launch->stream); submitted != ncclSuccess)
      return submitted;
    result = leave_call(comm);
  }
  return result;
}

}  // extern "C"

namespace nccl_on_cpu {

int communicators() {
  int count = 0;
  cuda_on_cpu::locked([&] { count = int(state().comms.size()); });
  return count;
}
size_t registered_bytes(int rank) {
  size_t bytes = 0;
  cuda_on_cpu::locked([&] {
    for (const ncclComm* comm : state().comms) {
      for (const auto& [data, size] : comm->registered) bytes += comm->rank == rank ? size : 0;
    }
  });
  return bytes;
}
void refuse_registration(int rank) {
  cuda_on_cpu::locked([&] { state().refusing_rank = rank; });
}
int take_mistakes(const char** first) {
  static std::string text;
  int count = 0;
  cuda_on_cpu::locked([&] {
    count = int(state().mistakes.size());
    text = count > 0 ? state().mistakes.front() : "";
    state().mistakes.clear();
  });
  *first = text.c_str();
  return count;
}

}  // namespace nccl_on_cpu
