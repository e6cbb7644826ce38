// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/cupti_error.h"

namespace mpt::runtime {
namespace {

std::string words_of(CUptiResult result) {
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  return text == nullptr ? "an unknown error" : text;
}

}  // namespace

CuptiError::CuptiError(CUptiResult result, std::string_view call)
    : RunError(fmt::format("{}: {}", call, words_of(result))), result_(result) {}

void check_cupti(CUptiResult result, std::string_view call) {
  if (result != CUPTI_SUCCESS) throw CuptiError(result, call);
}

}  // namespace mpt::runtime
