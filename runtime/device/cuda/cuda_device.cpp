// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cuda_device.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "runtime/device/cuda/dispatch.h"
#include "runtime/device/cuda/fused_attention.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/mixer_device.h"
#include "runtime/device/cuda/model_kernels.h"
#include "runtime/device/cuda/narrowed.h"
#include "runtime/device/cuda/word_list.h"

namespace mpt::runtime::cuda {
namespace {

bool is_wide(DataType type) { return type == DataType::float32 || type == DataType::float64; }

class Impl final : public MixerDevice {
 public:
  Impl(int index, const CudaOptions& options) : MixerDevice(index) {
    const GemmTools tools{[this](cudaEvent_t event) { wait_for(event); },
                          [this](DataType type, int64_t count, const void* data) {
                            return sum_of_squares(type, count, data) == 0.0;
                          }};
    gemm_ = make_gemm(tools, options.times_products);
    fused_attention_ = make_fused_attention();
  }
  // What serves the streams' work ends after it.
  ~Impl() override { streams().finish(); }

  int64_t scratch_bytes() const override { return StreamDevice::scratch_bytes() + gemm_->workspace_bytes(); }

  void convert(DataType from_type, const void* from, DataType to_type, void* to, int64_t count) override {
    copy_columns(from_type, to_type, 1, count, from, count, to, count);
  }

  void reduce(DataType type, ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin,
              int64_t end, void* to) override {
    MPT_CHECK(parts.size() <= size_t(kMostSources), "more than {} ranks in one process", kMostSources);
    Sources sources{};
    sources.count = int(parts.size());
    std::copy(parts.begin(), parts.end(), sources.at);
    const bool maximum = operation == ReduceOperation::maximum;
    MPT_DISPATCH(type, reduce_in_order<T>(stream(), sources, maximum, begin, end, as<T>(to)));
  }

  void linear_forward(DataType type, const LinearShape& s, const void* x, const void* w, const void* bias,
                      void* y) override {
    if (product_forward(type, s, x, w, with_bias(bias), y)) return;
    product_forward(type, s, x, w, {}, y);
    bias_forward(type, s.rows, s.columns, bias, y);
  }
  void linear_activation_forward(DataType type, const LinearShape& s, const ActivationShape& activation,
                                 const void* x, const void* w, const void* bias, void* up, void* y) override {
    if (is_gelu(activation) && !narrows(type, s) &&
        product_forward(type, s, x, w, {Epilogue::Kind::gelu, const_cast<void*>(bias), up}, y))
      return;
    StreamDevice::linear_activation_forward(type, s, activation, x, w, bias, up, y);
  }
  void linear_activation_backward(DataType type, const LinearShape& s, const ActivationShape& activation,
                                  const void* dy, const void* w, const void* up, void* room,
                                  void* dup) override {
    const Epilogue gradient{Epilogue::Kind::gelu_gradient, nullptr, const_cast<void*>(up)};
    if (is_gelu(activation) && !narrows(type, s) && product_backward(type, s, dy, w, gradient, dup)) return;
    StreamDevice::linear_activation_backward(type, s, activation, dy, w, up, room, dup);
  }
  void linear_backward_input(DataType type, const LinearShape& s, const void* dy, const void* w,
                             void* dx) override {
    if (!narrows(type, s)) {
      product_backward(type, s, dy, w, {}, dx);
      return;
    }
    const Narrowed dy8 = narrowed_gradient(type, s, dy, Narrowed::kAsItIs);
    fp8_backward(type, s, dy8.matrix(), w, dx);
  }
  void linear_backward(DataType type, const LinearShape& s, const void* dy, const void* w, void* dx,
                       const void* x, void* dw, void* dbias) override {
    if (s.rows == 0 || !narrows(type, s)) return Device::linear_backward(type, s, dy, w, dx, x, dw, dbias);
    const Narrowed dy8 = narrowed_gradient(type, s, dy, Narrowed::kBoth);
    fp8_backward(type, s, dy8.matrix(), w, dx);
    fp8_of_weights(type, s, dy8.transposed(), x, dw);
    if (dbias != nullptr) bias_backward(type, s.rows, s.columns, dy, dbias);
  }
  void narrow_weight(DataType type, const LinearShape& s, const void* w, void* kept) override {
    if (!narrows(type, s)) return;
    Narrowed::narrow(streams(), type, Fp8::e4m3, s.columns, s.inner, w, {},
                     NarrowedWeight::place_in(s, kept));
  }
  void linear_backward_weight(DataType type, const LinearShape& s, const void* dy, const void* x, void* dw,
                              void* dbias) override {
    if (s.rows > 0 && narrows(type, s)) {
      const Narrowed dy8 = narrowed_gradient(type, s, dy, Narrowed::kTransposed);
      fp8_of_weights(type, s, dy8.transposed(), x, dw);
    } else if (s.rows > 0) {
      if (dbias != nullptr && product_with_sums(type, s, dy, x, dw, dbias)) return;
      product_of_weights(type, s, dy, x, {}, dw);
    }
    if (dbias != nullptr) bias_backward(type, s.rows, s.columns, dy, dbias);
  }
  void bias_forward(DataType type, int64_t rows, int64_t columns, const void* bias, void* y) override {
    MPT_DISPATCH(type, cuda::bias_forward<T>(stream(), rows, columns, as<T>(bias), as<T>(y)));
  }
  void bias_backward(DataType type, int64_t rows, int64_t columns, const void* dy, void* dbias) override {
    const Scratch sums(streams(), column_scratch_bytes(rows, columns));
    MPT_DISPATCH(type, cuda::bias_backward<T>(stream(), rows, columns, as<T>(dy), as<S>(dbias), sums.data()));
  }

