// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/nccl/nccl_world.h"

#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "core/gpu_memory.h"

namespace mpt::runtime {
namespace {

ncclDataType_t nccl_type(DataType type) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat16};  // by DataType
  return kTypes[size_t(type)];
}

// One rank's handle of one group. Any thread may abort it.
class Handle {
 public:
  Handle(std::string group, const ncclUniqueId& id, int size, int rank) : group_(std::move(group)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // so that no call can hang
    config.commName = group_.c_str();
    // Several groups work at once, and each operation waits on the GPU for its peers, so all must fit on it.
    config.maxCTAs = kMostChannels;
    check(ncclCommInitRankConfig(&handle_, size, id, rank, &config), "ncclCommInitRankConfig");
  }
  ~Handle() {
    const std::lock_guard lock(mutex_);
    if (handle_ != nullptr && !aborted_) ncclCommDestroy(handle_);
  }

  const std::string& group() const { return group_; }

  /// Calls NCCL with the handle, one thread at a time: NCCL permits no concurrent calls on a handle.
  template <class Call>
  ncclResult_t call(Call&& call) {
    const std::lock_guard lock(mutex_);
    return aborted_ ? ncclInvalidUsage : call(handle_);
  }

  /// An error of NCCL's own threads or of another rank, ncclInProgress, or ncclSuccess.
  ncclResult_t state() {
    const std::lock_guard lock(mutex_);
    return state_of_handle();
  }
  /// The same for a watching thread: for a handle in use it returns ncclInProgress.
  ncclResult_t state_if_free() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock ? state_of_handle() : ncclInProgress;
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    if (!aborted_) ncclCommAbort(handle_);
    aborted_ = true;
  }

  /// Null if NCCL refuses, or if NCCL_LOCAL_REGISTER=0 forbids it.
  void* register_memory(void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    void* memory = nullptr;
    if (aborted_ || ncclCommRegister(handle_, data, size_t(bytes), &memory) != ncclSuccess) return nullptr;
    return memory;
  }
  /// An aborted group has released its memory already.
  void deregister_memory(void* memory) {
    const std::lock_guard lock(mutex_);
    if (memory != nullptr && !aborted_) ncclCommDeregister(handle_, memory);
  }

  void check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw CommunicationError(fmt::format("{} of group {}: {}", call, group_, ncclGetErrorString(result)));
  }

 private:
  ncclResult_t state_of_handle() {
    ncclResult_t state = ncclSuccess;
    return aborted_ || ncclCommGetAsyncError(handle_, &state) != ncclSuccess ? ncclInternalError : state;
  }

  std::string group_;
  std::mutex mutex_;
  ncclComm_t handle_ = nullptr;
  bool aborted_ = false;
};

// Shared by the ranks of this process.
struct ProcessState {
  ProcessState(World& control_world, std::chrono::milliseconds limit)
      : control(control_world), timeout_s(std::chrono::duration<double>(limit).count()) {}

  /// Throws if waiting longer is pointless.
  void watch(double waited_s) {
    if (control.aborted()) throw CommunicationError("stopped while waiting for the GPU");
    const std::lock_guard lock(mutex);
    for (const std::weak_ptr<Handle>& weak : handles) {
      const auto handle = weak.lock();
      if (!handle) continue;
      const ncclResult_t state = handle->state_if_free();
      if (state != ncclSuccess && state != ncclInProgress)
        throw CommunicationError(fmt::format("group {}: {}", handle->group(), ncclGetErrorString(state)));
    }
    if (waited_s > timeout_s)
      throw CommunicationError(fmt::format("timeout after {} s of waiting for the GPU", timeout_s));
  }

