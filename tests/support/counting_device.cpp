// SPDX-License-Identifier: Apache-2.0
#include "tests/support/counting_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace mpt::test {
namespace {

using namespace runtime;

constexpr int64_t kNumber = int64_t(sizeof(int32_t));

int64_t bytes(DataType type, int64_t count) { return count * size_of(type); }
int64_t state_bytes(DataType type, int64_t count) { return count * size_of(state_type_of(type)); }

// Rows that a sum over rows takes at once (runtime/device/cuda/norm.cu).
int64_t chunks_of(int64_t rows) { return std::clamp<int64_t>((rows + 31) / 32, 1, 128); }

class CountingDevice final : public Device {
 public:
  CountingDevice(KernelCounts& counts, CountedMemory* memory) : counts_(counts), memory_(memory) {}

  // Addresses that nobody looks at.
  void reserve(int64_t size) override {
    if (memory_ != nullptr) memory_->reserve(size);
  }
  void* allocate(int64_t size) override {
    if (memory_ != nullptr) return memory_->allocate(size);
    char* const made = next_;
    next_ += rounded_bytes(size) + kAllocationUnit;
    return made;
  }
  void release(void* data, int64_t size) override {
    if (memory_ != nullptr) memory_->release(data, size);
  }
  int64_t in_use_bytes() const override { return 0; }
  int64_t peak_bytes() const override { return 0; }
  void reset_peak() override {}
  void copy(void*, const void*, int64_t size) override { add("copy", size, size); }
  void zero(void*, int64_t size) override { add("zero", 0, size); }
  void upload(DataType, const double*, int64_t, void*) override {}
  void download(DataType, const void*, int64_t count, double* to) override { std::fill_n(to, count, 0.0); }
  void convert(DataType from, const void*, DataType to, void*, int64_t count) override {
    add("copy_columns_kernel", bytes(from, count), bytes(to, count));
  }

  void linear_forward(DataType t, const LinearShape& s, const void*, const void*, const void*,
                      void*) override {
    const int64_t read = operand(t, s, s.rows * s.inner, kAsItIs, s.kept.x_is_known) + weight(t, s, kAsItIs);
    product("product forward", t, s.rows, s.columns, s.inner, s, read, bytes(t, s.rows * s.columns));
  }
  void linear_activation_forward(DataType t, const LinearShape& s, const ActivationShape& a, const void* x,
                                 const void* w, const void* bias, void* up, void* y) override {
    if (!is_fused(t, a) || s.narrows()) return Device::linear_activation_forward(t, s, a, x, w, bias, up, y);
    linear_forward(t, s, x, w, bias, up);
    moves("epilogue forward", 0, bytes(t, s.rows * s.columns));
  }
  void linear_activation_backward(DataType t, const LinearShape& s, const ActivationShape& a, const void* dy,
                                  const void* w, const void* up, void* room, void* dup) override {
    if (!is_fused(t, a) || s.narrows())
      return Device::linear_activation_backward(t, s, a, dy, w, up, room, dup);
    linear_backward_input(t, s, dy, w, dup);
    moves("epilogue backward", bytes(t, s.rows * s.inner), 0);
  }
  void linear_backward_input(DataType t, const LinearShape& s, const void*, const void*, void*) override {
    input_gradient(t, s, operand(t, s, s.rows * s.columns, kAsItIs, s.kept.dy_magnitude != nullptr));
  }
  void linear_backward(DataType t, const LinearShape& s, const void* dy, const void* w, void* dx,
                       const void* x, void* dw, void* dbias) override {
    if (!is_narrow(t, s)) return Device::linear_backward(t, s, dy, w, dx, x, dw, dbias);
    const int64_t gradient = operand(t, s, s.rows * s.columns, kBoth, s.kept.dy_magnitude != nullptr);
    input_gradient(t, s, gradient);
    weight_gradient(t, s, gradient, dy, dbias);
  }
  void narrow_weight(DataType t, const LinearShape& s, const void*, void*) override {
    if (is_narrow(t, s)) operand(t, s, s.columns * s.inner, kBoth);
  }
  void linear_backward_weight(DataType t, const LinearShape& s, const void* dy, const void*, void*,
                              void* dbias) override {
    weight_gradient(t, s, operand(t, s, s.rows * s.columns, kTransposed, s.kept.dy_magnitude != nullptr), dy,
                    dbias);
  }
  void bias_forward(DataType t, int64_t rows, int64_t columns, const void*, void*) override {
    add("bias_forward_kernel", bytes(t, (rows + 1) * columns), bytes(t, rows * columns));
  }
  void bias_backward(DataType t, int64_t rows, int64_t columns, const void*, void*) override {
    column_sums(t, rows, columns, 1, 1, bytes(t, rows * columns));
  }

