// SPDX-License-Identifier: Apache-2.0
#pragma once

// NCCL, as far as runtime/comm/nccl uses it, on the CPU: the ranks are threads of one process, each with a
// simulated GPU (tests/support/cuda_on_cpu). With NCCL_HOSTID each rank is a process, and a host to NCCL
// (network.h). Real data moves, and the rules of NCCL's guide hold:
//  - Calls of a communicator that does not block return ncclInProgress; until ncclCommGetAsyncError has told
//    their end, another call of it gets ncclInvalidArgument ("Communicator Creation and Management").
//  - Operations of a communicator run one after the other in the order of submission, whatever their streams
//    are ("Thread Safety" and "Using multiple NCCL communicators concurrently").
//  - An operation that runs holds blocks of its GPU until its peers have done their part. A GPU has as many
//  as
//    multiprocessors; maxCTAs limits those of an operation.
//  - A send waits for its receive, as it may.
//  - Buffers are memory of the communicator's GPU.
//  - Any thread may abort a communicator; its operations end without a result.

#include <cuda_runtime.h>

#include <cstddef>
#include <limits>

using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclInt8, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16 };
enum ncclRedOp_t { ncclSum, ncclMax };
struct ncclConfig_t {
  int blocking = 1;
  int minCTAs = 0, maxCTAs = 0;  // 0: NCCL's choice
  const char* commName = nullptr;
};
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): NCCL's name
#define NCCL_CONFIG_INITIALIZER \
  {}

extern "C" {
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
}

namespace nccl_on_cpu {

constexpr int kBlocks = 132;      // of a GPU (H100 SXM)
constexpr int kBlocksOfOne = 32;  // of an operation, where nothing limits it
// Of each block's channel: LL, LL128 and simple (NCCL's src/include/device.h and src/init.cc).
constexpr size_t kChannelBytes = 524'288 + 4'915'200 + 4'194'304;

/// Communicators that live, and memory registered with them by `rank`, in bytes.
int communicators();
size_t registered_bytes(int rank);
/// Registering fails on this rank; -1: on none.
void refuse_registration(int rank);
/// Blocks of a GPU that operations hold.
int blocks_used(int gpu);
/// What callers did that NCCL forbids, so far; they are forgotten.
int take_mistakes(const char** first);

}  // namespace nccl_on_cpu
