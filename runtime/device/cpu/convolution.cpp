// SPDX-License-Identifier: Apache-2.0

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

template <class T>
using Lane = Eigen::Array<T, Eigen::Dynamic, 1>;

// The weights by token, so that those of all channels are neighbours.
template <class T>
RowMatrix<T> by_token(const ConvolutionShape& s, const T* w) {
  return ConstMatrixView<T>(w, s.channels, s.length).transpose();
}

// The sums of one token, before SiLU.
template <class T>
void convolve(const ConvolutionShape& s, const RowMatrix<T>& w, const T* x, int64_t token, Lane<T>& sum) {
  const int64_t i = token % s.sequence;
  sum.setZero(s.channels);
  for (int64_t back = 0; back < std::min(s.length, i + 1); ++back)
    sum += view(x + (token - back) * s.row, s.channels) * w.row(s.length - 1 - back).transpose().array();
}

}  // namespace

void run(const Call& call, const ConvolutionForward& o) {
  const ConvolutionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const RowMatrix<T> weights = by_token(s, f.in(o.w, s.channels * s.length));
    const T* const x = f.in(o.x, s.read());
    T* const y = f.out(o.y, s.tokens() * s.channels);
    Lane<T> sum;
    for (int64_t t = 0; t < s.tokens(); ++t) {
      convolve(s, weights, x, t, sum);
      view(y + t * s.channels, s.channels) = sum / (T(1) + (-sum).exp());
    }
  });
}

void run(const Call& call, const ConvolutionBackward& o) {
  const ConvolutionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const RowMatrix<T> weights = by_token(s, f.in(o.w, s.channels * s.length));
    const T *const dy = f.in(o.dy, s.tokens() * s.channels), *const x = f.in(o.x, s.read());
    T* const dx = f.in_out(o.dx, s.read());
    RowMatrix<T> gradient = RowMatrix<T>::Zero(s.length, s.channels);
    for (int64_t t = 0; t < s.tokens(); ++t) view(dx + t * s.row, s.channels).setZero();
    Lane<T> sum, sigmoid;
    for (int64_t t = 0; t < s.tokens(); ++t) {
      convolve(s, weights, x, t, sum);
      sigmoid = T(1) / (T(1) + (-sum).exp());
      sum = view(dy + t * s.channels, s.channels) * sigmoid * (T(1) + sum * (T(1) - sigmoid));
      for (int64_t back = 0; back < std::min(s.length, t % s.sequence + 1); ++back) {
        const int64_t of = s.length - 1 - back, from = (t - back) * s.row;
        gradient.row(of).transpose().array() += sum * view(x + from, s.channels);
        view(dx + from, s.channels) += sum * weights.row(of).transpose().array();
      }
    }
    MatrixView<T>(f.state(o.dw), s.channels, s.length) += gradient.transpose();
  });
}

}  // namespace mpt::runtime::cpu