  void norm_forward(DataType t, const NormShape& s, const void*, const void*, const void* bias, void*,
                    void*) override {
    norm(t, s, bias, 1);
  }
  void residual_norm_forward(DataType t, const NormShape& s, const void*, const void*, const void*,
                             const void* bias, void*, void*, void*) override {
    norm(t, s, bias, 2);
  }
  void norm_backward_input(DataType t, const NormShape& s, const void*, const void*, const void*, const void*,
                           void*) override {
    norm_gradient(t, s, 2);
  }
  void norm_backward_residual(DataType t, const NormShape& s, const void*, const void*, const void*,
                              const void*, const void*, void*) override {
    norm_gradient(t, s, 3);
  }
  void norm_backward_weight(DataType t, const NormShape& s, const void*, const void*, const void*, void*,
                            void* dbias) override {
    column_sums(t, s.rows, s.columns, 2, dbias != nullptr ? 2 : 1,
                bytes(t, 2 * s.rows * s.columns) + state_bytes(t, s.statistics()));
  }

  void rotary(DataType t, const AttentionShape& s, const Rotation& r, int, void*) override {
    const int64_t turned = bytes(t, s.tokens() * s.rotated());
    add("rotary_kernel", turned + int64_t(r.frequencies.size() * sizeof(double)) + s.sequence * kNumber,
        turned);
  }
  // Of each pair of a query and a key below it: two products forward, five backward.
  void attention_forward(DataType t, const AttentionShape& s, const void*, void*, void*) override {
    const int64_t out = bytes(t, s.tokens() * s.heads * s.head_dim);
    add(attention("forward", s), bytes(t, s.tokens() * s.row()), out + state_bytes(t, s.tokens() * s.heads),
        2 * pair_flop(s));
  }
  void attention_backward(DataType t, const AttentionShape& s, const void*, const void*, const void*,
                          const void*, void*) override {
    const int64_t out = bytes(t, s.tokens() * s.heads * s.head_dim), qkv = bytes(t, s.tokens() * s.row());
    // The fused one sums the gradients of queries in full precision.
    if (memory_ != nullptr) memory_->call(state_bytes(t, s.tokens() * s.heads * s.head_dim));
    add(attention("backward", s), qkv + 2 * out + state_bytes(t, s.tokens() * s.heads), qkv,
        5 * pair_flop(s));
  }

  void activation_forward(DataType t, const ActivationShape& s, const void*, void*) override {
    add("activation_forward_kernel", bytes(t, s.rows * s.input_columns()), bytes(t, s.rows * s.columns));
  }
  void activation_backward(DataType t, const ActivationShape& s, const void*, const void*, void*) override {
    add("activation_backward_kernel", bytes(t, s.rows * (s.columns + s.input_columns())),
        bytes(t, s.rows * s.input_columns()));
  }
  void residual_add(DataType t, int64_t count, const void*, const void*, void*) override {
    add("residual_add_kernel", bytes(t, 2 * count), bytes(t, count));
  }

  // As if no word came twice.
  void embedding_forward(DataType t, int64_t tokens, int64_t hidden, int64_t, int64_t, const int32_t*,
                         const void*, void*) override {
    add("embedding_forward_kernel", bytes(t, tokens * hidden) + tokens * kNumber, bytes(t, tokens * hidden));
  }
  void embedding_backward(DataType t, int64_t tokens, int64_t hidden, int64_t, int64_t, const int32_t*,
                          const void*, void*) override {
    table_gradient(t, tokens, hidden, tokens);
  }
  void position_forward(DataType t, int64_t tokens, int64_t hidden, const int32_t* positions, const void*,
                        void*) override {
    const int64_t rows = 1 + *std::max_element(positions, positions + tokens);
    add("position_forward_kernel", bytes(t, (tokens + rows) * hidden) + tokens * kNumber,
        bytes(t, tokens * hidden));
  }
  void position_backward(DataType t, int64_t tokens, int64_t hidden, const int32_t* positions, const void*,
                         void*) override {
    table_gradient(t, tokens, hidden, 1 + *std::max_element(positions, positions + tokens));
  }

