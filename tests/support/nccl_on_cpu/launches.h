// SPDX-License-Identifier: Apache-2.0
#pragma once

// What NCCL's calls become: launches, each the work of a stream that is ready when its partners are there and
// its GPU has room for its blocks. Everything here is called with the lock of cuda_on_cpu's engine held, but
// for submit().

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nccl.h"
#include "network.h"

namespace nccl_on_cpu {

enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast, send, receive };
inline constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                         "ncclBroadcast", "ncclSend",      "ncclRecv"};

inline bool is_transfer(Kind kind) { return kind == Kind::send || kind == Kind::receive; }

struct Call {
  Kind kind;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  int other;            // peer, root or reduction
  uint64_t number = 0;  // of collectives of the communicator, or of transfers between these two
  bool done = false;
  std::vector<char> arrived = {};  // from the network, before it is run

  auto what_must_agree() const { return std::tuple(kind, count, type, other); }
};

// What is launched at once: a call, or those of a group.
struct Launch {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Call> calls;
  bool resident = false;
  bool sent = false;  // over the network
  bool done() const {
    return std::all_of(calls.begin(), calls.end(), [](const Call& c) { return c.done; });
  }
};

struct Clique {
  std::vector<ncclComm*> ranks;
  int joined = 0;
};

}  // namespace nccl_on_cpu

struct ncclComm {
  std::shared_ptr<nccl_on_cpu::Clique> clique;
  std::string name;
  int rank = 0, gpu = 0, blocks = nccl_on_cpu::kBlocksOfOne;
  bool blocking = true, aborted = false;
  void* buffers = nullptr;      // of its channels, from the first operation on
  std::atomic<int> callers{0};  // threads inside a call
  int polls_to_come = 0;        // until a call is told to be over
  ncclResult_t error = ncclSuccess;
  uint64_t collectives = 0;
  std::map<std::pair<int, int>, uint64_t> transfers;          // by kind and peer
  std::deque<std::shared_ptr<nccl_on_cpu::Launch>> launches;  // that have not ended, in order of submission
  std::map<void*, size_t> registered;
  std::unique_ptr<nccl_on_cpu::Network>
      network;  // to ranks of other processes; null: all ranks are in this one
};

namespace nccl_on_cpu {

struct State {
  std::map<uint64_t, std::weak_ptr<Clique>> cliques;
  std::vector<ncclComm*> comms;
  std::vector<std::string> mistakes;
  std::vector<std::unique_ptr<ncclComm>> gone;
  std::map<int, int> blocks_used;
  int refusing_rank = -1;
};
State& state();

/// Notes what NCCL's guide forbids.
void mistake(const std::string& what);
/// Appends it to the stream's work.
ncclResult_t submit(ncclComm* comm, const std::shared_ptr<Launch>& launch, cudaStream_t stream);

}  // namespace nccl_on_cpu