  void norm_forward(DataType type, const NormShape& s, const void* x, const void* scale, const void* bias,
                    void* y, void* statistics) override {
    MPT_DISPATCH(type, cuda::norm_forward<T>(stream(), s, as<T>(x), nullptr, as<T>(scale), as<T>(bias),
                                             nullptr, as<T>(y), as<S>(statistics)));
  }
  void residual_norm_forward(DataType type, const NormShape& s, const void* a, const void* b,
                             const void* scale, const void* bias, void* sum, void* y,
                             void* statistics) override {
    MPT_DISPATCH(type, cuda::norm_forward<T>(stream(), s, as<T>(a), as<T>(b), as<T>(scale), as<T>(bias),
                                             as<T>(sum), as<T>(y), as<S>(statistics)));
  }
  void norm_backward_input(DataType type, const NormShape& s, const void* dy, const void* x,
                           const void* scale, const void* statistics, void* dx) override {
    MPT_DISPATCH(type, cuda::norm_backward_input<T>(stream(), s, as<T>(dy), as<T>(x), as<T>(scale),
                                                    as<S>(statistics), nullptr, as<T>(dx)));
  }
  void norm_backward_residual(DataType type, const NormShape& s, const void* dy, const void* x,
                              const void* scale, const void* statistics, const void* residual,
                              void* dx) override {
    MPT_DISPATCH(type, cuda::norm_backward_input<T>(stream(), s, as<T>(dy), as<T>(x), as<T>(scale),
                                                    as<S>(statistics), as<T>(residual), as<T>(dx)));
  }
  void norm_backward_weight(DataType type, const NormShape& s, const void* dy, const void* x,
                            const void* statistics, void* dscale, void* dbias) override {
    const Scratch sums(streams(), column_scratch_bytes(s.rows, s.columns));
    MPT_DISPATCH(type, cuda::norm_backward_weight<T>(stream(), s, as<T>(dy), as<T>(x), as<S>(statistics),
                                                     as<S>(dscale), as<S>(dbias), sums.data()));
  }

