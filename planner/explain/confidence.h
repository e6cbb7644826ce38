// SPDX-License-Identifier: Apache-2.0
#pragma once

// How sure a prediction is, by what published runs took and used beside theirs. One spread of ratios gives
// the interval of a step time; another one the probability that a layout fits, and the margin that makes it
// 90 %.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/confidence.h"
#include "core/plan_words.h"
#include "planner/explain/evidence.h"

namespace mpt {
struct Plan;
}

namespace mpt::planner {

/// Measured over predicted values of runs, each with a weight.
///
/// Runs of one source are off together, so a source of n runs weighs as the root of n, and of 16 at most.
/// Runs with products in 16 bits and in fewer tell less of each other: kOtherPrecision. Sources of the
/// framework and kind of model, with or without experts, count in full. All sources together weigh as much as
/// kPooled single runs beside them, which is all there is where a framework has no runs.
class Spread {
 public:
  static constexpr double kPooled = 4.0, kOtherPrecision = 0.3;

  /// `values`: of one source.
  void add(const std::vector<double>& values, double weight);
  /// With weights times `factor`.
  void append(const Spread& other, double factor);
  /// With a normal error of this deviation beside each value's logarithm.
  Spread widened(double deviation) const;

  bool empty() const { return values_.empty(); }
  double weight() const;
  /// The least value that `share` of the weight does not exceed. Of a spread that is not empty.
  double quantile(double share) const;
  /// The share of the weight that does not exceed `value`.
  double share_within(double value) const;

 private:
  struct Weighed {
    double value = 0.0, weight = 0.0;
  };
  std::vector<Weighed> values_;
};

/// Whose runs tell: those of this kind, beside the pool of all.
struct RunsLike {
  RunKind kind;
  std::string left_out;  // a source that does not count, for tests of what the others tell
};
/// What of a kind no run of its software has. Where no run is of its software, that is new, and all software
/// counts for the rest. Attention to all tokens with dense MLPs, 16 bits and full training are never new: all
/// else is priced beside them. The spreads below are wider by what new_kind_deviations() says of each part.
struct NewPart {
  size_t part = 0;  // place in new_kind_deviations()
  std::string value;
};
std::vector<NewPart> new_parts(const RunsLike& like, const std::vector<Evidence>& all);

Spread step_spread(const RunsLike& like, const std::vector<Evidence>& all);
/// A run that failed though it was predicted to fit used at least what there was. Runs of such a source that
/// did not fail count as predicted. One that failed as predicted does not count.
Spread memory_spread(const RunsLike& like, const std::vector<Evidence>& all);

/// Eight in ten steps take `low` to `high` times the predicted time, one less and one more. So many
/// runs of a source that is left out lie between them, as a user asks for them (reports/results/accuracy.md).
struct StepRange {
  double low = 1.0, high = 1.0;
};
StepRange step_range(const Spread& spread);

/// Whether published runs tell how far off step times are: not those of a user's own profile, of a GPU
/// without measured kernels, and of mpt-run.
bool errors_are_known(const std::string& prices, const std::string& framework);

/// A prediction to be judged.
struct Predicted {
  RunsLike like;
  std::string prices;  // CostOrigin::source
  double step_time_s = 0.0;
  double memory_share = 0.0;  // of the fullest rank's room; 0: not known
  bool on_cpus = false;
};
Confidence confidence(const Predicted& predicted, const std::vector<Evidence>& all);
Predicted predicted_by(const Plan& plan);

/// What a GPU's memory is divided by so that a plan is at least 90 % likely to fit.
struct MemoryMargin {
  static constexpr double kLikely = 0.9;
  double factor = 1.0;

  /// Of a GPU that may use `usable_bytes`, in whole tenths of a GiB.
  int64_t safe_bytes(int64_t usable_bytes) const;
};
/// Whether it is less likely to fit than that; what no run tells is not.
bool may_not_fit(const Confidence& confidence);
/// No margin for mpt-run, whose memory is counted exactly.
MemoryMargin memory_margin(const RunsLike& like, const std::vector<Evidence>& all);

/// A plan that is less than 90 % likely to fit.
struct MemoryRisk {
  std::string why;             // one plain sentence without its full stop
  int64_t safe_bytes = 0;      // of a GPU, in whole tenths of a GiB: plans within it have room
  std::string option() const;  // "--memory=72.6GiB": one word, which no line breaks
};
/// Mixed clusters have room of their own: nothing.
std::optional<MemoryRisk> memory_risk(const Plan& plan, const std::vector<Evidence>& all);

/// "No published run is of this kind (LoRA with automodel): the range is wide."; empty where one is.
std::string describe_new_kind(const Plan& plan);
/// "28.6 s, 26.9 to 31.4 s in 8 of 10 cases; fits: 97%", as far as runs tell.
std::string describe_step(double step_time_s, const Confidence& confidence);

/// Plan::evidence: which runs stand behind its confidence, and what they took and used.
std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all);

}  // namespace mpt::planner
