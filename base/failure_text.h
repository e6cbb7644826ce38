// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <string>

namespace mpt {

/// What an exception of a run says. The standard library's "std::bad_alloc" is no sentence.
inline std::string failure_text(const std::exception& error) {
  const bool out_of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return out_of_memory ? "out of memory: this machine has too little for the run" : error.what();
}

}  // namespace mpt
