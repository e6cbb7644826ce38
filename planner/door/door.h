// SPDX-License-Identifier: Apache-2.0
#pragma once

// The door for programs in other languages: a question as JSON in, an answer as JSON out. The Python module
// and a page in a browser call the one C function; docs/python.md describes the questions. No rule is here:
// every answer is that of the functions that mpt-plan calls. Files are read only where a question names
// them, and written only for "export" with a folder.

#include <string>

#include "planner/api.h"

extern "C" {

/// `progress` is JSON: {"what", "layouts", "seconds", "best_s", "bound_s"}; null where nothing is known yet.
typedef void (*mpt_progress)(void* context, const char* progress);
/// Other than 0 ends a search with the best layout so far.
typedef int (*mpt_stop)(void* context);

/// Answers a question. Both callbacks may be null; during a search they are called one after the other, from
/// any of its threads, a few times a second. Never fails: an error is an answer, {"error": {...}}. The answer
/// is for mpt_free().
__attribute__((visibility("default"))) char* mpt_answer(const char* question, mpt_progress progress,
                                                        mpt_stop stop, void* context);
__attribute__((visibility("default"))) void mpt_free(char* answer);
}

namespace mpt::planner {

/// What mpt_answer() returns.
std::string answer_json(const std::string& question, const Watch& watch = {});

}  // namespace mpt::planner
