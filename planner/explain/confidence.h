// SPDX-License-Identifier: Apache-2.0
#pragma once

// How sure a prediction is, by published runs and their predictions. One spread of ratios
// gives the interval of a step time. Another gives the probability that a layout fits,
// and the margin with which that is 90 %.

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
/// Errors of one source are correlated, so a source of n runs has a weight of the root of n, with n at most
/// 16. Runs with products in 16 bits and in fewer bits count less for each other: kOtherPrecision. Sources of
/// the same framework and kind of model, with or without experts, count in full. All sources together have
/// the weight of kPooled single runs in addition. For a framework without runs that is all.
class Spread {
 public:
  static constexpr double kPooled = 4.0, kOtherPrecision = 0.3;

  /// `values`: of one source.
  void add(const std::vector<double>& values, double weight);
  /// Adds another spread, with weights times `factor`.
  void append(const Spread& other, double factor);
  /// The spread with an additional normal error of this deviation in each value's logarithm.
  Spread widened(double deviation) const;

  bool empty() const { return values_.empty(); }
  double weight() const;
  /// The least value that `share` of the weight does not exceed. The spread must not be empty.
  double quantile(double share) const;
  /// The share of the weight that does not exceed `value`.
  double share_within(double value) const;

 private:
  struct Weighed {
    double value = 0.0, weight = 0.0;
  };
  std::vector<Weighed> values_;
};

/// The runs that count: those of this kind, and the pool of all.
struct RunsLike {
  RunKind kind;
  std::string left_out;  // a source that does not count, to test the others' evidence
};
/// A part of a kind that no run of its software has. If no run is of the software, that is the new part, and
/// all software counts for the rest. Attention to all tokens with dense MLPs, 16 bits and full training are
/// never new: other prices are relative to them. new_kind_deviations() widens the spreads below.
struct NewPart {
  size_t part = 0;  // index in new_kind_deviations()
  std::string value;
};
std::vector<NewPart> new_parts(const RunsLike& like, const std::vector<Evidence>& all);

Spread step_spread(const RunsLike& like, const std::vector<Evidence>& all);
/// A run that failed although it was predicted to fit used at least the available memory. Runs of such a
/// source that did not fail count as predicted. A run that failed as predicted does not count.
Spread memory_spread(const RunsLike& like, const std::vector<Evidence>& all);

/// Eight in ten steps take `low` to `high` times the predicted time, one takes less and one more. This share
/// also holds for runs of a left-out source, requested as by a user (reports/results/accuracy.md).
struct StepRange {
  double low = 1.0, high = 1.0;
};
StepRange step_range(const Spread& spread);

/// Whether published runs show the errors of step times. They do not for a user's profile, for a GPU without
/// measured kernels, and for mpt-run.
bool errors_are_known(const std::string& prices, const std::string& framework);

/// A prediction to be judged.
struct Predicted {
  RunsLike like;
  std::string prices;  // CostOrigin::source
  double step_time_s = 0.0;
  double memory_share = 0.0;  // of the fullest rank's limit; 0: not known
  bool on_cpus = false;
};
Confidence confidence(const Predicted& predicted, const std::vector<Evidence>& all);
Predicted predicted_by(const Plan& plan);

/// The divisor of a GPU's memory with which a plan is at least 90 % likely to fit.
struct MemoryMargin {
  static constexpr double kLikely = 0.9;
  double factor = 1.0;

  /// Safe bytes of a GPU that may use `usable_bytes`, in whole tenths of a GiB.
  int64_t safe_bytes(int64_t usable_bytes) const;
};
/// Whether it is less likely to fit than that; false if no run shows the likelihood.
bool may_not_fit(const Confidence& confidence);
/// No margin for mpt-run: its memory is counted exactly.
MemoryMargin memory_margin(const RunsLike& like, const std::vector<Evidence>& all);

/// A plan that is less than 90 % likely to fit.
struct MemoryRisk {
  std::string why;             // one plain sentence without its full stop
  int64_t safe_bytes = 0;      // of a GPU, in whole tenths of a GiB: plans within it fit
  std::string option() const;  // "--memory=72.6GiB": one word, which no line breaks
};
/// Nothing for mixed clusters, which have separate limits for each kind of GPU.
std::optional<MemoryRisk> memory_risk(const Plan& plan, const std::vector<Evidence>& all);

/// "No published run is of this kind (LoRA with automodel): the range is wide."; empty if a run is.
std::string describe_new_kind(const Plan& plan);
/// "28.6 s, 26.9 to 31.4 s in 8 of 10 cases; fits: 97%", with the parts that runs support.
std::string describe_step(double step_time_s, const Confidence& confidence);

/// Plan::evidence: the runs that its confidence is based on, with their measured times and memory.
std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all);

}  // namespace mpt::planner
