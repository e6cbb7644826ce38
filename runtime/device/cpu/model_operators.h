// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelOperators: the CPU's operators that only some models need, and the choice of a kernel by type.

#include <type_traits>

#include "base/error.h"
#include "runtime/device/cpu/kernels.h"
#include "runtime/device/cpu/widened.h"

namespace mpt::runtime {

template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}

// Kernels compute in this type as it is.
inline bool is_wide(DataType type) { return type == DataType::float32 || type == DataType::float64; }

// Calls `body` with a null pointer of the element type: `using T = ...` inside.
template <class F>
auto with_type(DataType type, F&& body) {
  MPT_CHECK(is_wide(type), "a kernel of float or double for a type of 16 bits");
  return type == DataType::float32 ? body(static_cast<float*>(nullptr)) : body(static_cast<double*>(nullptr));
}

#define MPT_DISPATCH(type, call)                    \
  with_type(type, [&](auto* tag) {                  \
    using T = std::remove_pointer_t<decltype(tag)>; \
    return call;                                    \
  })

class ModelOperators : public Device {
 public:
  void scale(DataType type, int64_t count, double factor, const void* x, void* y) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::scale<T>(count, factor, as<T>(x), as<T>(y)));
    cpu::Widened f(type, memory_);
    cpu::scale(count, factor, f.in(x, count), f.out(y, count));
  }
  void soft_cap(DataType type, int64_t count, double cap, void* x) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::soft_cap<T>(count, cap, as<T>(x)));
    cpu::Widened f(type, memory_);
    cpu::soft_cap(count, cap, f.in_out(x, count));
  }
  void capped_loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                            const int32_t* targets, const void* maximum, const void* sums, double scale,
                            double cap, void* logits, double* loss) override {
    if (is_wide(type)) {
      *loss += MPT_DISPATCH(
          type, cpu::capped_loss_gradient<T>(tokens, columns, used, first, targets, as<T>(maximum),
                                             as<T>(sums), scale, cap, as<T>(logits)));
      return;
    }
    cpu::Widened f(type, memory_);
    *loss += cpu::capped_loss_gradient(tokens, columns, used, first, targets, as<float>(maximum),
                                       as<float>(sums), scale, cap, f.in_out(logits, tokens * columns));
  }
  void sink_forward(DataType type, const AttentionShape& s, const void* sinks, void* out,
                    void* log_sum_exp) override {
    if (is_wide(type))
      return MPT_DISPATCH(type, cpu::sink_forward<T>(s, as<T>(sinks), as<T>(out), as<T>(log_sum_exp)));
    cpu::Widened f(type, memory_);
    cpu::sink_forward(s, f.in(sinks, s.heads), f.in_out(out, s.tokens() * s.outputs()),
                      as<float>(log_sum_exp));
  }
  void sink_backward(DataType type, const AttentionShape& s, const void* sinks, const void* dout,
                     const void* out, const void* log_sum_exp, void* dsinks) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::sink_backward<T>(s, as<T>(sinks), as<T>(dout), as<T>(out),
                                                      as<T>(log_sum_exp), as<T>(dsinks)));
    }
    cpu::Widened f(type, memory_);
    const int64_t count = s.tokens() * s.outputs();
    cpu::sink_backward(s, f.in(sinks, s.heads), f.in(dout, count), f.in(out, count), as<float>(log_sum_exp),
                       as<float>(dsinks));
  }
  void latent_join(DataType type, const LatentShape& s, const Rotation& rotation, const void* q,
                   const void* expanded, const void* key, void* qkv) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::latent_join<T>(s, rotation, as<T>(q), as<T>(expanded), as<T>(key), as<T>(qkv)));
    }
    cpu::Widened f(type, memory_);
    cpu::latent_join(s, rotation, f.in(q, s.tokens() * s.heads * s.key_dim()),
                     f.in(expanded, s.tokens() * s.heads * (s.nope + s.values)),
                     f.in(key, s.tokens() * s.rope), f.out(qkv, s.tokens() * s.row()));
  }
  void latent_split(DataType type, const LatentShape& s, const Rotation& rotation, const void* dqkv, void* dq,
                    void* dexpanded, void* dkey) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::latent_split<T>(s, rotation, as<T>(dqkv), as<T>(dq), as<T>(dexpanded), as<T>(dkey)));
    }
    cpu::Widened f(type, memory_);
    cpu::latent_split(
        s, rotation, f.in(dqkv, s.tokens() * s.row()), f.out(dq, s.tokens() * s.heads * s.key_dim()),
        f.out(dexpanded, s.tokens() * s.heads * (s.nope + s.values)), f.out(dkey, s.tokens() * s.rope));
  }
  void wide_norm_squares(DataType type, const AttentionShape& s, const void* qkv, void* sums) override {
    if (is_wide(type)) return MPT_DISPATCH(type, cpu::wide_norm_squares<T>(s, as<T>(qkv), as<T>(sums)));
    cpu::Widened f(type, memory_);
    cpu::wide_norm_squares(s, f.in(qkv, s.tokens() * s.row()), as<float>(sums));
  }
  void wide_norm_forward(DataType type, const AttentionShape& s, int64_t ranks, double epsilon,
                         const void* sums, const void* query_scale, const void* key_scale, void* qkv,
                         void* kept) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::wide_norm_forward<T>(s, ranks, epsilon, as<T>(sums), as<T>(query_scale),
                                                          as<T>(key_scale), as<T>(qkv), as<T>(kept)));
    }
    cpu::Widened f(type, memory_);
    cpu::wide_norm_forward(s, ranks, epsilon, as<float>(sums), f.in(query_scale, s.heads * s.head_dim),
                           f.in(key_scale, s.kv_heads * s.head_dim), f.in_out(qkv, s.tokens() * s.row()),
                           f.out(kept, s.tokens() * s.rotated()));
  }
  void wide_norm_dots(DataType type, const AttentionShape& s, const void* query_scale, const void* key_scale,
                      const void* kept, const void* dqkv, void* dots) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::wide_norm_dots<T>(s, as<T>(query_scale), as<T>(key_scale), as<T>(kept),
                                                       as<T>(dqkv), as<T>(dots)));
    }
    cpu::Widened f(type, memory_);
    cpu::wide_norm_dots(s, f.in(query_scale, s.heads * s.head_dim), f.in(key_scale, s.kv_heads * s.head_dim),
                        f.in(kept, s.tokens() * s.rotated()), f.in(dqkv, s.tokens() * s.row()),
                        as<float>(dots));
  }
  void wide_norm_backward(DataType type, const AttentionShape& s, int64_t ranks, double epsilon,
                          const void* sums, const void* dots, const void* query_scale, const void* key_scale,
                          const void* kept, void* dqkv, void* dquery_scale, void* dkey_scale) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::wide_norm_backward<T>(s, ranks, epsilon, as<T>(sums), as<T>(dots), as<T>(query_scale),
                                           as<T>(key_scale), as<T>(kept), as<T>(dqkv), as<T>(dquery_scale),
                                           as<T>(dkey_scale)));
    }
    cpu::Widened f(type, memory_);
    cpu::wide_norm_backward(s, ranks, epsilon, as<float>(sums), as<float>(dots),
                            f.in(query_scale, s.heads * s.head_dim), f.in(key_scale, s.kv_heads * s.head_dim),
                            f.in(kept, s.tokens() * s.rotated()), f.in_out(dqkv, s.tokens() * s.row()),
                            as<float>(dquery_scale), as<float>(dkey_scale));
  }
  void weighted_bias_forward(DataType type, int64_t rows, int64_t columns, const void* factors,
                             const void* bias, void* y) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(
          type, cpu::weighted_bias_forward<T>(rows, columns, as<T>(factors), as<T>(bias), as<T>(y)));
    }
    cpu::Widened f(type, memory_);
    cpu::weighted_bias_forward(rows, columns, as<float>(factors), f.in(bias, columns),
                               f.in_out(y, rows * columns));
  }
  void weighted_bias_backward(DataType type, int64_t rows, int64_t columns, const void* factors,
                              const void* bias, const void* dy, void* dbias, void* dfactors) override {
    if (is_wide(type)) {
      return MPT_DISPATCH(type, cpu::weighted_bias_backward<T>(rows, columns, as<T>(factors), as<T>(bias),
                                                               as<T>(dy), as<T>(dbias), as<T>(dfactors)));
    }
    cpu::Widened f(type, memory_);
    cpu::weighted_bias_backward(rows, columns, as<float>(factors), f.in(bias, columns),
                                f.in(dy, rows * columns), as<float>(dbias), as<float>(dfactors));
  }

 protected:
  cpu::WideningMemory memory_;
};

}  // namespace mpt::runtime
