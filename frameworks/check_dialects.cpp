// SPDX-License-Identifier: Apache-2.0

// The build runs this: a dialect with a misspelt key, value or word fails the build.

#include <cstdio>
#include <exception>

#include "frameworks/dialects.h"

int main() {
  try {
    mpt::frameworks::check_dialects();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
