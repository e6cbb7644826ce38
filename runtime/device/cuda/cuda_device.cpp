// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/stream_device.h"

#include "base/error.h"
#include "runtime/device/cuda/fused_attention.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/narrowed.h"
#include "runtime/device/cuda/operators.h"
#include "runtime/device/run_in_parts.h"

namespace mpt::runtime::cuda {
namespace {

bool is_wide(DataType type) { return type == DataType::float32 || type == DataType::float64; }

class Impl final : public StreamDevice {
 public:
  Impl(int index, const CudaOptions& options) : StreamDevice(index) {
    const GemmTools tools{[this](cudaEvent_t event) { wait_for(event); },
                          [this](DataType type, int64_t count, const void* data) {
                            return sum_of_squares(type, count, data) == 0.0;
                          }};
    gemm_ = make_gemm(tools, options.times_products);
    fused_attention_ = make_fused_attention();
  }
  // The streams must end their work before the objects that serve it are destroyed.
  ~Impl() override { streams().finish(); }

  int64_t scratch_bytes() const override { return StreamDevice::scratch_bytes() + gemm_->workspace_bytes(); }

  void run(DataType type, const Operation& operation) override {
    std::visit([&](const auto& o) { run_one(type, o); }, operation);
  }
  double squared_norm(DataType type, std::span<const Stretch> parts) override {
    return cuda::squared_norm(*this, type, parts);
  }
  void reduce(DataType type, ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin,
              int64_t end, void* to) override {
    MPT_CHECK(parts.size() <= size_t(kMostSources), "more than {} ranks in one process", kMostSources);
    cuda::reduce(*this, type, operation, parts, begin, end, to);
  }

 private:
  template <class Operator>
  void run_one(DataType type, const Operator& o) {
    cuda::run(*this, type, o);
  }

