// SPDX-License-Identifier: Apache-2.0

// The planner's door (planner/door/door.h) for JavaScript: page/worker.js calls it.

#include <emscripten.h>

#include "planner/door/door.h"

EM_JS(void, mpt_tell, (const char* progress), { Module["tell"](UTF8ToString(progress)); });

extern "C" EMSCRIPTEN_KEEPALIVE char* mpt_ask(const char* question) {
  return mpt_answer(
      question, [](void*, const char* progress) { mpt_tell(progress); }, nullptr, nullptr);
}
