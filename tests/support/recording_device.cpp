// SPDX-License-Identifier: Apache-2.0
#include "tests/support/recording_device.h"

#include "models/layer_builder.h"
#include "runtime/device/run_in_parts.h"

namespace mpt::test {
namespace {

using models::OperatorKind;
using models::OperatorShape;
using namespace runtime;

class RecordingDevice final : public Device {
 public:
  explicit RecordingDevice(Record& record) : record_(record) {}

  void* allocate(int64_t bytes) override {
    in_use_ += rounded_bytes(bytes);
    return new char[size_t(rounded_bytes(bytes)) + 1]();
  }
  void release(void* data, int64_t bytes) override {
    in_use_ -= rounded_bytes(bytes);
    delete[] static_cast<char*>(data);
  }
  int64_t in_use_bytes() const override { return in_use_; }
  int64_t peak_bytes() const override { return in_use_; }
  void copy(void*, const void*, int64_t) override {}
  void zero(void*, int64_t) override {}
  void upload(DataType, const double*, int64_t count, void*) override { record_.uploaded += count; }
  void download(DataType, const void*, int64_t, double*) override {}

  void run(DataType type, const Operation& operation) override {
    std::visit([&](const auto& o) { take(type, o); }, operation);
  }
  double squared_norm(DataType, std::span<const Stretch>) override { return 0.0; }

 private:
  // Backwards are not recorded.
  template <class Other>
  void take(DataType type, const Other& o) {
    if constexpr (requires { run_in_parts(*this, type, o); }) run_in_parts(*this, type, o);
  }

  void take(DataType, const LinearForward& o) {
    add(OperatorKind::linear, o.shape.rows, o.shape.columns).inner = o.shape.inner;
  }
  void take(DataType, const NormForward& o) {
    if (o.residual != nullptr)
      take({}, ResidualAdd{.count = o.shape.rows * o.shape.columns, .a = o.x, .b = o.residual, .y = o.sum});
    add(OperatorKind::norm, o.shape.rows, o.shape.columns);
  }
  void take(DataType, const Rotate& o) {
    if (o.direction > 0)
      add(OperatorKind::rotary, o.shape.batch * o.shape.sequence,
          (o.shape.heads + o.shape.kv_heads) * o.shape.head_dim);
  }
  void take(DataType, const AttentionForward& o) {
    OperatorShape& shape = add(OperatorKind::attention, 0, 0);
    shape.batch = o.shape.batch;
    shape.sequence = o.shape.sequence;
    shape.heads = o.shape.heads;
    shape.kv_heads = o.shape.kv_heads;
    shape.head_dim = o.shape.head_dim;
    shape.value_head_dim = o.shape.values();
    shape.inner = o.shape.window;
    shape.scaled = o.shape.scale > 0.0;
    shape.capped = o.shape.cap > 0.0;
  }
  void take(DataType, const HeadNormForward& o) {
    add(OperatorKind::norm, o.shape.tokens(), o.shape.rotated());
  }
  // A recorded router sends every token to the first experts.
  void take(DataType, const RouterForward& o) {
    add(OperatorKind::router, o.shape.tokens, o.shape.experts);
    for (int64_t i = 0; i < o.shape.tokens * o.shape.top; ++i) o.chosen[i] = int32_t(i % o.shape.top);
  }
  void take(DataType, const ActivationForward& o) {
    add(OperatorKind::activation, o.shape.rows, o.shape.columns).gated = o.shape.gated;
  }
  void take(DataType, const ResidualAdd& o) {
    add(OperatorKind::residual_add, o.count, 1);  // a flat sum: the test folds it into rows and columns
  }
  void take(DataType, const EmbeddingForward& o) {
    add(OperatorKind::embedding, o.shape.tokens, o.shape.hidden).inner = o.shape.rows;
  }
  void take(DataType, const LossMaximum& o) {
    add(OperatorKind::cross_entropy, o.shape.tokens, o.shape.columns);
  }
  void take(DataType, const LatentJoin& o) {
    add(OperatorKind::rotary, o.shape.tokens(), (o.shape.heads + 1) * o.shape.rope);
  }
  void take(DataType, const WideNormSquares& o) {
    add(OperatorKind::norm, o.shape.tokens(), o.shape.rotated());
  }
  void take(DataType, const ConvolutionForward& o) {
    add(OperatorKind::convolution, o.shape.tokens(), o.shape.channels).inner = o.shape.length;
  }
  void take(DataType, const DeltaForward& o) {
    LinearMixer mixer;
    mixer.head_dim = o.shape.head_dim;
    mixer.key_dim = o.shape.key_dim;
    mixer.chunk = o.shape.chunk;
    const models::CoreFlop flop = models::core_flop(mixer, o.shape.heads);
    OperatorShape& shape = add(OperatorKind::recurrence, o.shape.tokens(), o.shape.values());
    shape.inner = flop.forward;
    shape.batch = flop.backward;
  }
  void take(DataType, const GatedNormForward& o) {
    add(OperatorKind::norm, o.shape.tokens, o.shape.columns());
  }
  void take(DataType, const GateForward& o) {
    add(OperatorKind::activation, o.shape.rows, o.shape.columns).gated = true;
  }

  OperatorShape& add(OperatorKind kind, int64_t rows, int64_t columns) {
    OperatorShape shape;
    shape.kind = kind;
    shape.rows = rows;
    shape.columns = columns;
    record_.forward.push_back(shape);
    return record_.forward.back();
  }

  Record& record_;
  int64_t in_use_ = 0;
};

class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(Record& record, int size) : record_(record), size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void all_reduce(void*, int64_t count, DataType type, ReduceOperation) override {
    add(models::CollectiveKind::all_reduce, count * size_of(type));
  }
  void all_gather(const void*, void*, int64_t count, DataType type) override {
    add(models::CollectiveKind::all_gather, count * size_ * size_of(type));
  }
  void reduce_scatter(const void*, void*, int64_t count, DataType type) override {
    add(models::CollectiveKind::reduce_scatter, count * size_ * size_of(type));
  }
  void send_receive(const void*, int, void*, int, int64_t) override {}
  void all_to_all(const void*, std::span<const int64_t>, void*, std::span<const int64_t>) override {}
  void broadcast(void*, int64_t, int) override {}
  void send(const void*, int64_t, int) override {}
  void receive(void*, int64_t, int) override {}
  void barrier() override {}

 private:
  void add(models::CollectiveKind kind, int64_t bytes) {
    if (size_ > 1) record_.collectives.push_back({kind, models::CollectiveGroup::tensor, bytes});
  }

  Record& record_;
  int size_;
};

}  // namespace

std::unique_ptr<Device> make_recording_device(Record& record) {
  return std::make_unique<RecordingDevice>(record);
}

std::unique_ptr<Communicator> make_recording_communicator(Record& record, int size) {
  return std::make_unique<RecordingCommunicator>(record, size);
}

}  // namespace mpt::test
