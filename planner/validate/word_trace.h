// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which words of a record its readers found, and which reader found them.

#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace mpt::planner {

/// Collects the words that this thread's readers find while it lives.
class WordTrace {
 public:
  using Words = std::vector<std::pair<std::string, std::string>>;  // function and words, once each

  WordTrace() : outer_(current()) { current() = this; }
  ~WordTrace() { current() = outer_; }
  WordTrace(const WordTrace&) = delete;
  WordTrace& operator=(const WordTrace&) = delete;

  const Words& words() const { return words_; }

  static void note(const std::string& found, const std::source_location& reader) {
    if (current() != nullptr) current()->add(found, reader);
  }

 private:
  static WordTrace*& current() {
    thread_local WordTrace* trace = nullptr;
    return trace;
  }
  void add(const std::string& found, const std::source_location& reader);

  WordTrace* outer_;
  Words words_;
};

}  // namespace mpt::planner
