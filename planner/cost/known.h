// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace mpt::planner {

/// Known prices. The splits of a search share most of their products, attention cores and collectives.
/// Threads of a search share this cache. A key visits its numbers, from which the hash is computed.
template <class Key, class Value>
class Known {
 public:
  template <class F>
  Value get(const Key& key, F&& price) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    const Value value = price();
    const std::lock_guard lock(mutex_);
    known_.emplace(key, value);
    return value;
  }

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      key.visit_numbers([&](int64_t number) {
        hash = (hash ^ (hash >> 29) ^ uint64_t(number)) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
      });
      return hash ^ (hash >> 32);
    }
  };
  mutable std::mutex mutex_;
  mutable std::unordered_map<Key, Value, Hash> known_;
};

}  // namespace mpt::planner
