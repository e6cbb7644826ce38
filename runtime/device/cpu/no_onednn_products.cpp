// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cpu/products.h"

namespace mpt::runtime::cpu {

std::unique_ptr<Products> make_onednn_products(std::string& reason) {
  reason = "this build has none: CMake did not find it, or MPT_WITH_ONEDNN=OFF";
  return nullptr;
}

}  // namespace mpt::runtime::cpu
