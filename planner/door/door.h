// SPDX-License-Identifier: Apache-2.0
#pragma once

// The interface for programs in other languages: a question as JSON in, an answer as JSON out. The Python
// module and a page in a browser call the one C function; docs/python.md describes the questions. It adds no
// rules: every answer comes from the functions that mpt-plan calls. Files are read only if a question names
// them, and written only for "export" with a folder.

#include <string>

#include "planner/api.h"

extern "C" {

/// `progress` is JSON: {"what", "layouts", "seconds", "best_s", "bound_s"}; null if nothing is known yet.
typedef void (*mpt_progress)(void* context, const char* progress);
/// A value other than 0 ends a search with the best layout so far.
typedef int (*mpt_stop)(void* context);

/// Answers a question. Both callbacks may be null. During a search they are called one after the other, from
/// any of its threads, a few times a second. It never fails: an error is an answer, {"error": {...}}. Free
/// the answer with mpt_free().
__attribute__((visibility("default"))) char* mpt_answer(const char* question, mpt_progress progress,
                                                        mpt_stop stop, void* context);
__attribute__((visibility("default"))) void mpt_free(char* answer);
}

namespace mpt::planner {

/// The answer of mpt_answer().
std::string answer_json(const std::string& question, const Watch& watch = {});

}  // namespace mpt::planner
