// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

// Elements of weights whose gradients are computed as the narrower side asks: Eigen copies the second operand
// of a product with more effort than the first, which tells where products are small.
constexpr int64_t kSmallWeight = int64_t{1} << 18;

}  // namespace

void run(const Call& call, const LinearForward& o) {
  const LinearShape& s = o.shape;
  if (!s.narrows() && call.multiplied({s.rows, s.columns, s.inner, false, true, false, o.bias != nullptr},
                                      {o.x, o.w, o.bias, o.y}))
    return;
  call.compute([&]<class T>(auto& f, const T*) {
    const ConstMatrixView<T> x(f.in_product(s, Fp8::e4m3, o.x, s.rows * s.inner), s.rows, s.inner);
    const ConstMatrixView<T> w(f.in_product(s, Fp8::e4m3, o.w, s.columns * s.inner), s.columns, s.inner);
    const T* const bias = f.in(o.bias, s.columns);
    MatrixView<T> y(f.out(o.y, s.rows * s.columns), s.rows, s.columns);
    // A product is added to what is there: zero, or the bias at once.
    if (bias != nullptr)
      y.rowwise() = Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias, s.columns);
    else
      y.setZero();
    y.noalias() += x * w.transpose();
  });
}

void run(const Call& call, const LinearBackwardInput& o) {
  const LinearShape& s = o.shape;
  if (!s.narrows() && call.multiplied({s.rows, s.inner, s.columns}, {o.dy, o.w, nullptr, o.dx})) return;
  call.compute([&]<class T>(auto& f, const T*) {
    const ConstMatrixView<T> dy(f.in_product(s, Fp8::e5m2, o.dy, s.rows * s.columns), s.rows, s.columns);
    const ConstMatrixView<T> w(f.in_product(s, Fp8::e4m3, o.w, s.columns * s.inner), s.columns, s.inner);
    MatrixView<T>(f.out(o.dx, s.rows * s.inner), s.rows, s.inner).noalias() = dy * w;
  });
}

void run(const Call& call, const LinearBackwardWeight& o) {
  const LinearShape& s = o.shape;
  if (o.dbias != nullptr)
    run(call, BiasBackward{.rows = s.rows, .columns = s.columns, .dy = o.dy, .dbias = o.dbias});
  if (!s.narrows() &&
      call.multiplied({s.columns, s.inner, s.rows, true, false, true}, {o.dy, o.x, nullptr, o.dw}))
    return;
  call.compute([&]<class T>(auto& f, const T*) {
    const ConstMatrixView<T> dy(f.in_product(s, Fp8::e5m2, o.dy, s.rows * s.columns), s.rows, s.columns);
    const ConstMatrixView<T> x(f.in_product(s, Fp8::e4m3, o.x, s.rows * s.inner), s.rows, s.inner);
    MatrixView<T> dw(f.state(o.dw), s.columns, s.inner);
    if (s.inner < s.columns && s.inner * s.columns <= kSmallWeight) {
      RowMatrix<T> transposed(s.inner, s.columns);
      transposed.noalias() = x.transpose() * dy;
      dw += transposed.transpose();
    } else {
      dw.noalias() += dy.transpose() * x;
    }
  });
}

// Weights are narrowed for each product.
void run(const Call&, const NarrowWeight&) {}

void run(const Call& call, const BiasForward& o) {
  call.compute([&](auto& f, const auto*) {
    const auto* const factors = f.state(o.factors);
    const auto bias = view(f.in(o.bias, o.columns), o.columns);
    auto* const y = f.in_out(o.y, o.rows * o.columns);
    for (int64_t r = 0; r < o.rows; ++r)
      view(y + r * o.columns, o.columns) += (factors == nullptr ? 1 : factors[r]) * bias;
  });
}

void run(const Call& call, const BiasBackward& o) {
  call.compute([&](auto& f, const auto*) {
    const auto* const dy = f.in(o.dy, o.rows * o.columns);
    auto sum = view(f.state(o.dbias), o.columns);
    for (int64_t r = 0; r < o.rows; ++r) sum += view(dy + r * o.columns, o.columns);
  });
}

void run(const Call& call, const ResidualAdd& o) {
  call.compute([&](auto& f, const auto*) {
    view(f.out(o.y, o.count), o.count) =
        view(f.in(o.a, o.count), o.count) + view(f.in(o.b, o.count), o.count);
  });
}

}  // namespace mpt::runtime::cpu
