// SPDX-License-Identifier: Apache-2.0
#pragma once

// PerThread: one T for each thread that asks. Only that thread uses it until the owner ends.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mpt::runtime::cuda {

template <class T>
class PerThread {
 public:
  explicit PerThread(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)), id_(next_id()++) {}

  /// The calling thread's.
  T& mine() {
    // Ids are never reused, so entries of destroyed owners are never found.
    thread_local std::unordered_map<uint64_t, T*> known;
    T*& own = known[id_];
    if (own == nullptr) {
      auto made = make_();
      own = made.get();
      const std::lock_guard lock(mutex_);
      all_.push_back(std::move(made));
    }
    return *own;
  }

  std::vector<T*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<T*> pointers;
    for (const auto& one : all_) pointers.push_back(one.get());
    return pointers;
  }

 private:
  static std::atomic<uint64_t>& next_id() {
    static std::atomic<uint64_t> next{1};
    return next;
  }

  const std::function<std::unique_ptr<T>()> make_;
  const uint64_t id_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<T>> all_;
};

}  // namespace mpt::runtime::cuda