  void rotary(DataType type, const AttentionShape& s, const Rotation& rotation, int direction,
              void* qkv) override {
    const auto half = int64_t(rotation.frequencies.size());
    const double* const frequencies = kept_list(rotation.frequencies.data(), half);
    const int32_t* const positions = kept_list(rotation.positions.data(), s.sequence);
    MPT_DISPATCH(type, cuda::rotary<T>(stream(), s, half, frequencies, positions, rotation.factor, direction,
                                       as<T>(qkv)));
  }
  void attention_forward(DataType type, const AttentionShape& s, const void* qkv, void* out,
                         void* log_sum_exp) override {
    if (const auto bytes = fused_bytes(FusedAttention::Pass::forward, type, s)) {
      const Scratch room(streams(), *bytes);
      return fused_attention_->forward(stream(), type, s, qkv, out, log_sum_exp, room.data());
    }
    MPT_DISPATCH(type, (cuda::attention_forward<T, T>(stream(), s, as<T>(qkv), own_keys<T>(s, qkv), false,
                                                      as<T>(out), as<S>(log_sum_exp))));
  }
  void attention_backward(DataType type, const AttentionShape& s, const void* dout, const void* qkv,
                          const void* out, const void* log_sum_exp, void* dqkv) override {
    if (const auto bytes = fused_bytes(FusedAttention::Pass::backward, type, s)) {
      const Scratch room(streams(), *bytes);
      return fused_attention_->backward(stream(), type, s, dout, qkv, out, log_sum_exp, dqkv, room.data());
    }
    const Scratch delta(streams(), s.tokens() * s.heads * size_of(state_type_of(type)));
    MPT_DISPATCH(type, {
      T* const d = as<T>(dqkv);
      const AttentionGradients gradients{d,    d + s.heads * s.head_dim, d + s.rotated(), s.row(), s.row(),
                                         false};
      cuda::attention_backward<T, T>(stream(), s, as<T>(dout), as<T>(qkv), own_keys<T>(s, qkv), as<T>(out),
                                     as<S>(log_sum_exp), gradients, as<S>(delta.data()));
    });
  }
  void attention_block_forward(DataType type, const AttentionBlock& block, const void* qkv, const void* kv,
                               bool first, void* out, void* log_sum_exp) override {
    MPT_DISPATCH(type,
                 (cuda::attention_forward<T, S>(stream(), block.shape, as<T>(qkv), block_keys<T>(block, kv),
                                                !first, as<S>(out), as<S>(log_sum_exp))));
  }
  void attention_block_backward(DataType type, const AttentionBlock& block, const void* dout, const void* qkv,
                                const void* kv, const void* out, const void* log_sum_exp, void* dq,
                                void* dkv) override {
    const AttentionShape& s = block.shape;
    const Scratch delta(streams(), s.tokens() * s.heads * size_of(state_type_of(type)));
    MPT_DISPATCH(type, {
      const AttentionGradients gradients{
          dq, dkv, as<S>(dkv) + s.kv_heads * s.head_dim, s.heads * s.head_dim, s.kv_row(), true};
      cuda::attention_backward<T, S>(stream(), s, as<T>(dout), as<T>(qkv), block_keys<T>(block, kv),
                                     as<T>(out), as<S>(log_sum_exp), gradients, as<S>(delta.data()));
    });
  }
  void copy_columns(DataType from_type, DataType to_type, int64_t rows, int64_t columns, const void* from,
                    int64_t from_stride, void* to, int64_t to_stride) override {
    const auto go = [&](auto* f, auto* t) {
      using From = std::remove_pointer_t<decltype(f)>;
      using To = std::remove_pointer_t<decltype(t)>;
      cuda::copy_columns(stream(), rows, columns, as<From>(from), from_stride, as<To>(to), to_stride);
    };
    if (from_type == to_type) return with_type(from_type, [&](auto* tag) { go(tag, tag); });
    MPT_CHECK(is_wide(from_type) != is_wide(to_type) &&
                  (from_type == DataType::float32 || to_type == DataType::float32),
              "no conversion between these types");
    float* const wide = nullptr;
    Bfloat16* const brain = nullptr;
    Half* const half = nullptr;
    if (from_type == DataType::float32) {
      to_type == DataType::bfloat16 ? go(wide, brain) : go(wide, half);
    } else {
      from_type == DataType::bfloat16 ? go(brain, wide) : go(half, wide);
    }
  }
  void head_norm_forward(DataType type, const AttentionShape& s, double epsilon, const void* query_scale,
                         const void* key_scale, void* qkv, void* kept) override {
    MPT_DISPATCH(type, cuda::head_norm_forward<T>(stream(), s, epsilon, as<T>(query_scale), as<T>(key_scale),
                                                  as<T>(qkv), as<T>(kept)));
  }
  void head_norm_backward(DataType type, const AttentionShape& s, double epsilon, const void* query_scale,
                          const void* key_scale, const void* kept, void* dqkv, void* dquery_scale,
                          void* dkey_scale) override {
    const Scratch room(streams(), head_norm_scratch_bytes(s));
    MPT_DISPATCH(type, cuda::head_norm_backward<T>(stream(), s, epsilon, as<T>(query_scale), as<T>(key_scale),
                                                   as<T>(kept), as<T>(dqkv), as<S>(dquery_scale),
                                                   as<S>(dkey_scale), room.data()));
  }