  // A row is read twice, for it is not kept on the chip; the second time it is what stands in the cache.
  void loss_of_all(DataType t, int64_t tokens, int64_t columns, int64_t used, const int32_t*, double, void*,
                   double*) override {
    add("loss_of_all_kernel", bytes(t, tokens * (columns + used)) + tokens * kNumber,
        bytes(t, tokens * columns) + tokens * int64_t(sizeof(double)));
    add("sum_kernel", (tokens + 1) * int64_t(sizeof(double)), int64_t(sizeof(double)));
  }
  void adamw_step(DataType state, int64_t count, const AdamW&, void*, void*, void*, void*,
                  const NarrowCopy& copy, bool zeroes) override {
    add("adamw_kernel", 4 * bytes(state, count),
        (zeroes ? 4 : 3) * bytes(state, count) + (copy.data != nullptr ? bytes(copy.type, count) : 0));
  }
  double squared_norm(DataType t, std::span<const Stretch> parts) override {
    int64_t count = 0;
    for (const Stretch& part : parts) count += part.count;
    const int64_t partial = std::min<int64_t>(2048, (count + 2047) / 2048) * int64_t(sizeof(double));
    add("sum_of_squares_kernel", bytes(t, count), partial);
    add("sum_kernel", partial, int64_t(sizeof(double)));
    return 0.0;
  }

  void adamw(DataType, int64_t, const AdamW&, const void*, void*, void*, void*) override { refuse(); }
  double sum_of_squares(DataType, int64_t, const void*) override { return 0.0; }
  void loss_maximum(DataType, int64_t, int64_t, int64_t, const void*, void*) override { refuse(); }
  void loss_exponentials(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*, void*,
                         void*) override {
    refuse();
  }
  void loss_gradient(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*, double, void*,
                     double*) override {
    refuse();
  }
  void attention_block_forward(DataType, const AttentionBlock&, const void*, const void*, bool, void*,
                               void*) override {
    refuse();
  }
  void attention_block_backward(DataType, const AttentionBlock&, const void*, const void*, const void*,
                                const void*, const void*, void*, void*) override {
    refuse();
  }
  void copy_columns(DataType from, DataType to, int64_t rows, int64_t columns, const void*, int64_t, void*,
                    int64_t) override {
    add("copy_columns_kernel", bytes(from, rows * columns), bytes(to, rows * columns));
  }
  void head_norm_forward(DataType, const AttentionShape&, double, const void*, const void*, void*,
                         void*) override {
    refuse();
  }
  void head_norm_backward(DataType, const AttentionShape&, double, const void*, const void*, const void*,
                          void*, void*, void*) override {
    refuse();
  }
  void router_forward(DataType, const RouterShape&, const void*, void*, int32_t*, void*,
                      const void*) override {
    refuse();
  }
  void router_backward(DataType, const RouterShape&, const void*, const int32_t*, const void*, const void*,
                       void*) override {
    refuse();
  }
  void gather_rows(DataType, int64_t, int64_t, const int32_t*, const void*, void*) override { refuse(); }
  void sum_rows(DataType, int64_t, int64_t, int64_t, const int32_t*, const void*, void*) override {
    refuse();
  }
  void scale_rows(DataType, int64_t, int64_t, const void*, const void*, void*) override { refuse(); }
  void row_dots(DataType, int64_t, int64_t, const void*, const void*, void*) override { refuse(); }

