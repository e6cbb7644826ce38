// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/error.h"
#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

constexpr double kSqrtTwoOverPi = 0.7978845608028654;
constexpr double kGeluCubic = 0.044715;  // Hendrycks and Gimpel 2016 (arXiv:1606.08415)

// Values and derivatives over whole rows, so that Eigen vectorises exp and tanh.
template <class T>
struct Gelu {
  static void value(const ConstArrayView<T>& x, ArrayView<T> y) {
    y = (x + T(kGeluCubic) * x.cube()) * T(kSqrtTwoOverPi);
    y = T(0.5) * x * (T(1) + y.tanh());
  }
  static void derivative(const ConstArrayView<T>& x, ArrayView<T> d) {
    d = ((x + T(kGeluCubic) * x.cube()) * T(kSqrtTwoOverPi)).tanh();
    d = T(0.5) * (T(1) + d) +
        T(0.5) * x * (T(1) - d.square()) * T(kSqrtTwoOverPi) * (T(1) + T(3 * kGeluCubic) * x.square());
  }
};

template <class T>
struct ExactGelu {
  static void value(const ConstArrayView<T>& x, ArrayView<T> y) {
    for (Eigen::Index i = 0; i < x.size(); ++i) y[i] = T(0.5) * x[i] * (T(1) + std::erf(x[i] * T(M_SQRT1_2)));
  }
  static void derivative(const ConstArrayView<T>& x, ArrayView<T> d) {
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      const T density = std::exp(T(-0.5) * x[i] * x[i]) * T(0.3989422804014327);
      d[i] = T(0.5) * (T(1) + std::erf(x[i] * T(M_SQRT1_2))) + x[i] * density;
    }
  }
};

template <class T>
struct Silu {
  static void value(const ConstArrayView<T>& x, ArrayView<T> y) { y = x / (T(1) + (-x).exp()); }
  static void derivative(const ConstArrayView<T>& x, ArrayView<T> d) {
    d = T(1) / (T(1) + (-x).exp());
    d = d * (T(1) + x * (T(1) - d));
  }
};

template <class T>
struct Relu {
  static void value(const ConstArrayView<T>& x, ArrayView<T> y) { y = x.max(T(0)); }
  static void derivative(const ConstArrayView<T>& x, ArrayView<T> d) { d = (x > T(0)).template cast<T>(); }
};

template <class T>
struct SquaredRelu {
  static void value(const ConstArrayView<T>& x, ArrayView<T> y) { y = x.max(T(0)).square(); }
  static void derivative(const ConstArrayView<T>& x, ArrayView<T> d) { d = T(2) * x.max(T(0)); }
};

template <class T, class F>
void forward_rows(const ActivationShape& s, const T* x, T* y) {
  const int64_t in = s.columns * (s.gated ? 2 : 1);
  for (int64_t r = 0; r < s.rows; ++r) {
    ArrayView<T> out(y + r * s.columns, s.columns);
    F::value(ConstArrayView<T>(x + r * in, s.columns), out);
    if (s.gated) out *= ConstArrayView<T>(x + r * in + s.columns, s.columns);
  }
}

template <class T, class F>
void backward_rows(const ActivationShape& s, const T* dy, const T* x, T* dx) {
  const int64_t in = s.columns * (s.gated ? 2 : 1);
  Eigen::Array<T, Eigen::Dynamic, 1> value(s.gated ? s.columns : 0);
  for (int64_t r = 0; r < s.rows; ++r) {
    const ConstArrayView<T> g(dy + r * s.columns, s.columns), gate(x + r * in, s.columns);
    ArrayView<T> d(dx + r * in, s.columns);
    F::derivative(gate, d);
    if (s.gated) {
      const ConstArrayView<T> up(x + r * in + s.columns, s.columns);
      d *= g * up;
      F::value(gate, ArrayView<T>(value.data(), s.columns));
      ArrayView<T>(dx + r * in + s.columns, s.columns) = g * value;
    } else {
      d *= g;
    }
  }
}

// gpt-oss (arXiv:2508.10925; transformers/models/gpt_oss/modeling_gpt_oss.py).
constexpr double kLimitedSlope = 1.702;

template <class T>
void limited_forward(const ActivationShape& s, const T* x, T* y) {
  const T limit = T(s.limit);
  for (int64_t r = 0; r < s.rows; ++r) {
    const auto gate = view(x + r * 2 * s.columns, s.columns),
               up = view(x + (r * 2 + 1) * s.columns, s.columns);
    const auto cut = gate.min(limit);
    view(y + r * s.columns, s.columns) =
        cut / (T(1) + (-T(kLimitedSlope) * cut).exp()) * (up.min(limit).max(-limit) + T(1));
  }
}

template <class T>
void limited_backward(const ActivationShape& s, const T* dy, const T* x, T* dx) {
  const T limit = T(s.limit), slope = T(kLimitedSlope);
  for (int64_t i = 0; i < s.rows * s.columns; ++i) {
    const int64_t at = i / s.columns * 2 * s.columns + i % s.columns;
    const T gate = std::min(x[at], limit), up = std::clamp(x[at + s.columns], -limit, limit);
    const T sigmoid = T(1) / (T(1) + std::exp(-slope * gate));
    const T derivative = sigmoid * (T(1) + slope * gate * (T(1) - sigmoid));
    dx[at] = x[at] <= limit ? dy[i] * (up + T(1)) * derivative : T(0);
    dx[at + s.columns] = std::abs(x[at + s.columns]) <= limit ? dy[i] * gate * sigmoid : T(0);
  }
}

// Calls `body` with a null pointer to the function.
template <class T, class Body>
void with_function(ActivationKind kind, Body&& body) {
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return body(static_cast<Gelu<T>*>(nullptr));
    case ActivationKind::gelu:
      return body(static_cast<ExactGelu<T>*>(nullptr));
    case ActivationKind::silu:
      return body(static_cast<Silu<T>*>(nullptr));
    case ActivationKind::relu:
      return body(static_cast<Relu<T>*>(nullptr));
    case ActivationKind::squared_relu:
      return body(static_cast<SquaredRelu<T>*>(nullptr));
    case ActivationKind::xielu:
    case ActivationKind::situ:
      break;  // refused when the plan is made
  }
  MPT_CHECK(false, "no kernel for the activation {}", enum_name(kind));
}

}  // namespace

void run(const Call& call, const ActivationForward& o) {
  const ActivationShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const T* const x = f.in(o.x, s.rows * s.input_columns());
    T* const y = f.out(o.y, s.rows * s.columns);
    if (s.limit > 0.0) return limited_forward(s, x, y);
    with_function<T>(s.kind, [&]<class F>(F*) { forward_rows<T, F>(s, x, y); });
  });
}

void run(const Call& call, const ActivationBackward& o) {
  const ActivationShape& s = o.shape;
  const int64_t wide = s.rows * s.input_columns();
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const dy = f.in(o.dy, s.rows * s.columns), *const x = f.in(o.x, wide);
    T* const dx = f.out(o.dx, wide);
    if (s.limit > 0.0) return limited_backward(s, dy, x, dx);
    with_function<T>(s.kind, [&]<class F>(F*) { backward_rows<T, F>(s, dy, x, dx); });
  });
}

}  // namespace mpt::runtime::cpu