  void router_forward(DataType type, const RouterShape& s, const void* logits, void* probabilities,
                      int32_t* chosen, void* weights, const void* bias) override {
    const Scratch numbers(streams(), s.tokens * s.top * int64_t(sizeof(int32_t)));
    MPT_DISPATCH(type, cuda::router_forward<T>(stream(), s, as<T>(logits), as<S>(probabilities),
                                               as<int32_t>(numbers.data()), as<S>(weights), as<T>(bias)));
    copy(chosen, numbers.data(), numbers.bytes());
  }
  void router_backward(DataType type, const RouterShape& s, const void* probabilities, const int32_t* chosen,
                       const void* dweights, const void* balance, void* dlogits) override {
    const Numbers numbers(*this, chosen, s.tokens * s.top);
    MPT_DISPATCH(type, cuda::router_backward<T>(stream(), s, as<S>(probabilities), numbers.data(),
                                                as<S>(dweights), as<S>(balance), as<T>(dlogits)));
  }
  void gather_rows(DataType type, int64_t count, int64_t columns, const int32_t* rows, const void* x,
                   void* y) override {
    const Numbers numbers(*this, rows, count);
    MPT_DISPATCH(type, cuda::gather_rows<T>(stream(), count, columns, numbers.data(), as<T>(x), as<T>(y)));
  }
  void sum_rows(DataType type, int64_t tokens, int64_t top, int64_t columns, const int32_t* rows,
                const void* x, void* y) override {
    const Numbers numbers(*this, rows, tokens * top);
    MPT_DISPATCH(type, cuda::sum_rows<T>(stream(), tokens, top, columns, numbers.data(), as<T>(x), as<T>(y)));
  }
  void scale_rows(DataType type, int64_t rows, int64_t columns, const void* factors, const void* x,
                  void* y) override {
    MPT_DISPATCH(type, cuda::scale_rows<T>(stream(), rows, columns, as<S>(factors), as<T>(x), as<T>(y)));
  }
  void row_dots(DataType type, int64_t rows, int64_t columns, const void* a, const void* b,
                void* dots) override {
    MPT_DISPATCH(type, cuda::row_dots<T>(stream(), rows, columns, as<T>(a), as<T>(b), as<S>(dots)));
  }

  void activation_forward(DataType type, const ActivationShape& s, const void* x, void* y) override {
    MPT_DISPATCH(type, cuda::activation_forward<T>(stream(), s, as<T>(x), as<T>(y)));
  }
  void activation_backward(DataType type, const ActivationShape& s, const void* dy, const void* x,
                           void* dx) override {
    MPT_DISPATCH(type, cuda::activation_backward<T>(stream(), s, as<T>(dy), as<T>(x), as<T>(dx)));
  }
  void residual_add(DataType type, int64_t count, const void* a, const void* b, void* y) override {
    MPT_DISPATCH(type, cuda::residual_add<T>(stream(), count, as<T>(a), as<T>(b), as<T>(y)));
  }

