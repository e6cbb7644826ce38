// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/cpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime {
namespace {

template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}

// Calls `body` with a null pointer of the element type: `using T = ...` inside.
template <class F>
auto with_type(DataType type, F&& body) {
  return type == DataType::float32 ? body(static_cast<float*>(nullptr)) : body(static_cast<double*>(nullptr));
}

#define MPT_DISPATCH(type, call)                    \
  with_type(type, [&](auto* tag) {                  \
    using T = std::remove_pointer_t<decltype(tag)>; \
    return call;                                    \
  })

class CpuDevice final : public Device {
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
    if (block == nullptr) throw std::bad_alloc();
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

  void linear_forward(DataType type, const LinearShape& s, const void* x, const void* w, const void* bias,
                      void* y) override {
    MPT_DISPATCH(type, cpu::linear_forward<T>(s, as<T>(x), as<T>(w), as<T>(bias), as<T>(y)));
  }
  void linear_backward_input(DataType type, const LinearShape& s, const void* dy, const void* w,
                             void* dx) override {
    MPT_DISPATCH(type, cpu::linear_backward_input<T>(s, as<T>(dy), as<T>(w), as<T>(dx)));
  }
  void linear_backward_weight(DataType type, const LinearShape& s, const void* dy, const void* x, void* dw,
                              void* dbias) override {
    MPT_DISPATCH(type, cpu::linear_backward_weight<T>(s, as<T>(dy), as<T>(x), as<T>(dw), as<T>(dbias)));
  }
  void bias_forward(DataType type, int64_t rows, int64_t columns, const void* bias, void* y) override {
    MPT_DISPATCH(type, cpu::bias_forward<T>(rows, columns, as<T>(bias), as<T>(y)));
  }
  void bias_backward(DataType type, int64_t rows, int64_t columns, const void* dy, void* dbias) override {
    MPT_DISPATCH(type, cpu::bias_backward<T>(rows, columns, as<T>(dy), as<T>(dbias)));
  }
  void norm_forward(DataType type, const NormShape& s, const void* x, const void* scale, const void* bias,
                    void* y, void* statistics) override {
    MPT_DISPATCH(type,
                 cpu::norm_forward<T>(s, as<T>(x), as<T>(scale), as<T>(bias), as<T>(y), as<T>(statistics)));
  }
  void norm_backward_input(DataType type, const NormShape& s, const void* dy, const void* x,
                           const void* scale, const void* statistics, void* dx) override {
    MPT_DISPATCH(type, cpu::norm_backward_input<T>(s, as<T>(dy), as<T>(x), as<T>(scale), as<T>(statistics),
                                                   as<T>(dx)));
  }
  void norm_backward_weight(DataType type, const NormShape& s, const void* dy, const void* x,
                            const void* statistics, void* dscale, void* dbias) override {
    MPT_DISPATCH(type, cpu::norm_backward_weight<T>(s, as<T>(dy), as<T>(x), as<T>(statistics), as<T>(dscale),
                                                    as<T>(dbias)));
  }
  void rotary(DataType type, const AttentionShape& s, double base, double fraction, int direction,
              void* qkv) override {
    MPT_DISPATCH(type, cpu::rotary<T>(s, base, fraction, direction, as<T>(qkv)));
  }
  void attention_forward(DataType type, const AttentionShape& s, const void* qkv, void* out,
                         void* log_sum_exp) override {
    MPT_DISPATCH(type, cpu::attention_forward<T>(s, as<T>(qkv), as<T>(out), as<T>(log_sum_exp)));
  }
  void attention_backward(DataType type, const AttentionShape& s, const void* dout, const void* qkv,
                          const void* out, const void* log_sum_exp, void* dqkv) override {
    MPT_DISPATCH(type, cpu::attention_backward<T>(s, as<T>(dout), as<T>(qkv), as<T>(out), as<T>(log_sum_exp),
                                                  as<T>(dqkv)));
  }
  void activation_forward(DataType type, const ActivationShape& s, const void* x, void* y) override {
    MPT_DISPATCH(type, cpu::activation_forward<T>(s, as<T>(x), as<T>(y)));
  }
  void activation_backward(DataType type, const ActivationShape& s, const void* dy, const void* x,
                           void* dx) override {
    MPT_DISPATCH(type, cpu::activation_backward<T>(s, as<T>(dy), as<T>(x), as<T>(dx)));
  }
  void residual_add(DataType type, int64_t count, const void* a, const void* b, void* y) override {
    MPT_DISPATCH(type, cpu::residual_add<T>(count, as<T>(a), as<T>(b), as<T>(y)));
  }
  void embedding_forward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                         const int32_t* ids, const void* table, void* y) override {
    MPT_DISPATCH(type, cpu::embedding_forward<T>(tokens, hidden, first, rows, ids, as<T>(table), as<T>(y)));
  }
  void embedding_backward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                          const int32_t* ids, const void* dy, void* dtable) override {
    MPT_DISPATCH(type,
                 cpu::embedding_backward<T>(tokens, hidden, first, rows, ids, as<T>(dy), as<T>(dtable)));
  }
  void position_forward(DataType type, int64_t tokens, int64_t sequence, int64_t hidden, const void* table,
                        void* y) override {
    MPT_DISPATCH(type, cpu::position_forward<T>(tokens, sequence, hidden, as<T>(table), as<T>(y)));
  }
  void position_backward(DataType type, int64_t tokens, int64_t sequence, int64_t hidden, const void* dy,
                         void* dtable) override {
    MPT_DISPATCH(type, cpu::position_backward<T>(tokens, sequence, hidden, as<T>(dy), as<T>(dtable)));
  }
  void loss_maximum(DataType type, int64_t tokens, int64_t columns, int64_t used, const void* logits,
                    void* maximum) override {
    MPT_DISPATCH(type, cpu::loss_maximum<T>(tokens, columns, used, as<T>(logits), as<T>(maximum)));
  }
  void loss_exponentials(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                         const int32_t* targets, const void* maximum, void* logits, void* sums) override {
    MPT_DISPATCH(type, cpu::loss_exponentials<T>(tokens, columns, used, first, targets, as<T>(maximum),
                                                 as<T>(logits), as<T>(sums)));
  }
  double loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                       const int32_t* targets, const void* sums, double scale, void* logits) override {
    return MPT_DISPATCH(type, cpu::loss_gradient<T>(tokens, columns, used, first, targets, as<T>(sums), scale,
                                                    as<T>(logits)));
  }
  void adamw(DataType type, int64_t count, const AdamW& options, const void* gradient, void* parameter,
             void* first_moment, void* second_moment) override {
    MPT_DISPATCH(type, cpu::adamw<T>(count, options, as<T>(gradient), as<T>(parameter), as<T>(first_moment),
                                     as<T>(second_moment)));
  }
  double sum_of_squares(DataType type, int64_t count, const void* data) override {
    return MPT_DISPATCH(type, cpu::sum_of_squares<T>(count, as<T>(data)));
  }

 private:
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
  std::unordered_map<int64_t, std::vector<void*>> free_;  // by size; steps repeat their sizes
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace mpt::runtime
