// SPDX-License-Identifier: Apache-2.0

// Run by the build: a dialect with a misspelt key, value or word fails it.

#include <cstdio>
#include <exception>

#include "frameworks/megatron-core/dialect.h"
#include "models/family.h"

int main() {
  try {
    mpt::models::family_types();
    for (const char* framework : {"megatron-core", "megatron-bridge"})
      mpt::frameworks::megatron_dialect(framework);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
