// SPDX-License-Identifier: Apache-2.0
#include "nccl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "launches.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace {

using namespace nccl_on_cpu;

constexpr int kPolls = 2;

struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm*, std::shared_ptr<Launch>>> launches;
};
thread_local Group group;

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

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> next{1};
  const uint64_t number = uint64_t(getpid()) << 32 | next++;
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
  if (std::getenv("NCCL_HOSTID") != nullptr) {
    comm->network = std::make_unique<Network>(number, size, rank);
    cuda_on_cpu::work_without_being_waited_for();
  }
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
    const bool complete = comm->network ? comm->network->all_have_joined()
                                        : comm->clique->joined == int(comm->clique->ranks.size());
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
  cudaFree(comm->buffers);
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

int blocks_used(int gpu) {
  int used = 0;
  cuda_on_cpu::locked([&] { used = state().blocks_used[gpu]; });
  return used;
}
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
