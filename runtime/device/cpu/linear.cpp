// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime::cpu {
namespace {

// Elements of weights whose gradients are computed as the narrower side asks: Eigen copies the second operand
// of a product with more effort than the first, which tells where products are small.
constexpr int64_t kSmallWeight = int64_t{1} << 18;

}  // namespace

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
void linear_backward_weight(const LinearShape& s, const T* dy, const T* x, T* dw, T* dbias) {
  const ConstMatrixView<T> out(dy, s.rows, s.columns), in(x, s.rows, s.inner);
  MatrixView<T> gradient(dw, s.columns, s.inner);
  if (s.inner < s.columns && s.inner * s.columns <= kSmallWeight) {
    RowMatrix<T> transposed(s.inner, s.columns);
    transposed.noalias() = in.transpose() * out;
    gradient += transposed.transpose();
  } else {
    gradient.noalias() += out.transpose() * in;
  }
  if (dbias != nullptr) bias_backward(s.rows, s.columns, dy, dbias);
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

#define MPT_INSTANTIATE(T)                                                              \
  template void linear_forward(const LinearShape&, const T*, const T*, const T*, T*);   \
  template void linear_backward_input(const LinearShape&, const T*, const T*, T*);      \
  template void linear_backward_weight(const LinearShape&, const T*, const T*, T*, T*); \
  template void bias_forward(int64_t, int64_t, const T*, T*);                           \
  template void bias_backward(int64_t, int64_t, const T*, T*);                          \
  template void residual_add(int64_t, const T*, const T*, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