  void run_one(DataType type, const LinearForward& o) {
    if (product_forward(type, o.shape, o.x, o.w, with_bias(o.bias), o.y)) return;
    product_forward(type, o.shape, o.x, o.w, {}, o.y);
    run_one(type, BiasForward{.rows = o.shape.rows, .columns = o.shape.columns, .bias = o.bias, .y = o.y});
  }
  void run_one(DataType type, const LinearActivationForward& o) {
    if (is_gelu(o.activation) && !narrows(type, o.shape) &&
        product_forward(type, o.shape, o.x, o.w, {Epilogue::Kind::gelu, const_cast<void*>(o.bias), o.up},
                        o.y))
      return;
    run_in_parts(*this, type, o);
  }
  void run_one(DataType type, const LinearActivationBackward& o) {
    const Epilogue gradient{Epilogue::Kind::gelu_gradient, nullptr, const_cast<void*>(o.up)};
    if (is_gelu(o.activation) && !narrows(type, o.shape) &&
        product_backward(type, o.shape, o.dy, o.w, gradient, o.dup))
      return;
    run_in_parts(*this, type, o);
  }
  void run_one(DataType type, const LinearBackwardInput& o) {
    if (!narrows(type, o.shape)) {
      product_backward(type, o.shape, o.dy, o.w, {}, o.dx);
      return;
    }
    const Narrowed dy8 = narrowed_gradient(type, o.shape, o.dy, Narrowed::kAsItIs);
    fp8_backward(type, o.shape, dy8.matrix(), o.w, o.dx);
  }
  void run_one(DataType type, const LinearBackward& o) {
    const LinearShape& s = o.shape;
    if (s.rows == 0 || !narrows(type, s)) return run_in_parts(*this, type, o);
    const Narrowed dy8 = narrowed_gradient(type, s, o.dy, Narrowed::kBoth);
    fp8_backward(type, s, dy8.matrix(), o.w, o.dx);
    fp8_of_weights(type, s, dy8.transposed(), o.x, o.dw);
    if (o.dbias != nullptr)
      run_one(type, BiasBackward{.rows = s.rows, .columns = s.columns, .dy = o.dy, .dbias = o.dbias});
  }
  void run_one(DataType type, const NarrowWeight& o) {
    if (!narrows(type, o.shape)) return;
    Narrowed::narrow(streams(), type, Fp8::e4m3, o.shape.columns, o.shape.inner, o.w, {},
                     NarrowedWeight::place_in(o.shape, o.kept));
  }
  void run_one(DataType type, const LinearBackwardWeight& o) {
    const LinearShape& s = o.shape;
    if (s.rows > 0 && narrows(type, s)) {
      const Narrowed dy8 = narrowed_gradient(type, s, o.dy, Narrowed::kTransposed);
      fp8_of_weights(type, s, dy8.transposed(), o.x, o.dw);
    } else if (s.rows > 0) {
      if (o.dbias != nullptr && product_with_sums(type, s, o.dy, o.x, o.dw, o.dbias)) return;
      product_of_weights(type, s, o.dy, o.x, {}, o.dw);
    }
    if (o.dbias != nullptr)
      run_one(type, BiasBackward{.rows = s.rows, .columns = s.columns, .dy = o.dy, .dbias = o.dbias});
  }
  void run_one(DataType type, const CopyColumns& o) {
    const bool of_float = type == DataType::float32 || o.to_type == DataType::float32;
    MPT_CHECK(type == o.to_type || (is_wide(type) != is_wide(o.to_type) && of_float),
              "no conversion between these types");
    cuda::run(*this, type, o);
  }
  void run_one(DataType state, const AdamStep& o) {
    MPT_CHECK(is_wide(state), "the optimizer's state is in float or double");
    MPT_CHECK(o.copy.data == nullptr || state == DataType::float64 || !is_wide(o.copy.type),
              "a copy of weights is narrower than the state");
    cuda::run(*this, state, o);
  }
  void run_one(DataType type, const AttentionForward& o) {
    const auto bytes = fused_bytes(FusedAttention::Pass::forward, type, o.shape);
    if (!bytes) return cuda::run(*this, type, o);
    const Scratch room(streams(), *bytes);
    fused_attention_->forward(stream(), type, o.shape, o.qkv, o.out, o.log_sum_exp, room.data());
  }
  void run_one(DataType type, const AttentionBackward& o) {
    const auto bytes = fused_bytes(FusedAttention::Pass::backward, type, o.shape);
    if (!bytes) return cuda::run(*this, type, o);
    const Scratch room(streams(), *bytes);
    fused_attention_->backward(stream(), type, o.shape, o.dout, o.qkv, o.out, o.log_sum_exp, o.dqkv,
                               room.data());
  }

  // Row-major y = x w^T is column-major y^T = w x^T. The other products follow the same rule.
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
    const void* const known = s.kept.dy_magnitude;  // only read
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
    run_one(state, ResidualAdd{.count = s.columns, .a = dbias, .b = sums.data(), .y = dbias});
    return true;
  }
  static bool is_gelu(const ActivationShape& activation) {
    return activation.kind == ActivationKind::gelu_tanh && !activation.gated && activation.limit == 0.0;
  }

  std::optional<int64_t> fused_bytes(FusedAttention::Pass pass, DataType type, const AttentionShape& s) {
    stream();  // makes this device the current one
    const bool fused = runtime_attention(s.needs(size_of(type) == 2), fused_attention_ != nullptr) ==
                       RuntimeAttention::cudnn;
    return fused ? fused_attention_->scratch_bytes(pass, type, s) : std::nullopt;
  }

  static bool narrows(DataType type, const LinearShape& s) { return s.narrows() && !is_wide(type); }

  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<FusedAttention> fused_attention_;  // may be null
};

}  // namespace

std::unique_ptr<StreamDevice> make_cuda_device(int index, const CudaOptions& options) {
  return std::make_unique<Impl>(index, options);
}

}  // namespace mpt::runtime::cuda
