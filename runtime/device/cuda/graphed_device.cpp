// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/graph_recorder.h"
#include "runtime/device/cuda/per_thread.h"

namespace mpt::runtime::cuda {
namespace {

template <class T, class... Of>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Of> || ...);
// These read lists in host memory, give the host numbers, or never come twice with the same operands.
template <class T>
inline constexpr bool kRunsAtOnce =
    kIsOneOf<T, RouterForward, RouterBackward, GatherRows, SumRows, EmbeddingForward, EmbeddingBackward,
             PositionForward, PositionBackward, LossExponentials, LossGradient, LossOfAll, AdamStep>;

// Operators are recorded; everything else launches what was recorded first.
class GraphedDevice final : public CudaDevice {
 public:
  explicit GraphedDevice(std::unique_ptr<CudaDevice> device) : device_(std::move(device)) {}

  cudaStream_t stream() override { return now().stream(); }
  void wait_for(cudaEvent_t event) override { now().wait_for(event); }
  void set_watch(std::function<void(double)> watch) override { device_->set_watch(std::move(watch)); }
  int64_t scratch_bytes() const override { return device_->scratch_bytes(); }
  cudaGraphExec_t capture(const std::function<void()>& work) override { return now().capture(work); }
  void hold(bool held) override { now().hold(held); }

  // Memory comes and goes at once: what is recorded after an allocation comes after what had it before.
  void reserve(int64_t bytes) override { device_->reserve(bytes); }
  void* allocate(int64_t bytes) override { return device_->allocate(bytes); }
  void release(void* data, int64_t bytes) override { device_->release(data, bytes); }
  int64_t in_use_bytes() const override { return device_->in_use_bytes(); }
  int64_t peak_bytes() const override { return device_->peak_bytes(); }
  void reset_peak() override { device_->reset_peak(); }
  void* allocate_host(int64_t bytes) override { return device_->allocate_host(bytes); }
  void release_host(void* data) override { device_->release_host(data); }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    if (is_on_host(to) || is_on_host(from)) return now().copy(to, from, bytes);
    struct Copied {
      void* to;
      const void* from;
      int64_t bytes;
    };
    later(Copied{to, from, bytes},
          [](CudaDevice& device, const Copied& c) { device.copy(c.to, c.from, c.bytes); });
  }
  void zero(void* data, int64_t bytes) override {
    struct Zeroed {
      void* data;
      int64_t bytes;
    };
    later(Zeroed{data, bytes}, [](CudaDevice& device, const Zeroed& z) { device.zero(z.data, z.bytes); });
  }
  void upload(DataType type, const double* from, int64_t count, void* to) override {
    now().upload(type, from, count, to);
  }
  void download(DataType type, const void* from, int64_t count, double* to) override {
    now().download(type, from, count, to);
  }

  void run(DataType type, const Operation& operation) override {
    std::visit([&](const auto& o) { run_one(type, o); }, operation);
  }
  double squared_norm(DataType type, std::span<const Stretch> parts) override {
    return now().squared_norm(type, parts);
  }

  void move(void* to, const void* from, int64_t bytes) override { now().move(to, from, bytes); }
  void reduce(DataType type, ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin,
              int64_t end, void* to) override {
    now().reduce(type, operation, parts, begin, end, to);
  }
  void finish() override { now().finish(); }

  void synchronize() override { now().synchronize(); }
  bool waits_to_load_kernels() const override { return device_->waits_to_load_kernels(); }
  std::unique_ptr<WorkMarks> make_marks(int64_t count) override;

  /// The device, with nothing left to launch in the calling thread's stream.
  CudaDevice& now() {
    recorders_.mine().flush();
    return *device_;
  }

 private:
  template <class Operator>
  void run_one(DataType type, const Operator& o) {
    if constexpr (kRunsAtOnce<Operator>) {
      now().run(type, o);
    } else {
      struct Typed {
        DataType type;
        Operator o;
      };
      later(Typed{type, o}, [](CudaDevice& device, const Typed& typed) { device.run(typed.type, typed.o); });
    }
  }
  template <class Operands, class Run>
  void later(const Operands& operands, Run run) {
    recorders_.mine().add(operands, run);
  }

  const std::unique_ptr<CudaDevice> device_;
  PerThread<GraphRecorder> recorders_{[this] { return std::make_unique<GraphRecorder>(*device_); }};
};

// Marks stand behind what was asked for before them.
class GraphedMarks final : public WorkMarks {
 public:
  GraphedMarks(GraphedDevice& device, std::unique_ptr<WorkMarks> marks)
      : device_(device), marks_(std::move(marks)) {}

  void begin_step() override { now().begin_step(); }
  void start(int64_t number) override { now().start(number); }
  void end(int64_t number) override { now().end(number); }
  void await(int64_t number) override { now().await(number); }
  void finish() override { now().finish(); }
  std::pair<double, double> time_s(int64_t number) const override { return marks_->time_s(number); }

 private:
  WorkMarks& now() {
    device_.now();
    return *marks_;
  }

  GraphedDevice& device_;
  const std::unique_ptr<WorkMarks> marks_;
};

std::unique_ptr<WorkMarks> GraphedDevice::make_marks(int64_t count) {
  return std::make_unique<GraphedMarks>(*this, device_->make_marks(count));
}

}  // namespace

std::unique_ptr<CudaDevice> make_graphed_device(std::unique_ptr<CudaDevice> device) {
  return std::make_unique<GraphedDevice>(std::move(device));
}

}  // namespace mpt::runtime::cuda
