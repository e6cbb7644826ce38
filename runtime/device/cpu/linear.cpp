// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

// Elements of weights whose gradients are computed as the narrower side asks: Eigen copies the second operand
// of a product with more effort than the first, which tells where products are small.
constexpr int64_t kSmallWeight = int64_t{1} << 18;

template <class T>
void linear_forward(const LinearShape& s, const T* x, const T* w, const T* bias, T* y) {
  MatrixView<T> out(y, s.rows, s.columns);
  // A product is added to what is there: zero, or the bias at once.
  if (bias != nullptr) {
    out.rowwise() = Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias, s.columns);
  } else {
    out.setZero();
  }
  out.noalias() +=
      ConstMatrixView<T>(x, s.rows, s.inner) * ConstMatrixView<T>(w, s.columns, s.inner).transpose();
}

template <class T>
void linear_backward_input(const LinearShape& s, const T* dy, const T* w, T* dx) {
  MatrixView<T>(dx, s.rows, s.inner).noalias() =
      ConstMatrixView<T>(dy, s.rows, s.columns) * ConstMatrixView<T>(w, s.columns, s.inner);
}

template <class T>
void linear_backward_weight(const LinearShape& s, const T* dy, const T* x, T* dw) {
  const ConstMatrixView<T> out(dy, s.rows, s.columns), in(x, s.rows, s.inner);
  MatrixView<T> gradient(dw, s.columns, s.inner);
  if (s.inner < s.columns && s.inner * s.columns <= kSmallWeight) {
    RowMatrix<T> transposed(s.inner, s.columns);
    transposed.noalias() = in.transpose() * out;
    gradient += transposed.transpose();
  } else {
    gradient.noalias() += out.transpose() * in;
  }
}

template <class T>
void bias_forward(int64_t rows, int64_t columns, const T* bias, T* y) {
  const ConstArrayView<T> b(bias, columns);
  for (int64_t r = 0; r < rows; ++r) ArrayView<T>(y + r * columns, columns) += b;
}

template <class T>
void bias_backward(int64_t rows, int64_t columns, const T* dy, T* dbias) {
  ArrayView<T> sum(dbias, columns);
  for (int64_t r = 0; r < rows; ++r) sum += ConstArrayView<T>(dy + r * columns, columns);
}

template <class T>
void residual_add(int64_t count, const T* a, const T* b, T* y) {
  ArrayView<T>(y, count) = ConstArrayView<T>(a, count) + ConstArrayView<T>(b, count);
}

}  // namespace

void run(const Call& call, const LinearForward& o) {
  const LinearShape& s = o.shape;
  call.compute([&](auto& f) {
    linear_forward(s, f.in_product(s, Fp8::e4m3, o.x, s.rows * s.inner),
                   f.in_product(s, Fp8::e4m3, o.w, s.columns * s.inner), f.in(o.bias, s.columns),
                   f.out(o.y, s.rows * s.columns));
  });
}

void run(const Call& call, const LinearBackwardInput& o) {
  const LinearShape& s = o.shape;
  call.compute([&](auto& f) {
    linear_backward_input(s, f.in_product(s, Fp8::e5m2, o.dy, s.rows * s.columns),
                          f.in_product(s, Fp8::e4m3, o.w, s.columns * s.inner),
                          f.out(o.dx, s.rows * s.inner));
  });
}

void run(const Call& call, const LinearBackwardWeight& o) {
  const LinearShape& s = o.shape;
  if (o.dbias != nullptr) run(call, BiasBackward{s.rows, s.columns, o.dy, o.dbias});
  call.compute([&](auto& f) {
    linear_backward_weight(s, f.in_product(s, Fp8::e5m2, o.dy, s.rows * s.columns),
                           f.in_product(s, Fp8::e4m3, o.x, s.rows * s.inner), f.state(o.dw));
  });
}

// Weights are narrowed for each product.
void run(const Call&, const NarrowWeight&) {}

void run(const Call& call, const BiasForward& o) {
  call.compute([&](auto& f) {
    bias_forward(o.rows, o.columns, f.in(o.bias, o.columns), f.in_out(o.y, o.rows * o.columns));
  });
}

void run(const Call& call, const BiasBackward& o) {
  call.compute(
      [&](auto& f) { bias_backward(o.rows, o.columns, f.in(o.dy, o.rows * o.columns), f.state(o.dbias)); });
}

void run(const Call& call, const ResidualAdd& o) {
  call.compute(
      [&](auto& f) { residual_add(o.count, f.in(o.a, o.count), f.in(o.b, o.count), f.out(o.y, o.count)); });
}

}  // namespace mpt::runtime::cpu
