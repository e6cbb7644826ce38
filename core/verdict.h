// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace mpt {

/// Whether a framework runs a model, and whether MPT writes the model for it.
enum class VerdictKind : uint8_t {
  exported,     // it runs, and MPT writes it
  not_written,  // it runs, and MPT does not write it yet
  not_run,      // it does not run
  not_judged,   // MPT does not know
};

struct ModelVerdict {
  VerdictKind verdict = VerdictKind::exported;
  std::string reason;  // for people, without a full stop; empty where MPT writes it
  std::string source;  // where the framework says so, with its version

  bool operator==(const ModelVerdict&) const = default;

  static void describe(auto& v) {
    using T = ModelVerdict;
    v.field("verdict", &T::verdict, "whether it runs, and whether MPT writes it");
    v.field("reason", &T::reason, "why MPT does not write it, or why it does not run", long_text());
    v.field("source", &T::source, "where the framework says so, with its version", long_text());
  }
};

/// Whether a layout is known to give the same training as one GPU that takes one sequence at a time.
struct Objective {
  bool same = true;
  std::string why;   // if not: the reason, as the end of a sentence about the framework
  std::string seen;  // the run or the line that shows it; empty if none is known

  bool operator==(const Objective&) const = default;

  static void describe(auto& v) {
    using T = Objective;
    v.field("same", &T::same,
            "whether loss and gradients are known to be those of one GPU that takes one sequence at a time");
    v.field("why", &T::why, "why they are not", rare_field());
    v.field("seen", &T::seen, "the run or the line that shows that; empty: not known", rare_field());
  }
};

}  // namespace mpt
