// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

// Turns of one token, in the half-split arrangement; `direction` -1 undoes them.
template <class T>
class Turn {
 public:
  Turn(const Rotation& rotation, int64_t token, int direction)
      : cosine_(Eigen::Index(rotation.frequencies.size())), sine_(cosine_.size()) {
    for (Eigen::Index i = 0; i < cosine_.size(); ++i) {
      const double angle = double(rotation.positions[size_t(token)]) * rotation.frequencies[size_t(i)];
      cosine_[i] = T(std::cos(angle) * rotation.factor);
      sine_[i] = T(std::sin(angle) * direction * rotation.factor);
    }
  }

  /// to = from, turned, 2 x frequencies elements, or added to what stands there.
  void apply(const T* from, T* to, bool add) const {
    const Eigen::Index half = cosine_.size();
    const ConstArrayView<T> a(from, half), b(from + half, half);
    ArrayView<T> first(to, half), second(to + half, half);
    if (add) {
      first += a * cosine_ - b * sine_;
      second += b * cosine_ + a * sine_;
    } else {
      first = a * cosine_ - b * sine_;
      second = b * cosine_ + a * sine_;
    }
  }

 private:
  Eigen::Array<T, Eigen::Dynamic, 1> cosine_, sine_;
};

// Where the parts of head h lie in a token's rows.
struct Columns {
  const LatentShape& s;
  int64_t query(int64_t h) const { return h * s.key_dim(); }
  int64_t key(int64_t h) const { return (s.heads + h) * s.key_dim(); }
  int64_t value(int64_t h) const { return 2 * s.heads * s.key_dim() + h * s.values; }
  int64_t expanded(int64_t h) const { return h * (s.nope + s.values); }
};

template <class T>
void latent_join(const LatentShape& s, const Rotation& rotation, const T* q, const T* expanded, const T* key,
                 T* qkv) {
  const Columns at{s};
  for (int64_t i = 0; i < s.sequence; ++i) {
    const Turn<T> turn(rotation, i, +1);
    for (int64_t b = 0; b < s.batch; ++b) {
      const int64_t t = b * s.sequence + i;
      const T* const queries = q + t * s.heads * s.key_dim();
      const T* const others = expanded + t * s.heads * (s.nope + s.values);
      T* const row = qkv + t * s.row();
      for (int64_t h = 0; h < s.heads; ++h) {
        std::copy_n(queries + at.query(h), s.nope, row + at.query(h));
        turn.apply(queries + at.query(h) + s.nope, row + at.query(h) + s.nope, false);
        std::copy_n(others + at.expanded(h), s.nope, row + at.key(h));
        turn.apply(key + t * s.rope, row + at.key(h) + s.nope, false);
        std::copy_n(others + at.expanded(h) + s.nope, s.values, row + at.value(h));
      }
    }
  }
}

template <class T>
void latent_split(const LatentShape& s, const Rotation& rotation, const T* dqkv, T* dq, T* dexpanded,
                  T* dkey) {
  const Columns at{s};
  for (int64_t i = 0; i < s.sequence; ++i) {
    const Turn<T> turn(rotation, i, -1);
    for (int64_t b = 0; b < s.batch; ++b) {
      const int64_t t = b * s.sequence + i;
      const T* const row = dqkv + t * s.row();
      T* const queries = dq + t * s.heads * s.key_dim();
      T* const others = dexpanded + t * s.heads * (s.nope + s.values);
      for (int64_t h = 0; h < s.heads; ++h) {
        std::copy_n(row + at.query(h), s.nope, queries + at.query(h));
        turn.apply(row + at.query(h) + s.nope, queries + at.query(h) + s.nope, false);
        std::copy_n(row + at.key(h), s.nope, others + at.expanded(h));
        turn.apply(row + at.key(h) + s.nope, dkey + t * s.rope, h > 0);
        std::copy_n(row + at.value(h), s.values, others + at.expanded(h) + s.nope);
      }
    }
  }
}

}  // namespace

void run(const Call& call, const LatentJoin& o) {
  const LatentShape& s = o.shape;
  call.compute([&](auto& f) {
    latent_join(s, o.rotation, f.in(o.q, s.tokens() * s.heads * s.key_dim()),
                f.in(o.expanded, s.tokens() * s.heads * (s.nope + s.values)),
                f.in(o.key, s.tokens() * s.rope), f.out(o.qkv, s.tokens() * s.row()));
  });
}

void run(const Call& call, const LatentSplit& o) {
  const LatentShape& s = o.shape;
  call.compute([&](auto& f) {
    latent_split(
        s, o.rotation, f.in(o.dqkv, s.tokens() * s.row()), f.out(o.dq, s.tokens() * s.heads * s.key_dim()),
        f.out(o.dexpanded, s.tokens() * s.heads * (s.nope + s.values)), f.out(o.dkey, s.tokens() * s.rope));
  });
}

}  // namespace mpt::runtime::cpu
