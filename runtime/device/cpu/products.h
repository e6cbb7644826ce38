// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of matrices in bf16 by a library. Where there is none, or it does not do one, linear.cpp computes
// with floats and rounds the result.

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device/cpu/widened.h"

namespace mpt::runtime::cpu {

/// c [rows, columns] = a [rows, inner] b [inner, columns] + bias [columns], rounded once. All is row-major.
struct ProductShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;  // stored as [inner, rows]; as [columns, inner]
  bool adds = false;                                // c is float32, and the product is added to it
  bool has_bias = false;
  auto operator<=>(const ProductShape&) const = default;
};
struct ProductOperands {
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void* c = nullptr;
};

class Products {
 public:
  virtual ~Products() = default;
  /// Computes it, with scratch from `memory`, or returns false: then nothing was done. Which of the two
  /// depends on the shape alone. Equal operands give equal bits.
  virtual bool multiply(const ProductShape& shape, const ProductOperands& operands, WideningMemory& room) = 0;
};

/// oneDNN's, or null. `reason` says then why: this build has none, or the processor has no bf16.
std::unique_ptr<Products> make_onednn_products(std::string& reason);

/// As MPT_PRODUCTS says; null: only linear.cpp's. UserError if it names something else or what is not here.
std::unique_ptr<Products> make_products();

}  // namespace mpt::runtime::cpu
