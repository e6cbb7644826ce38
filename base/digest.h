// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

/// 64-bit FNV-1a: the same on every platform. It has to notice a difference, not to resist an adversary.
class Digest {
 public:
  void add(int64_t value);
  void add(std::string_view text);
  /// 16 hex digits.
  std::string text() const;

 private:
  void add_byte(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

std::string text_digest(std::string_view text);

}  // namespace mpt
