// SPDX-License-Identifier: Apache-2.0
#pragma once

// Threads for libraries that also run on platforms without threads, such as a browser. Such a build defines
// MPT_WITHOUT_THREADS.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <vector>
#ifndef MPT_WITHOUT_THREADS
#include <thread>
#endif

namespace mpt {

#ifdef MPT_WITHOUT_THREADS
inline constexpr bool kHasThreads = false;
#else
inline constexpr bool kHasThreads = true;
#endif

/// Calls body(0) to body(count - 1), each in a separate thread, the first in the calling one. Without threads
/// one runs after the other. When all have ended, throws the exception of the lowest index.
template <class F>
void in_threads(size_t count, F&& body) {
  std::vector<std::exception_ptr> thrown(count);
  const auto guarded = [&](size_t thread) {
    try {
      body(thread);
    } catch (...) {
      thrown[thread] = std::current_exception();
    }
  };
#ifdef MPT_WITHOUT_THREADS
  for (size_t thread = 0; thread < count; ++thread) guarded(thread);
#else
  std::vector<std::thread> threads;
  for (size_t thread = 1; thread < count; ++thread) threads.emplace_back(guarded, thread);
  if (count > 0) guarded(0);
  for (std::thread& thread : threads) thread.join();
#endif
  for (const std::exception_ptr& error : thrown)
    if (error) std::rethrow_exception(error);
}

/// Calls body(0, t) to body(count - 1, t) on `threads` threads, t being the thread's number. A free thread
/// takes the next index. Nothing begins after an exception; the one of the lowest index is thrown.
template <class F>
void on_threads(size_t count, size_t threads, F&& body) {
  std::atomic<size_t> next{0}, end{count};
  std::mutex mutex;
  std::exception_ptr error;
  in_threads(std::min(count, std::max<size_t>(1, threads)), [&](size_t thread) {
    for (size_t i = next++; i < end; i = next++) {
      try {
        body(i, thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < end) error = std::current_exception();
        end = std::min<size_t>(i, end);
      }
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace mpt
