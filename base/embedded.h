// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files that are built into programs (cmake/embed.cmake). Most commands need few of them, and reading all
// takes longer than their work.

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mpt {

using EmbeddedFiles = std::vector<std::pair<std::string_view, std::string_view>>;  // name and content

/// The content of the file of that name; nothing if there is none.
inline std::optional<std::string> embedded_text(const EmbeddedFiles& files, std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& f) { return f.first == name; });
  return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
}

/// Values by name, each read at its first use and then kept. Several threads may ask at once.
template <class T>
class ReadOnce {
 public:
  /// `read(name)` gives the value, or nothing if there is none of that name. find() then returns null.
  template <class Read>
  const T* find(const std::string& name, const Read& read) {
    const std::lock_guard lock(mutex_);
    if (const auto known = values_.find(name); known != values_.end()) return &known->second;
    std::optional<T> value = read(name);
    return value ? &values_.emplace(name, std::move(*value)).first->second : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, T> values_;
};

}  // namespace mpt