  void embedding_forward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                         const int32_t* ids, const void* table, void* y) override {
    const Numbers numbers(*this, ids, tokens);
    MPT_DISPATCH(type, cuda::embedding_forward<T>(stream(), tokens, hidden, first, rows, numbers.data(),
                                                  as<T>(table), as<T>(y)));
  }
  void embedding_backward(DataType type, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                          const int32_t* ids, const void* dy, void* dtable) override {
    const SortedWords sorted(ids, tokens, first, rows);
    const Numbers numbers(*this, sorted.numbers().data(), int64_t(sorted.numbers().size()));
    table_gradient(type, sorted, numbers.data(), hidden, dy, dtable);
  }
  void position_forward(DataType type, int64_t tokens, int64_t hidden, const int32_t* positions,
                        const void* table, void* y) override {
    const int32_t* const list = kept_list(positions, tokens);
    MPT_DISPATCH(type, cuda::position_forward<T>(stream(), tokens, hidden, list, as<T>(table), as<T>(y)));
  }
  void position_backward(DataType type, int64_t tokens, int64_t hidden, const int32_t* positions,
                         const void* dy, void* dtable) override {
    const int64_t rows = tokens == 0 ? 0 : 1 + *std::max_element(positions, positions + tokens);
    const SortedWords sorted(positions, tokens, 0, rows);
    const auto count = int64_t(sorted.numbers().size());
    table_gradient(type, sorted, kept_list(sorted.numbers().data(), count), hidden, dy, dtable);
  }

  void loss_maximum(DataType type, int64_t tokens, int64_t columns, int64_t used, const void* logits,
                    void* maximum) override {
    MPT_DISPATCH(type, cuda::loss_maximum<T>(stream(), tokens, columns, used, as<T>(logits), as<S>(maximum)));
  }
  void loss_exponentials(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                         const int32_t* targets, const void* maximum, void* logits, void* sums) override {
    const Numbers numbers(*this, targets, tokens);
    MPT_DISPATCH(type, cuda::loss_exponentials<T>(stream(), tokens, columns, used, first, numbers.data(),
                                                  as<S>(maximum), as<T>(logits), as<S>(sums)));
  }
  void loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                     const int32_t* targets, const void* sums, double scale, void* logits,
                     double* loss) override {
    const Numbers numbers(*this, targets, tokens);
    const Scratch losses(streams(), tokens * int64_t(sizeof(double)));
    double* const each = as<double>(losses.data());
    MPT_DISPATCH(type, cuda::loss_gradient<T>(stream(), tokens, columns, used, first, numbers.data(),
                                              as<S>(sums), scale, as<T>(logits), each));
    add_sum(stream(), tokens, each, loss);
  }

  void capped_loss_gradient(DataType type, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                            const int32_t* targets, const void* maximum, const void* sums, double scale,
                            double cap, void* logits, double* loss) override {
    const Numbers numbers(*this, targets, tokens);
    const Scratch losses(streams(), (tokens + 1) * int64_t(sizeof(double)));
    double* const each = as<double>(losses.data());
    MPT_DISPATCH(type,
                 cuda::capped_loss_gradient<T>(stream(), tokens, columns, used, first, numbers.data(),
                                               as<S>(maximum), as<S>(sums), scale, cap, as<T>(logits), each));
    add_sum(stream(), tokens, each, loss);
  }

  // The maxima and sums of the three steps count here, too: a plan's memory has them.
  void loss_of_all(DataType type, int64_t tokens, int64_t columns, int64_t used, const int32_t* targets,
                   double scale, void* logits, double* loss) override {
    const int64_t unit = size_of(state_type_of(type));
    const Buffer maximum(*this, tokens * unit), sums(*this, 2 * tokens * unit);
    const Numbers numbers(*this, targets, tokens);
    const Scratch losses(streams(), tokens * int64_t(sizeof(double)));
    double* const each = as<double>(losses.data());
    MPT_DISPATCH(type, cuda::loss_of_all<T>(stream(), tokens, columns, used, numbers.data(), scale,
                                            as<T>(logits), each));
    add_sum(stream(), tokens, each, loss);
  }

