// SPDX-License-Identifier: Apache-2.0
#pragma once

// What observed runs make of predictions (planner/observe/).

#include <string>
#include <vector>

#include "base/fields.h"
#include "core/confidence.h"
#include "core/layout.h"

namespace mpt {

struct CorrectedLayout {
  Layout layout;
  double predicted_s = 0.0, step_time_s = 0.0;  // without and with what was observed
  Confidence confidence;
  int64_t peak_bytes = 0;                   // expected, of the fullest rank; 0: no run told its memory
  bool ran = false, out_of_memory = false;  // it was one of the runs

  bool operator==(const CorrectedLayout&) const = default;

  static void describe(auto& v) {
    using T = CorrectedLayout;
    v.field("layout", &T::layout, "the layout");
    v.field("predicted_s", &T::predicted_s, "step time without the runs", between(0, 1e9));
    v.field("step_time_s", &T::step_time_s, "expected step time with them", between(0, 1e9));
    v.field("confidence", &T::confidence, "how sure that is", optional_field());
    v.field("peak_bytes", &T::peak_bytes, "expected peak of the fullest rank; 0: no run told its memory",
            optional_field(between(0, 9e15)));
    v.field("ran", &T::ran, "whether one of the runs was its", optional_field());
    v.field("out_of_memory", &T::out_of_memory, "whether that ran out of memory", optional_field());
  }
};

struct Corrected {
  int64_t runs = 0;
  std::vector<std::string> learned;      // sentences
  std::vector<CorrectedLayout> layouts;  // the recommended one first, then by expected step time
  double loss = 0.0;                     // share by which it takes longer than the fastest, on average
  int64_t measure_next = 0;              // place among the layouts, from 1; 0: no run is worth its time
  double loss_after = 0.0;               // once that one was measured

  bool operator==(const Corrected&) const = default;

  static void describe(auto& v) {
    using T = Corrected;
    v.field("runs", &T::runs, "observed runs that count", between(0, 1e6));
    v.field("learned", &T::learned, "what they show", long_text());
    v.field("layouts", &T::layouts, "recommended first, then by expected step time");
    v.field("loss", &T::loss, "share by which the recommended one takes longer than the fastest, on average",
            between(0, 1e6));
    v.field("measure_next", &T::measure_next,
            "place among the layouts, from 1, of the one to measure next; 0: none is worth it",
            optional_field(between(0, 1e6)));
    v.field("loss_after", &T::loss_after, "the loss once that one was measured",
            optional_field(between(0, 1e6)));
  }
};

}  // namespace mpt
