// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/cpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "runtime/device/cpu/kernels.h"
#include "runtime/device/cpu/mixers_on_cpu.h"

namespace mpt::runtime {
namespace {

class CpuDevice final : public MixersOnCpu {
 public:
  ~CpuDevice() override {
    for (auto& [bytes, blocks] : free_) {
      for (void* block : blocks) std::free(block);
    }
  }

  void* allocate(int64_t bytes) override {
    const int64_t size = rounded_bytes(bytes);
    in_use_ += size;
    peak_ = std::max(peak_, in_use_);
    auto& blocks = free_[size];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;
    }
    void* block = std::aligned_alloc(size_t(kAllocationUnit), size_t(std::max(size, kAllocationUnit)));
    if (block == nullptr)
      throw RunError(fmt::format("out of memory: {} more could not be allocated; the rank has {}",
                                 format_bytes(double(size)), format_bytes(double(in_use_ - size))));
    return block;
  }

  void release(void* data, int64_t bytes) override {
    const int64_t size = rounded_bytes(bytes);
    in_use_ -= size;
    MPT_CHECK(in_use_ >= 0, "more memory released than allocated");
    free_[size].push_back(data);
  }

  int64_t in_use_bytes() const override { return in_use_; }
  int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = in_use_; }
  void copy(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, size_t(bytes)); }
  void zero(void* data, int64_t bytes) override { std::memset(data, 0, size_t(bytes)); }

  void upload(DataType type, const double* from, int64_t count, void* to) override {
    if (is_wide(type)) {
      MPT_DISPATCH(type, (void)std::transform(from, from + count, as<T>(to), [](double v) { return T(v); }));
    } else {
      const std::vector<float> floats(from, from + count);
      narrow(type, floats.data(), count, to);
    }
  }
  void download(DataType type, const void* from, int64_t count, double* to) override {
    if (is_wide(type)) {
      MPT_DISPATCH(type, (void)std::copy_n(as<T>(from), count, to));
    } else {
      std::vector<float> floats(static_cast<size_t>(count));
      widen(type, from, count, floats.data());
      std::copy(floats.begin(), floats.end(), to);
    }
  }
  void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) override {
    if (from_type == to_type) return copy(to, from, count * size_of(to_type));
    MPT_CHECK(is_wide(from_type) != is_wide(to_type) &&
                  (from_type == DataType::float32 || to_type == DataType::float32),
              "no conversion between these types");
    from_type == DataType::float32 ? narrow(to_type, as<float>(from), count, to)
                                   : widen(from_type, from, count, as<float>(to));
  }

  void linear_forward(DataType type, const LinearShape& s, const void* x, const void* w, const void* bias,
                      void* y) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::linear_forward<T>(s, as<T>(x), as<T>(w), as<T>(bias), as<T>(y)));
    cpu::Widened f(type, memory_);
    const bool narrows = s.narrows();
    cpu::linear_forward(s, f.in_fp8(narrows, Fp8::e4m3, x, s.rows * s.inner),
                        f.in_fp8(narrows, Fp8::e4m3, w, s.columns * s.inner), f.in(bias, s.columns),
                        f.out(y, s.rows * s.columns));
  }
  void linear_backward_input(DataType type, const LinearShape& s, const void* dy, const void* w,
                             void* dx) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::linear_backward_input<T>(s, as<T>(dy), as<T>(w), as<T>(dx)));
    cpu::Widened f(type, memory_);
    const bool narrows = s.narrows();
    cpu::linear_backward_input(s, f.in_fp8(narrows, Fp8::e5m2, dy, s.rows * s.columns),
                               f.in_fp8(narrows, Fp8::e4m3, w, s.columns * s.inner),
                               f.out(dx, s.rows * s.inner));
  }
  void linear_backward_weight(DataType type, const LinearShape& s, const void* dy, const void* x, void* dw,
                              void* dbias) override {
    if (is_wide(type))
      return MPT_DISPATCH(type,
                          cpu::linear_backward_weight<T>(s, as<T>(dy), as<T>(x), as<T>(dw), as<T>(dbias)));
    cpu::Widened f(type, memory_);
    const bool narrows = s.narrows();
    if (dbias != nullptr)
      cpu::bias_backward(s.rows, s.columns, f.in(dy, s.rows * s.columns), as<float>(dbias));
    cpu::linear_backward_weight(s, f.in_fp8(narrows, Fp8::e5m2, dy, s.rows * s.columns),
                                f.in_fp8(narrows, Fp8::e4m3, x, s.rows * s.inner), as<float>(dw),
                                static_cast<float*>(nullptr));
  }
  void bias_forward(DataType type, int64_t rows, int64_t columns, const void* bias, void* y) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::bias_forward<T>(rows, columns, as<T>(bias), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::bias_forward(rows, columns, f.in(bias, columns), f.in_out(y, rows * columns));
  }
  void bias_backward(DataType type, int64_t rows, int64_t columns, const void* dy, void* dbias) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::bias_backward<T>(rows, columns, as<T>(dy), as<T>(dbias)));
    cpu::Widened f(type, memory_);
    cpu::bias_backward(rows, columns, f.in(dy, rows * columns), as<float>(dbias));
  }
  void norm_forward(DataType type, const NormShape& s, const void* x, const void* scale, const void* bias,
                    void* y, void* statistics) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::norm_forward<T>(s, as<T>(x), as<T>(scale), as<T>(bias), as<T>(y), as<T>(statistics)));
    }
    cpu::Widened f(type, memory_);
    cpu::norm_forward(s, f.in(x, s.rows * s.columns), f.in(scale, s.columns), f.in(bias, s.columns),
                      f.out(y, s.rows * s.columns), as<float>(statistics));
  }
  void norm_backward_input(DataType type, const NormShape& s, const void* dy, const void* x,
                           const void* scale, const void* statistics, void* dx) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::norm_backward_input<T>(s, as<T>(dy), as<T>(x), as<T>(scale),
                                                            as<T>(statistics), as<T>(dx)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.rows * s.columns;
    cpu::norm_backward_input(s, f.in(dy, count), f.in(x, count), f.in(scale, s.columns),
                             as<float>(statistics), f.out(dx, count));
  }
  void norm_backward_weight(DataType type, const NormShape& s, const void* dy, const void* x,
                            const void* statistics, void* dscale, void* dbias) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::norm_backward_weight<T>(s, as<T>(dy), as<T>(x), as<T>(statistics),
                                                             as<T>(dscale), as<T>(dbias)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.rows * s.columns;
    cpu::norm_backward_weight(s, f.in(dy, count), f.in(x, count), as<float>(statistics), as<float>(dscale),
                              as<float>(dbias));
  }
  void rotary(DataType type, const AttentionShape& s, const Rotation& rotation, int direction,
              void* qkv) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::rotary<T>(s, rotation, direction, as<T>(qkv)));
    cpu::Widened f(type, memory_);
    cpu::rotary(s, rotation, direction, f.in_out(qkv, s.tokens() * s.row()));
  }
  void attention_forward(DataType type, const AttentionShape& s, const void* qkv, void* out,
                         void* log_sum_exp) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::attention_forward<T>(s, as<T>(qkv), as<T>(out), as<T>(log_sum_exp)));
    }
    cpu::Widened f(type, memory_);
    cpu::attention_forward(s, f.in(qkv, s.tokens() * s.row()), f.out(out, s.tokens() * s.outputs()),
                           as<float>(log_sum_exp));
  }
  void attention_backward(DataType type, const AttentionShape& s, const void* dout, const void* qkv,
                          const void* out, const void* log_sum_exp, void* dqkv) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::attention_backward<T>(s, as<T>(dout), as<T>(qkv), as<T>(out),
                                                           as<T>(log_sum_exp), as<T>(dqkv)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.tokens() * s.outputs();
    cpu::attention_backward(s, f.in(dout, count), f.in(qkv, s.tokens() * s.row()), f.in(out, count),
                            as<float>(log_sum_exp), f.out(dqkv, s.tokens() * s.row()));
  }
  void attention_block_forward(DataType type, const AttentionBlock& block, const void* qkv, const void* kv,
                               bool first, void* out, void* log_sum_exp) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::attention_block_forward<T>(block, as<T>(qkv), as<T>(kv), first,
                                                                as<T>(out), as<T>(log_sum_exp)));
    }
    cpu::Widened f(type, memory_);
    const AttentionShape& s = block.shape;
    cpu::attention_block_forward(block, f.in(qkv, s.tokens() * s.row()),
                                 f.in(kv, s.batch * block.keys * s.kv_row()), first, as<float>(out),
                                 as<float>(log_sum_exp));
  }
  void attention_block_backward(DataType type, const AttentionBlock& block, const void* dout, const void* qkv,
                                const void* kv, const void* out, const void* log_sum_exp, void* dq,
                                void* dkv) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::attention_block_backward<T>(block, as<T>(dout), as<T>(qkv), as<T>(kv), as<T>(out),
                                                 as<T>(log_sum_exp), as<T>(dq), as<T>(dkv)));
    }
    cpu::Widened f(type, memory_);
    const AttentionShape& s = block.shape;
    const int64_t count = s.tokens() * s.outputs();
    cpu::attention_block_backward(block, f.in(dout, count), f.in(qkv, s.tokens() * s.row()),
                                  f.in(kv, s.batch * block.keys * s.kv_row()), f.in(out, count),
                                  as<float>(log_sum_exp), as<float>(dq), as<float>(dkv));
  }
  void copy_columns(DataType from_type, DataType to_type, int64_t rows, int64_t columns, const void* from,
                    int64_t from_stride, void* to, int64_t to_stride) override {
    for (int64_t r = 0; r < rows; ++r) {
      convert(from_type, static_cast<const char*>(from) + r * from_stride * size_of(from_type), to_type,
              static_cast<char*>(to) + r * to_stride * size_of(to_type), columns);
    }
  }
  void head_norm_forward(DataType type, const AttentionShape& s, double epsilon, const void* query_scale,
                         const void* key_scale, void* qkv, void* kept) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::head_norm_forward<T>(s, epsilon, as<T>(query_scale), as<T>(key_scale),
                                                          as<T>(qkv), as<T>(kept)));
    }
    cpu::Widened f(type, memory_);
    cpu::head_norm_forward(s, epsilon, f.in(query_scale, s.head_dim), f.in(key_scale, s.head_dim),
                           f.in_out(qkv, s.tokens() * s.row()), f.out(kept, s.tokens() * s.rotated()));
  }
  void head_norm_backward(DataType type, const AttentionShape& s, double epsilon, const void* query_scale,
                          const void* key_scale, const void* kept, void* dqkv, void* dquery_scale,
                          void* dkey_scale) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::head_norm_backward<T>(s, epsilon, as<T>(query_scale), as<T>(key_scale), as<T>(kept),
                                           as<T>(dqkv), as<T>(dquery_scale), as<T>(dkey_scale)));
    }
    cpu::Widened f(type, memory_);
    cpu::head_norm_backward(s, epsilon, f.in(query_scale, s.head_dim), f.in(key_scale, s.head_dim),
                            f.in(kept, s.tokens() * s.rotated()), f.in_out(dqkv, s.tokens() * s.row()),
                            as<float>(dquery_scale), as<float>(dkey_scale));
  }
  void router_forward(DataType type, const RouterShape& s, const void* logits, void* probabilities,
                      int32_t* chosen, void* weights, const void* bias) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::router_forward<T>(s, as<T>(logits), as<T>(probabilities), chosen,
                                                       as<T>(weights), as<T>(bias)));
    }
    cpu::Widened f(type, memory_);
    cpu::router_forward(s, f.in(logits, s.tokens * s.experts), as<float>(probabilities), chosen,
                        as<float>(weights), f.in(bias, s.experts));
  }
  void router_backward(DataType type, const RouterShape& s, const void* probabilities, const int32_t* chosen,
                       const void* dweights, const void* balance, void* dlogits) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::router_backward<T>(s, as<T>(probabilities), chosen, as<T>(dweights),
                                                        as<T>(balance), as<T>(dlogits)));
    }
    cpu::Widened f(type, memory_);
    cpu::router_backward(s, as<float>(probabilities), chosen, as<float>(dweights), as<float>(balance),
                         f.out(dlogits, s.tokens * s.experts));
  }
  void gather_rows(DataType type, int64_t count, int64_t columns, const int32_t* rows, const void* x,
                   void* y) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::gather_rows<T>(count, columns, rows, as<T>(x), as<T>(y)));
    cpu::gather_rows(count, columns, rows, as<uint16_t>(x), as<uint16_t>(y));
  }
  void sum_rows(DataType type, int64_t tokens, int64_t top, int64_t columns, const int32_t* rows,
                const void* x, void* y) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::sum_rows<T>(tokens, top, columns, rows, as<T>(x), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::sum_rows(tokens, top, columns, rows, f.in(x, tokens * top * columns), f.out(y, tokens * columns));
  }
  void scale_rows(DataType type, int64_t rows, int64_t columns, const void* factors, const void* x,
                  void* y) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::scale_rows<T>(rows, columns, as<T>(factors), as<T>(x), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::scale_rows(rows, columns, as<float>(factors), f.in(x, rows * columns), f.out(y, rows * columns));
  }
  void row_dots(DataType type, int64_t rows, int64_t columns, const void* a, const void* b,
                void* dots) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::row_dots<T>(rows, columns, as<T>(a), as<T>(b), as<T>(dots)));
    cpu::Widened f(type, memory_);
    cpu::row_dots(rows, columns, f.in(a, rows * columns), f.in(b, rows * columns), as<float>(dots));
  }
  void activation_forward(DataType type, const ActivationShape& s, const void* x, void* y) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::activation_forward<T>(s, as<T>(x), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::activation_forward(s, f.in(x, s.rows * s.input_columns()), f.out(y, s.rows * s.columns));
  }
  void activation_backward(DataType type, const ActivationShape& s, const void* dy, const void* x,
                           void* dx) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::activation_backward<T>(s, as<T>(dy), as<T>(x), as<T>(dx)));
    cpu::Widened f(type, memory_);
    const int64_t wide = s.rows * s.input_columns();
    cpu::activation_backward(s, f.in(dy, s.rows * s.columns), f.in(x, wide), f.out(dx, wide));
  }
  void residual_add(DataType type, int64_t count, const void* a, const void* b, void* y) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::residual_add<T>(count, as<T>(a), as<T>(b), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::residual_add(count, f.in(a, count), f.in(b, count), f.out(y, count));
  }
  // Rows of a table are copied whatever their type.
  void embedding_forward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                         const int32_t* ids, const void* table, void* y) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::embedding_forward<T>(tokens, hidden, first, rows, ids, as<T>(table), as<T>(y)));
    }
    cpu::embedding_forward(tokens, hidden, first, rows, ids, as<uint16_t>(table), as<uint16_t>(y));
  }
  void embedding_backward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                          const int32_t* ids, const void* dy, void* dtable) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::embedding_backward<T>(tokens, hidden, first, rows, ids, as<T>(dy), as<T>(dtable)));
    }
    cpu::Widened f(type, memory_);
    cpu::embedding_backward(tokens, hidden, first, rows, ids, f.in(dy, tokens * hidden), as<float>(dtable));
  }
  void position_forward(DataType type, int64_t tokens, int64_t hidden, const int32_t* positions,
                        const void* table, void* y) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::position_forward<T>(tokens, hidden, positions, as<T>(table), as<T>(y)));
    }
    cpu::Widened f(type, memory_);
    const int64_t rows = 1 + *std::max_element(positions, positions + tokens);
    cpu::position_forward(tokens, hidden, positions, f.in(table, rows * hidden),
                          f.in_out(y, tokens * hidden));
  }
  void position_backward(DataType type, int64_t tokens, int64_t hidden, const int32_t* positions,
                         const void* dy, void* dtable) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type,
                          cpu::position_backward<T>(tokens, hidden, positions, as<T>(dy), as<T>(dtable)));
    }
    cpu::Widened f(type, memory_);
    cpu::position_backward(tokens, hidden, positions, f.in(dy, tokens * hidden), as<float>(dtable));
  }
  void loss_maximum(DataType type, int64_t tokens, int64_t columns, int64_t used, const void* logits,
                    void* maximum) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::loss_maximum<T>(tokens, columns, used, as<T>(logits), as<T>(maximum)));
    cpu::Widened f(type, memory_);
    cpu::loss_maximum(tokens, columns, used, f.in(logits, tokens * columns), as<float>(maximum));
  }
  void loss_exponentials(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                         const int32_t* targets, const void* maximum, void* logits, void* sums) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::loss_exponentials<T>(tokens, columns, used, first, targets,
                                                          as<T>(maximum), as<T>(logits), as<T>(sums)));
    }
    cpu::Widened f(type, memory_);
    cpu::loss_exponentials(tokens, columns, used, first, targets, as<float>(maximum),
                           f.in_out(logits, tokens * columns), as<float>(sums));
  }
  void loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                     const int32_t* targets, const void* sums, double scale, void* logits,
                     double* loss) override {
    if (is_wide(type)) {
      *loss += MPT_DISPATCH(type, cpu::loss_gradient<T>(tokens, columns, used, first, targets, as<T>(sums),
                                                        scale, as<T>(logits)));
      return;
    }
    cpu::Widened f(type, memory_);
    *loss += cpu::loss_gradient(tokens, columns, used, first, targets, as<float>(sums), scale,
                                f.in_out(logits, tokens * columns));
  }
  void adamw(DataType type, int64_t count, const AdamW& options, const void* gradient, void* parameter,
             void* first_moment, void* second_moment) override {
    MPT_DISPATCH(type, cpu::adamw<T>(count, options, as<T>(gradient), as<T>(parameter), as<T>(first_moment),
                                     as<T>(second_moment)));
  }
  double sum_of_squares(DataType type, int64_t count, const void* data) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::sum_of_squares<T>(count, as<T>(data)));
    cpu::Widened f(type, memory_);
    return cpu::sum_of_squares(count, f.in(data, count));
  }

 private:
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
  std::unordered_map<int64_t, std::vector<void*>> free_;  // by size; steps repeat their sizes
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace mpt::runtime