  void adamw(DataType type, int64_t count, const AdamW& options, const void* gradient, void* parameter,
             void* first_moment, void* second_moment) override {
    adamw_step(type, count, options, const_cast<void*>(gradient), parameter, first_moment, second_moment, {},
               false);
  }
  void adamw_step(DataType state, int64_t count, const AdamW& options, void* gradient, void* parameter,
                  void* first_moment, void* second_moment, const NarrowCopy& copy, bool zeroes) override {
    const auto go = [&](auto* wide, auto* narrow) {
      using S = std::remove_pointer_t<decltype(wide)>;
      using T = std::remove_pointer_t<decltype(narrow)>;
      cuda::adamw(stream(), count, options, as<S>(gradient), as<S>(parameter), as<S>(first_moment),
                  as<S>(second_moment), as<T>(copy.data), zeroes);
    };
    MPT_CHECK(is_wide(state), "the optimizer's state is in float or double");
    float* const wide = nullptr;
    double* const wider = nullptr;
    if (state == DataType::float64) return go(wider, wider);
    if (copy.data == nullptr) return go(wide, wide);
    MPT_CHECK(!is_wide(copy.type), "a copy of weights is narrower than the state");
    copy.type == DataType::bfloat16 ? go(wide, static_cast<Bfloat16*>(nullptr))
                                    : go(wide, static_cast<Half*>(nullptr));
  }
  double sum_of_squares(DataType type, int64_t count, const void* data) override {
    const Stretch all{data, count};
    return squared_norm(type, {&all, 1});
  }

  // One answer for all, and neighbours at once.
  double squared_norm(DataType type, std::span<const Stretch> parts) override {
    std::vector<Stretch> joined;
    for (const Stretch& part : parts) {
      if (!joined.empty() && at_end(type, joined.back()) == part.data) {
        joined.back().count += part.count;
      } else {
        joined.push_back(part);
      }
    }
    const Scratch room(streams(), (kPartialSums + 1) * int64_t(sizeof(double)));
    double* const partial = as<double>(room.data());
    MPT_DISPATCH(type, cuda::sum_of_squares<T>(stream(), joined, partial, partial + kPartialSums));
    return read(partial + kPartialSums);
  }

