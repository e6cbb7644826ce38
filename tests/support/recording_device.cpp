// SPDX-License-Identifier: Apache-2.0
#include "tests/support/recording_device.h"

#include "models/mixers.h"

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
  void reset_peak() override {}
  void copy(void*, const void*, int64_t) override {}
  void zero(void*, int64_t) override {}
  void upload(DataType, const double*, int64_t count, void*) override { record_.uploaded += count; }
  void download(DataType, const void*, int64_t, double*) override {}
  void convert(DataType, const void*, DataType, void*, int64_t) override {}

  void linear_forward(DataType, const LinearShape& s, const void*, const void*, const void*, void*) override {
    add(OperatorKind::linear, s.rows, s.columns).inner = s.inner;
  }
  void linear_backward_input(DataType, const LinearShape&, const void*, const void*, void*) override {}
  void linear_backward_weight(DataType, const LinearShape&, const void*, const void*, void*, void*) override {
  }
  void bias_forward(DataType, int64_t, int64_t, const void*, void*) override {}
  void bias_backward(DataType, int64_t, int64_t, const void*, void*) override {}
  void norm_forward(DataType, const NormShape& s, const void*, const void*, const void*, void*,
                    void*) override {
    add(OperatorKind::norm, s.rows, s.columns);
  }
  void norm_backward_input(DataType, const NormShape&, const void*, const void*, const void*, const void*,
                           void*) override {}
  void norm_backward_weight(DataType, const NormShape&, const void*, const void*, const void*, void*,
                            void*) override {}
  void rotary(DataType, const AttentionShape& s, const Rotation&, int direction, void*) override {
    if (direction > 0) add(OperatorKind::rotary, s.batch * s.sequence, (s.heads + s.kv_heads) * s.head_dim);
  }
  void attention_forward(DataType, const AttentionShape& s, const void*, void*, void*) override {
    OperatorShape& shape = add(OperatorKind::attention, 0, 0);
    shape.batch = s.batch;
    shape.sequence = s.sequence;
    shape.heads = s.heads;
    shape.kv_heads = s.kv_heads;
    shape.head_dim = s.head_dim;
    shape.value_head_dim = s.values();
    shape.inner = s.window;
    shape.scaled = s.scale > 0.0;
    shape.capped = s.cap > 0.0;
  }
  void attention_backward(DataType, const AttentionShape&, const void*, const void*, const void*, const void*,
                          void*) override {}
  void attention_block_forward(DataType, const AttentionBlock&, const void*, const void*, bool, void*,
                               void*) override {}
  void attention_block_backward(DataType, const AttentionBlock&, const void*, const void*, const void*,
                                const void*, const void*, void*, void*) override {}
  void copy_columns(DataType, DataType, int64_t, int64_t, const void*, int64_t, void*, int64_t) override {}
  void head_norm_forward(DataType, const AttentionShape& s, double, const void*, const void*, void*,
                         void*) override {
    add(OperatorKind::norm, s.tokens(), s.rotated());
  }
  void head_norm_backward(DataType, const AttentionShape&, double, const void*, const void*, const void*,
                          void*, void*, void*) override {}
  // A recorded router sends every token to the first experts.
  void router_forward(DataType, const RouterShape& s, const void*, void*, int32_t* chosen, void*,
                      const void*) override {
    add(OperatorKind::router, s.tokens, s.experts);
    for (int64_t i = 0; i < s.tokens * s.top; ++i) chosen[i] = int32_t(i % s.top);
  }
  void router_backward(DataType, const RouterShape&, const void*, const int32_t*, const void*, const void*,
                       void*) override {}
  void gather_rows(DataType, int64_t, int64_t, const int32_t*, const void*, void*) override {}
  void sum_rows(DataType, int64_t, int64_t, int64_t, const int32_t*, const void*, void*) override {}
  void scale_rows(DataType, int64_t, int64_t, const void*, const void*, void*) override {}
  void row_dots(DataType, int64_t, int64_t, const void*, const void*, void*) override {}
  void activation_forward(DataType, const ActivationShape& s, const void*, void*) override {
    add(OperatorKind::activation, s.rows, s.columns).gated = s.gated;
  }
  void activation_backward(DataType, const ActivationShape&, const void*, const void*, void*) override {}
  void residual_add(DataType, int64_t count, const void*, const void*, void*) override {
    add(OperatorKind::residual_add, count, 1);  // a flat sum: the test folds it into rows and columns
  }
  void embedding_forward(DataType, int64_t tokens, int64_t hidden, int64_t, int64_t rows, const int32_t*,
                         const void*, void*) override {
    add(OperatorKind::embedding, tokens, hidden).inner = rows;
  }
  void embedding_backward(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*,
                          void*) override {}
  void position_forward(DataType, int64_t, int64_t, const int32_t*, const void*, void*) override {}
  void position_backward(DataType, int64_t, int64_t, const int32_t*, const void*, void*) override {}
  void loss_maximum(DataType, int64_t tokens, int64_t columns, int64_t, const void*, void*) override {
    add(OperatorKind::cross_entropy, tokens, columns);
  }
  void loss_exponentials(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*, void*,
                         void*) override {}
  void loss_gradient(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*, double, void*,
                     double*) override {}
  void adamw(DataType, int64_t, const AdamW&, const void*, void*, void*, void*) override {}
  double sum_of_squares(DataType, int64_t, const void*) override { return 0; }
  void scale(DataType, int64_t, double, const void*, void*) override {}
  void soft_cap(DataType, int64_t, double, void*) override {}
  void capped_loss_gradient(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*,
                            const void*, double, double, void*, double*) override {}
  void sink_forward(DataType, const AttentionShape&, const void*, void*, void*) override {}
  void sink_backward(DataType, const AttentionShape&, const void*, const void*, const void*, const void*,
                     void*) override {}
  void latent_join(DataType, const LatentShape& s, const Rotation&, const void*, const void*, const void*,
                   void*) override {
    add(OperatorKind::rotary, s.tokens(), (s.heads + 1) * s.rope);
  }
  void latent_split(DataType, const LatentShape&, const Rotation&, const void*, void*, void*,
                    void*) override {}
  void wide_norm_squares(DataType, const AttentionShape& s, const void*, void*) override {
    add(OperatorKind::norm, s.tokens(), s.rotated());
  }
  void wide_norm_forward(DataType, const AttentionShape&, int64_t, double, const void*, const void*,
                         const void*, void*, void*) override {}
  void wide_norm_dots(DataType, const AttentionShape&, const void*, const void*, const void*, const void*,
                      void*) override {}
  void wide_norm_backward(DataType, const AttentionShape&, int64_t, double, const void*, const void*,
                          const void*, const void*, const void*, void*, void*, void*) override {}
  void weighted_bias_forward(DataType, int64_t, int64_t, const void*, const void*, void*) override {}
  void weighted_bias_backward(DataType, int64_t, int64_t, const void*, const void*, const void*, void*,
                              void*) override {}
  void convolution_forward(DataType, const ConvolutionShape& s, const void*, const void*, void*) override {
    add(OperatorKind::convolution, s.tokens(), s.channels).inner = s.length;
  }
  void convolution_backward(DataType, const ConvolutionShape&, const void*, const void*, const void*, void*,
                            void*) override {}
  void delta_forward(DataType, const DeltaShape& s, const DeltaInputs&, void*, void*) override {
    LinearMixer mixer;
    mixer.head_dim = s.head_dim;
    mixer.key_dim = s.key_dim;
    mixer.chunk = s.chunk;
    const models::CoreFlop flop = models::core_flop(mixer, s.heads);
    OperatorShape& shape = add(OperatorKind::recurrence, s.tokens(), s.values());
    shape.inner = flop.forward;
    shape.batch = flop.backward;
  }
  void delta_backward(DataType, const DeltaShape&, const DeltaInputs&, const void*, const DeltaGradients&,
                      void*) override {}
  void gated_norm_forward(DataType, const GatedNormShape& s, const void*, const void*, const void*,
                          void*) override {
    add(OperatorKind::norm, s.tokens, s.columns());
  }
  void gated_norm_backward(DataType, const GatedNormShape&, const void*, const void*, const void*,
                           const void*, void*, void*, void*) override {}
  void gate_forward(DataType, const GateShape& s, const void*, const void*, void*) override {
    add(OperatorKind::activation, s.rows, s.columns).gated = true;
  }
  void gate_backward(DataType, const GateShape&, const void*, const void*, const void*, void*,
                     void*) override {}

 private:
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
