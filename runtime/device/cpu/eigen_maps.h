// SPDX-License-Identifier: Apache-2.0
#pragma once

// Eigen views of row-major memory.

#include <Eigen/Core>
#include <cstdint>

namespace mpt::runtime::cpu {

template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using MatrixView = Eigen::Map<RowMatrix<T>>;
template <class T>
using ConstMatrixView = Eigen::Map<const RowMatrix<T>>;
/// Rows `stride` elements apart: one head inside a packed qkv.
template <class T>
using StridedView = Eigen::Map<RowMatrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
using ConstStridedView = Eigen::Map<const RowMatrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
using ArrayView = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
template <class T>
using ConstArrayView = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;

/// `count` elements from `data` on.
template <class T>
ConstArrayView<T> view(const T* data, int64_t count) {
  return {data, count};
}
template <class T>
ArrayView<T> view(T* data, int64_t count) {
  return {data, count};
}

}  // namespace mpt::runtime::cpu
