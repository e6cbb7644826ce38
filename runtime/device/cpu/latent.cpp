// SPDX-License-Identifier: Apache-2.0

#include "runtime/device/cpu/operators.h"
#include "runtime/device/cpu/turn.h"

namespace mpt::runtime::cpu {
namespace {

// Where the parts of head h lie in a token's rows.
struct Columns {
  const LatentShape& s;
  int64_t query(int64_t h) const { return h * s.key_dim(); }
  int64_t key(int64_t h) const { return (s.heads + h) * s.key_dim(); }
  int64_t value(int64_t h) const { return 2 * s.heads * s.key_dim() + h * s.values; }
  int64_t expanded(int64_t h) const { return h * (s.nope + s.values); }
};

}  // namespace

void run(const Call& call, const LatentJoin& o) {
  const LatentShape& s = o.shape;
  const int64_t heads_q = s.heads * s.key_dim(), heads_expanded = s.heads * (s.nope + s.values);
  const Columns at{s};
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const q = f.in(o.q, s.tokens() * heads_q),
                   *const expanded = f.in(o.expanded, s.tokens() * heads_expanded),
                   *const key = f.in(o.key, s.tokens() * s.rope);
    T* const qkv = f.out(o.qkv, s.tokens() * s.row());
    for_each_token<T>(s, o.rotation, +1, [&](int64_t t, const Turn<T>& turn) {
      const T *const queries = q + t * heads_q, *const others = expanded + t * heads_expanded;
      T* const row = qkv + t * s.row();
      for (int64_t h = 0; h < s.heads; ++h) {
        std::copy_n(queries + at.query(h), s.nope, row + at.query(h));
        turn.apply(queries + at.query(h) + s.nope, row + at.query(h) + s.nope, false);
        std::copy_n(others + at.expanded(h), s.nope, row + at.key(h));
        turn.apply(key + t * s.rope, row + at.key(h) + s.nope, false);
        std::copy_n(others + at.expanded(h) + s.nope, s.values, row + at.value(h));
      }
    });
  });
}

void run(const Call& call, const LatentSplit& o) {
  const LatentShape& s = o.shape;
  const int64_t heads_q = s.heads * s.key_dim(), heads_expanded = s.heads * (s.nope + s.values);
  const Columns at{s};
  call.compute([&]<class T>(auto& f, const T*) {
    const T* const dqkv = f.in(o.dqkv, s.tokens() * s.row());
    T *const dq = f.out(o.dq, s.tokens() * heads_q),
             *const dexpanded = f.out(o.dexpanded, s.tokens() * heads_expanded),
             *const dkey = f.out(o.dkey, s.tokens() * s.rope);
    for_each_token<T>(s, o.rotation, -1, [&](int64_t t, const Turn<T>& turn) {
      const T* const row = dqkv + t * s.row();
      T *const queries = dq + t * heads_q, *const others = dexpanded + t * heads_expanded;
      for (int64_t h = 0; h < s.heads; ++h) {
        std::copy_n(row + at.query(h), s.nope, queries + at.query(h));
        turn.apply(row + at.query(h) + s.nope, queries + at.query(h) + s.nope, false);
        std::copy_n(row + at.key(h), s.nope, others + at.expanded(h));
        turn.apply(row + at.key(h) + s.nope, dkey + t * s.rope, h > 0);
        std::copy_n(row + at.value(h), s.values, others + at.expanded(h) + s.nope);
      }
    });
  });
}

}  // namespace mpt::runtime::cpu