  // Of models that are not counted.
  void scale(DataType, int64_t, double, const void*, void*) override { refuse(); }
  void soft_cap(DataType, int64_t, double, void*) override { refuse(); }
  void capped_loss_gradient(DataType, int64_t, int64_t, int64_t, int64_t, const int32_t*, const void*,
                            const void*, double, double, void*, double*) override {
    refuse();
  }
  void sink_forward(DataType, const AttentionShape&, const void*, void*, void*) override { refuse(); }
  void sink_backward(DataType, const AttentionShape&, const void*, const void*, const void*, const void*,
                     void*) override {
    refuse();
  }
  void latent_join(DataType, const LatentShape&, const Rotation&, const void*, const void*, const void*,
                   void*) override {
    refuse();
  }
  void latent_split(DataType, const LatentShape&, const Rotation&, const void*, void*, void*,
                    void*) override {
    refuse();
  }
  void wide_norm_squares(DataType, const AttentionShape&, const void*, void*) override { refuse(); }
  void wide_norm_forward(DataType, const AttentionShape&, int64_t, double, const void*, const void*,
                         const void*, void*, void*) override {
    refuse();
  }
  void wide_norm_dots(DataType, const AttentionShape&, const void*, const void*, const void*, const void*,
                      void*) override {
    refuse();
  }
  void wide_norm_backward(DataType, const AttentionShape&, int64_t, double, const void*, const void*,
                          const void*, const void*, const void*, void*, void*, void*) override {
    refuse();
  }
  void weighted_bias_forward(DataType, int64_t, int64_t, const void*, const void*, void*) override {
    refuse();
  }
  void weighted_bias_backward(DataType, int64_t, int64_t, const void*, const void*, const void*, void*,
                              void*) override {
    refuse();
  }
  void convolution_forward(DataType, const ConvolutionShape&, const void*, const void*, void*) override {
    refuse();
  }
  void convolution_backward(DataType, const ConvolutionShape&, const void*, const void*, const void*, void*,
                            void*) override {
    refuse();
  }
  void delta_forward(DataType, const DeltaShape&, const DeltaInputs&, void*, void*) override { refuse(); }
  void delta_backward(DataType, const DeltaShape&, const DeltaInputs&, const void*, const DeltaGradients&,
                      void*) override {
    refuse();
  }
  void gated_norm_forward(DataType, const GatedNormShape&, const void*, const void*, const void*,
                          void*) override {
    refuse();
  }
  void gated_norm_backward(DataType, const GatedNormShape&, const void*, const void*, const void*,
                           const void*, void*, void*, void*) override {
    refuse();
  }
  void gate_forward(DataType, const GateShape&, const void*, const void*, void*) override { refuse(); }
  void gate_backward(DataType, const GateShape&, const void*, const void*, const void*, void*,
                     void*) override {
    refuse();
  }

 private:
  static bool is_fused(DataType t, const ActivationShape& a) {
    return size_of(t) == 2 && a.kind == ActivationKind::gelu_tanh && !a.gated && a.limit == 0.0;
  }
  [[noreturn]] static void refuse() { throw RunError("only steps of dense layers on one rank are counted"); }