 private:
  // Row-major y = x w^T is column-major y^T = w x^T, and so on.
  bool product_forward(DataType type, const LinearShape& s, const void* x, const void* w,
                       const Epilogue& epilogue, void* y) {
    const GemmShape shape{true, false, s.columns, s.rows, s.inner, s.inner, s.inner, s.columns};
    if (!narrows(type, s)) return gemm_->run(stream(), {type, type}, shape, w, x, epilogue, false, y);
    const Narrowed x8(streams(), type, Fp8::e4m3, s.rows, s.inner, Narrowed::kAsItIs, x,
                      {as<float>(s.kept.x_magnitude), s.kept.x_magnitude != nullptr && s.kept.x_is_known});
    const NarrowedWeight w8(streams(), type, s, w, Narrowed::kAsItIs);
    return gemm_->run_fp8(stream(), type, shape, w8.matrix(), x8.matrix(), epilogue, false, y);
  }
  Narrowed narrowed_gradient(DataType type, const LinearShape& s, const void* dy, Narrowed::Order order) {
    const void* const known = s.kept.dy_magnitude;  // and only read
    const Fp8Magnitude magnitude{const_cast<float*>(as<float>(known)), known != nullptr};
    return Narrowed(streams(), type, Fp8::e5m2, s.rows, s.columns, order, dy, magnitude);
  }
  void fp8_backward(DataType type, const LinearShape& s, const Fp8Matrix& dy, const void* w, void* dx) {
    const NarrowedWeight w8(streams(), type, s, w, Narrowed::kTransposed);
    gemm_->run_fp8(stream(), type, {true, false, s.inner, s.rows, s.columns, s.columns, s.columns, s.inner},
                   w8.matrix(), dy, {}, false, dx);
  }
  // `dy` is transposed.
  void fp8_of_weights(DataType type, const LinearShape& s, const Fp8Matrix& dy, const void* x, void* dw) {
    const Narrowed x8(streams(), type, Fp8::e4m3, s.rows, s.inner, Narrowed::kTransposed, x,
                      {as<float>(s.kept.x_magnitude), s.kept.x_magnitude != nullptr});
    gemm_->run_fp8(stream(), state_type_of(type),
                   {true, false, s.inner, s.columns, s.rows, s.rows, s.rows, s.inner}, x8.transposed(), dy,
                   {}, true, dw);
  }
  bool product_backward(DataType type, const LinearShape& s, const void* dy, const void* w,
                        const Epilogue& epilogue, void* dx) {
    return gemm_->run(stream(), {type, type},
                      {false, false, s.inner, s.rows, s.columns, s.inner, s.columns, s.inner}, w, dy,
                      epilogue, false, dx);
  }
  bool product_of_weights(DataType type, const LinearShape& s, const void* dy, const void* x,
                          const Epilogue& epilogue, void* dw) {
    return gemm_->run(stream(), {type, state_type_of(type)},
                      {false, true, s.inner, s.columns, s.rows, s.inner, s.columns, s.inner}, x, dy, epilogue,
                      true, dw);
  }
  // The product writes the sums of this micro-batch; a second kernel adds them.
  bool product_with_sums(DataType type, const LinearShape& s, const void* dy, const void* x, void* dw,
                         void* dbias) {
    const DataType state = state_type_of(type);
    const Scratch sums(streams(), s.columns * size_of(state));
    if (!product_of_weights(type, s, dy, x, {Epilogue::Kind::sums, sums.data(), nullptr}, dw)) return false;
    residual_add(state, s.columns, dbias, sums.data(), dbias);
    return true;
  }
  static bool is_gelu(const ActivationShape& activation) {
    return activation.kind == ActivationKind::gelu_tanh && !activation.gated && activation.limit == 0.0;
  }

  static const void* at_end(DataType type, const Stretch& stretch) {
    return as<char>(stretch.data) + stretch.count * size_of(type);
  }

  std::optional<int64_t> fused_bytes(FusedAttention::Pass pass, DataType type, const AttentionShape& s) {
    stream();  // makes this device the current one
    const bool fused = runtime_attention(s.needs(size_of(type) == 2), fused_attention_ != nullptr) ==
                       RuntimeAttention::cudnn;
    return fused ? fused_attention_->scratch_bytes(pass, type, s) : std::nullopt;
  }

  static bool narrows(DataType type, const LinearShape& s) { return s.narrows() && !is_wide(type); }

  void table_gradient(DataType type, const SortedWords& sorted, const int32_t* numbers, int64_t hidden,
                      const void* dy, void* dtable) {
    const int64_t words = sorted.words();
    const WordList list{words, numbers, numbers + words, numbers + 2 * words + 1};
    MPT_DISPATCH(type, cuda::embedding_backward<T>(stream(), list, hidden, as<T>(dy), as<S>(dtable)));
  }

  template <class T>
  static AttentionKeys own_keys(const AttentionShape& s, const void* qkv) {
    const T* const k = as<T>(qkv) + s.heads * s.head_dim;
    return {k, k + s.kv_heads * s.head_dim, s.row(), s.sequence, nullptr, nullptr};
  }
  template <class T>
  AttentionKeys block_keys(const AttentionBlock& block, const void* kv) {
    const AttentionShape& s = block.shape;
    const int32_t* const hidden = block.hidden.empty() ? nullptr : kept_list(block.hidden.data(), s.sequence);
    return {kv,         as<T>(kv) + s.kv_heads * s.head_dim,         s.kv_row(),
            block.keys, kept_list(block.visible.data(), s.sequence), hidden};
  }

  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<FusedAttention> fused_attention_;  // may be null
};

}  // namespace

std::unique_ptr<CudaDevice> make_cuda_device(int index, const CudaOptions& options) {
  return std::make_unique<Impl>(index, options);
}

}  // namespace mpt::runtime::cuda