  World& control;
  double timeout_s;
  std::mutex mutex;
  std::vector<std::weak_ptr<Handle>> handles;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<ProcessState> shared, std::shared_ptr<Handle> handle,
                   std::unique_ptr<Communicator> control, cuda::StreamDevice& device, bool a_host_each)
      : shared_(std::move(shared)),
        handle_(std::move(handle)),
        control_(std::move(control)),
        device_(device),
        a_host_each_(a_host_each) {
    complete("ncclCommInitRankConfig");
  }

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }

  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    const ncclRedOp_t with = operation == ReduceOperation::sum ? ncclSum : ncclMax;
    call("ncclAllReduce", ncclAllReduce, data, data, size_t(count), nccl_type(type), with);
  }
  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    call("ncclAllGather", ncclAllGather, send, receive, size_t(count), nccl_type(type));
  }
  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    call("ncclReduceScatter", ncclReduceScatter, send, receive, size_t(count), nccl_type(type), ncclSum);
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    call("ncclBroadcast", ncclBroadcast, data, data, size_t(bytes), ncclInt8, root);
  }
  void send(const void* data, int64_t bytes, int peer) override {
    call("ncclSend", ncclSend, data, size_t(bytes), ncclInt8, peer);
  }
  void receive(void* data, int64_t bytes, int peer) override {
    call("ncclRecv", ncclRecv, data, size_t(bytes), ncclInt8, peer);
  }
  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    call("ncclSend and ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      Together together;
      together.add(ncclSend(data, size_t(bytes), ncclInt8, to, comm, stream));
      together.add(ncclRecv(received, size_t(bytes), ncclInt8, from, comm, stream));
      return together.end();
    });
  }
  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    const char* from = static_cast<const char*>(data);
    char* to = static_cast<char*>(received);
    call("ncclSend and ncclRecv", [&](ncclComm_t comm, cudaStream_t stream) {
      Together together;
      for (size_t peer = 0; peer < sent.size(); ++peer) {
        if (sent[peer] > 0)
          together.add(ncclSend(from, size_t(sent[peer]), ncclInt8, int(peer), comm, stream));
        if (received_bytes[peer] > 0)
          together.add(ncclRecv(to, size_t(received_bytes[peer]), ncclInt8, int(peer), comm, stream));
        from += sent[peer];
        to += received_bytes[peer];
      }
      return together.end();
    });
  }
  void barrier() override {
    device_.finish();
    control_->barrier();
  }

  // The device's memory comes from cudaMalloc. NCCL 2.28.9 can reduce such memory in the network (SHARP),
  // without a copy and on one multiprocessor, if each rank of the group has its own host (user guide, "User
  // Buffer Registration"; src/register/coll_reg.cc, src/transport/{nvls,p2p}.cc). Within a host, NVLink SHARP
  // and direct reads by peers require memory of ncclMemAlloc. The ranks of NVLink SHARP would find that out
  // together at every call.
  Registration register_memory(void* data, int64_t bytes) override {
    if (!a_host_each_ || bytes == 0) return nullptr;
    Registration registration(handle_->register_memory(data, bytes),
                              [handle = handle_](void* memory) { handle->deregister_memory(memory); });
    // All ranks register or none: a mixture is undefined.
    double failed = registration == nullptr ? 1.0 : 0.0;
    control_->all_reduce(&failed, 1, DataType::float64, ReduceOperation::maximum);
    return failed > 0.0 ? nullptr : registration;
  }

 private:
  // Calls launched as one NCCL group; the first error counts for all.
  class Together {
   public:
    Together() { add(ncclGroupStart()); }
    void add(ncclResult_t result) {
      if (result_ == ncclSuccess && result != ncclInProgress) result_ = result;
    }
    ncclResult_t end() {
      const ncclResult_t ended = ncclGroupEnd();
      return result_ == ncclSuccess ? ended : result_;
    }

   private:
    ncclResult_t result_ = ncclSuccess;
  };

  // A call of a nonblocking communicator may return before it has reached its stream.
  template <class Call, class... Arguments>
  void call(const char* name, Call&& call, Arguments... arguments) {
    const cudaStream_t stream = device_.stream();  // makes its GPU the current one
    const ncclResult_t result =
        handle_->call([&](ncclComm_t comm) { return call(arguments..., comm, stream); });
    handle_->check(result, name);
    if (result == ncclInProgress) complete(name);
  }
  void complete(const char* name) {
    constexpr double kSpin_s = 100e-6;  // most calls take less
    const double start = now_s();
    while (true) {
      const ncclResult_t state = handle_->state();
      handle_->check(state, name);
      if (state == ncclSuccess) return;
      const double waited_s = now_s() - start;
      if (waited_s < kSpin_s) continue;
      shared_->watch(waited_s);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  std::shared_ptr<ProcessState> shared_;
  std::shared_ptr<Handle> handle_;
  std::unique_ptr<Communicator> control_;
  cuda::StreamDevice& device_;
  bool a_host_each_;  // no two ranks share one
};

class NcclWorld final : public World {
 public:
  NcclWorld(World& control, const std::vector<cuda::StreamDevice*>& devices,
            std::chrono::milliseconds timeout, const std::string& host)
      : shared_(std::make_shared<ProcessState>(control, timeout)), host_(std::hash<std::string>{}(host)) {
    const std::vector<int> local = control.local_ranks();
    for (size_t i = 0; i < local.size(); ++i) {
      devices_[local[i]] = devices[i];
      devices[i]->set_watch([shared = shared_](double waited_s) { shared->watch(waited_s); });
    }
  }

  std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                             const std::string& name) override {
    cuda::StreamDevice& device = *devices_.at(world_rank);
    if (members.size() == 1) return make_single_communicator(device);
    auto control = shared_->control.communicator(world_rank, members, "ids of " + name);
    ncclUniqueId id{};
    if (control->rank() == 0 && ncclGetUniqueId(&id) != ncclSuccess)
      throw CommunicationError("ncclGetUniqueId failed; NCCL_DEBUG=WARN tells why");
    control->broadcast(&id, sizeof id, 0);
    device.stream();  // makes the rank's GPU the current one
    auto handle = std::make_shared<Handle>(name, id, control->size(), control->rank());
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->handles.push_back(handle);
    }
    const bool a_host_each = has_a_host_each(*control);
    return std::make_unique<NcclCommunicator>(shared_, std::move(handle), std::move(control), device,
                                              a_host_each);
  }

  void abort(const std::string&) override {
    std::vector<std::weak_ptr<Handle>> handles;
    {
      const std::lock_guard lock(shared_->mutex);
      handles = shared_->handles;
    }
    // In parallel: an abort may wait for operations of the other groups before it releases memory.
    std::vector<std::jthread> aborts;
    for (const std::weak_ptr<Handle>& weak : handles)
      if (const auto handle = weak.lock()) aborts.emplace_back([handle] { handle->abort(); });
  }
  bool aborted() const override { return shared_->control.aborted(); }
  std::vector<int> local_ranks() const override { return shared_->control.local_ranks(); }

 private:
  bool has_a_host_each(Communicator& control) const {
    static_assert(sizeof host_ == sizeof(double));
    std::vector<uint64_t> hosts(size_t(control.size()));
    control.all_gather(&host_, hosts.data(), 1, DataType::float64);
    return std::set<uint64_t>(hosts.begin(), hosts.end()).size() == hosts.size();
  }

  std::shared_ptr<ProcessState> shared_;
  uint64_t host_;
  std::map<int, cuda::StreamDevice*> devices_;
};

}  // namespace

// getHostHash() of NCCL's src/misc/utils.cc.
std::string nccl_host() {
  if (const char* id = std::getenv("NCCL_HOSTID")) return id;
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return name + boot;
}

std::unique_ptr<World> make_nccl_world(World& control, const std::vector<cuda::StreamDevice*>& devices,
                                       std::chrono::milliseconds timeout, const std::string& host) {
  return std::make_unique<NcclWorld>(control, devices, timeout, host);
}

}  // namespace mpt::runtime