  void add(const std::string& kernel, int64_t read, int64_t written, double flop = 0.0) {
    KernelCount& count = counts_[kernel];
    ++count.launches;
    count.read_bytes += read;
    count.written_bytes += written;
    count.flop += flop;
  }
  // Beside what a kernel moves that is counted already.
  void moves(const std::string& what, int64_t read, int64_t written) {
    counts_[what].read_bytes += read;
    counts_[what].written_bytes += written;
  }
  // [m, k] by [k, n], in the name, too.
  void product(const char* kernel, DataType t, int64_t m, int64_t n, int64_t k, const LinearShape& s,
               int64_t read, int64_t written) {
    add(fmt::format("{}{} {} {} {}", is_narrow(t, s) ? "fp8 " : "", kernel, m, n, k), read, written,
        2.0 * double(s.rows) * double(s.columns) * double(s.inner));
  }
  static bool is_narrow(DataType t, const LinearShape& s) { return s.narrows() && size_of(t) == 2; }
  void input_gradient(DataType t, const LinearShape& s, int64_t gradient) {
    product("product backward", t, s.rows, s.inner, s.columns, s, gradient + weight(t, s, kTransposed),
            bytes(t, s.rows * s.inner));
  }
  // The sums for the bias are made in the product, and added to those of other micro-batches behind it.
  void weight_gradient(DataType t, const LinearShape& s, int64_t gradient, const void* dy, void* dbias) {
    const int64_t sum = state_bytes(t, s.columns * s.inner), sums = state_bytes(t, s.columns);
    const bool in_product = dbias != nullptr && size_of(t) == 2 && !s.narrows();
    const int64_t read =
        gradient + operand(t, s, s.rows * s.inner, kTransposed, s.kept.x_magnitude != nullptr);
    product("product backward", t, s.columns, s.inner, s.rows, s, read + sum, sum);
    if (in_product) {
      moves("epilogue backward", 0, sums);
      add("residual_add_kernel", 2 * sums, sums);
    } else if (dbias != nullptr) {
      bias_backward(t, s.rows, s.columns, dy, dbias);
    }
  }
  enum Order { kAsItIs, kTransposed, kBoth };
  // Of products of 8 bits: the largest magnitude of an operand, if it is not known, then its numbers in the
  // orders that are needed. The bytes of an operand in a product.
  int64_t operand(DataType t, const LinearShape& s, int64_t count, Order order, bool known = false) {
    if (!is_narrow(t, s)) return bytes(t, count);
    constexpr int64_t kBlocks = 256, kPerBlock = 256 * 8;
    const int64_t partial = std::min((count + kPerBlock - 1) / kPerBlock, kBlocks) * kNumber;
    if (!known) add("magnitude_kernel", bytes(t, count), partial);
    const char* const kernels[] = {"narrow_kernel", "narrow_transposed_kernel", "narrow_both_kernel"};
    add(kernels[order], bytes(t, count) + (known ? kNumber : partial),
        (order == kBoth ? 2 : 1) * count + int64_t(sizeof(float)));
    return count;
  }
  int64_t weight(DataType t, const LinearShape& s, Order order) {
    const int64_t count = s.columns * s.inner;
    return is_narrow(t, s) && s.kept.weight != nullptr ? count : operand(t, s, count, order);
  }
  void norm(DataType t, const NormShape& s, const void* bias, int64_t inputs) {
    const int64_t count = s.rows * s.columns;
    add("norm_forward_kernel", bytes(t, inputs * count + (bias != nullptr ? 2 : 1) * s.columns),
        bytes(t, inputs * count) + state_bytes(t, s.statistics()));
  }
  void norm_gradient(DataType t, const NormShape& s, int64_t inputs) {
    const int64_t count = s.rows * s.columns;
    add("norm_backward_input_kernel", bytes(t, inputs * count + s.columns) + state_bytes(t, s.statistics()),
        bytes(t, count));
  }
  // `sums` of each column are made, and `wanted` of them kept.
  void column_sums(DataType t, int64_t rows, int64_t columns, int64_t sums, int64_t wanted, int64_t read) {
    const int64_t partial = state_bytes(t, chunks_of(rows) * columns);
    add("partial_column_sums", read, sums * partial);
    for (int64_t i = 0; i < wanted; ++i)
      add("add_column_sums", partial + state_bytes(t, columns), state_bytes(t, columns));
  }
  void table_gradient(DataType t, int64_t tokens, int64_t hidden, int64_t rows) {
    add("embedding_backward_kernel",
        bytes(t, tokens * hidden) + (tokens + 2 * rows + 1) * kNumber + state_bytes(t, rows * hidden),
        state_bytes(t, rows * hidden));
  }
  static std::string attention(const char* pass, const AttentionShape& s) {
    return fmt::format("attention {} {} {} {} {}", pass, s.batch, s.sequence, s.heads, s.head_dim);
  }
  static double pair_flop(const AttentionShape& s) {
    return double(s.batch * s.heads) * double(s.sequence) * double(s.sequence) * double(s.head_dim);
  }

  KernelCounts& counts_;
  CountedMemory* const memory_;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nobody reads
  char* next_ = reinterpret_cast<char*>(kAllocationUnit);
};

}  // namespace

std::unique_ptr<Device> make_counting_device(KernelCounts& counts, CountedMemory* memory) {
  return std::make_unique<CountingDevice>(counts, memory);
}

}  // namespace mpt::test
