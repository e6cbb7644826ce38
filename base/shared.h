// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared<T>: a value that copies share until one of them changes it (copy on write). A Layout holds its training
// and its framework's execution this way: all layouts of a search have the same ones.

#include <memory>
#include <utility>

namespace mpt {

template <class T>
class Shared {
 public:
  Shared() : value_(usual()) {}
  Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  operator const T&() const { return *value_; }
  /// For writing: copies first if others share the value.
  T& edit() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }
  /// For the field lists of base/fields.h: JSON readers write through it.
  const T& as_field() const { return *value_; }
  T& as_field() { return edit(); }
  bool operator==(const Shared& other) const { return value_ == other.value_ || *value_ == *other.value_; }

 private:
  static const std::shared_ptr<T>& usual() {
    static const auto value = std::make_shared<T>();
    return value;
  }
  std::shared_ptr<T> value_;
};

}  // namespace mpt
