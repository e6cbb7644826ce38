// SPDX-License-Identifier: Apache-2.0
#include "tests/support/counting_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/device/run_in_parts.h"

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
  void copy(void*, const void*, int64_t size) override { add("copy", size, size); }
  void zero(void*, int64_t size) override { add("zero", 0, size); }
  void upload(DataType, const double*, int64_t, void*) override {}
  void download(DataType, const void*, int64_t count, double* to) override { std::fill_n(to, count, 0.0); }

  void run(DataType type, const Operation& operation) override {
    std::visit([&](const auto& o) { take(type, o); }, operation);
  }
  double squared_norm(DataType t, std::span<const Stretch> parts) override {
    int64_t count = 0;
    for (const Stretch& part : parts) count += part.count;
    const int64_t partial = std::min<int64_t>(2048, (count + 2047) / 2048) * int64_t(sizeof(double));
    add("sum_of_squares_kernel", bytes(t, count), partial);
    add("sum_kernel", partial, int64_t(sizeof(double)));
    return 0.0;
  }

 private:
  template <class OfOtherModels>
  void take(DataType, const OfOtherModels&) {
    refuse();
  }

  void take(DataType t, const LinearForward& o) {
    const int64_t read = operand(t, o.shape, o.shape.rows * o.shape.inner, kAsItIs, o.shape.kept.x_is_known) +
                         weight(t, o.shape, kAsItIs);
    product("product forward", t, o.shape.rows, o.shape.columns, o.shape.inner, o.shape, read,
            bytes(t, o.shape.rows * o.shape.columns));
  }
  void take(DataType t, const LinearActivationForward& o) {
    if (!is_fused(t, o.activation) || o.shape.narrows()) return run_in_parts(*this, t, o);
    take(t, LinearForward{.shape = o.shape, .x = o.x, .w = o.w, .bias = o.bias, .y = o.up});
    moves("epilogue forward", 0, bytes(t, o.shape.rows * o.shape.columns));
  }
  void take(DataType t, const LinearActivationBackward& o) {
    if (!is_fused(t, o.activation) || o.shape.narrows()) return run_in_parts(*this, t, o);
    take(t, LinearBackwardInput{.shape = o.shape, .dy = o.dy, .w = o.w, .dx = o.dup});
    moves("epilogue backward", bytes(t, o.shape.rows * o.shape.inner), 0);
  }
  void take(DataType t, const LinearBackwardInput& o) {
    input_gradient(
        t, o.shape,
        operand(t, o.shape, o.shape.rows * o.shape.columns, kAsItIs, o.shape.kept.dy_magnitude != nullptr));
  }
  void take(DataType t, const LinearBackward& o) {
    if (!is_narrow(t, o.shape)) return run_in_parts(*this, t, o);
    const int64_t gradient =
        operand(t, o.shape, o.shape.rows * o.shape.columns, kBoth, o.shape.kept.dy_magnitude != nullptr);
    input_gradient(t, o.shape, gradient);
    weight_gradient(t, o.shape, gradient, o.dy, o.dbias);
  }
  void take(DataType t, const NarrowWeight& o) {
    if (is_narrow(t, o.shape)) operand(t, o.shape, o.shape.columns * o.shape.inner, kBoth);
  }
  void take(DataType t, const LinearBackwardWeight& o) {
    weight_gradient(t, o.shape,
                    operand(t, o.shape, o.shape.rows * o.shape.columns, kTransposed,
                            o.shape.kept.dy_magnitude != nullptr),
                    o.dy, o.dbias);
  }
  void take(DataType t, const BiasForward& o) {
    add("bias_forward_kernel", bytes(t, (o.rows + 1) * o.columns), bytes(t, o.rows * o.columns));
  }
  void take(DataType t, const BiasBackward& o) {
    column_sums(t, o.rows, o.columns, 1, 1, bytes(t, o.rows * o.columns));
  }

  void take(DataType t, const NormForward& o) { norm(t, o.shape, o.bias, o.residual != nullptr ? 2 : 1); }
  void take(DataType t, const NormBackwardInput& o) {
    norm_gradient(t, o.shape, o.residual != nullptr ? 3 : 2);
  }
  void take(DataType t, const NormBackwardWeight& o) {
    column_sums(t, o.shape.rows, o.shape.columns, 2, o.dbias != nullptr ? 2 : 1,
                bytes(t, 2 * o.shape.rows * o.shape.columns) + state_bytes(t, o.shape.statistics()));
  }

  void take(DataType t, const Rotate& o) {
    const int64_t turned = bytes(t, o.shape.tokens() * o.shape.rotated());
    add("rotary_kernel",
        turned + int64_t(o.rotation.frequencies.size() * sizeof(double)) + o.shape.sequence * kNumber,
        turned);
  }
  // Of each pair of a query and a key below it: two products forward, five backward.
  void take(DataType t, const AttentionForward& o) {
    const int64_t out = bytes(t, o.shape.tokens() * o.shape.heads * o.shape.head_dim);
    add(attention("forward", o.shape), bytes(t, o.shape.tokens() * o.shape.row()),
        out + state_bytes(t, o.shape.tokens() * o.shape.heads), 2 * pair_flop(o.shape));
  }
  void take(DataType t, const AttentionBackward& o) {
    const int64_t out = bytes(t, o.shape.tokens() * o.shape.heads * o.shape.head_dim),
                  qkv = bytes(t, o.shape.tokens() * o.shape.row());
    // The fused one sums the gradients of queries in full precision.
    if (memory_ != nullptr)
      memory_->call(state_bytes(t, o.shape.tokens() * o.shape.heads * o.shape.head_dim));
    add(attention("backward", o.shape), qkv + 2 * out + state_bytes(t, o.shape.tokens() * o.shape.heads), qkv,
        5 * pair_flop(o.shape));
  }

  void take(DataType t, const ActivationForward& o) {
    add("activation_forward_kernel", bytes(t, o.shape.rows * o.shape.input_columns()),
        bytes(t, o.shape.rows * o.shape.columns));
  }
  void take(DataType t, const ActivationBackward& o) {
    add("activation_backward_kernel", bytes(t, o.shape.rows * (o.shape.columns + o.shape.input_columns())),
        bytes(t, o.shape.rows * o.shape.input_columns()));
  }
  void take(DataType t, const ResidualAdd& o) {
    add("residual_add_kernel", bytes(t, 2 * o.count), bytes(t, o.count));
  }

  // As if no word came twice.
  void take(DataType t, const EmbeddingForward& o) {
    add("embedding_forward_kernel", bytes(t, o.shape.tokens * o.shape.hidden) + o.shape.tokens * kNumber,
        bytes(t, o.shape.tokens * o.shape.hidden));
  }
  void take(DataType t, const EmbeddingBackward& o) {
    table_gradient(t, o.shape.tokens, o.shape.hidden, o.shape.tokens);
  }
  void take(DataType t, const PositionForward& o) {
    const int64_t rows = 1 + *std::max_element(o.positions, o.positions + o.tokens);
    add("position_forward_kernel", bytes(t, (o.tokens + rows) * o.hidden) + o.tokens * kNumber,
        bytes(t, o.tokens * o.hidden));
  }
  void take(DataType t, const PositionBackward& o) {
    table_gradient(t, o.tokens, o.hidden, 1 + *std::max_element(o.positions, o.positions + o.tokens));
  }

  // A row is read twice, for it is not kept on the chip; the second time it is what stands in the cache.
  void take(DataType t, const LossOfAll& o) {
    add("loss_of_all_kernel",
        bytes(t, o.shape.tokens * (o.shape.columns + o.shape.used)) + o.shape.tokens * kNumber,
        bytes(t, o.shape.tokens * o.shape.columns) + o.shape.tokens * int64_t(sizeof(double)));
    add("sum_kernel", (o.shape.tokens + 1) * int64_t(sizeof(double)), int64_t(sizeof(double)));
  }
  void take(DataType state, const AdamStep& o) {
    add("adamw_kernel", 4 * bytes(state, o.count),
        (o.zeroes ? 4 : 3) * bytes(state, o.count) +
            (o.copy.data != nullptr ? bytes(o.copy.type, o.count) : 0));
  }

  void take(DataType from, const CopyColumns& o) {
    add("copy_columns_kernel", bytes(from, o.rows * o.columns), bytes(o.to_type, o.rows * o.columns));
  }

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
      take(t, BiasBackward{.rows = s.rows, .columns = s.columns, .dy = dy, .dbias = dbias});
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
