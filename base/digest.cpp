// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <fmt/format.h>

namespace mpt {

void Digest::add(int64_t value) {
  for (int shift = 0; shift < 64; shift += 8) add_byte(uint8_t(uint64_t(value) >> shift));
}

void Digest::add(std::string_view text) {
  for (const char c : text) add_byte(uint8_t(c));
}

std::string Digest::text() const { return fmt::format("{:016x}", state_); }

std::string text_digest(std::string_view text) {
  Digest digest;
  digest.add(text);
  return digest.text();
}

}  // namespace mpt
